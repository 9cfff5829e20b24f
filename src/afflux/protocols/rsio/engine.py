"""Offer one end of a reactive-streams-io connection by the contract of core.engine.

A stream of the contract is a subscription. The application's numbers for streams are never reused: odd ones are
subscriptions of this side, even ones those of the peer. The ids on the wire differ from them (ids.py).

The parts: connection.py (the connection itself), subscriptions.py and publications.py (both sides of subscriptions),
inbound.py (parsing) and outbound.py (queueing). Time is an argument: every method that needs it takes ``now`` in
monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar, Literal

from afflux.core.credit import SATURATED, StreamStatus
from afflux.core.engine import Defaults
from afflux.core.errors import ConnectionClosed, LocalProtocolError, Unsupported, Violation
from afflux.core.events import Event, Verb
from afflux.core.limits import Limits
from afflux.core.payload import PayloadLike, payload_of
from afflux.protocols.rsio.connection import Connection
from afflux.protocols.rsio.inbound import Reading
from afflux.protocols.rsio.outbound import Outbound
from afflux.protocols.rsio.publications import Publications, Sizes
from afflux.protocols.rsio.shared import Shared
from afflux.protocols.rsio.states import ConnectionInput, ConnectionState
from afflux.protocols.rsio.subscriptions import Subscriptions

__all__ = ["DEFAULT_MTU", "Engine"]

DEFAULT_MTU = 0x10000
"Bytes above which an element is split, if both sides list split messages; and bytes of each part."
_MIN_MTU = 64  # a smaller part makes no progress

_S, _I = ConnectionState, ConnectionInput
_OPEN, _DRAINING, _CLOSED, _HELD = _S.OPEN, _S.DRAINING, _S.CLOSED, Reading.HELD


class Engine(Defaults):
    """See core.engine.Engine for the contract.

    Args:
        role: "client" (it has connected) or "server".
        limits: the bounds; ``Limits.server()`` if None.
        decide: a server waits for ``accept`` or ``refuse`` after Established instead of accepting immediately, and
            sends hello only then (R-10).
        now: the current time, in monotonic seconds: the handshake timeout starts here.
        mtu: bytes of a part, where elements may be split; 64 or more.
        extensions: extensions of version 0 that this side lists, of codes.Extension; used if both sides list them.
        sizes: returns the size of the elements of a publisher here; without it they have any size.
    """

    __slots__ = ("_full", "connection", "limits", "out", "publications", "shared", "subscriptions")

    most_credit: ClassVar[int] = SATURATED
    "Greatest demand of one request (R-24)."

    def __init__(
        self,
        role: Literal["client", "server"],
        *,
        limits: Limits | None = None,
        decide: bool = False,
        now: float = 0.0,
        mtu: int = DEFAULT_MTU,
        extensions: Collection[int] = (),
        sizes: Sizes | None = None,
    ) -> None:
        if mtu < _MIN_MTU:
            raise LocalProtocolError(f"parts have {_MIN_MTU} bytes or more, not {mtu}", rule="fragment_min_bytes")
        self.limits = limits = limits or Limits.server()
        self.out = Outbound(min(mtu, limits.payload_bytes), min(DEFAULT_MTU, limits.payload_bytes // 2))
        self.shared = shared = Shared(limits, self.out, now)
        self.subscriptions = Subscriptions(shared)
        self.publications = Publications(shared, sizes)
        self.connection = Connection(
            shared, role == "client", self.subscriptions, self.publications, decide=decide, extensions=extensions
        )
        self._full = False
        "This side could take no more input at the last check."

    # -- the driver's side ----------------------------------------------------------------------------------

    def receive(self, data: bytes | memoryview, now: float) -> list[Event]:
        """Apply bytes that arrived at ``now``; return the resulting events."""
        shared, connection = self.shared, self.connection
        if shared.state is _CLOSED:
            return []
        if self._full:
            connection.clock.hold(now)
        shared.now = connection.clock.idle_since = now
        events = connection.run(connection.receive, data, now)
        self._full = not self.wants_read
        return events

    def receive_eof(self, now: float) -> list[Event]:
        """Report the end of the transport (SL-03)."""
        self.shared.now = now
        return self.connection.run(self.connection.step, _I.LOST, None)

    def tick(self, now: float) -> list[Event]:
        """Apply the passing of time: end a silent peer, an unfinished message, or the wait for an answer."""
        shared, connection = self.shared, self.connection
        shared.now = now
        if shared.state is _CLOSED:
            return []
        full = not self.wants_read
        if full or self._full:
            connection.clock.hold(now)
        self._full = full
        return connection.run(connection.tick)

    @property
    def deadline(self) -> float | None:
        """When tick is next needed."""
        shared, clock = self.shared, self.connection.clock
        if shared.state is _CLOSED:
            return None
        if shared.events or (shared.state is _DRAINING and not clock.live):
            return shared.now  # a verb has queued an event, or has ended the last subscription
        return clock.due

    def outgoing(self, limit: int = 0x10000) -> bytes:
        """Return bytes to write now."""
        return self.out.take(limit)

    @property
    def queued(self) -> int:
        """Bytes waiting for outgoing."""
        return self.out.size

    @property
    def held_bytes(self) -> int:
        """Bytes that this end buffers."""
        shared, pending = self.shared, len(self.connection.inbound.buffer.held)
        held = self.out.size + pending + self.subscriptions.parts.size + shared.delivered
        return held + shared.objects * self.limits.object_overhead_bytes

    @property
    def wants_read(self) -> bool:
        """False while more input would exceed the limits."""
        limits, shared = self.limits, self.shared
        if len(self.publications.handlers) > self.publications.many:
            return False
        inbound = self.connection.inbound
        if inbound.reading is _HELD and inbound.pending >= limits.first_frame_bytes:
            return False
        delivered = shared.delivered + shared.objects * limits.object_overhead_bytes
        if delivered and delivered + self.subscriptions.parts.size > limits.connection_bytes:
            return False
        most = limits.outbound_high_bytes + limits.payload_bytes
        return self.out.size <= most and self.out.frames < limits.outbound_high_frames + limits.control_replies

    @property
    def closed(self) -> bool:
        """True once Closed was returned."""
        return self.shared.state is _CLOSED

    def room(self, unsent: int) -> int:
        """Bytes that may still be queued, 0 when there are too many messages."""
        if self.out.frames >= self.limits.outbound_high_frames:
            return 0
        return max(0, self.limits.outbound_high_bytes - self.out.size - unsent)

    def consumed(self, size: int, items: int = 0) -> None:
        """Account for names or elements of ``size`` bytes in all that the application consumed."""
        self.shared.delivered = max(0, self.shared.delivered - size)
        self.shared.objects = max(0, self.shared.objects - items)

    # -- the application's side -----------------------------------------------------------------------------

    def accept(self, now: float) -> list[Event]:
        """Accept the peer; apply what it sent meanwhile."""
        self.connection.check_deciding()
        self.shared.now = now
        return self.connection.run(self.connection.accept)

    def refuse(self, reason: str, now: float, code: int | None = None) -> list[Event]:
        """Refuse the peer with goodbye; this protocol has no codes."""
        self.connection.check_deciding()
        self.shared.now = now
        return self.connection.run(self.connection.step, _I.APP_REFUSE, Violation(reason, rule="3.1"))

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
        """Subscribe: the verb is "stream" and the data of the payload the publisher's name; ``credit`` is the first
        demand, 0 or more. See ``subscribe``."""
        if verb != "stream":
            raise _lacks(verb)
        asked = payload_of(payload)
        if asked.metadata:
            raise Unsupported("a subscription of reactive-streams-io is a publisher's name: it has no metadata")
        return self.subscribe(asked.data.decode("utf-8", "surrogateescape"), credit, columnar=columnar)

    def subscribe(self, publisher: str, demand: int = 0, *, columnar: bool = False) -> int:
        """Subscribe to a publisher of the peer; return the stream's number. A client need not wait for hello (R-11).

        Raises:
            ConnectionClosed: no new subscription can be opened.
            LimitExceeded: the name is longer than a peer accepts.
            LocalProtocolError: the demand is negative, or the name is not text.
        """
        state = self.shared.state
        if not (state is _OPEN or (state is _S.WAIT and self.connection.client)):
            state = _DRAINING if state is _S.LEAVING else state
            raise ConnectionClosed.unsent(f"no new subscriptions while the connection is {state.name}", rule="3.1")
        return self.subscriptions.subscribe(publisher, demand, columnar)

    def send(self, stream: int, payloads: Sequence[PayloadLike], *, complete: bool = False) -> None:
        """Send elements to a subscriber."""
        if stream & 1:
            raise LocalProtocolError("a subscriber sends no elements", stream=stream, rule="3.2")
        self.publications.send(stream, payloads, complete)

    def fail(self, stream: int, error: Exception) -> None:
        """End the stream with an error; a publisher gets only cancel (D-9)."""
        self.publications.fail(stream, error)
        self.subscriptions.cancel(stream)

    def request(self, stream: int, n: int) -> None:
        """Demand ``n`` more; more than 2^63-1 in all is unbounded. 0 or less cancels the subscription and ends it with
        an error, as rule 3.9 of Reactive Streams requires (D-12); the next ``tick`` reports it."""
        self.subscriptions.request(stream, n)

    def cancel(self, stream: int) -> None:
        """Cancel the subscription: no more elements are delivered."""
        self.subscriptions.cancel(stream)

    def close(self, now: float, *, drain: bool = False, reason: str = "") -> list[Event]:
        """Send goodbye, immediately or when the live subscriptions have ended. Closed comes with the answer, or after
        ``goodbye_s``: from ``receive`` or ``tick``."""
        self.shared.now = now
        input = _I.APP_DRAIN if drain else _I.APP_CLOSE
        return self.connection.run(self.connection.step, input, Violation(reason, rule="3.1"))

    def begin(self, stream: int) -> None:
        """Record that the handler of a subscription of the peer is running."""
        self.publications.begun.add(stream)

    def release(self, stream: int) -> None:
        """Record that the handler of a subscription of the peer has returned, or will never begin."""
        self.publications.handlers.discard(stream)
        self.publications.begun.discard(stream)

    def credit(self, stream: int) -> int:
        """Number of elements that the subscriber still demands; 2^63-1 is unbounded (R-24)."""
        publication = self.publications.live.get(stream)
        return 0 if publication is None else publication.to_send.available

    def streams(self, *, room: int | None = None, now: float = 0.0) -> list[StreamStatus]:
        """The live subscriptions of both sides, those of this side first."""
        left = self.room(0) if room is None else room
        return [*self.subscriptions.status(self.wants_read), *self.publications.status(left)]


def _lacks(verb: str) -> Unsupported:
    there = 'stream (a subscription: the publisher\'s name is the data), or subscribe("publisher")'
    return Unsupported(f"reactive-streams-io has no {verb}; it has: {there}")
