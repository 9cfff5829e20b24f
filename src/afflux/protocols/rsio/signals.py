"""Classify the publishers' messages as inputs of the subscriber's table (3.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from afflux.core.errors import RemoteProtocolError, Violation
from afflux.core.limits import REASONS
from afflux.protocols.rsio.codes import error_for
from afflux.protocols.rsio.frames import (
    Message,
    OnComplete,
    OnError,
    OnNext,
    OnNextLastPart,
    OnNextPacked,
    OnNextPart,
    Subscribed,
)
from afflux.protocols.rsio.states import SubscriberInput, SubscriberState
from afflux.protocols.rsio.subscription import Subscription
from afflux.protocols.rsio.subscriptions import Subscriptions, refused

__all__ = ["SIGNALS", "Signals"]

_I = SubscriberInput
_ACTIVE = SubscriberState.ACTIVE


class Signals:
    """Apply the publishers' messages to the subscriptions of this side."""

    __slots__ = ("_parts", "_records", "_shared", "_subscriptions")

    def __init__(self, subscriptions: Subscriptions) -> None:
        self._subscriptions = subscriptions
        self._shared = subscriptions.shared
        self._records = subscriptions.ids.records
        self._parts = subscriptions.parts

    def _unknown(self, id: int, name: str) -> None:
        """Charge a message for an id in FREE: SI-29."""
        self._shared.charge(1, id, "SI-29", f"{name} for an unknown id")

    def _on_subscribed(self, message: Subscribed) -> None:
        """Apply subscribed: the publisher has answered."""
        subscription = self._records.get(message.subscriber)
        if subscription is None:
            self._unknown(message.subscriber, "subscribed")
            return
        size = message.element_size
        input = _I.SUBSCRIBED
        if subscription.state is not _ACTIVE:
            input = subscription.answered(size, size > self._shared.limits.payload_bytes)
        self._subscriptions.step(subscription, input, size)

    def _on_next(self, message: OnNext) -> None:
        """Apply an element outside the fast path."""
        subscription = self._records.get(message.subscriber)
        if subscription is None:
            self._unknown(message.subscriber, "onNext")
        elif not subscription.to_receive.available:
            self._subscriptions.step(subscription, _I.NEXT_EXCESS, len(message.element or b""))
        elif message.element is None:
            self._subscriptions.step(subscription, _I.NEXT_BIG, refused(REASONS["payload_bytes"]))
        else:
            self._subscriptions.step(subscription, _I.NEXT, (message.element, len(message.element), 1))

    def _on_packed(self, message: OnNextPacked) -> None:
        """Apply several elements outside the fast path. Those of an unknown id cannot be read at all."""
        subscription, count, size = self._records[message.subscriber], message.count, message.element_size
        if not count:
            # a no-op, and free for its sender (FC-23)
            self._shared.charge(1, subscription.id, "R-40", "onNextPacked without elements")
        elif count > subscription.to_receive.available:
            self._subscriptions.step(subscription, _I.NEXT_EXCESS, len(message.elements or b""))
        elif message.elements is None:
            self._subscriptions.step(subscription, _I.NEXT_BIG, refused(REASONS["payload_bytes"]))
        else:
            self._subscriptions.step(subscription, _I.NEXT, (message.elements, size, count))

    def _on_part(self, message: OnNextPart | OnNextLastPart) -> None:
        """Apply a part of an element; the first one uses the demand."""
        subscription = self._records.get(message.subscriber)
        key = message.subscriber, message.element
        if subscription is None:
            self._unknown(message.subscriber, message.NAME)
        elif subscription.state is not _ACTIVE:
            self._subscriptions.step(subscription, _I.NEXT, (message.data, len(message.data), 1))
        elif key not in self._parts and not subscription.to_receive.available:
            self._subscriptions.step(subscription, _I.NEXT_EXCESS, len(message.data))
        else:
            self._join(subscription, key, message.data, isinstance(message, OnNextLastPart))

    def _join(self, subscription: Subscription, key: tuple[int, int], data: bytes, last: bool) -> None:
        shared = self._shared
        if key not in self._parts:
            subscription.to_receive.spend(1)
        queued = min(shared.out.size, shared.limits.outbound_high_bytes)
        room = shared.limits.connection_bytes - shared.delivered - self._parts.size - queued
        try:
            element = self._parts.add(key, data, last, shared.now, room)
        except Violation as violation:
            self._subscriptions.step(subscription, _I.NEXT_BIG, refused(violation.reason))
            return
        if element is None:
            if self._parts.small(key, len(data)):
                shared.charge(20, subscription.id, "fragment_min_bytes", REASONS["fragment_min_bytes"])
        elif subscription.size and len(element) != subscription.size:
            text = f"an element of {len(element)} bytes where each has {subscription.size}"
            self._subscriptions.step(subscription, _I.NEXT_BIG, RemoteProtocolError(text, rule="R-38"))
        else:
            self._subscriptions.elements.emit(subscription, element, 0, 0, len(element), 1)

    def _on_complete(self, message: OnComplete) -> None:
        """Complete the subscription. That needs no demand (R-32)."""
        subscription = self._records.get(message.subscriber)
        if subscription is None:
            self._unknown(message.subscriber, "onComplete")
        else:
            self._subscriptions.step(subscription, subscription.ended(_I.COMPLETE), 0)

    def _on_error(self, message: OnError) -> None:
        """End the subscription: the publisher has failed, or refuses."""
        subscription = self._records.get(message.subscriber)
        if subscription is None:
            self._unknown(message.subscriber, "onError")
        else:
            input = subscription.ended(_I.ERROR)
            self._subscriptions.step(subscription, input, error_for(message.error, subscription.stream))

    def note(self, message: Any) -> None:
        """Record what affects parsing, while this side waits for the answer to its goodbye."""
        if isinstance(message, Subscribed) and (subscription := self._records.get(message.subscriber)) is not None:
            subscription.answered(message.element_size, False)


SIGNALS: dict[type[Message], Callable[[Signals, Any], None]] = {
    Subscribed: Signals._on_subscribed,
    OnNext: Signals._on_next,
    OnNextPacked: Signals._on_packed,
    OnNextPart: Signals._on_part,
    OnNextLastPart: Signals._on_part,
    OnComplete: Signals._on_complete,
    OnError: Signals._on_error,
}
"What each message of a publisher does."
