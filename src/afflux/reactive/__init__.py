"""Implement Reactive Streams 1.0.4: publishers, subscribers, subscriptions and processors on an asyncio event loop.

::

    publisher = afflux.reactive.stream(peer, b"ticks", route="prices")    # a peer's stream; demand is its credit
    publisher = afflux.reactive.to_publisher(source)                      # any iterable
    async for item in afflux.reactive.from_publisher(publisher, credit=32):
        ...

Programs that use async iterators do not need this package. Notes:

1. Signals are sent on the event loop, one after the other, and never from inside ``request`` or ``cancel``.
2. ``request`` and ``cancel`` may be called on any thread.
3. Buffers never exceed the demand, or a bound that the caller sets.
"""

from __future__ import annotations

from afflux.reactive.contracts import Processor, Publisher, Subscriber, Subscription
from afflux.reactive.processing import Map, processor
from afflux.reactive.publishing import to_publisher
from afflux.reactive.rx import from_observable, to_observable
from afflux.reactive.subscribing import from_publisher, serve_publisher
from afflux.reactive.wire import channel, stream

__all__ = [
    "Map",
    "Processor",
    "Publisher",
    "Subscriber",
    "Subscription",
    "channel",
    "from_observable",
    "from_publisher",
    "processor",
    "serve_publisher",
    "stream",
    "to_observable",
    "to_publisher",
]
