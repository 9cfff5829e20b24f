"""What hostile peers of reactive-streams-io say, and what it brings an engine to. No tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from afflux.core import events as ev
from afflux.core.limits import Limits
from afflux.protocols.rsio import Engine, frames
from afflux.protocols.rsio.codes import UNBOUNDED
from tests.hostile.hoards import SERVER, Hoard, drained
from tests.protocols.rsio.playbook import answer, ask, item

P = SERVER.payload_bytes
OTHER_HELLO = frames.ClientHello(version=1, extensions=tuple(range(1 << 60, (1 << 60) + 64))).encode()
LONG_NAME = ask(name="x" * (1 << 20)).encode()
SURPLUS = item(bytes(P - 16)).encode()


def stranger() -> Engine:
    """A server that nobody has spoken to."""
    return Engine("server", limits=SERVER)


def server(limits: Limits = SERVER) -> Engine:
    """A server that has greeted its client."""
    engine = Engine("server", limits=limits)
    engine.receive(frames.ClientHello().encode(), 0.0)
    drained(engine)
    return engine


def subscribed(demand: int, size: int = 0, limits: Limits = SERVER) -> Engine:
    """A client with a subscription."""
    engine = Engine("client", limits=limits)
    engine.subscribe("p", demand)
    engine.receive(frames.ServerHello().encode() + answer(1, size).encode(), 0.0)
    drained(engine)
    return engine


def satisfied() -> Engine:
    """A client that has got all that it wanted."""
    engine = subscribed(1)
    engine.receive(item(b"x").encode(), 0.0)
    return engine


def packed() -> Engine:
    """A client of large elements that may be packed."""
    return subscribed(9, P // 2)


def packs_that_are_too_large() -> list[bytes]:
    """Nine halves of what a payload may be."""
    return [b"\x08\x01\x09", *[bytes(P // 2)] * 9]


def greedy() -> Engine:
    """A server whose client has demanded all that a number can say."""
    engine = server()
    engine.receive(ask(demand=UNBOUNDED).encode(), 0.0)
    return engine


def publish(engine: Any) -> None:
    """The next of many elements."""
    engine.send(2, [bytes(4000)])


def _elements(engine: Any) -> Iterator[bytes]:
    line = item(bytes(50)).encode()
    while True:
        yield line


HOARD = Hoard(lambda limits: subscribed(1 << 40, limits=limits), _elements)
LARGEST = lambda: subscribed(9), item(bytes(P - 16)).encode(), P
"""A client, the longest element that it takes, and its length: a message of this protocol has no length of its own, and
P bounds its one long field."""
BURST = lambda: subscribed(1 << 40), (item(b"").encode() + item(b"x").encode()) * (0x40000 // 7)


def optimists() -> Iterator[None]:
    """HS-25: a client says all that it may, and its server is of another version."""
    engine = Engine("client", limits=SERVER)
    hello = frames.ServerHello(version=1).encode()
    yield
    count = 0
    while engine.room(0) > 0:
        engine.subscribe("x" * 1000, 1)
        count += 1
    events = engine.receive(hello, 0.0)
    assert sum(isinstance(event, ev.Failed) for event in events) == count
