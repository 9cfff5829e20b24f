"""What hostile peers of Limit-Stream say, and what it brings an engine to. No tests."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from afflux.core.limits import Limits
from afflux.protocols.limit import Engine, Unchecked, frames
from afflux.protocols.limit.frames import LimitFrame
from tests.hostile.hoards import SERVER, Hoard, drained
from tests.protocols.limit.playbook import SKIPPED, choose, item, setup

F = SERVER.frame_bytes
HELLO = setup(b"plain").encode(prefixed=True)
LARGE_SETUP = setup(b"x", bytes(SERVER.first_frame_bytes - 10)).encode(prefixed=True)
LARGEST_ITEM = item(1, bytes(F - 6)).encode(prefixed=True)
UNKNOWN = LimitFrame.PREFIX.join(bytes.fromhex("000000001400") + bytes(F - 6))
LYING = LimitFrame.PREFIX.join(bytes.fromhex("0000000129 00 ffffff") + bytes(F - 9))
TRAILING = LimitFrame.PREFIX.join(frames.End().encode() + bytes(F - 6))
SKIP = LimitFrame.PREFIX.join(SKIPPED)


def stranger() -> Engine:
    """A server that nobody has spoken to."""
    return Engine("server", limits=SERVER)


def server(limits: Limits = SERVER) -> Engine:
    """A server with a session, whose application takes everything."""
    engine = Engine("server", limits=limits, channels=lambda name: Unchecked())
    engine.receive(HELLO, 0.0)
    engine.request(1, 1 << 40)
    return engine


def greedy() -> Engine:
    """A server in its turn, whose client reads nothing."""
    engine = Engine("server", limits=SERVER)
    engine.receive(HELLO + choose(1, 1).encode(prefixed=True), 0.0)
    drained(engine)
    return engine


def publish(engine: Any) -> None:
    """The next of many payloads."""
    engine.send(1, [bytes(4000)])


def sessions() -> list[bytes]:
    """Sessions that are opened and ended, without end."""
    return [HELLO, frames.ErrorFrame(stream=2, code=0x201).encode(prefixed=True)] * 5000


def _items(engine: Any) -> Iterator[bytes]:
    for number in count():
        yield item(2 * number + 1, bytes(50)).encode(prefixed=True)


GREEDY = HELLO + choose(1, 1).encode(prefixed=True)
TO_CLIENT = b"".join(item(2 * number + 4, b"").encode(prefixed=True) for number in range(0x40000 // 9))
"What a server says to a client that has completed its half."
HOARD = Hoard(lambda limits: server(limits), _items)
LARGEST = server, LARGEST_ITEM, F
BURST = server, b"".join(item(2 * number + 1, b"").encode(prefixed=True) for number in range(0x40000 // 9))
