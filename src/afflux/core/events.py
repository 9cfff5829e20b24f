"""Define the events that an engine returns to its driver, in every protocol.

An event is complete when it is created and never changes. The dataclasses are slotted but not frozen: a frozen
``__init__`` costs four times as much, and one event is created for each read and stream.

The inbound items of a stream end with exactly one of: ``Items`` or ``Block`` with ``complete=True``, its answer in
:class:`Answers`, :class:`Completed`, :class:`Failed`, or :class:`Canceled` with ``final=True``. Before
:class:`Closed`, each live stream gets its own :class:`Failed`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from afflux.core.errors import Error
from afflux.core.payload import Payload, Payloads

__all__ = [
    "Acknowledged",
    "Answers",
    "Block",
    "Canceled",
    "Closed",
    "Completed",
    "Draining",
    "Established",
    "Event",
    "Extended",
    "Failed",
    "Granted",
    "Ignored",
    "Items",
    "Leased",
    "Opened",
    "Pushed",
    "Readable",
    "Requests",
    "Resumed",
    "Resuming",
    "SessionOpened",
    "Suspended",
    "Verb",
    "singly",
]

Verb = Literal["request", "fire", "stream", "channel", "subscribe"]
"""The kinds of request that open a stream; push does not. ``subscribe`` requests a stream that never completes, in a
protocol that has such a request; the responder receives it as ``stream``."""


@dataclass(slots=True)
class Established:
    """The connection may be used. A server's application decides now whether to accept it, if it requested that."""

    setup: Any
    "The client's proposal (the SETUP frame); None at the client."


@dataclass(slots=True)
class Opened:
    """The peer opened a stream."""

    stream: int
    "Its id."
    verb: Verb
    "The kind of interaction."
    payload: Payload
    "The request; for a channel also the first inbound item."
    credit: int
    "Items that the peer has granted; 1 for a request, 0 for fire."
    complete: bool
    "True for a channel whose requester sends nothing more."


@dataclass(slots=True)
class Requests:
    """Several consecutive requests, each equivalent to :class:`Opened` with the verb "request"."""

    streams: list[int]
    "The ids, at least two."
    payloads: list[Payload]
    "The payload of each request, in the same order."
    size: int
    "Bytes of all payloads together."

    def each(self) -> Iterator[Opened]:
        """Yield an event for each request."""
        for stream, payload in zip(self.streams, self.payloads, strict=True):
            yield Opened(stream, "request", payload, 1, False)


@dataclass(slots=True)
class Answers:
    """The answers of several requests, consecutive on the wire, each equivalent to :class:`Items` with one payload that
    completes its stream."""

    streams: list[int]
    "The ids of the requests, at least two."
    payloads: list[Payload]
    "The answer of each of them, in the same order."
    size: int
    "Bytes of all payloads together."

    def each(self) -> Iterator[Items]:
        """Yield an event for each answer."""
        for stream, payload in zip(self.streams, self.payloads, strict=True):
            yield Items(stream, [payload], True)


@dataclass(slots=True)
class Items:
    """Consecutive items of one stream from one pass over the input, up to a change of state, or of one size."""

    stream: int
    "The stream they belong to."
    payloads: Payloads
    "At least one item."
    complete: bool = False
    "True if the inbound half has completed with these items."


@dataclass(slots=True)
class Block:
    """Items of one stream as spans of one buffer, without an object for each. Only for columnar streams."""

    stream: int
    "The stream they belong to."
    buffer: bytes
    "The received bytes, headers included."
    starts: array[int]
    "Where the data of each item starts in ``buffer`` ('q')."
    ends: array[int]
    "Where it ends, exclusive ('q')."
    complete: bool = False
    "As in :class:`Items`."


@dataclass(slots=True)
class Completed:
    """The peer completed its half without a further item."""

    stream: int
    "The stream."


@dataclass(slots=True)
class Failed:
    """The stream is over, in both directions, with an error."""

    stream: int
    "The stream."
    error: Error
    "The cause, with its rule or code."


@dataclass(slots=True)
class Canceled:
    """The peer canceled this side's items on this stream."""

    stream: int
    "The stream."
    final: bool
    "True if the whole stream is over, False if only this side's items are (RSocket D-6)."


@dataclass(slots=True)
class Granted:
    """The peer granted credit."""

    stream: int
    "The stream."
    n: int
    "The credit added, in the protocol's unit."


@dataclass(slots=True)
class Pushed:
    """Metadata that concerns the connection (METADATA_PUSH)."""

    metadata: bytes
    "The metadata."


@dataclass(slots=True)
class Leased:
    """The peer granted a lease, which replaces the one before."""

    requests: int
    "The number of requests that it permits."
    seconds: float
    "Seconds from now until it expires."


@dataclass(slots=True)
class Extended:
    """A frame of an extension that this side supports (EXT)."""

    stream: int
    "The stream id on the frame; 0 is the connection."
    type: int | str
    "The extension's type; a name for an extension that has one."
    body: bytes
    "The extension's own bytes."


@dataclass(slots=True)
class SessionOpened:
    """The peer opened a byte session (at a server made with ``sessions=True``)."""

    stream: int
    "Its number at this engine."


@dataclass(slots=True)
class Readable:
    """Bytes of a session have arrived. The engine's ``read`` returns them, which makes room for more."""

    stream: int
    "The session."
    size: int
    "The number of bytes; with ``complete`` it may be 0."
    complete: bool = False
    "True if these bytes are the last."


@dataclass(slots=True)
class Acknowledged:
    """The result of a requested acknowledgement. It is reported once, possibly after the end of the session."""

    stream: int
    "The session."
    positive: bool
    "True: the peer has processed the whole response. False: it has not, or this is unknown."


@dataclass(slots=True)
class Suspended:
    """The transport failed, the session continues: write what ``outgoing`` returns, drop the transport, reconnect."""

    error: Error
    "The cause."


@dataclass(slots=True)
class Resuming:
    """A new connection asks to resume a session: hand its transport to that session, or refuse it."""

    session: Any
    "The engine of the session; None if it is unknown and the driver handles unknown sessions."
    request: Any
    "The RESUME frame of the new connection."


@dataclass(slots=True)
class Resumed:
    """The session continues on a new transport, without loss and without duplicates."""


@dataclass(slots=True)
class Draining:
    """The peer drains: live streams continue, new requests are refused."""

    reason: str
    "The peer's text."


@dataclass(slots=True)
class Ignored:
    """A frame was dropped, as a rule requires, and charged."""

    stream: int
    "The stream id on the frame."
    rule: str
    "The rule."
    reason: str
    "The reason as text."
    price: int
    "Glitch tokens taken; 0 for a legal race."


@dataclass(slots=True)
class Closed:
    """The last event. Write what ``outgoing`` still returns, then close the transport."""

    error: Error | None
    "None after a graceful close by either side, else the cause."


Event = (
    Established
    | Opened
    | Requests
    | Answers
    | Items
    | Block
    | Completed
    | Failed
    | Canceled
    | Granted
    | Pushed
    | Leased
    | Extended
    | SessionOpened
    | Readable
    | Acknowledged
    | Suspended
    | Resuming
    | Resumed
    | Draining
    | Ignored
    | Closed
)


def singly(events: Iterable[Event]) -> Iterator[Event]:
    """Yield the events, with one for each request and each answer."""
    for event in events:
        if isinstance(event, Requests | Answers):
            yield from event.each()
        else:
            yield event
