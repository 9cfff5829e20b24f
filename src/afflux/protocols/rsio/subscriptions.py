"""Open and end the subscriptions of this side: apply the publishers' messages and the application's calls.

A message or a call is first classified as one input of the table SUBSCRIBER in states.py; the table gives the next
state and the action; the action is a method here. Only elements within the demand bypass the table, in elements.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from afflux.core.credit import StreamStatus
from afflux.core.errors import Error, LimitExceeded, LocalProtocolError, RemoteProtocolError, Violation
from afflux.core.events import Completed, Event, Failed, Ignored
from afflux.core.limits import REASONS, oversize, reached
from afflux.core.machine import numbered
from afflux.protocols.rsio import frames
from afflux.protocols.rsio.codes import UNBOUNDED, error_for
from afflux.protocols.rsio.elements import Elements
from afflux.protocols.rsio.ids import Ids
from afflux.protocols.rsio.parts import Parts
from afflux.protocols.rsio.shared import Shared
from afflux.protocols.rsio.states import SUBSCRIBER, SubscriberAction, SubscriberInput, SubscriberState
from afflux.protocols.rsio.subscription import Subscription

__all__ = ["SIGNALS", "Signals", "Subscriptions"]

_I = SubscriberInput
# Names for the hot path: an attribute of an enumeration costs three times as much.
_SUBSCRIBE, _REQUEST, _SUBSCRIBED, _COMPLETE = _I.APP_SUBSCRIBE, _I.APP_REQUEST, _I.SUBSCRIBED, _I.COMPLETE
_FREE, _ACTIVE, _CANCELLED = SubscriberState.FREE, SubscriberState.ACTIVE, SubscriberState.CANCELLED


class Subscriptions:
    """Manage all subscriptions of one side."""

    __slots__ = ("_newest", "elements", "ids", "live", "parts", "shared")

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.ids = Ids(shared.limits.tombstones)
        self.elements = Elements(shared, self.ids.records)
        self.live: dict[int, Subscription] = {}
        "Subscriptions by the application's number."
        self.parts = Parts(shared.limits)
        self._newest = -1

    def expire(self, now: float) -> None:
        """End the subscriptions whose unfinished element has timed out."""
        while (oldest := self.parts.oldest()) and oldest[1] + self.shared.limits.reassembly_s <= now:
            self.step(self.ids.records[oldest[0]], _I.NEXT_BIG, _refused(REASONS["reassembly_s"]))

    # -- calls of the application ---------------------------------------------------------------------------

    def subscribe(self, publisher: str, demand: int, columnar: bool) -> int:
        """Subscribe, and return the application's number for it.

        Raises:
            LimitExceeded: the name is longer than a peer accepts.
            LocalProtocolError: the demand is negative.
        """
        size, most = len(publisher.encode("utf-8", "surrogateescape")), self.shared.limits.publisher_bytes
        if size > most:
            raise LimitExceeded(f"a publisher's name of {size} bytes: a peer accepts {most}", rule="publisher_bytes")
        if demand < 0:
            raise LocalProtocolError(f"the first demand is 0 to {UNBOUNDED}, not {demand}", rule="R-25")
        demand = min(demand, UNBOUNDED)
        self._newest += 2
        subscription = self.ids.allocate()
        subscription.begin(self._newest, demand, columnar)
        self.live[self._newest] = subscription
        message = frames.Subscribe(publisher=publisher, subscriber=subscription.id, initial_demand=demand)
        self.step(subscription, _SUBSCRIBE, message)
        return self._newest

    def request(self, stream: int, n: int) -> None:
        """Demand ``n`` more."""
        subscription = self.live.get(stream)
        if subscription is not None:
            self.step(subscription, _REQUEST if n > 0 else _I.APP_REQUEST_BAD, n)

    def cancel(self, stream: int) -> None:
        """Cancel a subscription: no more elements are delivered."""
        subscription = self.live.get(stream)
        if subscription is not None:
            self.step(subscription, _I.APP_CANCEL, 0)

    def end_all(self, error: Error) -> None:
        """End all subscriptions with the connection: each live one gets one error. Sizes are retained for parsing."""
        for stream, subscription in self.live.items():
            self.shared.events.append(Failed(stream, error.about(stream)))
            subscription.state = _CANCELLED
            self.parts.drop(subscription.id)
        self.live.clear()

    def status(self, reads: bool) -> list[StreamStatus]:
        """Return one status for each live subscription; ``reads`` is False while the budget of this side is used up."""
        return [self._status(stream, subscription, reads) for stream, subscription in self.live.items()]

    def _status(self, stream: int, subscription: Subscription, reads: bool) -> StreamStatus:
        state, credit = subscription.state.name, subscription.to_receive
        bounds = [credit.receiving(memory=reads)]
        return StreamStatus.of(stream, "stream", state, requester=True, to_receive=credit, bounds=bounds)

    # -- steps ----------------------------------------------------------------------------------------------

    def step(self, subscription: Subscription, input: SubscriberInput, argument: Any) -> None:
        step = SUBSCRIBER.steps[subscription.state][input]
        was, subscription.state = subscription.state, step.next
        _ACTIONS[step.action](self, subscription, argument)
        if step.next is not was:
            self._settle(subscription)

    def _settle(self, subscription: Subscription) -> None:
        """Update the tables for a new state."""
        id, state = subscription.id, subscription.state
        if state is _FREE:
            self.ids.free(id)
        elif state is _CANCELLED:
            self.ids.keep(subscription)
        if state is _FREE or state is _CANCELLED:
            self.live.pop(subscription.stream, None)
            self.parts.drop(id)

    def fatal(self, subscription: Subscription, argument: Any) -> None:
        state = subscription.state.name
        raise Violation(f"a message for id {subscription.id} that is not legal in {state}", rule="R-21")

    def drop(self, subscription: Subscription, argument: Any) -> None:
        """Drop a message that was in flight when this side canceled. The bytes of all queues bound their number."""
        limits = self.shared.limits
        size = argument if isinstance(argument, int) else len(argument[0]) if isinstance(argument, tuple) else 0
        subscription.late += 1
        subscription.late_bytes += size + _HEAD
        if subscription.late <= limits.cancel_race_frames or subscription.late_bytes <= limits.connection_bytes:
            self.shared.events.append(Ignored(subscription.id, "R-29", "in flight when this side canceled", 0))
        else:
            self.shared.charge(1, subscription.id, "cancel_race_frames", "more messages than can be in flight")

    def send_subscribe(self, subscription: Subscription, message: frames.Subscribe) -> None:
        self.shared.out.control(message.encode())

    def refuse_size(self, subscription: Subscription, size: int) -> None:
        self.abandon(subscription, _refused(oversize(self.shared.limits, "payload_bytes", size), too_large=True))

    def deliver(self, subscription: Subscription, elements: tuple[bytes, int, int]) -> None:
        data, size, count = elements
        subscription.to_receive.spend(count)
        self.elements.emit(subscription, data, 0, 0, size, count)

    def excess(self, subscription: Subscription, argument: Any) -> None:
        reason = "more elements than were demanded"
        self.shared.charge(50, subscription.id, "R-27", reason)  # first: when it ends the connection, that is the end
        self.abandon(subscription, RemoteProtocolError(reason, rule="R-27"))

    def complete(self, subscription: Subscription, argument: Any) -> None:
        self._say(Completed(subscription.stream))

    def fail(self, subscription: Subscription, error: Error) -> None:
        self._say(Failed(subscription.stream, error))

    def send_request(self, subscription: Subscription, n: int) -> None:
        subscription.to_receive.add(n)
        self.shared.out.control(frames.Request(subscriber=subscription.id, demand=min(n, UNBOUNDED)).encode())

    def stop(self, subscription: Subscription, n: int) -> None:
        text = f"a demand is 1 or more, not {n} (Reactive Streams 3.9)"
        self.abandon(subscription, LocalProtocolError(text, rule="D-12"))

    def send_cancel(self, subscription: Subscription, argument: Any) -> None:
        self.shared.out.control(frames.Cancel(subscriber=subscription.id).encode())

    def abandon(self, subscription: Subscription, error: Error) -> None:
        """Cancel towards the publisher, for which the wire has no error (D-9)."""
        self.send_cancel(subscription, None)
        error.stream = subscription.stream
        self._say(Failed(subscription.stream, error))

    def _say(self, event: Event) -> None:
        self.shared.events.append(event)


def _nothing(subscriptions: Subscriptions, subscription: Subscription, argument: Any) -> None:
    """No-op: the record and the application have what they need."""


_HEAD = 4
"Approximate bytes of a message besides its element."

_A = SubscriberAction
_ACTIONS: list[Callable[[Subscriptions, Subscription, Any], None]] = numbered(
    {
        _A.FATAL: Subscriptions.fatal,
        _A.DROP: Subscriptions.drop,
        _A.SUBSCRIBE: Subscriptions.send_subscribe,
        _A.ACTIVATE: _nothing,
        _A.REFUSE_SIZE: Subscriptions.refuse_size,
        _A.REMEMBER: _nothing,
        _A.DELIVER: Subscriptions.deliver,
        _A.EXCESS: Subscriptions.excess,
        _A.REFUSE_ITEM: Subscriptions.abandon,
        _A.COMPLETE: Subscriptions.complete,
        _A.FAIL: Subscriptions.fail,
        _A.FORGET: _nothing,
        _A.REQUEST: Subscriptions.send_request,
        _A.STOP: Subscriptions.stop,
        _A.CANCEL: Subscriptions.send_cancel,
    },
    unhandled=(_A.IGNORE, _A.NOTHING),  # an unknown id has no record, and an id in use is not chosen
)


def _refused(reason: str, *, too_large: bool = False) -> LimitExceeded:
    """The error of a subscription that a limit ends."""
    text = f"{reason}: the subscription is canceled"
    return LimitExceeded(text, rule=reason.partition(":")[0], too_large=too_large)


class Signals:
    """Apply the publishers' messages to the subscriptions of this side."""

    __slots__ = ("_parts", "_records", "_shared", "_subscriptions")

    def __init__(self, subscriptions: Subscriptions) -> None:
        self._subscriptions = subscriptions
        self._shared = subscriptions.shared
        self._records = subscriptions.ids.records
        self._parts = subscriptions.parts

    def apply(self, message: Any) -> None:
        """Apply a message of a publisher. One for an id in FREE is charged (SI-29)."""
        subscription = self._records.get(message.subscriber)
        if subscription is None:
            self._shared.charge(1, message.subscriber, "SI-29", f"{message.NAME} for an unknown id")
        else:
            SIGNALS[type(message)](self, subscription, message)

    def on_subscribed(self, subscription: Subscription, message: frames.Subscribed) -> None:
        """Apply subscribed: the publisher has answered."""
        size = message.element_size
        input = _SUBSCRIBED
        if subscription.state is not _ACTIVE:
            input = subscription.answered(size, size > self._shared.limits.payload_bytes)
        self._subscriptions.step(subscription, input, size)

    def on_next(self, subscription: Subscription, message: frames.OnNext) -> None:
        """Apply an element outside the fast path."""
        if not subscription.to_receive.available:
            self._subscriptions.step(subscription, _I.NEXT_EXCESS, len(message.element or b""))
        elif message.element is None:
            self._refuse_large(subscription)
        else:
            self._subscriptions.step(subscription, _I.NEXT, (message.element, len(message.element), 1))

    def on_packed(self, subscription: Subscription, message: frames.OnNextPacked) -> None:
        """Apply several elements outside the fast path."""
        count, size = message.count, message.element_size
        if not count:
            # a no-op, and free for its sender (FC-23)
            self._shared.charge(1, subscription.id, "R-40", "onNextPacked without elements")
        elif count > subscription.to_receive.available:
            self._subscriptions.step(subscription, _I.NEXT_EXCESS, len(message.elements or b""))
        elif message.elements is None:
            self._refuse_large(subscription)
        else:
            self._subscriptions.step(subscription, _I.NEXT, (message.elements, size, count))

    def _refuse_large(self, subscription: Subscription) -> None:
        """Refuse an element of which only the size was read."""
        error = _refused(reached(self._shared.limits, "payload_bytes"), too_large=True)
        self._subscriptions.step(subscription, _I.NEXT_BIG, error)

    def on_part(self, subscription: Subscription, message: frames.OnNextPart | frames.OnNextLastPart) -> None:
        """Apply a part of an element; the first one uses the demand."""
        key = message.subscriber, message.element
        if subscription.state is not _ACTIVE:
            self._subscriptions.step(subscription, _I.NEXT, (message.data, len(message.data), 1))
        elif key not in self._parts and not subscription.to_receive.available:
            self._subscriptions.step(subscription, _I.NEXT_EXCESS, len(message.data))
        else:
            self._join(subscription, key, message.data, isinstance(message, frames.OnNextLastPart))

    def _join(self, subscription: Subscription, key: tuple[int, int], data: bytes, last: bool) -> None:
        shared = self._shared
        if key not in self._parts:
            subscription.to_receive.spend(1)
        queued = min(shared.out.size, shared.limits.outbound_high_bytes)
        room = shared.limits.connection_bytes - shared.delivered - self._parts.size - queued
        try:
            element = self._parts.add(key, data, last, shared.now, room)
        except Violation as violation:
            refused = _refused(violation.reason, too_large=violation.too_large)
            self._subscriptions.step(subscription, _I.NEXT_BIG, refused)
            return
        if element is None:
            if self._parts.small(key, len(data)):
                shared.charge(20, subscription.id, "fragment_min_bytes", REASONS["fragment_min_bytes"])
        elif subscription.size and len(element) != subscription.size:
            text = f"an element of {len(element)} bytes where each has {subscription.size}"
            self._subscriptions.step(subscription, _I.NEXT_BIG, RemoteProtocolError(text, rule="R-38"))
        else:
            self._subscriptions.elements.emit(subscription, element, 0, 0, len(element), 1)

    def on_complete(self, subscription: Subscription, message: frames.OnComplete) -> None:
        """Complete the subscription. That needs no demand (R-32)."""
        self._subscriptions.step(subscription, subscription.ended(_COMPLETE), 0)

    def on_error(self, subscription: Subscription, message: frames.OnError) -> None:
        """End the subscription: the publisher has failed, or refuses."""
        input = subscription.ended(_I.ERROR)
        self._subscriptions.step(subscription, input, error_for(message.error, subscription.stream))

    def note(self, message: Any) -> None:
        """Record what affects parsing, while this side waits for the answer to its goodbye."""
        subscription = self._records.get(message.subscriber) if isinstance(message, frames.Subscribed) else None
        if subscription is not None:
            subscription.answered(message.element_size, False)


SIGNALS: dict[type[frames.Message], Callable[[Signals, Subscription, Any], None]] = {
    frames.Subscribed: Signals.on_subscribed,
    frames.OnNext: Signals.on_next,
    frames.OnNextPacked: Signals.on_packed,
    frames.OnNextPart: Signals.on_part,
    frames.OnNextLastPart: Signals.on_part,
    frames.OnComplete: Signals.on_complete,
    frames.OnError: Signals.on_error,
}
"What each message of a publisher does."
