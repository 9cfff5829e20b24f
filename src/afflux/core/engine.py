"""The engine contract: what one end of one connection offers, whatever its protocol.

An engine has no socket, no clock, no randomness and no log. A driver feeds it bytes and time and does what
comes out::

    events = engine.receive(data, now)      # or receive_eof(now), or tick(now) at engine.deadline
    for event in events: ...                # tell the application
    transport.write(engine.outgoing())      # until it returns b""

The verbs queue bytes and raise only for the caller's own mistakes (LocalProtocolError, LimitExceeded,
Unsupported, ConnectionClosed). What the peer does never raises.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

from afflux.core.credit import Ledger
from afflux.core.events import Event, Verb
from afflux.core.limits import Limits
from afflux.core.payload import Payload, PayloadLike

__all__ = ["Carrying", "Engine", "Extending", "Fair", "Lasting", "Leasing", "Promising", "Resumable"]


class Engine(Protocol):
    """One end of one connection."""

    limits: Limits
    "The bounds this end keeps, and makes the peer keep."

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

    def ledger(self, stream: int, unsent: int = 0) -> Ledger:
        """What may be sent on a stream now, and which of application, peer, transport and budget is the smallest;
        ``unsent`` bytes wait in the transport."""

    def credit(self, stream: int) -> int:
        """How many items the peer will still take on a stream; 0 for one that is over."""


class Fair(Engine, Protocol):
    """An engine whose streams take turns by bytes, with large payloads in pieces."""

    def room_beside(self, unsent: int) -> int:
        """The room for what is no large payload (64 KiB and more): it does not wait until such a one has left."""

    def crowd(self, waiting: int) -> None:
        """Before a turn's writing: so many streams have more to send and wait for room."""

    def yields(self) -> bool:
        """Before each outgoing: whether to leave it for now, because what is queued is of streams that have had their
        share, and others are busy. Go on when something new is queued, or after ``pace``. Who does not ask goes on all
        the same."""

    def pace(self) -> None:
        """A millisecond has gone by since it yielded."""

    def behind(self, stream: int) -> bool:
        """Whether something of the stream is still queued: of several that make items without end, only who is not
        behind should make more. ``caught_up`` says when that is over."""

    def caught_up(self) -> list[int]:
        """The streams that were behind, and are not any more, since the last call."""


class Resumable(Engine, Protocol):
    """An engine whose session can outlive its transport."""

    @property
    def suspended(self) -> bool:
        """Whether the session waits for a transport. The verbs go on queueing."""

    def reconnect(self, now: float) -> list[Event]:
        """The side that connects has a new transport: ask to go on. Then comes Resumed, Suspended or Closed."""

    def resume(self, request: Any, now: float) -> list[Event]:
        """The side that listens: go on, on the transport on which ``request`` came. Raises Rejected if it can not."""

    def hand_over(self) -> bytes:
        """A newcomer's engine, after Resuming: it is over; the bytes are for the session's engine."""


class Lasting(Resumable, Protocol):
    """An engine whose session can outlive its process: what has to be known to go on with it."""

    @property
    def handlers(self) -> Collection[int]:
        """The streams that the peer opened and whose handler has not returned."""

    @property
    def asking(self) -> list[int]:
        """The live streams that this side has opened."""

    def standing(self, stream: int) -> tuple[int, int, int] | None:
        """How many items this side has sent on a stream, 0 where it can send no more; how many it may send now; how
        many may still come. None for a stream that is over."""


class Leasing(Engine, Protocol):
    """An engine that counts requests by leases."""

    @property
    def leased(self) -> bool:
        """Whether the two sides have agreed on leases."""

    def lease(self, now: float) -> tuple[int, float]:
        """How many requests this side may send, and for how many seconds more."""

    def granted(self, now: float) -> tuple[int, float]:
        """The same of the peer."""

    def grant(self, lease: Any, now: float, metadata: bytes = b"") -> None:
        """Grant a lease by hand."""


class Extending(Engine, Protocol):
    """An engine whose protocol can be extended."""

    def extend(self, type: int, body: bytes, *, stream: int = 0, ignore: bool = True) -> None:
        """Send a frame of an extension."""


class Promising(Engine, Protocol):
    """An engine that knows of what it has opened whether the peer can have seen it."""

    def unsent(self, stream: int) -> bool:
        """Whether nothing of a stream was handed over to be written: whatever happens, it is safe to try again."""


class Carrying(Engine, Protocol):
    """An engine whose protocol has sessions: bytes in both directions, on streams that only the client opens."""

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
