"""Define the four interfaces of Reactive Streams 1.0.4.

A publisher signals to a subscriber in this order::

    on_subscribe  on_next*  (on_error | on_complete)?

and calls ``on_next`` at most as often as the subscriber has requested. The numbers of the rules are those of the
specification: 1.x for publishers, 2.x for subscribers, 3.x for subscriptions, 4.x for processors.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Protocol, TypeVar, runtime_checkable

__all__ = ["Processor", "Publisher", "Subscriber", "Subscription"]

_Item = TypeVar("_Item", covariant=True)
_Taken = TypeVar("_Taken", contravariant=True)


@runtime_checkable
class Subscription(Protocol):
    """The relation of one subscriber to one publisher, created by the publisher."""

    @abstractmethod
    def request(self, n: int, /) -> None:
        """Request ``n`` more items, 1 or more; demand accumulates up to 2^63-1 (3.8, 3.17).

        The method does not raise or block for any ``n`` (3.16): with 0 or less the subscriber gets a ValueError by
        ``on_error`` (3.9). It may be called from ``on_subscribe`` and ``on_next`` (3.2). No-op after the end of the
        subscription (3.6).
        """

    @abstractmethod
    def cancel(self) -> None:
        """Cancel the subscription. Signals end soon, not always immediately (3.12). It may be called repeatedly and on
        any thread (3.5)."""


@runtime_checkable
class Subscriber(Protocol[_Taken]):
    """A receiver of items. Its methods do not raise or block, except that None as an argument is a TypeError (2.13)."""

    @abstractmethod
    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Receive the first signal, once. Items follow only after ``subscription.request`` (2.1). A subscriber that
        already has a subscription cancels the new one (2.5)."""

    @abstractmethod
    def on_next(self, item: _Taken, /) -> None:
        """Receive a requested item. A few may still arrive after ``cancel`` (2.8)."""

    @abstractmethod
    def on_error(self, error: Exception, /) -> None:
        """Receive the last signal: the publisher has failed. No request is needed (2.10)."""

    @abstractmethod
    def on_complete(self) -> None:
        """Receive the last signal: there are no more items. No request is needed (2.9)."""


@runtime_checkable
class Publisher(Protocol[_Item]):
    """A source of items, sent on demand."""

    @abstractmethod
    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        """Add a subscriber. Its first signal is ``on_subscribe``; a refusal is signalled by ``on_error`` (1.9).

        Raises:
            TypeError: the argument is not a subscriber.
        """


@runtime_checkable
class Processor(Subscriber[_Taken], Publisher[_Item], Protocol[_Taken, _Item]):
    """A stage that is both a subscriber and a publisher, by the rules of both (4.1)."""
