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
from typing import Any, ClassVar, Protocol, runtime_checkable

from afflux.core.credit import StreamStatus
from afflux.core.errors import LimitExceeded, LocalProtocolError, Unsupported
from afflux.core.events import Event, Verb
from afflux.core.limits import Limits
from afflux.core.payload import Payload, PayloadLike

__all__ = [
    "ByteSessions",
    "Defaults",
    "Engine",
    "Extensions",
    "Leases",
    "Resumption",
    "Scheduler",
    "Setup",
    "TypedSessions",
]


class Engine(Protocol):
    """An end of a connection."""

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
    def typed_sessions(self) -> TypedSessions | None:
        """Channels whose steps the engine checks by session types; None: the protocol has none."""

    @property
    def setup(self) -> Setup | None:
        """The client's SETUP, sent or received; None before it is known, and in a protocol without one."""

    @property
    def most_credit(self) -> int:
        """The most items that one ``request`` may grant."""

    def unsent(self, stream: int) -> bool:
        """Whether no byte of a stream was handed over to be written, so that a retry is safe. An engine that cannot
        determine it returns False."""

    # What the driver calls.

    def receive(self, data: bytes | memoryview, now: float) -> list[Event]:
        """Process bytes that arrived at ``now`` (monotonic seconds); return their events. A view is not retained."""

    def receive_eof(self, now: float) -> list[Event]:
        """Process the end of the transport: every live stream fails, then Closed is returned."""

    def tick(self, now: float) -> list[Event]:
        """Process the passing of time. Call it at ``deadline`` or later; an early call is a no-op."""

    @property
    def deadline(self) -> float | None:
        """When to call tick next, or None if no timer is set."""

    def outgoing(self, limit: int = 0x10000) -> bytes:
        """Return bytes to write now: at most about ``limit`` (and one frame), b"" if there are none."""

    @property
    def queued(self) -> int:
        """Bytes waiting for outgoing, including those not yet split into fragments."""

    @property
    def held_bytes(self) -> int:
        """Bytes buffered by this end: incomplete frames, delivered and not consumed items, and bytes for outgoing.
        A driver reads it in every turn, so it is a sum of a few numbers and does not visit the streams."""

    @property
    def wants_read(self) -> bool:
        """False while the limits permit no more input: pause reading until it is True."""

    @property
    def closed(self) -> bool:
        """True after Closed was returned: close the transport when outgoing is empty."""

    def room(self, unsent: int) -> int:
        """Return the bytes that may still be queued, if the transport already buffers ``unsent`` bytes."""

    def consumed(self, size: int, items: int = 0) -> None:
        """Return the budget of ``items`` delivered payloads of ``size`` bytes in total, because the application took
        them. A request is taken when its handler begins, or when it is abandoned before."""

    # What the application requests, through the driver.

    def accept(self, now: float) -> list[Event]:
        """Accept the peer (server, after Established, if the engine was made with ``decide=True``). No-op after Closed.

        Raises:
            LocalProtocolError: no decision is pending.
        """

    def refuse(self, reason: str, now: float, code: int | None = None) -> list[Event]:
        """Refuse the peer; returns Closed. Raises as accept does."""

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
        ``complete`` ends a channel's outbound half immediately; ``columnar`` requests Block events; ``now`` is the
        time, for engines with leases."""

    def ask(self, payloads: Sequence[Payload]) -> list[int]:
        """Open a request for each payload and return the ids, fewer if no more could be opened. Raises as ``open``
        does if none could be opened."""

    def answer(self, streams: Sequence[int], payloads: Sequence[Payload]) -> None:
        """Send one answer for each request, and release it. Requests that are over are skipped."""

    def send(self, stream: int, payloads: Sequence[PayloadLike], *, complete: bool = False) -> None:
        """Send items, within ``credit(stream)``; ``complete`` ends this half with the last of them."""

    def complete(self, stream: int) -> None:
        """End this half of the stream."""

    def fail(self, stream: int, error: Exception) -> None:
        """End the stream with an error. An ``afflux.Error`` keeps its code and text; any other gets a
        generic text."""

    def request(self, stream: int, n: int) -> None:
        """Grant the peer ``n`` more items."""

    def cancel(self, stream: int) -> None:
        """Cancel the peer's items: ends the stream at its requester, the inbound half at a responder."""

    def push(self, metadata: bytes) -> None:
        """Send metadata about the connection."""

    def close(self, now: float, *, drain: bool = False, reason: str = "") -> list[Event]:
        """Close immediately, or with ``drain`` when the live streams have ended."""

    def begin(self, stream: int) -> None:
        """Report that the handler of a stream opened by the peer has started: from now on its cancel is charged
        (``cancel_bucket``). A handler that returns before more input is processed need not be reported."""

    def release(self, stream: int) -> None:
        """Report that the handler of a stream opened by the peer has returned, or will not start."""

    def credit(self, stream: int) -> int:
        """Return the items that the peer still accepts on a stream; 0 for a stream that is over."""

    def streams(self, *, room: int | None = None, now: float = 0.0) -> list[StreamStatus]:
        """Return the live streams in the order in which they were opened, with state, credit and smallest bound.

        ``room`` is the number of bytes that the driver's transport and queue still accept, ``room(0)`` if None;
        ``now`` is the time.
        """


@runtime_checkable
class Setup(Protocol):
    """The SETUP frame of a client, in a protocol whose payloads have metadata."""

    @property
    def metadata_mime(self) -> str:
        """The MIME type of all metadata of the connection."""

    @property
    def data_mime(self) -> str:
        """The MIME type of all data of the connection."""

    @property
    def metadata(self) -> bytes | None:
        """Metadata for the server, such as credentials; None without any."""


class Defaults:
    """Default implementations: no abilities, and verbs that use other verbs."""

    __slots__ = ()

    scheduler: ClassVar[None] = None
    resumption: ClassVar[None] = None
    leases: ClassVar[None] = None
    extensions: ClassVar[None] = None
    byte_sessions: ByteSessions | None = None
    typed_sessions: TypedSessions | None = None
    setup: ClassVar[None] = None

    def accept(self, now: float) -> list[Event]:
        """Raise LocalProtocolError, because the protocol accepts every peer."""
        raise LocalProtocolError("this protocol has no decision about a connection")

    def refuse(self, reason: str, now: float, code: int | None = None) -> list[Event]:
        """Raise LocalProtocolError; ``close`` ends a connection."""
        return self.accept(now)

    def ask(self: Engine, payloads: Sequence[Payload]) -> list[int]:
        """Open a request for each payload, fewer if a limit is reached."""
        streams: list[int] = []
        for payload in payloads:
            try:
                streams.append(self.open("request", payload))
            except LimitExceeded:
                if not streams:
                    raise
                break
        return streams

    def answer(self: Engine, streams: Sequence[int], payloads: Sequence[Payload]) -> None:
        """Send one answer for each request, and release it."""
        for stream, payload in zip(streams, payloads, strict=True):
            self.send(stream, [payload], complete=True)
            self.release(stream)

    def complete(self: Engine, stream: int) -> None:
        """End this half of the stream."""
        self.send(stream, [], complete=True)

    def push(self, metadata: bytes) -> None:
        """Raise Unsupported, because the protocol has no metadata."""
        raise Unsupported("this protocol does not support push")

    def unsent(self, stream: int) -> bool:
        """Return False, because bytes of streams are not tracked."""
        return False


class Scheduler(Protocol):
    """Shares the connection among its streams by bytes, and splits large payloads."""

    def room_beside(self, unsent: int) -> int:
        """Return the room for payloads below 64 KiB, which do not wait for a larger one. The transport buffers
        ``unsent`` bytes."""

    def crowd(self, waiting: int) -> None:
        """Report, before a turn's writing, that ``waiting`` streams have more to send and wait for room."""

    def should_yield(self) -> bool:
        """True while all queued streams are over their quota and others are busy. A driver may then leave the queue
        until something new is queued or ``pace`` was called; it may also continue writing."""

    def pace(self) -> None:
        """Report that a millisecond has passed since ``should_yield`` was true."""

    def behind(self, stream: int) -> bool:
        """Whether part of the stream is still queued. Of several endless producers only those that are not behind
        should produce more. ``caught_up`` reports the end of this state."""

    def caught_up(self) -> list[int]:
        """Return the streams that have caught up since the last call."""


class Resumption(Protocol):
    """A session that can outlive its transport and, if it is recorded, its process."""

    begins_anew: bool
    """True if a client may begin a new session when its server, which has never answered, does not have this one. Set
    it to False for a session that is stored in a file."""

    @property
    def resumable(self) -> bool:
        """Whether the session would outlive its transport now."""

    @property
    def suspended(self) -> bool:
        """Whether the session waits for a transport. The verbs continue to queue."""

    @property
    def away(self) -> float | None:
        """Time since which the session has had no transport, or none that was resumed; None while it has one."""

    def reconnect(self, now: float) -> list[Event]:
        """Ask to resume on the client's new transport. Resumed, Suspended or Closed follows.

        Raises:
            LocalProtocolError: the session is not suspended.
        """

    def resume(self, request: Any, now: float) -> list[Event]:
        """Resume a server's session on the transport on which ``request`` arrived.

        Raises:
            Rejected: the positions do not match, or attempts are too frequent; the session is unchanged.
        """

    def hand_over(self) -> bytes:
        """End the engine of a new connection, after Resuming; return the bytes for the session's engine.

        Raises:
            LocalProtocolError: the connection did not ask to resume a session.
        """

    @property
    def handlers(self) -> Collection[int]:
        """The streams opened by the peer whose handlers have not returned."""

    @property
    def opened(self) -> list[int]:
        """The live streams that this side has opened."""

    def stream_counters(self, stream: int) -> tuple[int, int, int] | None:
        """Return the items that this side has sent on a stream, 0 if it can send no more; its credit; and the items
        that the peer may still send. None for a stream that is over."""


class Leases(Protocol):
    """Counts the requests of both sides by leases."""

    def lease(self, now: float) -> tuple[int, float]:
        """Return the requests that this side may send, and the seconds until its lease expires."""

    def granted(self, now: float) -> tuple[int, float]:
        """Return the requests that the peer may send, and the seconds until its lease expires."""

    def grant(self, lease: Any, now: float, metadata: bytes = b"") -> None:
        """Grant a lease by hand, which replaces the previous one."""


class Extensions(Protocol):
    """Sends frames of extensions."""

    def extend(self, type: Any, body: bytes, *, stream: int = 0, ignore: bool = True) -> None:
        """Send a frame of an extension: of an extended type, or of an entry where extensions are entries."""


class ByteSessions(Protocol):
    """Sessions of bytes in both directions, on streams that only the client opens."""

    def open_session(
        self, data: bytes = b"", *, finish: bool = False, auto_ack: bool | None = None, now: float | None = None
    ) -> int:
        """Open a session and return its number. ``data`` are its first bytes, with ``finish`` its only bytes;
        ``auto_ack`` acknowledges the response when it was read."""

    def session_id(self, stream: int) -> int | None:
        """Return the id of a session on the wire; None while it has none."""

    def takes(self, stream: int) -> bool:
        """Whether bytes written on a session may still reach the peer."""

    def starve(self, stream: int, waits: bool) -> None:
        """Report whether the application waits for ``credit``; a peer that grants none in time fails."""

    def credit(self, stream: int) -> int:
        """Return the bytes that may be written now; 0 for a session that is over."""

    def write(self, stream: int, data: bytes) -> None:
        """Send bytes, within ``credit(stream)``."""

    def finish(self, stream: int, *, ack: bool = False, drop: bool = False) -> None:
        """End this half. A server may request an acknowledgement (``ack``), and ``drop`` the rest of the request."""

    def read(self, stream: int, limit: int | None = None) -> bytes:
        """Return bytes that have arrived, which makes room for more."""

    def abort(self, stream: int, detail: str = "", *, untouched: bool = False) -> None:
        """Abort a session in both directions; ``untouched`` if no handler has received it."""

    def acknowledge(self, stream: int) -> None:
        """Acknowledge that the response was processed."""

    def decline(self, stream: int) -> None:
        """Release a session that is over without acknowledging its response."""


class TypedSessions(Protocol):
    """Channels whose steps the engine checks by session types. The metadata of a request is the channel's name."""

    def opening(self, channel: str, machine: Any) -> Payload:
        """Return the payload that opens a session of a channel; ``machine`` is this side's view of its type."""

    def notation(self) -> Any:
        """Return an ``afflux.sessions.Notation``: how the steps of a session are written as items."""
