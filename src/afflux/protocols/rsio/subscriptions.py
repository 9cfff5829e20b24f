"""Open and end the subscriptions of this side: apply the application's calls and the steps of the table.

A message or a call is first classified as one input of the table SUBSCRIBER in states.py; the table gives the next
state and the action; the action is a method here. signals.py classifies the publishers' messages. Only elements within
the demand bypass the table, in elements.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from afflux.core.credit import StreamStatus
from afflux.core.errors import Error, LimitExceeded, LocalProtocolError, RemoteProtocolError, Violation
from afflux.core.events import Completed, Event, Failed, Ignored
from afflux.core.limits import REASONS
from afflux.protocols.rsio.codes import UNBOUNDED
from afflux.protocols.rsio.elements import Elements
from afflux.protocols.rsio.frames import Cancel, Request, Subscribe
from afflux.protocols.rsio.ids import Ids
from afflux.protocols.rsio.parts import Parts
from afflux.protocols.rsio.shared import Shared
from afflux.protocols.rsio.states import SUBSCRIBER, SubscriberAction, SubscriberInput, SubscriberState
from afflux.protocols.rsio.subscription import Subscription

__all__ = ["Subscriptions", "refused"]

_I = SubscriberInput
_FREE, _CANCELLED = SubscriberState.FREE, SubscriberState.CANCELLED


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
            self.step(self.ids.records[oldest[0]], _I.NEXT_BIG, refused(REASONS["reassembly_s"]))

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
        message = Subscribe(publisher=publisher, subscriber=subscription.id, initial_demand=demand)
        self.step(subscription, _I.APP_SUBSCRIBE, message)
        return self._newest

    def request(self, stream: int, n: int) -> None:
        """Demand ``n`` more."""
        subscription = self.live.get(stream)
        if subscription is not None:
            self.step(subscription, _I.APP_REQUEST if n > 0 else _I.APP_REQUEST_BAD, n)

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

    def _fatal(self, subscription: Subscription, argument: Any) -> None:
        state = subscription.state.name
        raise Violation(f"a message for id {subscription.id} that is not legal in {state}", rule="R-21")

    def _drop(self, subscription: Subscription, argument: Any) -> None:
        """Drop a message that was in flight when this side canceled. The bytes of all queues bound their number."""
        limits = self.shared.limits
        size = argument if isinstance(argument, int) else len(argument[0]) if isinstance(argument, tuple) else 0
        subscription.late += 1
        subscription.late_bytes += size + _HEAD
        if subscription.late <= limits.cancel_race_frames or subscription.late_bytes <= limits.connection_bytes:
            self.shared.events.append(Ignored(subscription.id, "R-29", "in flight when this side canceled", 0))
        else:
            self.shared.charge(1, subscription.id, "cancel_race_frames", "more messages than can be in flight")

    def _subscribe(self, subscription: Subscription, message: Subscribe) -> None:
        self.shared.out.control(message.encode())

    def _refuse_size(self, subscription: Subscription, size: int) -> None:
        self._abandon(subscription, refused(REASONS["payload_bytes"]))

    def _deliver(self, subscription: Subscription, elements: tuple[bytes, int, int]) -> None:
        data, size, count = elements
        subscription.to_receive.spend(count)
        self.elements.emit(subscription, data, 0, 0, size, count)

    def _excess(self, subscription: Subscription, argument: Any) -> None:
        reason = "more elements than were demanded"
        self.shared.charge(50, subscription.id, "R-27", reason)  # first: when it ends the connection, that is the end
        self._abandon(subscription, RemoteProtocolError(reason, rule="R-27"))

    def _complete(self, subscription: Subscription, argument: Any) -> None:
        self._say(Completed(subscription.stream))

    def _fail(self, subscription: Subscription, error: Error) -> None:
        self._say(Failed(subscription.stream, error))

    def _request(self, subscription: Subscription, n: int) -> None:
        subscription.to_receive.add(n)
        self.shared.out.control(Request(subscriber=subscription.id, demand=min(n, UNBOUNDED)).encode())

    def _stop(self, subscription: Subscription, n: int) -> None:
        text = f"a demand is 1 or more, not {n} (Reactive Streams 3.9)"
        self._abandon(subscription, LocalProtocolError(text, rule="D-12"))

    def _cancel(self, subscription: Subscription, argument: Any) -> None:
        self.shared.out.control(Cancel(subscriber=subscription.id).encode())

    def _abandon(self, subscription: Subscription, error: Error) -> None:
        """Cancel towards the publisher, for which the wire has no error (D-9)."""
        self._cancel(subscription, None)
        error.stream = subscription.stream
        self._say(Failed(subscription.stream, error))

    def _say(self, event: Event) -> None:
        self.shared.events.append(event)


def _nothing(subscriptions: Subscriptions, subscription: Subscription, argument: Any) -> None:
    """No-op: the record and the application have what they need."""


_HEAD = 4
"Approximate bytes of a message besides its element."

_A = SubscriberAction
_ACTIONS: dict[SubscriberAction, Callable[[Subscriptions, Subscription, Any], None]] = {
    _A.FATAL: Subscriptions._fatal,
    _A.DROP: Subscriptions._drop,
    _A.SUBSCRIBE: Subscriptions._subscribe,
    _A.ACTIVATE: _nothing,
    _A.REFUSE_SIZE: Subscriptions._refuse_size,
    _A.REMEMBER: _nothing,
    _A.DELIVER: Subscriptions._deliver,
    _A.EXCESS: Subscriptions._excess,
    _A.REFUSE_ITEM: Subscriptions._abandon,
    _A.COMPLETE: Subscriptions._complete,
    _A.FAIL: Subscriptions._fail,
    _A.FORGET: _nothing,
    _A.REQUEST: Subscriptions._request,
    _A.STOP: Subscriptions._stop,
    _A.CANCEL: Subscriptions._cancel,
}


def refused(reason: str) -> LimitExceeded:
    """The error of a subscription that a limit ends."""
    return LimitExceeded(f"{reason}: the subscription is canceled", rule=reason)
