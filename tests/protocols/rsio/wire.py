"""reactive-streams-io for the generic suites."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from afflux.core.frame import Malformed
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.protocols.rsio import Engine, frames
from afflux.protocols.rsio.frames import Message
from afflux.protocols.rsio.states import (
    ANSWERED,
    CLIENT,
    PUBLISHER,
    SERVER,
    SUBSCRIBER,
    PublisherAction,
    SubscriberAction,
)
from tests.protocols.generic.wires import Flood, Talk, Vectors, Wire

from . import grids
from .playbook import BOTH, Reader, answer, ask, bye, cancel, complete, error, item, packed, part, request

SIZE = 3
"Bytes of each element of the publishers whose names end in three."


def pieces(vector: dict[str, Any]) -> Iterator[tuple[bytes, dict[str, Any]]]:
    yield bytes.fromhex(vector["hex"]), vector["decoded"]


def read(data: bytes, meaning: dict[str, Any]) -> Message:
    """A message, by a parser that knows the size that the vector says."""
    reader = Reader()
    reader.sizes[meaning.get("subscriber", 0)] = meaning.get("element_size", 0)
    messages: list[Message] = reader.read(data)
    if not messages:
        raise Malformed(f"{len(data)} bytes are no message yet", rule="R-8")
    return messages[0]


def described(message: Message) -> dict[str, Any]:
    """The message as the vectors write it."""
    row: dict[str, Any] = {"message": message.NAME}
    for name, _ in message.KINDS:
        value = getattr(message, name)
        row[name] = list(value) if isinstance(value, tuple) else value
    if isinstance(message, frames.OnNext):
        row |= {"element_size": message.element_size, "element_hex": row.pop("element").hex()}
    elif isinstance(message, frames.OnNextPacked):
        size, data = message.element_size, row.pop("elements")
        elements = [data[start : start + size].hex() for start in range(0, len(data), size)]
        row |= {"element_size": size, "elements_hex": elements}
    return row


def size_of(name: str) -> int:
    return SIZE if name.endswith("three") else 0


def make(role: Any, *, limits: Limits, mtu: int = 64) -> Engine:
    """Two ids at most are remembered: they are used again all the time."""
    return Engine(role, limits=limits.replace(tombstones=2), mtu=mtu, extensions=BOTH, sizes=size_of)


def name_of(key: int, payload: Payload) -> Payload:
    """A publisher's name; every second one has elements of one size."""
    return Payload(b"%06d" % key + (b" three" if len(payload.data) & 1 else b" any"))


def element(asked: Payload, payload: Payload) -> Payload:
    size = size_of(bytes(asked.data).decode())
    return Payload((payload.data + b"xyz")[:size] if size else payload.data)


def said(*messages: Message | bytes) -> tuple[bytes, ...]:
    return tuple(message if isinstance(message, bytes) else message.encode() for message in messages)


def subscribe_twice(engine: Engine) -> None:
    engine.subscribe("a", 99)
    engine.subscribe("b", 9)


TO_SERVER = said(
    frames.ClientHello(extensions=(12, 14, 1000)),
    ask(1, 5),
    ask(2, 0, "q three"),
    request(2, 3),
    request(1),
    cancel(2),
    ask(2, 1),
    cancel(9),
    bye("x"),
)
TO_CLIENT = said(
    frames.ServerHello(extensions=(12, 14, 1000)),
    answer(1, 0),
    item(b"abc"),
    *[item(b"%02d" % i) for i in range(12)],
    part(0, b"p" * 70),
    answer(2, 2),
    packed(b"ab", b"cd", b"ef", id=2),
    part(0, b"P", last=True),
    item(b"zz", 2, size=2),
    complete(2),
    error("wrong", 1),
    b"\x85\x80\x00\x09",  # cancel, its type written long
    bye(),
)
BROKEN = said(TO_CLIENT[0], answer(1), item(b"x"), b"\x0f", item(b"never"))

WIRE = Wire(
    name="rsio",
    make=make,
    tables=(
        (CLIENT, grids.CLIENT_GRID, grids.CONNECTION_LETTERS),
        (SERVER, grids.SERVER_GRID, grids.CONNECTION_LETTERS),
        (SUBSCRIBER, grids.SUBSCRIBER_GRID, grids.SUBSCRIBER_LETTERS),
        (ANSWERED, grids.ANSWER_GRID, grids.ANSWER_LETTERS),
        (PUBLISHER, grids.PUBLISHER_GRID, grids.PUBLISHER_LETTERS),
    ),
    fatal=(SubscriberAction.FATAL, PublisherAction.FATAL),
    vectors=Vectors(
        file="reactive-streams-io.json",
        pieces=pieces,
        decode=read,
        described=described,
    ),
    talks=(
        Talk(
            name="publisher",
            role="server",
            said=TO_SERVER,
            heard=(
                "Established",
                "Opened",
                "Opened",
                "Ignored",
                "Granted",
                "Canceled",
                "Opened",
                "Ignored",
                "Canceled",
                "Canceled",
                "Closed",
            ),
        ),
        Talk(
            name="subscriber",
            role="client",
            said=TO_CLIENT,
            first=subscribe_twice,
            heard=(
                "Established",
                "Items",
                "Items",
                "Items",
                "Items",
                "Completed",
                "Failed",
                "Ignored",
                "Closed",
            ),
        ),
        Talk(
            name="broken",
            role="client",
            said=BROKEN,
            first=subscribe_twice,
            heard=("Established", "Items", "Failed", "Failed"),
        ),
    ),
    floods=(
        Flood(
            row="FL-01",
            begins=True,
            unit=lambda n: said(cancel() if n % 2 else ask())[0],
            ends="closed",
            rule="cancel-flood",
            limits={"streams": 100_000, "connections": 1},
        ),
        Flood(row="SI-29", unit=lambda n: item(b"", 77).encode(), ends="closed", rule="protocol-abuse"),
        Flood(
            row="FC-08",
            unit=lambda n: request(1).encode() if n else ask().encode(),
            ends="closed",
            rule="protocol-abuse",
        ),
        Flood(
            row="names that are too long",
            unit=lambda n: ask(1, name="x" * 300).encode(),
            ends="paused",
            limits={"glitch_bucket": (1 << 30, 0)},
        ),
        Flood(
            row="items nobody takes",
            role="client",
            first=lambda engine: engine.subscribe("a", 1 << 40),
            unit=lambda n: item(b"x" * 50).encode() if n else answer().encode(),
            ends="paused",
        ),
    ),
    verbs={"client": ("stream",), "server": ("stream",)},
    opening=name_of,
    item=element,
)
