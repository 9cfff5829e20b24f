"""Conversations about establishment, refusals, liveness and closing (sections 3.1 and 3.2)."""

from __future__ import annotations

import pytest

from afflux.core import events as ev
from afflux.core.errors import ConnectionClosed, LimitExceeded, LocalProtocolError, RemoteProtocolError, SetupRefused
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.protocols.family.sessions import Sessions
from afflux.protocols.rsocket import Engine, frames
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket.lease import FixedLease
from afflux.protocols.rsocket_draft import frames as draft

from .playbook import (
    Mode,
    Playbook,
    closed,
    error,
    failed,
    ignored,
    position,
    requester,
    responder,
    resumable_server,
    setup,
)

PING = frames.Keepalive(stream=0, respond=True, position=0, data=b"hi")
PONG = frames.Keepalive(stream=0, respond=False, position=0, data=b"hi")


def server(mode: Mode = "whole", **options: object) -> Playbook:
    return Playbook(Engine("server", **options), mode)  # type: ignore[arg-type]  # keyword options of the engine


def test_client_speaks_first() -> None:
    play = Playbook(Engine("client"))
    play << (
        frames.Setup,
        {
            "stream": 0,
            "major": 1,
            "minor": 0,
            "keepalive_ms": 20_000,
            "lifetime_ms": 90_000,
            "token": None,
            "lease": False,
            "metadata_mime": "message/x.rsocket.composite-metadata.v0",
            "data_mime": "application/octet-stream",
        },
    )
    play.quiet()


def test_setup_is_accepted(mode: Mode) -> None:
    wanted = setup(data=b"hello", metadata=b"m")
    play = server(mode) >> wanted << ev.Established(wanted)
    play >> PING << PONG
    play.quiet()
    assert play.engine.setup == wanted


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"major": 0, "minor": 0}, 0x001),
        ({"major": 1, "minor": 1}, 0x001),
        ({"major": 2}, 0x001),
        ({"major": 65535, "minor": 65535}, 0x001),
        ({"token": b"t"}, 0x003),
        ({"token": b"t" * 1024}, 0x003),
        ({"token": b"t" * 1025}, 0x003),
        ({"lease": True}, 0x002),
    ],
)
def test_setup_is_refused(mode: Mode, changes: dict[str, object], code: int) -> None:
    play = server(mode) >> setup(**changes) << closed(RemoteProtocolError, code=code)
    play << error(0, code)
    play.quiet()
    assert play.engine.closed


@pytest.mark.parametrize("offset", [13, 17], ids=["keepalive", "lifetime"])
def test_zero_times_are_invalid(mode: Mode, offset: int) -> None:
    data = bytearray(setup().encode(prefixed=True))
    data[offset : offset + 4] = bytes(4)
    server(mode) >> bytes(data) << closed(RemoteProtocolError, rule="R-17") << error(0, 0x001)


def test_empty_token_is_rejected(mode: Mode) -> None:
    data = bytearray(setup(token=b"t").encode())
    data[18:21] = b"\0\0"
    (
        server(mode)
        >> len(data).to_bytes(3, "big") + bytes(data)
        << closed(RemoteProtocolError, rule="R-53")
        << error(0, 0x003)
    )


@pytest.mark.repetitive
@pytest.mark.parametrize(
    ("size", "taken"), [(1, True), (15, True), (16, True), (1024, True), (1025, False), (65_535, False)]
)
def test_tokens_where_sessions_are_kept(mode: Mode, size: int, taken: bool) -> None:
    """R-53: any bytes will do, 1 to 1,024 of them; a stranger's own choice is its own risk."""
    sessions = Sessions(Limits.server())
    limits = Limits.server().replace(first_frame_bytes=100_000)
    play = server(mode, limits=limits, sessions=sessions) >> setup(token=bytes(size))
    if taken:
        play << ev.Established
    else:
        play << closed(RemoteProtocolError, rule="R-53") << error(0, 0x003, b"bad-token")
    play.quiet()
    assert len(sessions) == taken
    assert (sessions.find(bytes(size)) is play.engine) == taken


@pytest.mark.parametrize(
    ("changes", "rule", "code"),
    [
        ({"token": b"t" * 2000, "major": 2}, "R-16", 0x001),
        ({"token": b"t" * 2000, "lease": True}, "R-53", 0x003),
        ({"token": b"t", "lease": True}, "HS-08", 0x002),
        ({"token": b"t", "metadata": bytes(70_000)}, "connection_metadata_bytes", 0x003),
    ],
)
def test_a_session_that_is_refused_takes_no_place(changes: dict[str, object], rule: str, code: int) -> None:
    sessions = Sessions(Limits.server())
    limits = Limits.server().replace(first_frame_bytes=100_000)
    play = server(limits=limits, sessions=sessions) >> setup(**changes)
    play << closed(RemoteProtocolError, rule=rule, code=code) << error(0, code)
    assert len(sessions) == 0


def test_leases_and_sessions_together(mode: Mode) -> None:
    sessions = Sessions(Limits.server())
    play = server(mode, sessions=sessions, lease=FixedLease(1)) >> setup(token=b"t" * 16, lease=True) << ev.Established
    play << frames.Lease(stream=0, ttl_ms=1000, requests=1)
    play.quiet()
    assert play.engine.leases is not None
    assert play.engine.resumption.resumable
    plain = server(mode, sessions=sessions, lease=FixedLease(1)) >> setup() << ev.Established
    assert plain.engine.leases is None
    assert not plain.engine.resumption.resumable
    assert len(sessions) == 1


@pytest.mark.parametrize("size", [0, 1, 15])
def test_a_client_does_not_take_a_token_that_could_be_guessed(size: int) -> None:
    """RE-13: 16 random bytes at least."""
    token = setup(token=b"t")
    token.token = bytes(size)
    with pytest.raises(LocalProtocolError, match=f"a resume token has 16 random bytes or more, not {size}") as refused:
        Engine("client", setup=token)
    assert refused.value.rule == "R-53"
    token.token = bytes(16)
    Engine("client", setup=token)


def test_a_drain_before_the_answer_of_what_can_be_resumed() -> None:
    """What is live waits for the session to come back; the farewell is said again, and nobody is told of a start."""
    asked = setup(token=b"t" * 16)
    play = Playbook(Engine("client", setup=asked)) << asked
    play.do(lambda engine: engine.open("request", b"")) << frames.RequestResponse
    play.do(lambda engine: engine.close(0.0, drain=True)) << error(0, 0x102)
    play.cut()
    play.do(lambda engine: engine.resumption.reconnect(0.0)) << frames.Resume
    play >> frames.ResumeOk(stream=0, last_received_client_position=6) << ev.Resumed << error(0, 0x102)
    play >> frames.PayloadFrame(stream=1, next=True, complete=True, data=b"") << ev.Items << ev.Closed(None)
    play.quiet()


def test_version_text_names_ours() -> None:
    play = server() >> setup(major=2) << ev.Closed
    (refusal,) = play.sent
    assert isinstance(refusal, frames.ErrorFrame)
    assert refusal.data == b"version 2.0 is not supported; supported: 1.0"


@pytest.mark.parametrize("setup", [draft.Setup(), draft.Setup(ack=True), draft.Setup(data_mime="application/x-own")])
def test_a_SETUP_of_the_draft_is_refused_with_the_address_it_needs(setup: draft.Setup) -> None:
    """draft D-2: MIME types stand where the version is, and the rest may not be readable."""
    (refusal,) = (server() >> setup << ev.Closed).sent
    assert isinstance(refusal, frames.ErrorFrame)
    assert refusal.code == Code.INVALID_SETUP
    assert refusal.data.startswith(b"the server speaks rsocket, not rsocket-draft: ")


def test_R_16_of_a_SETUP_that_cannot_be_read_the_version_counts_first() -> None:
    play = server() >> bytes.fromhex("00000a 00000000 0400 0003 0001") << ev.Closed
    (refusal,) = play.sent
    assert refusal.data == b"version 3.1 is not supported; supported: 1.0"


def test_a_SETUP_that_ends_before_its_version() -> None:
    (refusal,) = (server() >> bytes.fromhex("000008 00000000 0400 0003") << ev.Closed).sent
    assert b"version" not in refusal.data


@pytest.mark.parametrize(
    "first",
    [
        PING,
        frames.RequestResponse(stream=1, data=b""),
        frames.Cancel(stream=1),
        frames.Lease(stream=0, ttl_ms=1, requests=1),
        frames.MetadataPush(stream=0, metadata=b"m"),
        frames.ErrorFrame(stream=0, code=0x101, data=b""),
        frames.ErrorFrame(stream=0, code=0x102, data=b""),
        frames.ErrorFrame(stream=0, code=0x001, data=b""),
        frames.ErrorFrame(stream=1, code=0x201, data=b""),
        frames.ResumeOk(stream=0, last_received_client_position=0),
        frames.Ext(stream=0, ignore=True, extended_type=1, body=b""),
        bytes.fromhex("000006 00000000 ae00"),
        bytes.fromhex("000006 00000000 0400"),
        bytes.fromhex("000005 0000000004"),
        bytes.fromhex("000000"),
    ],
    ids=repr,
)
def test_first_frame_is_setup(mode: Mode, first: frames.Frame | bytes) -> None:
    play = server(mode) >> first << closed(RemoteProtocolError, code=0x001) << error(0, 0x001)
    play.quiet()


def test_setup_on_a_stream_is_invalid() -> None:
    data = bytearray(setup().encode(prefixed=True))
    data[6] = 1
    server() >> bytes(data) << closed(RemoteProtocolError, rule="HS-03") << error(0, 0x001)


def test_resume_is_rejected(mode: Mode) -> None:
    resume = frames.Resume(
        stream=0, token=b"t" * 16, last_received_server_position=0, first_available_client_position=0
    )
    server(mode) >> resume << closed(RemoteProtocolError, code=0x004) << error(0, 0x004)
    server(mode) >> b"\0\0\x0c" + resume.encode()[:12] << closed(RemoteProtocolError, code=0x004) << error(0, 0x004)


def test_first_frame_too_large(mode: Mode) -> None:
    """HS-12: judged from the length and the header; nothing more is read."""
    limit = Limits.server().first_frame_bytes
    for type, code in ((0x01, 0x003), (0x0D, 0x004), (0x04, 0x001)):
        head = (limit + 1).to_bytes(3, "big") + bytes(4) + (type << 10).to_bytes(2, "big")
        server(mode) >> head << closed(RemoteProtocolError, rule="first_frame_bytes") << error(0, code)
    # On a stream it is no SETUP and no RESUME, so it is refused before its type has arrived.
    for head in (b"Jmux", (limit + 1).to_bytes(3, "big") + b"\0\0\0\x01"):
        server(mode) >> head << closed(RemoteProtocolError, rule="first_frame_bytes") << error(0, 0x001)
    exact = setup(data=bytes(limit - len(setup().encode())))
    assert len(exact.encode()) == limit
    server(mode if mode == "whole" else "whole") >> exact << ev.Established(exact)


def test_setup_metadata_too_large() -> None:
    limits = Limits.server().replace(connection_metadata_bytes=10)
    server(limits=limits) >> setup(metadata=b"m" * 10) << ev.Established
    server(limits=limits) >> setup(metadata=b"m" * 11) << ev.Closed << error(0, 0x003, b"metadata-too-large")


def test_nothing_runs_before_the_decision(mode: Mode) -> None:
    request = frames.RequestResponse(stream=1, data=b"x")
    play = server(mode, decide=True) >> (setup(), request) << ev.Established
    play.quiet()
    play.do(lambda engine: engine.accept(0.0))
    play << (ev.Opened, {"stream": 1})
    play.quiet()


def test_the_application_refuses(mode: Mode) -> None:
    request = frames.RequestResponse(stream=1, data=b"x")
    play = server(mode, decide=True) >> (setup(), request) << ev.Established
    play.do(lambda engine: engine.refuse("not today", 0.0))
    play << closed(ConnectionClosed, code=0x003) << error(0, 0x003, b"not today")
    play.quiet()


def test_an_undecided_server_stops_reading() -> None:
    play = server(decide=True) >> setup() << ev.Established
    assert play.engine.wants_read
    play >> bytes(Limits.server().first_frame_bytes)
    assert not play.engine.wants_read
    play.at(10.0)
    play << closed(RemoteProtocolError, rule="handshake_s") << error(0, 0x003, b"handshake-timeout")


def test_a_silent_stranger_is_closed_without_a_word() -> None:
    play = server()
    assert play.engine.deadline == 10.0
    play.at(9.9).quiet()
    play.at(10.0) << closed(ConnectionClosed)
    play.quiet()


def test_second_setup_is_ignored() -> None:
    responder() >> setup() << ignored(10, "R-32")


def test_resume_after_setup_ends_it() -> None:
    resume = frames.Resume(stream=0, token=b"t", last_received_server_position=0, first_available_client_position=0)
    responder() >> resume << closed(RemoteProtocolError, rule="R-48") << error(0, 0x101)


@pytest.mark.parametrize(("code", "processed"), [(0x001, False), (0x003, False), (0x101, True)])
def test_only_a_refusal_of_the_setup_states_that_nothing_was_processed(code: int, processed: bool) -> None:
    """A server that closes may have begun with a request before it has sent anything."""
    play = Playbook(Engine("client")) << frames.Setup
    play.do(lambda engine: engine.open("request", b"")) << frames.RequestResponse
    play >> frames.ErrorFrame(stream=0, code=code, data=b"closed")
    play << failed(1, SetupRefused, code=code, may_have_been_processed=processed)
    play << closed(SetupRefused, code=code)


def test_client_is_refused(mode: Mode) -> None:
    play = Playbook(Engine("client"), mode) << frames.Setup
    play.do(lambda engine: engine.open("request", b"x")) << frames.RequestResponse(stream=1, data=b"x")
    play >> frames.ErrorFrame(stream=0, code=0x003, data=b"full")
    play << failed(1, SetupRefused, code=0x003) << closed(SetupRefused, code=0x003, message="full")
    play.quiet()


def test_client_ignores_setup_frames() -> None:
    play = Playbook(Engine("client")) << frames.Setup
    play >> setup() << ignored(10)
    play >> frames.ResumeOk(stream=0, last_received_client_position=0) << ignored(10)
    play.quiet()
    play = requester()
    play >> frames.ErrorFrame(stream=0, code=0x001, data=b"late") << ignored(10)


def test_a_request_is_an_acceptance() -> None:
    """HS-14: the first frame that is not a setup error accepts."""
    play = Playbook(Engine("client")) << frames.Setup
    play >> frames.RequestFnf(stream=2, data=b"x") << ev.Established << (ev.Opened, {"verb": "fire"})


def test_keepalive_is_sent_and_answered() -> None:
    play = requester()
    assert play.engine.deadline == 20.0
    play.at(19.9).quiet()
    play.at(20.0) << frames.Keepalive(stream=0, respond=True, position=0, data=b"")
    play >> frames.Keepalive(stream=0, respond=False, position=0, data=b"")
    play.at(40.0) << frames.Keepalive
    play.quiet()


def test_lifetime_is_enforced_by_the_client() -> None:
    play = requester()
    for now in (20.0, 40.0, 60.0, 80.0):
        play.at(now) << frames.Keepalive
    play.at(90.0) << closed(ConnectionClosed, rule="R-22") << error(0, 0x101, b"keepalive-timeout")


def test_a_side_that_is_late_itself_asks_once_more() -> None:
    """TM-03: a look that comes long after the peer's lifetime gives the peer flush_s, once."""
    play = responder().at(200.0).forget()
    assert not play.engine.closed
    play.at(200.0 + play.engine.limits.flush_s)
    assert play.engine.closed
    play = responder().at(200.0).forget() >> frames.Keepalive(stream=0, respond=False, position=0, data=b"")
    play.at(200.0 + 80).forget()
    assert not play.engine.closed


def test_lifetime_is_enforced_by_the_server() -> None:
    play = responder()
    play.now = 50.0
    play >> PONG  # any frame is life
    play.at(139.9).quiet()
    assert play.engine.deadline == 140.0
    play.at(140.0) << closed(ConnectionClosed, rule="R-22") << error(0, 0x101)


@pytest.mark.parametrize(
    ("keepalive", "lifetime", "enforced"), [(10, 1, 0.1), (1000, 1000, 3.0), (1000, 0x7FFFFFFF, 600.0)]
)
def test_lifetime_is_clamped(keepalive: int, lifetime: int, enforced: float) -> None:
    play = server() >> setup(keepalive_ms=keepalive, lifetime_ms=lifetime) << ev.Established
    assert play.engine.deadline == enforced


def test_keepalive_flood() -> None:
    play = responder()
    for _ in range(100):
        play >> PING << PONG
    play >> PING << closed(RemoteProtocolError, rule="keepalive_rate") << error(0, 0x101, b"keepalive-flood")


@pytest.mark.repetitive
@pytest.mark.parametrize("respond", [True, False])
@pytest.mark.parametrize("interval", [10, 50])
def test_keepalives_as_announced_are_served(interval: int, respond: bool) -> None:
    """limits.md, keepalive_rate: what SETUP announced and was accepted is served, for as long as it goes on."""
    play = server() >> setup(keepalive_ms=interval, lifetime_ms=90_000) << ev.Established
    frame = PING if respond else PONG
    for count in range(20_000):
        play.now = count * interval / 1000
        play >> frame
        assert not play.events
        assert len(play.sent) == respond
        play.sent.clear()


def test_keepalives_of_a_lifetime_may_come_together() -> None:
    """They were sent while this side, or the network, stood still."""
    play = server() >> setup(keepalive_ms=50, lifetime_ms=10_000) << ev.Established
    for _ in range(200):
        play >> PING << PONG
    play >> PING << closed(RemoteProtocolError, rule="keepalive_rate") << error(0, 0x101, b"keepalive-flood")


def test_twice_as_many_keepalives_as_announced() -> None:
    play = server() >> setup(keepalive_ms=50, lifetime_ms=1_000) << ev.Established
    for _ in range(100):
        play >> PING << PONG
    play.now = 1.0
    for _ in range(40):
        play >> PING << PONG
    play >> PING << closed(RemoteProtocolError, rule="keepalive_rate") << error(0, 0x101, b"keepalive-flood")


@pytest.mark.parametrize("interval", [1, 9])
def test_keepalives_that_would_come_too_often_are_refused_with_the_setup(interval: int) -> None:
    """Never accepted and cut later; and no client of ours asks for them."""
    play = server() >> setup(keepalive_ms=interval)
    text = f"keepalive-flood: a keepalive every {interval} ms; 10 ms or more is served".encode()
    play << closed(RemoteProtocolError, rule="keepalive_rate", code=0x003) << error(0, 0x003, text)
    with pytest.raises(LocalProtocolError, match="10 ms or more"):
        Engine("client", setup=setup(keepalive_ms=interval))


def test_keepalives_that_want_no_answer_have_a_price() -> None:
    """limits.md, keepalive_rate: 1 glitch each above the same rate."""
    play = responder()
    for _ in range(100):
        play >> PONG
        play.quiet()
    for _ in range(1000):
        play >> PONG << ignored(1, "keepalive_rate")
    play >> PONG << ignored(1) << closed(RemoteProtocolError, rule="glitch_bucket") << error(0, 0x101)


def test_positions_may_be_sent_as_often_as_they_advance() -> None:
    """R-51: a peer whose store would fill says how far it got, hundreds of times a second on a fast link."""
    play = resumable_server() >> frames.RequestStream(stream=1, initial_n=10_000) << ev.Opened
    said = 0
    for _ in range(1200):
        play.do(lambda engine: engine.send(1, [bytes(1024 - 6)])) << frames.PayloadFrame
        said += 1024
        play >> position(said)
        play.quiet()
    for _ in range(100):
        play >> position(said)
        play.quiet()
    play >> position(said) << ignored(1, "keepalive_rate")
    play.do(lambda engine: engine.send(1, [b""])) << frames.PayloadFrame
    play >> position(said + 6) << ignored(1, "keepalive_rate")


def test_unread_echoes_stop_the_reading() -> None:
    engine = responder().engine
    for count in range(16):
        assert engine.wants_read, count
        engine.receive(PING.encode(prefixed=True), 0.0)
    assert not engine.wants_read
    engine.outgoing()
    assert engine.wants_read


def test_keepalive_data_too_large() -> None:
    limits = Limits.server().replace(connection_metadata_bytes=100)
    play = responder(limits=limits)
    play >> frames.Keepalive(stream=0, respond=True, position=0, data=bytes(100)) << frames.Keepalive
    play >> frames.Keepalive(stream=0, respond=True, position=0, data=bytes(101))
    play << closed(RemoteProtocolError) << error(0, 0x101, b"metadata-too-large")


def test_connection_frames_on_a_stream_are_ignored() -> None:
    play = responder()
    for data in (
        "000006 00000001 0c00",
        "00000e 00000001 0c80 0000000000000000",
        "00000e 00000001 0800 00000001 00000001",
    ):
        raw = bytes.fromhex(data)
        if len(raw) > 9:
            play >> raw << ignored(10, "R-32")
    play.quiet()


def test_lease_without_negotiation_is_ignored() -> None:
    responder() >> frames.Lease(stream=0, ttl_ms=1, requests=1) << ignored(10)


def test_metadata_push(mode: Mode) -> None:
    limits = Limits.server().replace(connection_metadata_bytes=4)
    play = responder(mode, limits) >> frames.MetadataPush(stream=0, metadata=b"meta") << ev.Pushed(b"meta")
    play >> frames.MetadataPush(stream=0, metadata=b"metad") << ignored(10)
    play.do(lambda engine: engine.push(b"ours")) << frames.MetadataPush(stream=0, metadata=b"ours")
    play.quiet()


def test_peer_breaks_off() -> None:
    play = responder() >> frames.RequestStream(stream=1, initial_n=1, data=b"") << ev.Opened
    play >> frames.ErrorFrame(stream=0, code=0x101, data=b"bad")
    play << failed(1, ConnectionClosed, code=0x101) << closed(ConnectionClosed, message="bad")
    play.quiet()


def test_peer_breaks_off_with_a_code_of_its_own() -> None:
    requester() >> frames.ErrorFrame(stream=0, code=0x1234, data=b"x") << closed(ConnectionClosed, code=0x1234)


def test_peer_drains() -> None:
    play = responder() >> frames.RequestStream(stream=1, initial_n=1, data=b"") << ev.Opened
    play >> frames.ErrorFrame(stream=0, code=0x102, data=b"bye") << ev.Draining("bye")
    play >> frames.ErrorFrame(stream=0, code=0x102, data=b"bye")
    play >> frames.RequestResponse(stream=3, data=b"") << ignored(1) << error(3, 0x202)
    with pytest.raises(ConnectionClosed, match="draining"):
        play.engine.open("request", b"")
    play.do(lambda engine: engine.complete(1)) << (frames.PayloadFrame, {"complete": True})
    assert play.engine.deadline == 0.0
    play.at(0.0) << ev.Closed(None)
    play.quiet()


def test_drain_waits_for_streams() -> None:
    play = requester().do(lambda engine: engine.open("stream", b"", credit=2)) << frames.RequestStream
    play.do(lambda engine: engine.close(0.0, drain=True, reason="done")) << error(0, 0x102, b"done")
    play.do(lambda engine: engine.close(0.0, drain=True))
    play >> frames.PayloadFrame(stream=1, next=True, data=b"a") << ev.Items
    play >> frames.PayloadFrame(stream=1, complete=True, data=b"") << ev.Completed(1) << ev.Closed(None)
    play.quiet()


def test_drain_of_an_idle_connection_closes_it() -> None:
    play = requester().do(lambda engine: engine.close(0.0, drain=True)) << ev.Closed(None) << error(0, 0x102)
    play.quiet()
    assert play.engine.deadline is None
    assert play.engine.receive(b"more", 0.0) == []
    assert play.engine.tick(1.0) == []


def test_close_at_once_fails_the_streams() -> None:
    play = requester().do(lambda engine: engine.open("stream", b"", credit=2)) << frames.RequestStream
    (
        play.do(lambda engine: engine.close(0.0))
        << failed(1, ConnectionClosed)
        << closed(ConnectionClosed)
        << error(0, 0x101)
    )
    play.quiet()


def test_close_before_setup() -> None:
    play = server().do(lambda engine: engine.close(0.0)) << closed(ConnectionClosed) << error(0, 0x003)
    play.quiet()


def test_close_before_the_answer() -> None:
    play = Playbook(Engine("client")) << frames.Setup
    play.do(lambda engine: engine.close(0.0, drain=True)) << ev.Closed(None) << error(0, 0x102)
    play = Playbook(Engine("client")) << frames.Setup
    play.do(lambda engine: engine.close(0.0)) << closed(ConnectionClosed) << error(0, 0x101)


def test_eof(mode: Mode) -> None:
    play = responder(mode) >> frames.RequestStream(stream=1, initial_n=1, data=b"") << ev.Opened
    play.eof() << failed(1, ConnectionClosed) << closed(ConnectionClosed)
    play.eof().quiet()


def test_eof_before_setup() -> None:
    server().eof() << closed(ConnectionClosed)


def test_a_silent_server_is_given_up() -> None:
    play = Playbook(Engine("client")) << frames.Setup
    for now in (20.0, 40.0, 60.0, 80.0):
        play.at(now) << frames.Keepalive
    play.at(90.0) << closed(ConnectionClosed, rule="R-22") << error(0, 0x101)


def test_unknown_frames_by_the_ignore_flag(mode: Mode) -> None:
    for hex in ("000006 00000001 be00", "000006 00000000 0200", "00000a 00000000 fe00 00000007"):
        responder(mode) >> bytes.fromhex(hex) << ignored(1)
    for hex in (
        "000006 00000001 bc00",
        "000006 00000000 0000",
        "00000a 00000000 fc00 00000007",
        "00000a 00000000 fe00 00000000",
    ):
        responder(mode) >> bytes.fromhex(hex) << closed(RemoteProtocolError) << error(0, 0x101)


def test_glitches_run_out() -> None:
    cancel = frames.Cancel(stream=99)
    play = responder()
    for _ in range(1000):
        play >> cancel << ignored(1)
    (
        play
        >> cancel
        << ignored(1)
        << closed(RemoteProtocolError, rule="glitch_bucket")
        << error(0, 0x101, b"protocol-abuse")
    )


def test_trailing_bytes_are_charged(mode: Mode) -> None:
    play = responder(mode) >> frames.RequestStream(stream=1, initial_n=1, data=b"") << ev.Opened
    play >> bytes.fromhex("00000c 00000001 2000 00000005 ffff") << ignored(1, "FR-21") << ev.Granted(1, 5)


@pytest.mark.parametrize("length", range(6))
def test_frames_shorter_than_a_header(mode: Mode, length: int) -> None:
    responder(mode) >> length.to_bytes(3, "big") << closed(RemoteProtocolError, rule="R-7") << error(0, 0x101)


def test_frames_at_and_above_the_limit(mode: Mode) -> None:
    """FR-02: the three bytes of the length are enough."""
    limits = Limits.tiny()
    big = frames.RequestFnf(stream=1, data=bytes(limits.frame_bytes - 6))
    responder(limits=limits) >> big << ev.Opened
    for length in (limits.frame_bytes + 1, 0xFFFFFF):
        play = responder(mode, limits) >> length.to_bytes(3, "big")
        play << closed(RemoteProtocolError, rule="frame_bytes") << error(0, 0x101, b"frame-too-large")


def test_a_frame_that_never_ends() -> None:
    play = responder() >> b"\0\0\x0a"
    assert play.engine.deadline == 30.0
    play.now = 29.0
    play >> b"\0"
    assert play.engine.deadline == 30.0
    play.at(30.0) << closed(RemoteProtocolError, rule="frame_s") << error(0, 0x101, b"frame-timeout")


def test_metadata_length_that_lies(mode: Mode) -> None:
    """FG-14."""
    responder(mode) >> bytes.fromhex("00000a 00000001 1100 00000a 61") << closed(RemoteProtocolError) << error(0, 0x101)
    responder(mode) >> bytes.fromhex("00000a 00000001 1300 00000a 61") << ignored(1)
    responder(mode) >> bytes.fromhex("000008 00000001 1100 0000") << closed(RemoteProtocolError) << error(0, 0x101)


def test_good_frames_before_a_bad_one_are_delivered() -> None:
    play = responder() >> (frames.RequestFnf(stream=1, data=b"good"), b"\0\0\0")
    play << ev.Opened << closed(RemoteProtocolError) << error(0, 0x101)


def test_local_mistakes() -> None:
    with pytest.raises(LocalProtocolError):
        Engine("client", mtu=63)
    with pytest.raises(LocalProtocolError):
        requester().engine.open("dance", b"")  # type: ignore[arg-type]  # the mistake under test
    play = responder().do(lambda engine: engine.close(0.0))
    with pytest.raises(ConnectionClosed):
        play.engine.push(b"")


def test_unknown_setup_type_before_setup_is_invalid() -> None:
    """An unknown frame is no SETUP, whatever its ignore flag."""
    server() >> bytes.fromhex("000006 00000000 be00") << closed(RemoteProtocolError, rule="R-11") << error(0, 0x001)


def test_keepalive_on_a_stream_is_not_echoed() -> None:
    """SI-09."""
    play = responder() >> bytes.fromhex("00000e 00000001 0c80 0000000000000000") << ignored(10, "R-32")
    play.quiet()


def test_a_client_cannot_announce_zero() -> None:
    zero = setup()
    zero.keepalive_ms = 0
    with pytest.raises(LocalProtocolError):
        Engine("client", setup=zero)


def test_frames_too_large_are_not_written() -> None:
    """Rule 9 of docs/limits: this side obeys the bounds it sets."""
    play = requester()
    limit = play.engine.limits.connection_metadata_bytes
    play.do(lambda engine: engine.push(bytes(limit))) << frames.MetadataPush
    with pytest.raises(LimitExceeded, match="metadata"):
        play.engine.push(bytes(limit + 1))
    with pytest.raises(LocalProtocolError, match=r"16[,_]?777[,_]?215"):
        Engine("client", setup=setup(data=bytes(0x1000000)))
    play.quiet()


def test_a_held_connection_that_breaks_a_rule_at_once() -> None:
    play = server(decide=True) >> (setup(), b"\0\0\0") << ev.Established
    play.do(lambda engine: engine.accept(0.0)) << closed(RemoteProtocolError, rule="R-7") << error(0, 0x101)
    play.quiet()


def test_accepting_too_late() -> None:
    play = server(decide=True) >> setup() << ev.Established
    play.eof() << closed(ConnectionClosed)
    play.do(lambda engine: engine.accept(0.0)).do(lambda engine: engine.refuse("x", 0.0)).quiet()


def test_accepting_with_nothing_held() -> None:
    play = server(decide=True) >> setup() << ev.Established
    play.do(lambda engine: engine.accept(0.0)).quiet()
    play >> PING << PONG


def test_held_bytes_are_bounded() -> None:
    """A driver that goes on feeding in spite of wants_read reaches the budget, not the end of memory."""
    limits = Limits.tiny()
    engine = Engine("server", limits=limits, decide=True)
    engine.receive(setup().encode(prefixed=True), 0.0)
    while not engine.closed:
        assert engine.inbound.pending <= limits.connection_bytes + limits.frame_bytes
        events = engine.receive(bytes(10_000), 0.0)
    assert isinstance(events[-1], ev.Closed)


def test_a_client_proposes_its_settings() -> None:
    wanted = setup(keepalive_ms=1000, lifetime_ms=5000, data=b"hello")
    play = Playbook(Engine("client", setup=wanted)) << wanted
    assert play.engine.deadline == 1.0


def test_an_answer_establishes() -> None:
    """What takes the short paths later is looked at when it is the first thing that the server says."""
    play = Playbook(Engine("client")) << frames.Setup
    play.do(lambda engine: engine.open("request", b"x")) << frames.RequestResponse
    play >> frames.PayloadFrame(stream=1, next=True, complete=True, data=b"y") << ev.Established << ev.Items
    play >> frames.ErrorFrame(stream=0, code=0x101, data=b"bad") << closed(ConnectionClosed)
    play = Playbook(Engine("client")) << frames.Setup
    play.do(lambda engine: engine.open("stream", b"x", credit=5)) << frames.RequestStream
    item = frames.PayloadFrame(stream=1, next=True, data=b"y")
    play >> (item, item, item) << ev.Established << ev.Items << (ev.Items, {"payloads": [Payload(b"y")] * 2})
    play.quiet()
