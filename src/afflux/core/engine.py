"""Define the engine contract: the methods and abilities that one end of one connection offers, in every protocol.

An engine has no socket, no clock, no randomness and no log. A driver feeds it bytes and time and handles the result::

    events = engine.receive(data, now)      # or receive_eof(now), or tick(now) at engine.deadline
    for event in events: ...                # dispatch them to the application
    transport.write(engine.outgoing())      # until it returns b""

The verbs queue bytes and raise only for the caller's own mistakes (LocalProtocolError, LimitExceeded,
Unsupported, ConnectionClosed). Input from the peer never raises.

An ability that only some protocols have is an attribute: an object of the type declared here, or None where the
protocol, or this connection, does not have it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

from afflux.core.credit import StreamStatus
from afflux.core.events import Event, Verb
from afflux.core.limits import Limits
from afflux.core.payload import Payload, PayloadLike

__all__ = ["ByteSessions", "Engine", "Extensions", "Leases", "Resumption", "Scheduler"]


class Engine(Protocol):
    """One end of one connection."""

    limits: Limits
    "The bounds that this end obeys and enforces."

    # Abilities: an object, or None.

    @property
    def scheduler(self) -> Scheduler | None:
        """Shares the connection among streams by bytes; None: streams leave in the order in which they were queued."""

    @property
    def resumption(self) -> Resumption | None:
        """The session that can outlive its transport; None: it ends with its transport."""

    @property
    def leases(self) -> Leases | None:
        """Counts requests by leases; None: the two sides have not agreed on leases."""

    @property
    def extensions(self) -> Extensions | None:
        """Sends frames of extensions; None: the protocol has none."""

    @property
    def byte_sessions(self) -> ByteSessions | None:
        """Sessions of bytes in both directions; None: the protocol has none."""

    @property
    def setup(self) -> Any:
        """What the client proposed (the SETUP frame, sent or received); None before it is known, or without one."""

    @property
    def most_credit(self) -> int:
        """The most items that one ``request`` may grant."""

    def unsent(self, stream: int) -> bool:
        """Whether no byte of a stream was handed over to be written: whatever happens, it is safe to try again. An
        engine that cannot know it returns False."""

    # What the driver calls.

    def receive(self, data: bytes | memoryview, now: float) -> list[Event]:
        """Take bytes that arrived at ``now`` (monotonic seconds); return what they mean. Nothing of a view is kept."""

    def receive_eof(self, now: float) -> list[Event]:
        """The transport ended. Every live stream fails, then comes Closed."""

    def tick(self, now: float) -> list[Event]:
        """Time passed. Call it at ``deadline`` or later; an early call does no harm."""

    @property
    def deadline(self) -> float | None:
        """When tick is next wanted, or None when nothing is waiting for time."""

    def outgoing(self, limit: int = 0x10000) -> bytes:
        """Bytes to write now: at most about ``limit`` of them (one frame more), b"" when there are none."""

    @property
    def queued(self) -> int:
        """Bytes waiting for outgoing, those not yet cut into fragments included."""

    @property
    def held_bytes(self) -> int:
        """Bytes that this end holds: received and not whole yet, delivered and not consumed, and waiting for outgoing.
        A driver reads it in every turn, so it is a sum of a few numbers and not a walk over streams."""

    @property
    def wants_read(self) -> bool:
        """False while more input could not be taken within the limits: pause reading until it is True."""

    @property
    def closed(self) -> bool:
        """True once Closed was returned: close the transport when outgoing is empty."""

    def room(self, unsent: int) -> int:
        """Bytes that may still be queued, ``unsent`` of which the transport holds already."""

    def consumed(self, size: int, items: int = 0) -> None:
        """The application took ``items`` delivered payloads of ``size`` bytes in all: their budget is free again. A
        request is taken when its handler begins, or when it is given up before."""

    # What the application asks for, through the driver.

    def accept(self, now: float) -> list[Event]:
        """Accept the peer (server, after Established, when the engine was made with ``decide=True``).

        Raises:
            LocalProtocolError: nobody waits for a decision. After Closed it does nothing.
        """

    def refuse(self, reason: str, now: float, code: int | None = None) -> list[Event]:
        """Refuse the peer instead; returns Closed. Raises as accept does."""

    def open(
        self,
        verb: Verb,
        payload: PayloadLike,
        *,
        credit: int = 0,
        complete: bool = False,
        columnar: bool = False,
        now: float | None = None,
    ) -> int:
        """Open a stream and return its id. ``credit`` is the first grant (stream and channel: at least 1);
        ``complete`` ends a channel's outbound half at once; ``columnar`` asks for Block events; ``now`` is the time,
        for engines that count requests by it."""

    def ask(self, payloads: Sequence[Payload]) -> list[int]:
        """Open a request for each payload and return the ids, fewer when no more could be opened. Raises as ``open``
        does if there is none at all."""

    def answer(self, streams: Sequence[int], payloads: Sequence[Payload]) -> None:
        """Send one answer for each request, and release it. What is over hears nothing."""

    def send(self, stream: int, payloads: Sequence[PayloadLike], *, complete: bool = False) -> None:
        """Send items, within ``credit(stream)``; ``complete`` ends this half with the last of them."""

    def complete(self, stream: int) -> None:
        """End this half: no more items."""

    def fail(self, stream: int, error: Exception) -> None:
        """End the stream with an error. An ``afflux.Error`` keeps its code and text; any other gets a
        generic text."""

    def request(self, stream: int, n: int) -> None:
        """Grant the peer ``n`` more items."""

    def cancel(self, stream: int) -> None:
        """Take no more from the peer: ends the stream at its requester, the inbound half at a responder."""

    def push(self, metadata: bytes) -> None:
        """Send metadata about the connection."""

    def close(self, now: float, *, drain: bool = False, reason: str = "") -> list[Event]:
        """Close at once, or with ``drain`` when the live streams have ended."""

    def begin(self, stream: int) -> None:
        """The handler of a stream that the peer opened is at work: from now on a cancel of it is charged
        (``cancel_bucket``). A handler that returns before anything else is received need not be announced."""

    def release(self, stream: int) -> None:
        """The handler of a stream that the peer opened has really returned, or will never begin."""

    def credit(self, stream: int) -> int:
        """How many items the peer will still take on a stream; 0 for one that is over."""

    def streams(self, *, room: int | None = None, now: float = 0.0) -> list[StreamStatus]:
        """The live streams in the order in which they were opened: state, credit, and why each stands still.

        ``room`` is what the driver's transport and queue still accept, ``room(0)`` if None; ``now`` is the time.
        """


class Scheduler(Protocol):
    """Shares the connection among its streams by bytes, with large payloads in pieces."""

    def room_beside(self, unsent: int) -> int:
        """The room for payloads below 64 KiB, which does not wait until a larger one has left. ``unsent`` bytes wait
        in the transport."""

    def crowd(self, waiting: int) -> None:
        """Before a turn's writing: ``waiting`` streams have more to send and wait for room."""

    def should_yield(self) -> bool:
        """True while all queued streams are over their quota and others are busy. A driver may then leave the queue
        until something new is queued or ``pace`` was called; it may also ignore this and go on."""

    def pace(self) -> None:
        """A millisecond has passed since ``should_yield`` was true."""

    def behind(self, stream: int) -> bool:
        """Whether something of the stream is still queued. Of several endless producers only those that are not behind
        should produce more. ``caught_up`` reports when that is over."""

    def caught_up(self) -> list[int]:
        """The streams that were behind and no longer are, since the last call."""


class Resumption(Protocol):
    """A session that can outlive its transport and, when it is recorded, its process."""

    begins_anew: bool
    """A client that has never heard from its server begins a new session when the server does not know this one. Set
    it to False for a session that is stored in a file."""

    @property
    def resumable(self) -> bool:
        """Whether the session would outlive its transport now."""

    @property
    def suspended(self) -> bool:
        """Whether the session waits for a transport. The verbs go on queueing."""

    @property
    def away(self) -> float | None:
        """Since when there has been no transport, or none that was resumed; None while there is one."""

    def reconnect(self, now: float) -> list[Event]:
        """The side that connects has a new transport: ask to resume. Then comes Resumed, Suspended or Closed.

        Raises:
            LocalProtocolError: the session is not suspended.
        """

    def resume(self, request: Any, now: float) -> list[Event]:
        """The side that listens: resume on the transport on which ``request`` came.

        Raises:
            Rejected: the positions do not fit, or it comes too often; the session is as it was.
        """

    def hand_over(self) -> bytes:
        """End a newcomer's engine, after Resuming; the bytes are for the session's engine.

        Raises:
            LocalProtocolError: it did not ask to resume a session.
        """

    @property
    def handlers(self) -> Collection[int]:
        """The streams that the peer opened and whose handler has not returned."""

    @property
    def asking(self) -> list[int]:
        """The live streams that this side has opened."""

    def standing(self, stream: int) -> tuple[int, int, int] | None:
        """How many items this side has sent on a stream, 0 where it can send no more; how many it may send now; how
        many may still come. None for a stream that is over."""


class Leases(Protocol):
    """Counts the requests of both sides by leases."""

    def lease(self, now: float) -> tuple[int, float]:
        """How many requests this side may send, and for how many seconds more."""

    def granted(self, now: float) -> tuple[int, float]:
        """How many requests the peer may send, and for how many seconds more."""

    def grant(self, lease: Any, now: float, metadata: bytes = b"") -> None:
        """Grant a lease by hand. It replaces the one before."""


class Extensions(Protocol):
    """Sends frames of extensions."""

    def extend(self, type: int, body: bytes, *, stream: int = 0, ignore: bool = True) -> None:
        """Send a frame of an extension."""


class ByteSessions(Protocol):
    """Sessions of bytes in both directions, on streams that only the client opens."""

    def open_session(
        self, data: bytes = b"", *, finish: bool = False, auto_ack: bool | None = None, now: float | None = None
    ) -> int:
        """Open a session and return its number; ``data`` are its first bytes, ``finish`` says that they are all, and
        ``auto_ack`` that a response is acknowledged when it was read."""

    def session_id(self, stream: int) -> int | None:
        """The id that a session has on the wire, if it has one now."""

    def takes(self, stream: int) -> bool:
        """Whether what is written on a session may still reach the peer."""

    def starve(self, stream: int, waits: bool) -> None:
        """The application waits for ``credit``, or does not any more: a peer that gives none has only so much time."""

    def credit(self, stream: int) -> int:
        """How many bytes may be written now; 0 for a session that is over."""

    def write(self, stream: int, data: bytes) -> None:
        """Send bytes, within ``credit(stream)``."""

    def finish(self, stream: int, *, ack: bool = False, drop: bool = False) -> None:
        """No more bytes. A server may ask for an acknowledgement (``ack``), and ``drop`` the rest of the request."""

    def read(self, stream: int, limit: int | None = None) -> bytes:
        """Take bytes that have arrived, which makes room for more."""

    def abort(self, stream: int, detail: str = "", *, untouched: bool = False) -> None:
        """End a session in both directions; ``untouched``: no handler has seen it."""

    def acknowledge(self, stream: int) -> None:
        """The response was processed."""

    def decline(self, stream: int) -> None:
        """The application is done with a session that is over, and will not acknowledge its response."""
