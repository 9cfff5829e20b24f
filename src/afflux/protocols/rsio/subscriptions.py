"""The subscriptions of this side: what the publishers' messages and the application's verbs do to them.

Theory of operation. A message or a verb is first classified as one input of the table SUBSCRIBER in states.py; the
table says the next state and the action; the action is a method of the same name here. Only elements within the
demand go round the table, in elements.py.

Ids. Fresh ones are preferred until there were as many as ``tombstones``, then those that ended longest ago (R-35).
What is known of a canceled id is kept until its end is seen (R-37), and there are ``tombstones`` of them at most:
then the oldest is used again, for which the answers that are outstanding are counted (R-36). So neither ids nor
memory grow without bound, and nothing is ever forgotten that is needed to read on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from afflux.core.credit import StreamStatus
from afflux.core.errors import Error, LimitExceeded, LocalProtocolError, RemoteProtocolError, Violation
from afflux.core.events import Completed, Event, Failed, Ignored
from afflux.core.limits import REASONS
from afflux.protocols.rsio.codes import UNBOUNDED, error_for
from afflux.protocols.rsio.elements import Elements
from afflux.protocols.rsio.frames import (
    Cancel,
    OnComplete,
    OnError,
    OnNext,
    OnNextLastPart,
    OnNextPacked,
    OnNextPart,
    Request,
    Subscribe,
    Subscribed,
)
from afflux.protocols.rsio.parts import Parts
from afflux.protocols.rsio.shared import Shared
from afflux.protocols.rsio.states import SUBSCRIBER, SubscriberAction, SubscriberInput, SubscriberState
from afflux.protocols.rsio.subscription import Subscription

__all__ = ["Subscriptions"]

_I = SubscriberInput
_FREE, _ACTIVE, _CANCELLED = SubscriberState.FREE, SubscriberState.ACTIVE, SubscriberState.CANCELLED


class Subscriptions(Elements):  # long: one method for each message, verb and action of the table
    """All subscriptions of one side."""

    __slots__ = ("_canceled", "_ended", "_fresh", "_newest", "live", "parts")

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self.live: dict[int, Subscription] = {}
        "By the application's number."
        self.parts = Parts(shared.limits)
        self._newest = -1
        self._fresh = 1
        self._ended: deque[int] | tuple[()] = ()
        self._canceled: dict[int, None] = {}

    def size_of(self, id: int) -> int | None:
        """Bytes of the elements of an id; None for one of which nothing is known."""
        subscription = self.records.get(id)
        return None if subscription is None else subscription.size

    # -- what the publishers' messages do -------------------------------------------------------------------

    def on_subscribed(self, message: Subscribed) -> None:
        """The publisher has answered."""
        subscription = self.records.get(message.subscriber)
        if subscription is None:
            self._unknown(message.subscriber, "subscribed")
            return
        size = message.element_size
        input = _I.SUBSCRIBED
        if subscription.state is not _ACTIVE:
            input = subscription.answered(size, size > self.shared.limits.payload_bytes)
        self._step(subscription, input, size)

    def on_next(self, message: OnNext) -> None:
        """An element that is not on the short path."""
        subscription = self.records.get(message.subscriber)
        if subscription is None:
            self._unknown(message.subscriber, "onNext")
        elif not subscription.to_receive.available:
            self._step(subscription, _I.NEXT_EXCESS, len(message.element or b""))
        elif message.element is None:
            self._step(subscription, _I.NEXT_BIG, _refused(REASONS["payload_bytes"]))
        else:
            self._step(subscription, _I.NEXT, (message.element, len(message.element), 1))

    def on_packed(self, message: OnNextPacked) -> None:
        """Several elements that are not on the short path. Of an unknown id they cannot be read at all."""
        subscription, count, size = self.records[message.subscriber], message.count, message.element_size
        if not count:
            # it is a no-op, and costs its sender nothing (FC-23)
            self.shared.charge(1, subscription.id, "R-40", "onNextPacked without elements")
        elif count > subscription.to_receive.available:
            self._step(subscription, _I.NEXT_EXCESS, len(message.elements or b""))
        elif message.elements is None:
            self._step(subscription, _I.NEXT_BIG, _refused(REASONS["payload_bytes"]))
        else:
            self._step(subscription, _I.NEXT, (message.elements, size, count))

    def on_part(self, message: OnNextPart | OnNextLastPart) -> None:
        """A part of an element; the first one uses the demand."""
        subscription = self.records.get(message.subscriber)
        key = message.subscriber, message.element
        if subscription is None:
            self._unknown(message.subscriber, message.NAME)
        elif subscription.state is not _ACTIVE:
            self._step(subscription, _I.NEXT, (message.data, len(message.data), 1))
        elif key not in self.parts and not subscription.to_receive.available:
            self._step(subscription, _I.NEXT_EXCESS, len(message.data))
        else:
            self._join(subscription, key, message.data, isinstance(message, OnNextLastPart))

    def _join(self, subscription: Subscription, key: tuple[int, int], data: bytes, last: bool) -> None:
        shared = self.shared
        if key not in self.parts:
            subscription.to_receive.spend(1)
            subscription.rate()
        queued = min(shared.out.size, shared.limits.outbound_high_bytes)
        room = shared.limits.connection_bytes - shared.delivered - self.parts.size - queued
        try:
            element = self.parts.add(key, data, last, shared.now, room)
        except Violation as violation:
            self._step(subscription, _I.NEXT_BIG, _refused(violation.reason))
            return
        if element is None:
            if self.parts.small(key, len(data)):
                shared.charge(20, subscription.id, "fragment_min_bytes", REASONS["fragment_min_bytes"])
        elif subscription.size and len(element) != subscription.size:
            text = f"an element of {len(element)} bytes where each has {subscription.size}"
            self._step(subscription, _I.NEXT_BIG, RemoteProtocolError(text, rule="R-38"))
        else:
            self._emit(subscription, element, 0, 0, len(element), 1)

    def on_complete(self, message: OnComplete) -> None:
        """The publisher has completed. That needs no demand (R-32)."""
        subscription = self.records.get(message.subscriber)
        if subscription is None:
            self._unknown(message.subscriber, "onComplete")
        else:
            self._step(subscription, subscription.ended(_I.COMPLETE), 0)

    def on_error(self, message: OnError) -> None:
        """The publisher has failed, or refuses."""
        subscription = self.records.get(message.subscriber)
        if subscription is None:
            self._unknown(message.subscriber, "onError")
        else:
            input = subscription.ended(_I.ERROR)
            self._step(subscription, input, error_for(message.error, subscription.stream))

    def note(self, message: Any) -> None:
        """While this side waits for the answer to its goodbye: what may change how the rest is read."""
        subscription = self.records.get(getattr(message, "subscriber", -1))
        if subscription is not None and isinstance(message, Subscribed):
            subscription.answered(message.element_size, False)

    def expire(self, now: float) -> None:
        """End the subscriptions whose unfinished element has waited too long."""
        while (oldest := self.parts.oldest()) and oldest[1] + self.shared.limits.reassembly_s <= now:
            self._step(self.records[oldest[0]], _I.NEXT_BIG, _refused(REASONS["reassembly_s"]))

    # -- what the application's verbs do --------------------------------------------------------------------

    def subscribe(self, publisher: str, demand: int, columnar: bool) -> int:
        """Subscribe, and return the application's number for it.

        Raises:
            LimitExceeded: the name is longer than a peer takes.
            LocalProtocolError: the demand is negative.
        """
        size, most = len(publisher.encode("utf-8", "surrogateescape")), self.shared.limits.publisher_bytes
        if size > most:
            raise LimitExceeded(f"a publisher's name of {size} bytes: a peer takes {most}", rule="publisher_bytes")
        if demand < 0:
            raise LocalProtocolError(f"the first demand is 0 to {UNBOUNDED}, not {demand}", rule="R-25")
        demand = min(demand, UNBOUNDED)
        self._newest += 2
        subscription = self._allocate()
        subscription.begin(self._newest, demand, columnar)
        self.live[self._newest] = subscription
        message = Subscribe(publisher=publisher, subscriber=subscription.id, initial_demand=demand)
        self._step(subscription, _I.APP_SUBSCRIBE, message)
        return self._newest

    def _allocate(self) -> Subscription:
        most = self.shared.limits.tombstones
        if len(self._canceled) >= most:
            id = next(iter(self._canceled))
            del self._canceled[id]
            return self.records[id]
        if self._fresh > most and self._ended:
            id = self._ended.popleft()
        else:
            id = self._fresh
            self._fresh += 1
        subscription = self.records[id] = Subscription(id)
        return subscription

    def request(self, stream: int, n: int) -> None:
        """Demand ``n`` more."""
        subscription = self.live.get(stream)
        if subscription is not None:
            self._step(subscription, _I.APP_REQUEST if n > 0 else _I.APP_REQUEST_BAD, n)

    def cancel(self, stream: int) -> None:
        """Take no more."""
        subscription = self.live.get(stream)
        if subscription is not None:
            self._step(subscription, _I.APP_CANCEL, 0)

    def end_all(self, error: Error) -> None:
        """The connection is over, or will be: each live one gets its one error. Sizes are kept, to read on."""
        for stream, subscription in self.live.items():
            self.shared.events.append(Failed(stream, error.about(stream)))
            subscription.state = _CANCELLED
            subscription.hot = False
            self.parts.drop(subscription.id)
        self.live.clear()

    def status(self, reads: bool) -> list[StreamStatus]:
        """One status for each live subscription; ``reads`` is False while this side's budget allows no input."""
        return [self._status(stream, subscription, reads) for stream, subscription in self.live.items()]

    def _status(self, stream: int, subscription: Subscription, reads: bool) -> StreamStatus:
        state, credit = subscription.state.name, subscription.to_receive
        bounds = [credit.receiving(memory=reads)]
        return StreamStatus.of(stream, "stream", state, requester=True, to_receive=credit, bounds=bounds)

    # -- steps ----------------------------------------------------------------------------------------------

    def _step(self, subscription: Subscription, input: SubscriberInput, argument: Any) -> None:
        step = SUBSCRIBER.steps[subscription.state][input]
        was, subscription.state = subscription.state, step.next
        _ACTIONS[step.action](self, subscription, argument)
        subscription.rate()
        if step.next is not was:
            self._settle(subscription)

    def _settle(self, subscription: Subscription) -> None:
        """Keep the tables true to a new state."""
        id, state = subscription.id, subscription.state
        if state is _FREE:
            del self.records[id]
            self._canceled.pop(id, None)
            self._ended = self._ended or deque()
            self._ended.append(id)
        elif state is _CANCELLED:
            subscription.late = subscription.late_bytes = 0
            self._canceled[id] = None
        if state is _FREE or state is _CANCELLED:
            self.live.pop(subscription.stream, None)
            self.parts.drop(id)

    def _unknown(self, id: int, name: str) -> None:
        """A message for an id in FREE: SI-29."""
        self.shared.charge(1, id, "SI-29", f"{name} for an unknown id")

    def _fatal(self, subscription: Subscription, argument: Any) -> None:
        state = subscription.state.name
        raise Violation(f"a message for id {subscription.id} that makes no sense in {state}", rule="R-21")

    def _drop(self, subscription: Subscription, argument: Any) -> None:
        """It was under way when this side canceled. What can be under way is bounded by the bytes of all queues."""
        limits = self.shared.limits
        size = argument if isinstance(argument, int) else len(argument[0]) if isinstance(argument, tuple) else 0
        subscription.late += 1
        subscription.late_bytes += size + _HEAD
        if subscription.late <= limits.cancel_race_frames or subscription.late_bytes <= limits.connection_bytes:
            self.shared.events.append(Ignored(subscription.id, "R-29", "it was under way when this side canceled", 0))
        else:
            self.shared.charge(1, subscription.id, "cancel_race_frames", "more messages than can be under way")

    def _subscribe(self, subscription: Subscription, message: Subscribe) -> None:
        self.shared.out.control(message.encode())

    def _activate(self, subscription: Subscription, size: int) -> None:
        """``answered`` has the size; the subscription itself is what ``subscribe`` has returned (R-21)."""

    def _refuse_size(self, subscription: Subscription, size: int) -> None:
        self._abandon(subscription, _refused(REASONS["payload_bytes"]))

    def _remember(self, subscription: Subscription, argument: Any) -> None:
        """``answered`` has."""

    def _deliver(self, subscription: Subscription, elements: tuple[bytes, int, int]) -> None:
        data, size, count = elements
        subscription.to_receive.spend(count)
        self._emit(subscription, data, 0, 0, size, count)

    def _excess(self, subscription: Subscription, argument: Any) -> None:
        reason = "more elements than were demanded"
        self.shared.charge(50, subscription.id, "R-27", reason)  # first: when it ends the connection, that is the end
        self._abandon(subscription, RemoteProtocolError(reason, rule="R-27"))

    def _refuse_item(self, subscription: Subscription, error: Error) -> None:
        self._abandon(subscription, error)

    def _complete(self, subscription: Subscription, argument: Any) -> None:
        self._say(Completed(subscription.stream))

    def _fail(self, subscription: Subscription, error: Error) -> None:
        self._say(Failed(subscription.stream, error))

    def _forget(self, subscription: Subscription, argument: Any) -> None:
        """The application has heard the end when it canceled."""

    def _request(self, subscription: Subscription, n: int) -> None:
        subscription.to_receive.add(n)
        self.shared.out.control(Request(subscriber=subscription.id, demand=min(n, UNBOUNDED)).encode())

    def _stop(self, subscription: Subscription, n: int) -> None:
        text = f"a demand is 1 or more, not {n} (Reactive Streams 3.9)"
        self._abandon(subscription, LocalProtocolError(text, rule="D-12"))

    def _cancel(self, subscription: Subscription, argument: Any) -> None:
        self.shared.out.control(Cancel(subscriber=subscription.id).encode())

    def _abandon(self, subscription: Subscription, error: Error) -> None:
        """The wire has no error towards the publisher but cancel (D-9)."""
        self._cancel(subscription, None)
        error.stream = subscription.stream
        self._say(Failed(subscription.stream, error))

    def _say(self, event: Event) -> None:
        self.shared.events.append(event)


_HEAD = 4
"Bytes of a message beside its element, about."

_A = SubscriberAction
_ACTIONS: dict[SubscriberAction, Callable[[Subscriptions, Subscription, Any], None]] = {
    _A.FATAL: Subscriptions._fatal,
    _A.DROP: Subscriptions._drop,
    _A.SUBSCRIBE: Subscriptions._subscribe,
    _A.ACTIVATE: Subscriptions._activate,
    _A.REFUSE_SIZE: Subscriptions._refuse_size,
    _A.REMEMBER: Subscriptions._remember,
    _A.DELIVER: Subscriptions._deliver,
    _A.EXCESS: Subscriptions._excess,
    _A.REFUSE_ITEM: Subscriptions._refuse_item,
    _A.COMPLETE: Subscriptions._complete,
    _A.FAIL: Subscriptions._fail,
    _A.FORGET: Subscriptions._forget,
    _A.REQUEST: Subscriptions._request,
    _A.STOP: Subscriptions._stop,
    _A.CANCEL: Subscriptions._cancel,
}


def _refused(reason: str) -> LimitExceeded:
    return LimitExceeded(f"{reason}: the subscription is canceled", rule=reason)
