"""Declare the messages of reactive-streams-io, field by field in the order of section 2.2 of the specification.

A message is the varint of its type and its fields, without tags and without a length (R-1, D-2). The state of a
connection is not considered. ``__init__`` builds a message of this side and enforces every bound; reading accepts from
the peer all that can be parsed.
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


class Message(Frame):
    """Common base of all messages."""

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
        """Return the message's bytes: all fields, defaults included (R-2). This protocol has no length prefix."""
        fields = [kind.write(getattr(self, name), self) for name, kind in self.KINDS]
        return b"".join((varint(self.TYPE), *fields))

    @property
    def encoded_size(self) -> int:
        """Number of bytes that ``encode`` returns."""
        return len(self.encode())

    @classmethod
    def received(cls, values: dict[str, Any]) -> Message:
        """Return the message with received values, without checking them."""
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
    """Common base of both hellos."""

    __slots__ = ()

    version: Annotated[int, Varint()]
    extensions: Annotated[tuple[int, ...], Ids()]


@_message(0x01)
class ClientHello(Hello):
    """First message of the side that connected (R-9)."""

    version: Annotated[int, Varint()] = VERSION
    "Version of the protocol that it implements."
    extensions: Annotated[tuple[int, ...], Ids()] = ()
    "Extensions that it supports; used if both sides list them (R-15)."


@_message(0x02)
class ServerHello(Hello):
    """First message of the side that accepted the connection (R-9)."""

    version: Annotated[int, Varint()] = VERSION
    "Version of the protocol that it implements."
    extensions: Annotated[tuple[int, ...], Ids()] = ()
    "Extensions that it supports; used if both sides list them (R-15)."


@_message(0x03)
class Subscribe(Message):
    """Ask a publisher of the peer for its elements."""

    publisher: Annotated[str, Text("publisher_bytes", exact=True)]
    "Name of the publisher, chosen by the application (R-19)."
    subscriber: Id
    "Id in all messages of this subscription; its sender chooses it (R-18)."
    initial_demand: Demand = 0
    "Number of elements that may be sent immediately; 0 is legal (R-25)."


@_message(0x04)
class Request(Message):
    """Demand more elements."""

    subscriber: Id
    "Id of the subscription."
    demand: Annotated[int, Varint(at_least=1, at_most=(1 << 63) - 1, column="n", rule="R-26")]
    "Number of further elements; 0 is a violation (R-26)."


@_message(0x05)
class Cancel(Message):
    """Cancel a subscription: no more elements are wanted."""

    subscriber: Id
    "Id of the subscription."


@_message(0x06)
class Subscribed(Message):
    """The publisher's first answer, before any other signal (R-21)."""

    subscriber: Id
    "Id of the subscription."
    element_size: Annotated[int, Varint()] = 0
    "Bytes of every element; 0 when each has its own length."


@_message(0x07)
class OnNext(Message):
    """Carry an element."""

    subscriber: Id
    "Id of the subscription."
    element: Annotated[bytes | None, Element(column="data")]
    "Bytes of the element; None if it was too large to be stored."
    element_size: int = 0
    "Element size from subscribed; not in this message."


@_message(0x08)
class OnComplete(Message):
    """End a subscription: the publisher has no more elements."""

    subscriber: Id
    "Id of the subscription."


@_message(0x09)
class OnError(Message):
    """End a subscription: the publisher has failed, or refuses."""

    subscriber: Id
    "Id of the subscription."
    error: Annotated[str, Text()]
    "Reason."


@_message(0x0A)
class OnNextPacked(Message):
    """Carry several elements of a fixed size."""

    subscriber: Id
    "Id of the subscription."
    count: Count
    "Number of elements; the demand decreases by it (R-40)."
    elements: Annotated[bytes | None, Elements(column="data")]
    "Bytes of the elements, concatenated; None if they were too many to be stored."
    element_size: int
    "Element size from subscribed; not in this message."


@_message(0x0B)
class Goodbye(Message):
    """The last message of a side; it ends all subscriptions."""

    reason: Annotated[str, Text()]
    "Reason; empty if there is no error."


@_message(0x0C)
class OnNextPart(Message):
    """Carry a part of an element, with more to come (extension split_messages)."""

    subscriber: Id
    "Id of the subscription."
    element: Count
    "Number of the element, chosen by the publisher."
    data: Annotated[bytes, Octets(column="data")]
    "Next bytes of the element."


@_message(0x0D)
class OnNextLastPart(Message):
    """Carry the last part of an element (extension split_messages)."""

    subscriber: Id
    "Id of the subscription."
    element: Count
    "Number of the element, chosen by the publisher."
    data: Annotated[bytes, Octets(column="data")]
    "Last bytes of the element."


@_message(0x0E)
class GoodbyeAck(Message):
    """Answer to goodbye, if both sides list it (extension goodbye_ack)."""

    message: Annotated[str, Text()]
    "Any text."
