"""The messages of reactive-streams-io, declared field by field in the order of section 2.2 of the specification.

A message is the varint of its type and its fields, without tags and without a length (R-1, D-2). Nothing about a
connection is decided here. A message's ``__init__`` is this side speaking and keeps every bound; reading is the peer
speaking and refuses only what cannot be read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeVar, get_type_hints

from afflux.core.errors import Violation
from afflux.core.frame import MISSING, Field, Frame
from afflux.protocols.rsio.codes import VERSION
from afflux.protocols.rsio.kinds import (
    Count,
    Demand,
    Element,
    Elements,
    Id,
    Ids,
    Octets,
    Text,
    Varint,
    WireKind,
    varint,
)

__all__ = [
    "FRAMES",
    "Cancel",
    "ClientHello",
    "Goodbye",
    "GoodbyeAck",
    "Hello",
    "Message",
    "OnComplete",
    "OnError",
    "OnNext",
    "OnNextLastPart",
    "OnNextPacked",
    "OnNextPart",
    "Request",
    "ServerHello",
    "Subscribe",
    "Subscribed",
]


class Message(Frame):
    """What every message has."""

    __slots__ = ()

    PROTOCOL = "rsio"
    SIZE_RULE = "R-7"
    KINDS: ClassVar[tuple[tuple[str, WireKind], ...]] = ()
    "The fields on the wire, in order."

    def __post_init__(self) -> None:
        for name, kind in self.KINDS:
            if wrong := kind.judge(getattr(self, name)):
                raise Violation(f"{self.NAME}: {name} {wrong}", rule=kind.rule)

    def encode(self, prefixed: bool = False) -> bytes:
        """The message's bytes: all fields, defaults included (R-2). There is no prefix in this protocol."""
        fields = [kind.write(getattr(self, name), self) for name, kind in self.KINDS]
        return b"".join((varint(self.TYPE), *fields))

    @property
    def encoded_size(self) -> int:
        """How many bytes ``encode`` gives."""
        return len(self.encode())

    @classmethod
    def received(cls, values: dict[str, Any]) -> Message:
        """The message that came with these values, whatever they are."""
        message = cls.__new__(cls)
        for name, value in values.items():
            setattr(message, name, value)
        return message


M = TypeVar("M", bound=Message)


def _message(code: int) -> Callable[[type[M]], type[M]]:
    """Turn a declaration into a message of type ``code``."""

    def build(declared: type[M]) -> type[M]:
        layout = []
        for name, hint in get_type_hints(declared, include_extras=True).items():
            kind = next((part for part in getattr(hint, "__metadata__", ()) if isinstance(part, WireKind)), None)
            if kind is not None:
                layout.append(Field(name, kind, getattr(declared, name, MISSING)))
        built = dataclass(slots=True, kw_only=True, unsafe_hash=True, repr=False)(declared)
        built.TYPE = code
        built.NAME = declared.__name__[0].lower() + declared.__name__[1:]
        built.LAYOUT = built.FIELDS = tuple(layout)
        built.KINDS = tuple((field.name, field.kind) for field in layout if isinstance(field.kind, WireKind))
        built.OPEN_ENDED = False
        FRAMES[code] = built
        return built

    return build


FRAMES: dict[int, type[Message]] = {}
"Every message by its type (D-1), in the order of section 2.2."


class Hello(Message):
    """What both hellos have."""

    __slots__ = ()

    version: Annotated[int, Varint()]
    extensions: Annotated[tuple[int, ...], Ids()]


@_message(0x01)
class ClientHello(Hello):
    """The first message of the side that connected (R-9)."""

    version: Annotated[int, Varint()] = VERSION
    "The version that it speaks."
    extensions: Annotated[tuple[int, ...], Ids()] = ()
    "What it knows beyond that; in use is what both sides list (R-15)."


@_message(0x02)
class ServerHello(Hello):
    """The first message of the side that was connected to (R-9)."""

    version: Annotated[int, Varint()] = VERSION
    "The version that it speaks."
    extensions: Annotated[tuple[int, ...], Ids()] = ()
    "What it knows beyond that; in use is what both sides list (R-15)."


@_message(0x03)
class Subscribe(Message):
    """Ask a publisher of the peer for its elements."""

    publisher: Annotated[str, Text("publisher_bytes", exact=True)]
    "Which one: the application's words (R-19)."
    subscriber: Id
    "The id that all messages of this subscription carry; its sender chooses it (R-18)."
    initial_demand: Demand = 0
    "How many elements it may send at once; 0 is legal (R-25)."


@_message(0x04)
class Request(Message):
    """Demand more elements."""

    subscriber: Id
    "Which subscription."
    demand: Annotated[int, Varint(at_least=1, at_most=(1 << 63) - 1, column="n", rule="R-26")]
    "How many more; 0 is a violation (R-26)."


@_message(0x05)
class Cancel(Message):
    """Take no more elements."""

    subscriber: Id
    "Which subscription."


@_message(0x06)
class Subscribed(Message):
    """The publisher's first answer, before any other signal (R-21)."""

    subscriber: Id
    "Which subscription."
    element_size: Annotated[int, Varint()] = 0
    "Bytes of every element; 0 when each has a length of its own."


@_message(0x07)
class OnNext(Message):
    """One element."""

    subscriber: Id
    "Which subscription."
    element: Annotated[bytes | None, Element(column="data")]
    "Its bytes; None for one that was too large to be stored."
    element_size: int = 0
    "What subscribed has said; it is not in this message."


@_message(0x08)
class OnComplete(Message):
    """There are no more elements."""

    subscriber: Id
    "Which subscription."


@_message(0x09)
class OnError(Message):
    """The publisher has failed, or refuses."""

    subscriber: Id
    "Which subscription."
    error: Annotated[str, Text()]
    "Why."


@_message(0x0A)
class OnNextPacked(Message):
    """Several elements of a fixed size."""

    subscriber: Id
    "Which subscription."
    count: Count
    "How many; the demand goes down by as many (R-40)."
    elements: Annotated[bytes | None, Elements(column="data")]
    "Their bytes, one behind the other; None when they were too many to be stored."
    element_size: int
    "What subscribed has said; it is not in this message."


@_message(0x0B)
class Goodbye(Message):
    """The last message of a side; it ends all subscriptions."""

    reason: Annotated[str, Text()]
    "Why; empty when nothing is wrong."


@_message(0x0C)
class OnNextPart(Message):
    """A part of an element, with more to come (extension split_messages)."""

    subscriber: Id
    "Which subscription."
    element: Count
    "The publisher's name for the element."
    data: Annotated[bytes, Octets(column="data")]
    "The next bytes of it."


@_message(0x0D)
class OnNextLastPart(Message):
    """The last part of an element (extension split_messages)."""

    subscriber: Id
    "Which subscription."
    element: Count
    "The publisher's name for the element."
    data: Annotated[bytes, Octets(column="data")]
    "The last bytes of it."


@_message(0x0E)
class GoodbyeAck(Message):
    """The answer to goodbye, where both sides know it (extension goodbye_ack)."""

    message: Annotated[str, Text()]
    "Anything."
