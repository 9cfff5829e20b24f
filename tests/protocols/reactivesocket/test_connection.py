"""Connections: establishment, keepalive, leases, extensions, endings. Each test names its rule or row."""

from __future__ import annotations

from typing import Any

import pytest

from afflux.core import events as ev
from afflux.core.errors import (
    ConnectionClosed,
    LeaseExpired,
    LimitExceeded,
    LocalProtocolError,
    RemoteProtocolError,
    SetupRefused,
)
from afflux.core.limits import Limits
from afflux.protocols.reactivesocket import Dialect, Engine, frames
from afflux.protocols.rsocket.lease import FixedLease, Lease

from .playbook import Playbook, closed, error, failed, ignored, raw, requester, responder, setup

REQUEST = frames.RequestResponse(stream=2, data=b"q")
KEEPALIVE = frames.Keepalive(respond=True, data=b"k")


def server(**options: Any) -> Playbook:
    return Playbook(Engine("server", **options))


def client(**options: Any) -> Playbook:
    return Playbook(Engine("client", **options))


# -- establishment --------------------------------------------------------------------------------------------------


def test_a_client_sends_setup_at_once_and_may_ask_at_once() -> None:
    """R-14, R-17, R-24, D-14: SETUP on stream 0, a keepalive every 500 ms, requests right behind."""
    play = client() << frames.Setup(keepalive_ms=500, lifetime_ms=90_000)
    play.do(lambda engine: engine.open("request", b"q")) << REQUEST
    play >> frames.Response(stream=2, complete=True, data=b"a") << ev.Established
    play << ev.Items(2, [ev.Payload(b"a")], True)
    play.quiet()


@pytest.mark.parametrize(
    "frame",
    [
        frames.Keepalive(respond=True),
        frames.Lease(ttl_ms=1, requests=1),
        frames.MetadataPush(metadata=b"m"),
        REQUEST,
        frames.RequestFnf(stream=2),
        frames.RequestStream(stream=2, initial_n=1),
        frames.RequestSub(stream=2, initial_n=1),
        frames.RequestChannel(stream=2, initial_n=1),
        frames.RequestChannel(stream=2),
        frames.RequestN(stream=2, n=1),
        frames.Cancel(stream=2),
        frames.Response(stream=2),
        frames.ErrorFrame(stream=0, code=1),
        frames.ErrorFrame(stream=0, code=0x11),
        frames.ErrorFrame(stream=2, code=0x21),
        frames.Ext(extended_type=1, ignore=True),
        frames.Setup(stream=2),
        raw(0x0E, 0x8000),
        raw(0x0E),
        raw(0x01, 0x4000, 0, b"\0"),
    ],
    ids=str,
)
def test_anything_before_setup_is_an_invalid_setup(mode: Any, frame: Any) -> None:
    """R-15, R-18, D-14, HS-02, HS-03: nothing is kept or served."""
    play = Playbook(Engine("server"), mode)
    play >> frame << error(0, 0x01) << closed(RemoteProtocolError, code=1)
    play.quiet()
    assert play.engine.deadline is None


@pytest.mark.parametrize(
    ("changes", "options", "code", "rule"),
    [
        ({"version": 1}, {}, 0x01, "R-19"),
        ({"lease": True}, {}, 0x02, "D-15"),
        ({"metadata": bytes(5000)}, {"limits": Limits.tiny()}, 0x03, "connection_metadata_bytes"),
        ({"strict": True, "data": b"?"}, {}, 0x02, "HS-18"),
        ({"strict": True, "data_mime": "x/y"}, {}, 0x02, "HS-18"),
    ],
)
def test_a_setup_that_is_refused(changes: Any, options: Any, code: int, rule: str) -> None:
    """R-19, R-20, D-4, D-15."""
    play = server(**options) >> setup(**changes)
    play << error(0, code) << closed(RemoteProtocolError, code=code, rule=rule)


@pytest.mark.repetitive
@pytest.mark.parametrize("respond", [True, False])
@pytest.mark.parametrize("interval", [10, 50])
def test_keepalives_as_announced_are_served(interval: int, respond: bool) -> None:
    """limits.md, keepalive_rate."""
    play = server() >> setup(keepalive_ms=interval, lifetime_ms=0) << ev.Established
    for count in range(10_000):
        play.now = count * interval / 1000
        play >> frames.Keepalive(respond=respond)
        assert not play.events
        assert len(play.sent) == respond
        play.sent.clear()


@pytest.mark.parametrize("interval", [1, 9])
def test_keepalives_that_would_come_too_often_are_refused_with_the_setup(interval: int) -> None:
    """Never accepted and cut later; 0 announces nothing."""
    play = server() >> setup(keepalive_ms=interval)
    text = f"keepalive-flood: a keepalive every {interval} ms; 10 ms or more is served".encode()
    play << error(0, 0x03, text) << closed(RemoteProtocolError, rule="keepalive_rate")
    with pytest.raises(LocalProtocolError, match="10 ms or more"):
        client(setup=setup(keepalive_ms=interval))
    play = server() >> setup(keepalive_ms=0) << ev.Established
    play >> KEEPALIVE << frames.Keepalive


def test_keepalives_that_want_no_answer_have_a_price() -> None:
    """limits.md, keepalive_rate: 1 glitch each above the same rate."""
    play = responder()
    for _ in range(100):
        play >> frames.Keepalive()
        play.quiet()
    play >> frames.Keepalive() << ignored(1, "keepalive_rate")


def test_mime_types_are_not_interpreted() -> None:
    """R-21: without S anything goes; with S an application that decides takes what it likes (R-20)."""
    server() >> setup(data_mime="no such thing", metadata_mime="") << ev.Established
    server() >> setup(strict=True, data_mime="application/json") << ev.Established
    play = server(decide=True) >> setup(strict=True, data=b"?") << ev.Established
    play.do(lambda engine: engine.refuse("not today", 0.0, 0x02))
    play << error(0, 0x02, b"not today") << closed(ConnectionClosed, rule="R-15", code=2)


def test_what_comes_while_the_application_decides_waits() -> None:
    play = server(decide=True) >> (setup(), REQUEST) << ev.Established
    play.do(lambda engine: engine.accept(0.0)) << ev.Opened
    with pytest.raises(LocalProtocolError):
        play.engine.accept(0.0)


def test_an_application_that_does_not_decide_in_time() -> None:
    play = server(decide=True) >> setup() << ev.Established
    play.at(10.0) << error(0, 0x03, b"handshake-timeout") << closed(RemoteProtocolError)


@pytest.mark.parametrize(
    "code", [0, 0x01, 0x03, 0x0F, 0x10, 0x11, 0x1F, 0x20, 0x21, 0x22, 0x2F, 0x30, 0x101, 0xFFFFFFFF]
)
@pytest.mark.parametrize("state", ["wait", "asked", "client", "server", "client drains", "server drains"])
def test_every_code_in_every_state_of_a_connection(state: str, code: int) -> None:
    """3.1, 3.2: an open connection ignores setup errors and ends with any other code, the reserved ones included."""
    frame = raw(0x0C, 0, 0, code.to_bytes(4, "big"))
    if state == "wait":
        server() >> frame << error(0, 0x01) << closed(RemoteProtocolError, code=1)
        return
    if state == "asked":
        play = client() << frames.Setup >> frame
        play << (closed(SetupRefused, code=code) if 0 < code <= 0x0F else closed(ConnectionClosed, code=code))
        assert play.engine.closed
        return
    play = requester() if "client" in state else responder()
    play.do(lambda engine: engine.open("stream", b"", credit=1))
    if "drains" in state:
        play.sent.clear()
        play.do(lambda engine: engine.close(0.0, drain=True))
    play.sent.clear()
    play >> frame
    if 0 < code <= 0x0F:
        play << ignored(10, "R-36")
        assert not play.engine.closed
    else:
        play << failed(play_stream(state), ConnectionClosed) << closed(ConnectionClosed, code=code)
        assert play.engine.closed
    play.quiet()


def play_stream(state: str) -> int:
    """The first id of the side under test."""
    return 2 if "client" in state else 1


@pytest.mark.parametrize("code", [0x01, 0x02, 0x03, 0x0F])
def test_a_refused_client_fails_everything(code: int) -> None:
    """3.1: every setup code ends a client that has only sent SETUP."""
    play = client() << frames.Setup
    play.do(lambda engine: engine.open("request", b"q")) << REQUEST
    play >> frames.ErrorFrame(stream=0, code=code, data=b"no")
    play << failed(2, SetupRefused, code=code) << closed(SetupRefused, code=code, rule="R-15")


def test_frames_that_make_no_sense_are_ignored() -> None:
    """R-22, R-23: SETUP later or at a client; SETUP_ERROR at a server, or later."""
    play = responder() >> setup() << ignored(10, "R-36")
    play >> frames.ErrorFrame(stream=0, code=1) << ignored(10, "R-36")
    play = requester() >> setup() << ignored(10, "R-36")
    play >> frames.ErrorFrame(stream=0, code=2) << ignored(10, "R-36")
    (client() << frames.Setup) >> setup() << ignored(10, "R-36")


@pytest.mark.parametrize("code", [0x10, 0x11, 0x1F, 0x20, 0x21, 0xFFFFFFFE])
def test_a_connection_error_ends_everything(code: int) -> None:
    """3.1, 3.2."""
    for play in (requester(), responder(), client() << frames.Setup):
        play >> frames.ErrorFrame(stream=0, code=code, data=b"end") << closed(ConnectionClosed, code=code)


# -- connection frames ----------------------------------------------------------------------------------------------


def test_keepalive_is_answered_with_the_same_data(mode: Any) -> None:
    """R-25, KA-01; R-26, D-6: one on a stream is ignored."""
    for play in (responder(mode), requester(mode)):
        play >> KEEPALIVE << frames.Keepalive(data=b"k")
        play >> frames.Keepalive(data=b"k")
        play >> frames.Keepalive(stream=2, respond=True) << ignored(10, "R-26")
        play >> frames.Lease(stream=2, ttl_ms=1, requests=1) << ignored(10, "R-26")
        play.quiet()


def test_a_client_sends_keepalive_and_gives_a_silent_server_up() -> None:
    """R-24, D-12."""
    play = client(setup=setup(keepalive_ms=500, lifetime_ms=2_000)) << frames.Setup
    assert play.engine.deadline == 0.5
    play.at(0.5) << frames.Keepalive(respond=True)
    play.at(2.0) << error(0, 0x11, b"keepalive-timeout") << closed(ConnectionClosed, rule="3.1")


def test_a_lifetime_of_zero_is_no_supervision() -> None:
    """R-27; a server keeps its own bound."""
    play = client(setup=setup(lifetime_ms=0)) << frames.Setup
    play.at(1e6) << frames.Keepalive(respond=True)
    play = server() >> setup(lifetime_ms=0) << ev.Established
    assert play.engine.deadline == 600
    with pytest.raises(LocalProtocolError):
        client(setup=frames.Setup(keepalive_ms=0))


def test_keepalive_is_bounded() -> None:
    """KA-02, KA-03."""
    play = responder() >> (frames.Keepalive(respond=True),) * 101
    for _ in range(100):
        play << frames.Keepalive()
    play << error(0, 0x11, b"keepalive-flood") << closed(RemoteProtocolError)
    play = responder() >> frames.Keepalive(respond=True, data=bytes(64 * 1024))
    play << frames.Keepalive(data=bytes(64 * 1024))
    play >> frames.Keepalive(data=bytes(64 * 1024 + 1)) << error(0, 0x11) << closed(RemoteProtocolError)


def test_metadata_push() -> None:
    """R-51, R-36."""
    play = responder() >> frames.MetadataPush(metadata=b"m") << ev.Pushed(b"m")
    play >> frames.MetadataPush(stream=2, metadata=b"m") << ignored(10, "R-26")
    play >> frames.MetadataPush(metadata=None) << ignored(10, "R-51")
    play >> raw(0x0D, 0x4000, 0, b"\0\0\0\x05mx") << ignored(1, "FR-21") << ev.Pushed(b"m")
    play >> frames.MetadataPush(metadata=bytes(64 * 1024 + 1)) << ignored(10)
    play.do(lambda engine: engine.push(b"own")) << frames.MetadataPush(metadata=b"own")
    (client() << frames.Setup) >> frames.MetadataPush(metadata=b"m") << ev.Established << ev.Pushed(b"m")


def test_extensions() -> None:
    """R-8, R-9, FR-17: unknown ones are skipped with I, and end the connection without; never routed to a stream."""
    play = responder(extensions=(7,)) >> frames.Ext(extended_type=7, body=b"b") << ev.Extended(0, 7, b"b")
    play >> frames.Ext(extended_type=2, ignore=True) << ignored(1, "R-9")
    play >> raw(0x0E, 0x8000, 2) << ignored(1, "R-9")
    play.do(lambda engine: engine.extensions.extend(9, b"own")) << frames.Ext(extended_type=9, ignore=True, body=b"own")
    play >> frames.Ext(extended_type=2) << error(0, 0x11) << closed(RemoteProtocolError, rule="R-9")
    with pytest.raises(ConnectionClosed):
        play.engine.extensions.extend(9, b"")
    responder() >> raw(0x0E) << error(0, 0x11) << closed(RemoteProtocolError, rule="R-9")
    play = client(extensions=(7,)) << frames.Setup
    play >> frames.Ext(extended_type=7) << ev.Extended(0, 7, b"")
    for arguments in ({"type": 1 << 32}, {"type": -1}, {"type": 1, "stream": 2}):
        with pytest.raises(LocalProtocolError):
            play.engine.extensions.extend(body=b"", **arguments)
    play.do(lambda engine: engine.extensions.extend(1, bytes(Limits.server().frame_bytes - 8))) << frames.Ext
    with pytest.raises(LimitExceeded):
        play.engine.extensions.extend(1, bytes(Limits.server().frame_bytes - 7))


def test_a_metadata_length_that_lies_costs_the_frame_only() -> None:
    """R-6, FG-15, FG-16."""
    play = responder()
    for length in (0, 3, 100, 0x7FFFFFFF):
        play >> raw(4, 0x4000, 2, length.to_bytes(4, "big") + b"md") << ignored(10, "R-6")
    play >> raw(9, 0, 2) << ignored(10, "R-6")
    play >> REQUEST << ev.Opened


# -- lengths --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", range(12))
def test_a_length_below_the_header(length: int) -> None:
    """R-2."""
    responder() >> length.to_bytes(4, "big") << error(0, 0x11) << closed(RemoteProtocolError, rule="R-2")
    server() >> length.to_bytes(4, "big") << error(0, 0x01) << closed(RemoteProtocolError, rule="R-2")


def test_a_length_above_the_ceiling() -> None:
    """R-10, FR-03: just below, at it, just above; four bytes decide."""
    most = Limits.server().frame_bytes
    play = responder() >> frames.RequestFnf(stream=2, data=bytes(most - 12))
    play >> (most + 1).to_bytes(4, "big") << error(0, 0x11, b"frame-too-large") << closed(RemoteProtocolError)
    responder() >> b"\x7f\xff\xff\xff" << error(0, 0x11, b"frame-too-large") << closed(RemoteProtocolError)


def test_the_first_frame_is_small() -> None:
    """HS-12: the type says which code. A length counts its own four bytes (R-2), so 65,537 is above 64 KiB."""
    size = Limits.server().first_frame_bytes
    big = (size + 1).to_bytes(4, "big")
    server() >> big + b"\0\x01" << error(0, 0x03, b"first-frame-too-large") << closed(RemoteProtocolError)
    masked = (1 << 31 | size + 1).to_bytes(4, "big")
    server() >> masked + b"\0\x01" << error(0, 0x03, b"first-frame-too-large") << closed(RemoteProtocolError)
    server() >> big + b"\0\x04" << error(0, 0x01, b"first-frame-too-large") << closed(RemoteProtocolError)
    server().quiet() >> big >> b"\0"
    largest = frames.Setup(data=bytes(size - 4 - frames.Setup().encoded_size))
    assert len(largest.encode(prefixed=True)) == size
    server() >> largest << ev.Established


def test_the_reserved_bit_of_a_length(mode: Any) -> None:
    """R-4, FR-03: masked, and charged."""
    data = bytearray(REQUEST.encode(prefixed=True))
    data[0] |= 0x80
    play = responder(mode) >> bytes(data) << ignored(1, "R-4") << ev.Opened
    play >> b"\x80\0\0\x03" << error(0, 0x11) << ev.Failed << closed(RemoteProtocolError, rule="R-2")


def test_a_frame_that_never_ends() -> None:
    """FR-05."""
    play = responder() >> b"\0\0\0\x20\0"
    play.at(30.0) << error(0, 0x11, b"frame-timeout") << closed(RemoteProtocolError)


def test_a_silent_client() -> None:
    """HS-01."""
    server().at(10.0) << closed(ConnectionClosed)


def test_senseless_frames_have_a_price() -> None:
    """The glitch bucket: 1,000 tokens, ten for each."""
    play = responder() >> (setup(),) * 101
    for _ in range(101):
        play << ignored(10)
    play << error(0, 0x11, b"protocol-abuse") << closed(RemoteProtocolError)


# -- leases ---------------------------------------------------------------------------------------------------------

GRANTS = FixedLease(2, 5.0)


def test_with_leases_both_sides_grant_and_wait() -> None:
    """R-16, R-46."""
    play = Playbook(Engine("server", lease=GRANTS)) >> setup(lease=True) << ev.Established
    play << frames.Lease(ttl_ms=5_000, requests=2)
    with pytest.raises(LeaseExpired) as caught:
        play.engine.open("request", b"q")
    assert caught.value.rule == "R-46"
    play >> frames.Lease(ttl_ms=1_000, requests=1) << ev.Leased(1, 1.0)
    play.do(lambda engine: engine.open("request", b"q")) << frames.RequestResponse(stream=1, data=b"q")
    with pytest.raises(LeaseExpired):
        play.engine.open("fire", b"q")
    play = Playbook(Engine("client", setup=setup(lease=True), lease=GRANTS)) << frames.Setup
    with pytest.raises(LeaseExpired):
        play.engine.open("request", b"q", now=0.0)
    play >> frames.Lease(ttl_ms=1_000, requests=9) << ev.Established << ev.Leased(9, 1.0)
    play << frames.Lease(ttl_ms=5_000, requests=2)  # the client's responder grants as well
    play >> frames.Lease(ttl_ms=0, requests=9) << ev.Leased(9, 0.0)  # R-48, LE-04
    with pytest.raises(LeaseExpired):
        play.engine.open("request", b"q", now=0.0)


def test_a_request_beyond_the_lease() -> None:
    """R-47, D-10, LE-10: of any type; only the first frame of a channel counts (3.5)."""
    play = Playbook(Engine("server", lease=GRANTS)) >> setup(lease=True) << ev.Established << frames.Lease
    play >> frames.RequestChannel(stream=2, initial_n=1, data=b"1") << ev.Opened
    play.do(lambda engine: engine.request(2, 3)) << frames.RequestN(stream=2, n=2)
    play >> frames.RequestChannel(stream=2, data=b"2") << ev.Items
    play >> frames.RequestFnf(stream=4) << ev.Opened
    play >> frames.RequestSub(stream=6, initial_n=1) << ignored(1) << error(6, 0x22)
    play >> frames.RequestFnf(stream=8) << ignored(1)
    play.at(5.0) << frames.Lease(ttl_ms=5_000, requests=2)
    play >> frames.RequestSub(stream=10, initial_n=1) << ev.Opened


def test_leases_by_hand_and_without_agreement() -> None:
    play = Playbook(Engine("server", lease=GRANTS)) >> setup(lease=True) << ev.Established << frames.Lease
    play.do(lambda engine: engine.leases.grant(Lease(7, 1.0), 0.0, b"m"))
    play << frames.Lease(ttl_ms=1_000, requests=7, metadata=b"m")
    play = responder() >> frames.Lease(ttl_ms=1, requests=1) << ignored(10, "R-36")
    assert play.engine.leases is None


# -- endings --------------------------------------------------------------------------------------------------------


def test_close_sends_connection_error() -> None:
    """3.1, 3.2: everything fails, once."""
    play = requester().do(lambda engine: engine.open("request", b"q")) << frames.RequestResponse
    play.do(lambda engine: engine.close(0.0, reason="bye"))
    play << error(0, 0x11, b"bye") << failed(2, ConnectionClosed) << closed(ConnectionClosed)
    assert play.engine.closed
    assert play.engine.deadline is None


def test_draining_waits_for_the_live_streams() -> None:
    """There is no frame that announces it: new requests are rejected, and the last stream brings the end."""
    play = responder() >> REQUEST << ev.Opened
    play.do(lambda engine: engine.close(0.0, drain=True, reason="maintenance"))
    play >> frames.RequestResponse(stream=4) << ignored(1) << error(4, 0x22)
    with pytest.raises(ConnectionClosed) as caught:
        play.engine.open("request", b"q")
    assert caught.value.rule == "3.1"
    play.do(lambda engine: engine.close(0.0, drain=True))
    play.do(lambda engine: engine.send(2, [b"a"])) << frames.Response(stream=2, complete=True, data=b"a")
    assert play.engine.deadline == 0.0
    play.at(0.0) << error(0, 0x11, b"maintenance") << ev.Closed(None)


def test_draining_in_every_state() -> None:
    play = client() << frames.Setup
    play.do(lambda engine: engine.close(0.0, drain=True)) << error(0, 0x11) << ev.Closed(None)
    server().do(lambda engine: engine.close(0.0, drain=True)) << error(0, 0x03) << closed(ConnectionClosed)
    responder().do(lambda engine: engine.close(0.0, drain=True)) << error(0, 0x11) << ev.Closed(None)


def test_a_transport_that_is_lost() -> None:
    """FR-06."""
    play = requester().do(lambda engine: engine.open("stream", b"q", credit=3)) << frames.RequestStream
    play.eof() << failed(2, ConnectionClosed) << closed(ConnectionClosed)
    server().eof() << closed(ConnectionClosed)


def test_a_policy_that_fails_ends_the_connection() -> None:
    class Broken(FixedLease):
        def grant(self, now: float, used: int) -> Lease:
            raise ValueError("no")

    play = Playbook(Engine("server", lease=Broken(1))) >> setup(lease=True)
    play << ev.Established << error(0, 0x11) << closed(LocalProtocolError, rule="R-16")


def test_java_has_its_own_flags_of_setup() -> None:
    """I-3: early Java says L and S by 0x20 and 0x10."""
    java = Dialect(java_compat=True)
    sent = Engine("client", setup=setup(lease=True, strict=True), dialect=java).outgoing()
    assert sent[6:8] == b"\x30\x30"
    early = bytearray(setup().encode(prefixed=True))
    early[7] = 0x20
    play = Playbook(Engine("server", dialect=java, lease=GRANTS)) >> bytes(early) << ev.Established << frames.Lease
    early[7] = 0x10
    early += b"?"
    early[3] += 1
    Playbook(Engine("server", dialect=java)) >> bytes(early) << error(0, 0x02) << closed(RemoteProtocolError)
    assert play.engine.setup is not None
