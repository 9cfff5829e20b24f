"""The four interfaces of Reactive Streams 1.0.4, in Python's words. What implements them lives in other files.

A publisher speaks to a subscriber in this order, and in no other::

    on_subscribe  on_next*  (on_error | on_complete)?

and never more often ``on_next`` than the subscriber has asked for with ``request``. The numbers of the rules are those
of the specification: 1.x for publishers, 2.x for subscribers, 3.x for subscriptions, 4.x for processors.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Protocol, TypeVar, runtime_checkable

__all__ = ["Processor", "Publisher", "Subscriber", "Subscription"]

_Item = TypeVar("_Item", covariant=True)
_Taken = TypeVar("_Taken", contravariant=True)


@runtime_checkable
class Subscription(Protocol):
    """What one subscriber and one publisher have with each other. The publisher makes it."""

    @abstractmethod
    def request(self, n: int, /) -> None:
        """Ask for ``n`` more items, 1 or more; it adds up to at most 2^63-1 (3.8, 3.17).

        It returns normally and soon, whatever ``n`` is (3.16): with 0 or less the subscriber gets a ValueError by
        ``on_error`` (3.9). It may be called from within ``on_subscribe`` and ``on_next`` (3.2). Once the subscription
        is over it does nothing (3.6).
        """

    @abstractmethod
    def cancel(self) -> None:
        """Want no more. Signals end soon, not always at once (3.12). Any number of times, from any thread (3.5)."""


@runtime_checkable
class Subscriber(Protocol[_Taken]):
    """Who takes items. Its methods return normally and soon; None as an argument is a TypeError (2.13)."""

    @abstractmethod
    def on_subscribe(self, subscription: Subscription, /) -> None:
        """The first signal, once. Nothing comes before ``subscription.request`` was called (2.1), but for the end.
        Who has a subscription already cancels the new one (2.5)."""

    @abstractmethod
    def on_next(self, item: _Taken, /) -> None:
        """One item that was asked for. A few may still come after ``cancel`` (2.8)."""

    @abstractmethod
    def on_error(self, error: Exception, /) -> None:
        """The last signal: the publisher has failed. It may come without any request (2.10)."""

    @abstractmethod
    def on_complete(self) -> None:
        """The last signal: there are no more items. It may come without any request (2.9)."""


@runtime_checkable
class Publisher(Protocol[_Item]):
    """Who has items, for those who ask."""

    @abstractmethod
    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        """Begin with a subscriber: ``on_subscribe`` is its first signal, and refusals are its ``on_error`` (1.9).

        Raises:
            TypeError: it is no subscriber.
        """


@runtime_checkable
class Processor(Subscriber[_Taken], Publisher[_Item], Protocol[_Taken, _Item]):
    """A stage between two: it takes items as a subscriber and has items as a publisher, by the rules of both (4.1)."""
