"""Resumption. Rule numbers are RSocket's. R-15, R-44 to R-53. Cuts and races are in tests/protocols/rsocket."""

from __future__ import annotations

from typing import Any

import pytest

from afflux.core import events as ev
from afflux.core.errors import ConnectionClosed, Rejected, RemoteProtocolError
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.protocols.family.sessions import Sessions
from afflux.protocols.rsocket import Engine, frames
from tests.hostile.peers import N, P, asked, item, raw
from tests.protocols.rsocket.playbook import Playbook, closed, error, failed, requester, responder, setup

TOKEN = bytes(range(200, 216))
ASKED = setup(token=TOKEN)
LIMITS = Limits.server()


def client() -> Playbook:
    """A client whose session can be resumed."""
    play = Playbook(Engine("client", setup=ASKED)) << ASKED
    return play >> frames.Keepalive() << ev.Established


def server(sessions: Sessions | None = None) -> Playbook:
    """A server with such a session."""
    sessions = Sessions(LIMITS) if sessions is None else sessions
    return Playbook(Engine("server", sessions=sessions)) >> ASKED << ev.Established


def resume(received: int, available: int, **changes: Any) -> frames.Resume:
    """RESUME: what its client has received, and what it still has."""
    values: dict[str, Any] = {"token": TOKEN} | changes
    return frames.Resume(last_received_server_position=received, first_available_client_position=available, **values)


def returned(received: int = 0) -> Playbook:
    """A client that was cut off, has asked to go on, and has had so many bytes from its server."""
    play = client()
    if received:
        play.do(lambda engine: engine.open("stream", b"", credit=9)) << frames.RequestStream
        play >> item(1, bytes(received - 6)) << ev.Items
    play.eof() << ev.Suspended
    return play.do(lambda engine: engine.resumption.reconnect(0.0)) << (
        frames.Resume,
        {"last_received_server_position": received},
    )


TRACKED = [
    (frames.RequestResponse(stream=1, data=b"12345"), 11),
    (frames.RequestFnf(stream=1, metadata=b"m", data=b"1"), 11),
    (frames.RequestStream(stream=1, initial_n=1), 10),
    (frames.RequestChannel(stream=1, initial_n=1, data=b"1"), 11),
    (N(stream=1, n=7), 10),
    (frames.Cancel(stream=1), 6),
    (P(stream=1, next=True, data=b"123"), 9),
    (frames.ErrorFrame(stream=1, code=0x201, data=b"why"), 13),
]
UNTRACKED = [
    frames.Keepalive(data=b"12345"),
    frames.MetadataPush(metadata=b"12345"),
    frames.Lease(ttl_ms=1, requests=1),
    frames.Ext(stream=1, ignore=True, extended_type=5, body=b"12345"),
]


@pytest.mark.parametrize(("frame", "size"), TRACKED, ids=lambda value: getattr(value, "NAME", ""))
def test_R_44_what_counts_is_the_frame_without_its_prefix(frame: frames.RSocketFrame, size: int) -> None:
    """Even one that is ignored: its sender can not know that."""
    play = server()
    play.engine.receive(frame.encode(prefixed=True) * 3, 0.0)
    play.engine.outgoing()
    assert len(frame.encode()) == size
    play >> frames.Keepalive(respond=True) << frames.Keepalive(position=3 * size)


@pytest.mark.parametrize("frame", UNTRACKED, ids=lambda frame: frame.NAME)
def test_R_44_what_belongs_to_a_transport_does_not_count(frame: frames.RSocketFrame) -> None:
    play = server()
    play.engine.receive(frame.encode(prefixed=True), 0.0)
    play >> frames.Keepalive(respond=True) << frames.Keepalive(position=0)


def test_R_44_a_position_excludes_the_frame_that_carries_it() -> None:
    """Read at once or not."""
    play = server() >> (asked("fire", 1), asked("fire", 3), frames.Keepalive(respond=True), asked("fire", 5))
    play << ev.Opened << ev.Opened << ev.Opened << frames.Keepalive(position=12)
    play >> frames.Keepalive(respond=True) << frames.Keepalive(position=18)
    play.quiet()


def test_R_44_fragments_count_as_they_are_sent() -> None:
    """At both ends alike: what the one has received is exactly what the other has sent."""
    sender = Engine("client", setup=ASKED, mtu=64)
    sender.open("request", bytes(1000))
    data = bytearray()
    while chunk := sender.outgoing():
        data += chunk
    data = data[3 + len(ASKED.encode()) :]
    number = len(data) // 64 + bool(len(data) % 64)
    position = len(data) - 3 * number
    receiver = server()
    receiver.engine.receive(bytes(data), 0.0)
    receiver >> frames.Keepalive(respond=True) << frames.Keepalive(position=position)
    sender.receive(frames.Keepalive(position=position).encode(prefixed=True), 0.0)
    assert not sender.closed
    sender.receive(frames.Keepalive(position=position + 1).encode(prefixed=True), 0.0)
    assert sender.closed


def test_R_45_nothing_is_sent_between_resume_and_its_answer() -> None:
    """Whatever the application does, whatever was under way, however long it takes."""
    play = client().do(lambda engine: engine.open("channel", b"", credit=5)) << frames.RequestChannel
    play >> N(stream=1, n=9) << ev.Granted
    play.do(lambda engine: engine.send(1, [bytes(1_000_000)]))
    play.sent.clear()
    play.eof() << ev.Suspended
    play.do(lambda engine: engine.open("fire", b"meanwhile"))
    play.do(lambda engine: engine.resumption.reconnect(1.0)) << frames.Resume
    play.do(lambda engine: engine.open("request", b"now")).do(lambda engine: engine.request(1, 2))
    play.do(lambda engine: engine.send(1, [b"x"])).do(lambda engine: engine.cancel(1))
    for push in (lambda engine: engine.push(b"m"), lambda engine: engine.extensions.extend(7, b"")):
        with pytest.raises(ConnectionClosed):
            push(play.engine)
    play.at(5.0).quiet()
    play >> frames.ResumeOk(last_received_client_position=0) << ev.Resumed
    assert (frames.RequestChannel, 1) == (type(play.sent[0]), play.sent[0].stream)  # type: ignore[attr-defined]
    assert [frame.data for frame in play.sent if isinstance(frame, frames.RequestFnf)] == [b"meanwhile"]


@pytest.mark.parametrize(
    ("received", "available", "fits"),
    [
        (9, 0, True),
        (18, 0, True),
        (8, 0, False),
        (0, 0, False),
        (10, 0, False),
        (19, 0, False),
        (9, 30, True),
        (9, 31, False),
    ],
)
def test_R_46_a_server_resumes_what_it_retains(received: int, available: int, fits: bool) -> None:
    """It has sent 18 bytes in two frames, the first of which the client said it has; and it has received 30."""
    play = server() >> frames.RequestStream(stream=1, initial_n=9, data=bytes(20)) << ev.Opened
    play.do(lambda engine: engine.send(1, [b"abc", b"def"])) << item(1, b"abc") << item(1, b"def")
    play >> frames.Keepalive(position=9)
    play.eof() << ev.Suspended
    if fits:
        play.do(lambda engine: engine.resumption.resume(resume(received, available), 5.0)) << ev.Resumed
        play << frames.ResumeOk(last_received_client_position=30)
        if received == 9:
            play << item(1, b"def")
    else:
        with pytest.raises(Rejected) as caught:
            play.engine.resumption.resume(resume(received, available), 5.0)
        assert caught.value.code == 0x004
        assert play.engine.resumption.suspended
    play.quiet()


@pytest.mark.parametrize(
    "request_",
    [resume(0, 0), resume(0, 0, token=b"another"), resume(0, 0, minor=1), raw("00000000 3400 0001 0000 0010 746f")],
    ids=["refused", "unknown", "version", "broken"],
)
def test_R_47_a_server_that_does_not_resume_sends_rejected_resume(request_: frames.Resume | bytes) -> None:
    sessions = Sessions(LIMITS)
    server(sessions)
    play = Playbook(Engine("server", sessions=sessions)) >> request_
    if play.events and isinstance(play.events[0], ev.Resuming):
        play.events.clear()
        play.do(lambda engine: engine.refuse("no", 0.0, 0x003))
    play << (ev.Closed, {"error.code": 0x004}) << error(0, 0x004)
    play.quiet()


def test_R_47_a_client_answers_nonsense_with_connection_error() -> None:
    """Something else than an answer, or a position that it does not have."""
    returned() >> frames.RequestFnf(stream=2) << ev.Suspended << error(0, 0x101)
    returned() >> frames.Lease(ttl_ms=1, requests=1) << ev.Suspended << error(0, 0x101)
    play = returned() >> frames.ResumeOk(last_received_client_position=99)
    play << closed(RemoteProtocolError) << error(0, 0x101)
    play.quiet()


@pytest.mark.parametrize("first", ["SETUP", "RESUME"])
def test_R_48_a_resume_later_is_a_connection_error(first: str) -> None:
    play = server()
    if first == "RESUME":
        play.eof() << ev.Suspended
        play.do(lambda engine: engine.resumption.resume(resume(0, 0), 5.0)) << ev.Resumed << frames.ResumeOk
    play >> resume(0, 0) << closed(RemoteProtocolError, rule="R-48") << error(0, 0x101)
    play.quiet()


@pytest.mark.parametrize("away", [False, True])
def test_R_49_a_token_in_use_is_refused_and_its_owner_is_unharmed(away: bool) -> None:
    sessions = Sessions(LIMITS)
    owner = server(sessions) >> asked("stream") << ev.Opened
    if away:
        owner.eof() << ev.Suspended
    play = Playbook(Engine("server", sessions=sessions)) >> ASKED << closed(RemoteProtocolError, rule="R-49")
    play << error(0, 0x003)
    play.quiet()
    assert sessions.find(TOKEN) is owner.engine
    if not away:
        owner.do(lambda engine: engine.send(1, [b"on"])) << item(1, b"on")
    owner.quiet()


ITEMS = [b"a", bytes(200_000), b"b", bytes(5000)]
"Small frames, a fragmented item, and a large frame."


def sending(role: str) -> tuple[Playbook, list[int]]:
    """A session that has sent ITEMS on stream 1, and the positions before, between and behind them."""
    if role == "server":
        play = server() >> asked("channel", n=9) << ev.Opened
        ends = [0]
    else:
        play = client().do(lambda engine: engine.open("channel", b"", credit=1))
        ends = [len(play.sent.popleft().encode())]
        play >> N(stream=1, n=9) << ev.Granted
    for data in ITEMS:
        play.do(lambda engine, data=data: engine.send(1, [data]))  # type: ignore[misc]  # bound at once
        ends.append(ends[-1] + sum(len(frame.encode()) for frame in play.sent))
        play.sent.clear()
    return play, ends


@pytest.mark.parametrize("role", ["client", "server"])
@pytest.mark.parametrize("got", range(5))
def test_R_50_what_did_not_arrive_is_sent_again_in_order(got: int, role: str) -> None:
    """And what is new comes behind it."""
    play, ends = sending(role)
    play.eof() << ev.Suspended
    play.do(lambda engine: engine.send(1, [b"new"]))
    if role == "client":
        play.do(lambda engine: engine.resumption.reconnect(5.0)) << frames.Resume
        play >> frames.ResumeOk(last_received_client_position=ends[got]) << ev.Resumed
    else:
        play.do(lambda engine: engine.resumption.resume(resume(ends[got], 0), 5.0)) << ev.Resumed << frames.ResumeOk
    assert b"".join(frame.data for frame in play.sent if isinstance(frame, P)) == b"".join(ITEMS[got:]) + b"new"


def test_R_51_each_keepalive_carries_the_received_position() -> None:
    play = client().do(lambda engine: engine.open("stream", b"", credit=9)) << frames.RequestStream
    for number in range(1, 4):
        play >> item(1, b"abc") << ev.Items
        play.at(20.0 * number) << frames.Keepalive(respond=True, position=9 * number)
        play >> frames.Keepalive(respond=True) << frames.Keepalive(position=9 * number)
    play.quiet()


@pytest.mark.parametrize("side", [requester, responder], ids=["client", "server"])
def test_R_51_without_resumption_it_carries_0(side: type[Playbook]) -> None:
    play = side()
    play.engine.receive(asked("fire", 1 if side is responder else 2).encode(prefixed=True), 0.0)  # type: ignore[comparison-overlap]
    play >> frames.Keepalive(respond=True, position=12345) << frames.Keepalive(position=0)
    play.quiet()


def test_R_51_what_has_arrived_is_dropped_and_less_is_ignored() -> None:
    """Seen in what the client offers when it asks to go on."""
    play = client()
    for _ in range(3):
        play.do(lambda engine: engine.open("fire", b"1234")) << frames.RequestFnf
    for said in (10, 20, 10, 0):
        play >> frames.Keepalive(position=said)
        play.events.clear()
    play.eof() << ev.Suspended
    play.do(lambda engine: engine.resumption.reconnect(1.0)) << resume(0, 20)
    play.quiet()


def test_R_51_what_was_not_sent_cannot_have_arrived() -> None:
    play = client().do(lambda engine: engine.open("request", b"1234")) << frames.RequestResponse
    play >> frames.Keepalive(position=10)
    play >> frames.Keepalive(position=11) << failed(1, RemoteProtocolError)
    play << closed(RemoteProtocolError, rule="R-51") << error(0, 0x101)
    play.quiet()


def test_R_52_a_session_keeps_its_version_and_its_mime_types() -> None:
    """RESUME has no MIME types; its version is that of the SETUP."""
    sessions = Sessions(LIMITS)
    owner = server(sessions)
    for version in ((1, 1), (2, 0), (0, 0)):
        other = resume(0, 0, major=version[0], minor=version[1])
        play = Playbook(Engine("server", sessions=sessions)) >> other << closed(RemoteProtocolError, rule="R-52")
        play << error(0, 0x004)
    owner.eof() << ev.Suspended
    owner.do(lambda engine: engine.resumption.resume(resume(0, 0), 5.0)) << ev.Resumed << frames.ResumeOk
    assert owner.engine.setup == ASKED
    play = returned()
    assert play.engine.setup == ASKED


@pytest.mark.parametrize("token", [b"\x00" * 16, b"\xff" * 16, "ÄÖÜ€".encode() * 4, bytes(range(256)) * 4])
def test_R_53_any_bytes_are_a_token(token: bytes) -> None:
    sessions = Sessions(LIMITS)
    play = Playbook(Engine("server", sessions=sessions)) >> setup(token=token) << ev.Established
    play.eof() << ev.Suspended
    newcomer = Playbook(Engine("server", sessions=sessions)) >> resume(0, 0, token=token) << ev.Resuming
    newcomer.quiet()
    near = bytes((token[0] ^ 1,)) + token[1:]
    stranger = Playbook(Engine("server", sessions=sessions)) >> resume(0, 0, token=near) << ev.Closed
    stranger << error(0, 0x004)


@pytest.mark.parametrize("size", [0, 1025, 65535])
def test_R_53_a_token_that_is_empty_or_too_long_is_refused(size: int) -> None:
    limits = Limits.server(first_frame_bytes=0x20000)
    asked = setup(token=bytes(max(1, size)))
    asked.token = bytes(size)
    play = Playbook(Engine("server", limits=limits, sessions=Sessions(limits))) >> asked
    play << closed(RemoteProtocolError, rule="R-53") << error(0, 0x003)
    play.quiet()


def test_R_15_resumption_without_support_is_a_rejected_setup() -> None:
    play = Playbook(Engine("server")) >> ASKED << closed(RemoteProtocolError, rule="R-15") << error(0, 0x003)
    play.quiet()


def test_R_20_no_request_follows_the_peers_farewell_while_it_is_away() -> None:
    play = client().do(lambda engine: engine.open("stream", b"", credit=9)) << frames.RequestStream
    play >> frames.ErrorFrame(stream=0, code=0x102) << ev.Draining
    play.eof() << ev.Suspended
    with pytest.raises(ConnectionClosed, match="draining") as caught:
        play.engine.open("fire", b"")
    assert caught.value.code == 0x102


def test_the_payload_that_was_cut_arrives_once() -> None:
    """R-50: half a frame had come; it comes whole, and only once."""
    play = client().do(lambda engine: engine.open("stream", b"", credit=9)) << frames.RequestStream
    play >> item(1, b"one") << ev.Items >> item(1, b"two").encode(prefixed=True)[:-1]
    play.eof() << ev.Suspended
    play.do(lambda engine: engine.resumption.reconnect(1.0)) << resume(9, 0)
    play >> frames.ResumeOk(last_received_client_position=10) << ev.Resumed
    play >> item(1, b"two") << ev.Items(1, [Payload(b"two")])
    play.quiet()
