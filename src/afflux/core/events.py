"""What an engine tells the driver. The same events for every protocol.

An event is complete when it is born and is never changed afterwards. The dataclasses are slotted but not
frozen: a frozen ``__init__`` costs four times as much, and one event is made for each read and stream.

Inbound items of a stream end with exactly one of: ``Items`` or ``Block`` with ``complete=True``, its answer in
:class:`Answers`, :class:`Completed`, :class:`Failed`, :class:`Canceled` with ``final=True``, or, for all streams at
once, :class:`Closed` (each live stream gets its own :class:`Failed` before it).
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
"""The kinds of request; the verb push has no stream. ``subscribe`` asks for a stream that never completes, in a
protocol that has a request of its own for it; where it arrives it is a stream."""


@dataclass(slots=True)
class Established:
    """The connection may be used. A server's application has now to decide, when it asked to."""

    setup: Any
    "What the client asked for (the SETUP frame), or None at the client itself."


@dataclass(slots=True)
class Opened:
    """The peer opened a stream."""

    stream: int
    "Its id."
    verb: Verb
    "What kind of interaction it asks for."
    payload: Payload
    "The request; for a channel also the first inbound item."
    credit: int
    "How many items the peer will take for now; 1 for a request, 0 for fire."
    complete: bool
    "A channel whose requester will send nothing more."


@dataclass(slots=True)
class Requests:
    """Several requests that came one after the other: each as :class:`Opened` with the verb "request"."""

    streams: list[int]
    "Their ids: two at least."
    payloads: list[Payload]
    "What each of them asks, in the same order."
    size: int
    "Bytes of all payloads together."

    def each(self) -> Iterator[Opened]:
        """The same, an event for each."""
        for stream, payload in zip(self.streams, self.payloads, strict=True):
            yield Opened(stream, "request", payload, 1, False)


@dataclass(slots=True)
class Answers:
    """Answers of several requests that came one after the other: each as :class:`Items` with one payload that
    completes its stream."""

    streams: list[int]
    "The ids of the requests: two at least."
    payloads: list[Payload]
    "The answer of each of them, in the same order."
    size: int
    "Bytes of all payloads together."

    def each(self) -> Iterator[Items]:
        """The same, an event for each."""
        for stream, payload in zip(self.streams, self.payloads, strict=True):
            yield Items(stream, [payload], True)


@dataclass(slots=True)
class Items:
    """Items of one stream, in order: all that one pass over the input brought, up to a change of state or of size."""

    stream: int
    "The stream they belong to."
    payloads: Payloads
    "At least one item."
    complete: bool = False
    "True when nothing will follow: the inbound half has completed."


@dataclass(slots=True)
class Block:
    """Items of one stream without an object for each: spans of one buffer. Only for columnar streams."""

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
    "Who failed, how, and the rule or code."


@dataclass(slots=True)
class Canceled:
    """The peer wants nothing more from this side on this stream."""

    stream: int
    "The stream."
    final: bool
    "True when the whole stream is over, False when only this side's items are (RSocket D-6)."


@dataclass(slots=True)
class Granted:
    """The peer granted credit."""

    stream: int
    "The stream."
    n: int
    "How much it added, in the protocol's unit."


@dataclass(slots=True)
class Pushed:
    """Metadata that concerns the connection (METADATA_PUSH)."""

    metadata: bytes
    "The metadata."


@dataclass(slots=True)
class Leased:
    """The peer allows requests; it replaces what it allowed before."""

    requests: int
    "How many."
    seconds: float
    "For how long, from now."


@dataclass(slots=True)
class Extended:
    """A frame of an extension that this side knows (EXT)."""

    stream: int
    "The stream id on the frame; 0 is the connection."
    type: int
    "Which extension."
    body: bytes
    "The extension's own bytes."


@dataclass(slots=True)
class SessionOpened:
    """The peer opened a session of bytes (a server that was made with ``sessions=True``)."""

    stream: int
    "Its number at this engine."


@dataclass(slots=True)
class Readable:
    """Bytes of a session have arrived: ``read`` of the engine hands them out, and so makes room for more."""

    stream: int
    "The session."
    size: int
    "How many came; with ``complete`` it may be 0."
    complete: bool = False
    "True when nothing will follow."


@dataclass(slots=True)
class Acknowledged:
    """What became of the acknowledgement that was asked for; it comes once, also after the session is over."""

    stream: int
    "The session."
    positive: bool
    "True: the peer has processed the whole response. False: it never will, or nobody will know."


@dataclass(slots=True)
class Suspended:
    """The transport is over, the session is not: write what ``outgoing`` has, drop the transport, find another."""

    error: Error
    "Why."


@dataclass(slots=True)
class Resuming:
    """A newcomer wants to go on with a session: give its transport to that session, or refuse it."""

    session: Any
    "The engine of the session; None when there is none, at a driver that wants to know."
    request: Any
    "What the newcomer says (the RESUME frame)."


@dataclass(slots=True)
class Resumed:
    """The session goes on, on a new transport. Nothing was lost, nothing comes twice."""


@dataclass(slots=True)
class Draining:
    """The peer closes gracefully: live streams go on, new requests are refused."""

    reason: str
    "The peer's words."


@dataclass(slots=True)
class Ignored:
    """A frame was dropped because the rules say so, and charged."""

    stream: int
    "The stream id on the frame."
    rule: str
    "Why."
    reason: str
    "In words."
    price: int
    "Glitch tokens taken; 0 for a legal race."


@dataclass(slots=True)
class Closed:
    """The last event: nothing follows. Write what ``outgoing`` still has, then close the transport."""

    error: Error | None
    "None when this side or the peer closed in order, else what ended the connection."


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
    """The same events, with one for each request and each answer."""
    for event in events:
        if isinstance(event, Requests | Answers):
            yield from event.each()
        else:
            yield event
