"""What hostile peers of Limit-Stream do: lengths, first frames, floods, handlers, queues."""

from __future__ import annotations

import pytest

from afflux.core import events as ev
from afflux.core.errors import ConnectionClosed, RemoteProtocolError
from afflux.core.limits import Limits
from afflux.protocols.limit import Engine, Unchecked
from afflux.protocols.limit.frames import LimitFrame, PayloadFrame

from .playbook import SKIPPED, Mode, closed, error, failed, item, server, setup, summing

TINY = Limits.tiny()


def prefixed(size: int) -> bytes:
    return size.to_bytes(3, "big")


@pytest.mark.parametrize("size", range(6))
def test_FR_01_a_frame_shorter_than_its_header(size: int) -> None:
    play = summing("server") >> prefixed(size) << failed(1, RemoteProtocolError, rule="FR-01")
    play << closed(RemoteProtocolError, code=0x101) << error(0, 0x101, b"a frame of ")
    play = server() >> prefixed(size) << closed(RemoteProtocolError, rule="FR-01", code=0x001) << error(0, 0x001)


@pytest.mark.parametrize("over", [1, 2, 1 << 20])
def test_FR_02_a_frame_above_the_limit_is_refused_by_its_length(over: int) -> None:
    play = summing("client", limits=TINY) >> prefixed(TINY.frame_bytes + over)
    play << failed(1, RemoteProtocolError, rule="frame_bytes") << closed(RemoteProtocolError, code=0x101)
    play << error(0, 0x101, b"frame-too-large")


def test_FR_02_a_frame_of_the_largest_size() -> None:
    engine = Engine("server", limits=TINY)
    engine.receive(setup(b"plain").encode(prefixed=True), 0.0)
    engine.request(1, 9)
    engine.receive(item(1, bytes(TINY.frame_bytes - 6)).encode(prefixed=True), 0.0)
    assert not engine.closed


@pytest.mark.parametrize(("frame_type", "code"), [(0x01, 0x003), (0x0A, 0x001), (0x3F, 0x001)])
def test_HS_12_a_first_frame_that_is_too_large(mode: Mode, frame_type: int, code: int) -> None:
    """It is known when the header has arrived; nothing more is read."""
    head = prefixed(TINY.first_frame_bytes + 1) + bytes(4) + bytes([frame_type << 2])
    play = server(mode, TINY) >> head
    play.quiet()
    play >> b"\x00" << closed(RemoteProtocolError, rule="first_frame_bytes", code=code)
    play << error(0, code, b"first-frame-too-large: 16385 bytes exceed first_frame_bytes=16384")


def test_HS_12_the_next_frame_may_be_larger() -> None:
    engine = Engine("server", limits=TINY)
    engine.receive(setup(b"plain", bytes(TINY.first_frame_bytes - 14)).encode(prefixed=True), 0.0)
    engine.request(1, 9)
    engine.receive(item(1, bytes(TINY.first_frame_bytes + 1)).encode(prefixed=True), 0.0)
    assert not engine.closed


def test_FR_13_frames_that_are_skipped_are_charged() -> None:
    frame = LimitFrame.PREFIX.join(SKIPPED)
    play = summing("server", limits=TINY) >> frame * TINY.glitch_bucket[0]
    play.forget()
    play >> frame << (ev.Ignored, {"price": 1}) << failed(1, RemoteProtocolError, rule="glitch_bucket")
    play << closed(RemoteProtocolError, message="protocol-abuse") << error(0, 0x101, b"protocol-abuse")


def test_FL_01_sessions_that_are_opened_and_ended() -> None:
    """Each of them has begun a handler in vain."""
    limits = TINY.replace(streams=1000, connections=1)
    play = server(limits=limits)
    for _ in range(limits.most_cancels):
        play >> setup()
        play.forget()
        play >> error(2, 0x201) << ev.Failed
    play >> setup() << ev.Opened
    play >> error(2, 0x201) << ev.Failed << closed(RemoteProtocolError, rule="cancel_bucket")
    play << error(0, 0x101, b"cancel-flood")


def test_FL_01_a_handler_that_never_began_costs_nothing() -> None:
    limits = TINY.replace(streams=1000, connections=1)
    play = server(limits=limits)
    play.begins = False
    for number in range(1, limits.most_cancels + 2):
        play >> (setup(), error(2, 0x201))
        play.forget()
        play.engine.release(number)
    assert play.engine.wants_read


def test_DR_2_a_session_counts_until_its_handler_has_returned() -> None:
    play = server(limits=TINY)
    play.begins = False
    for _ in range(TINY.streams):
        play >> (setup(), error(2, 0x201))
        play.forget()
    assert play.engine.wants_read
    play >> setup()
    play.forget()
    assert not play.engine.wants_read
    play.engine.release(1)
    assert play.engine.wants_read


def test_SI_16_handlers_that_are_too_many() -> None:
    limits = TINY.replace(streams=1, pending_streams=1)
    play = server(limits=limits)
    play.begins = False
    for _ in range(2):
        play >> (setup(), error(2, 0x201))
        play.forget()
    play >> setup() << closed(ConnectionClosed) << error(0, 0x003, b"too-many-streams")


def test_SL_08_items_that_are_never_consumed() -> None:
    engine = Engine("server", limits=TINY)
    engine.receive(setup(b"plain").encode(prefixed=True), 0.0)
    engine.request(1, 1 << 30)
    id = 1
    while engine.wants_read:
        engine.receive(item(id, bytes(1000)).encode(prefixed=True), 0.0)
        id += 2
    assert TINY.connection_bytes < engine.held_bytes <= TINY.connection_bytes + 2000
    assert [status.reason for status in engine.streams()] == ["memory"]
    engine.consumed(10_000, 10)
    assert engine.wants_read


def test_FL_06_a_peer_that_does_not_read() -> None:
    engine = Engine("client", limits=TINY, channels=lambda name: Unchecked())
    engine.open("channel", b"q")
    assert engine.room(0) > 0
    while engine.room(0):
        engine.send(1, [bytes(100)])
    assert engine.queued <= TINY.outbound_high_bytes
    for _ in range(TINY.outbound_high_frames):
        engine.send(1, [b""])
    assert engine.room(0) == 0
    first = engine.outgoing(1000)
    assert 1000 <= len(first) < 1200
    while engine.outgoing():
        pass
    assert (engine.queued, engine.room(0)) == (0, TINY.outbound_high_bytes)
    assert engine.room(1 << 30) == 0


def test_replies_stop_reading() -> None:
    engine = Engine("client", limits=TINY, channels=lambda name: Unchecked())
    engine.open("channel", b"q")
    for _ in range(TINY.outbound_high_frames + TINY.control_replies - 1):
        assert engine.wants_read
        engine.send(1, [b""])
    assert not engine.wants_read


def test_a_frame_is_read_in_pieces_without_copying_it_each_time() -> None:
    data = PayloadFrame(stream=1, data=bytes(60_000)).encode(prefixed=True)
    engine = Engine("server", limits=TINY)
    engine.receive(setup(b"plain").encode(prefixed=True), 0.0)
    engine.request(1, 5)
    for start in range(0, len(data), 7):
        assert engine.receive(memoryview(data)[start : start + 7], 0.0) == [] or start + 7 >= len(data)
    assert engine.held_bytes >= 60_000
