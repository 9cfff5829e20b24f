"""Conversations about EXT: frames of extensions that this side knows, and of those that it does not (R-5, D-13)."""

from __future__ import annotations

import pytest

from afflux.core import events as ev
from afflux.core.errors import ConnectionClosed, LimitExceeded, LocalProtocolError, RemoteProtocolError
from afflux.core.limits import Limits
from afflux.protocols.rsocket import Engine, frames
from afflux.protocols.rsocket_draft import Entry

from .playbook import Mode, Playbook, closed, error, failed, ignored, requester, responder, setup


def ext(type: int, body: bytes = b"", stream: int = 0, ignore: bool = True) -> frames.Ext:
    return frames.Ext(stream=stream, ignore=ignore, extended_type=type, body=body)


@pytest.mark.parametrize("ignore", [True, False])
@pytest.mark.parametrize("stream", [0, 1, 2, 0x7FFFFFFF])
@pytest.mark.parametrize("body", [b"", b"body"])
def test_an_extension_that_is_known(ignore: bool, stream: int, body: bytes, mode: Mode) -> None:
    """Whatever its ignore flag, on the connection and on any stream, live or not."""
    for play in (responder(mode, extensions=(7, 9)), requester(mode, extensions={7})):
        play >> ext(7, body, stream, ignore) << ev.Extended(stream, 7, body)
        play.quiet()


def test_the_largest_type(mode: Mode) -> None:
    play = responder(mode, extensions=(0x7FFFFFFF,)) >> ext(0x7FFFFFFF, b"x") << ev.Extended(0, 0x7FFFFFFF, b"x")
    play >> ext(0x7FFFFFFE, b"x") << ignored(1, "R-5")


@pytest.mark.parametrize("stream", [0, 1])
def test_an_extension_that_is_not_known(stream: int, mode: Mode) -> None:
    """FR-14: by its ignore flag."""
    play = responder(mode, extensions=(7,)) >> frames.RequestStream(stream=1, initial_n=1, data=b"") << ev.Opened
    play >> ext(8, b"x", stream) << ignored(1, "R-5")
    play >> ext(8, b"x", stream, ignore=False) << failed(1, RemoteProtocolError)
    play << closed(RemoteProtocolError, rule="R-5", message="extended type 8 is not supported")
    play << error(0, 0x101, b"extended type 8 is not supported")


@pytest.mark.parametrize("word", ["fc00", "fe00"])
def test_extended_type_0_is_malformed(word: str, mode: Mode) -> None:
    """D-13, FR-14: whatever the ignore flag, and whatever this side knows."""
    play = responder(mode, extensions=(0, 7))
    play >> bytes.fromhex(f"00000a 00000000 {word} 00000000") << closed(RemoteProtocolError) << error(0, 0x101)
    play.quiet()


def test_an_extension_cut_short(mode: Mode) -> None:
    """R-7: there is no type to read."""
    responder(mode, extensions=(7,)) >> bytes.fromhex("000009 00000000 fe00 000000") << ignored(1)
    play = responder(mode, extensions=(7,)) >> bytes.fromhex("000009 00000000 fc00 000000")
    play << closed(RemoteProtocolError, rule="R-7") << error(0, 0x101)


def test_an_extension_accepts_a_connection() -> None:
    """HS-14: the first frame that is not a setup error."""
    play = Playbook(Engine("client", extensions=(7,))) << frames.Setup
    play >> ext(7, b"x") << ev.Established << ev.Extended(0, 7, b"x")


def test_an_extension_is_no_first_frame() -> None:
    play = Playbook(Engine("server", extensions=(7,))) >> ext(7)
    play << closed(RemoteProtocolError, rule="R-11") << error(0, 0x001)


def test_an_extension_while_draining(mode: Mode) -> None:
    play = responder(mode, extensions=(7,)) >> frames.RequestStream(stream=1, initial_n=1, data=b"") << ev.Opened
    play.do(lambda engine: engine.close(0.0, drain=True)) << error(0, 0x102)
    play >> ext(7, b"x") << ev.Extended(0, 7, b"x")
    play.do(lambda engine: engine.extensions.extend(7, b"y")) << ext(7, b"y")


def test_data_of_extensions_counts_until_it_is_consumed() -> None:
    """Like any payload: reading stops when too much waits."""
    limits = Limits.tiny()
    play = responder(limits=limits, extensions=(7,))
    while play.engine.wants_read:
        play >> ext(7, bytes(60_000)) << ev.Extended
    assert play.engine.stream_table.delivered > limits.connection_bytes
    play.engine.consumed(play.engine.stream_table.delivered)
    assert play.engine.wants_read


@pytest.mark.parametrize("ignore", [True, False])
@pytest.mark.parametrize("stream", [0, 5, 0x7FFFFFFF])
def test_an_extension_is_sent(ignore: bool, stream: int) -> None:
    """Before SETUP is answered too."""
    for play in (requester(), responder(), Playbook(Engine("client")) << frames.Setup):
        play.do(lambda engine: engine.extensions.extend(1, b"body", stream=stream, ignore=ignore))
        play << ext(1, b"body", stream, ignore)
        play.do(lambda engine: engine.extensions.extend(0x7FFFFFFF, b"")) << ext(0x7FFFFFFF)
        play.quiet()


@pytest.mark.parametrize("type", [0, -1, 0x80000000])
def test_types_that_are_none(type: int) -> None:
    play = requester()
    with pytest.raises(LocalProtocolError, match=f"an extended type is 1 to 2147483647, not {type}") as refused:
        play.engine.extensions.extend(type, b"")
    assert refused.value.rule == "D-13"
    play.do(lambda engine: None).quiet()


def test_an_entry_of_the_draft_is_not_an_extended_type() -> None:
    play = requester()
    with pytest.raises(LocalProtocolError, match=r"an extended type is a number, not Entry\('a'"):
        play.engine.extensions.extend(Entry("a"), b"")
    play.do(lambda engine: None).quiet()


@pytest.mark.parametrize("stream", [-1, 0x80000000, 1 << 40])
def test_streams_that_are_none(stream: int) -> None:
    play = requester()
    with pytest.raises(LocalProtocolError, match="stream"):
        play.engine.extensions.extend(1, b"", stream=stream)
    play.do(lambda engine: None).quiet()


def test_bodies_at_and_above_the_limit() -> None:
    """Rule 9 of docs/limits: this side obeys the bounds it sets; a peer of its own kind takes the largest."""
    limits = Limits.tiny()
    play = requester(limits=limits)
    most = limits.frame_bytes - 10
    with pytest.raises(LimitExceeded, match=f"{most + 1} bytes of an extension: a peer accepts {most}") as refused:
        play.engine.extensions.extend(1, bytes(most + 1))
    assert refused.value.rule == "frame-too-large"
    play.do(lambda engine: engine.extensions.extend(1, bytes(most))) << ext(1, bytes(most))
    responder(limits=limits, extensions=(1,)) >> ext(1, bytes(most)) << ev.Extended


def test_nothing_is_sent_without_a_connection() -> None:
    play = Playbook(Engine("server"))
    with pytest.raises(ConnectionClosed, match="the connection is wait_first"):
        play.engine.extensions.extend(1, b"")
    play = responder().do(lambda engine: engine.close(0.0)) << ev.Closed << error(0, 0x101)
    with pytest.raises(ConnectionClosed, match="the connection is closed"):
        play.engine.extensions.extend(1, b"")
    deciding = Playbook(Engine("server", decide=True)) >> setup() << ev.Established
    with pytest.raises(ConnectionClosed, match="deciding"):
        deciding.engine.extensions.extend(1, b"")


def test_extensions_of_two_ends() -> None:
    """Either end may know what the other does not."""
    one = Engine("client", extensions=(1, 2))
    two = Engine("server", extensions=(2, 3))
    two.receive(one.outgoing(), 0.0)
    for number in (1, 2, 3):
        one.extensions.extend(number, b"%d" % number)
        two.extensions.extend(number, b"%d" % number)
    heard = [type(event) for event in two.receive(one.outgoing(), 0.0)]
    assert heard == [ev.Ignored, ev.Extended, ev.Extended]
    heard = [type(event) for event in one.receive(two.outgoing(), 0.0)]
    assert heard == [ev.Established, ev.Extended, ev.Extended, ev.Ignored]
