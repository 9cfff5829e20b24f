"""Hand items over to the feed of one shard."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from afflux.core.payload import Payload
from afflux.journal.feed import Feed, Source

__all__ = ["Item", "Lane"]

Item = Payload | bytes
"An item to store."


_BATCH_ITEMS = 0x400
_BATCH_BYTES = 0x20000
"Items are handed over together up to one of these: larger lists would make larger transactions."


class Lane(AsyncIterator[list[Item]]):
    """The items of one shard that its feed has not pulled yet. Credit bounds them: see follow.py."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.tail = feed.journal.head
        "The offset of the next item that is put."
        self._lists: deque[list[Item]] = deque()
        self._more = asyncio.Event()
        self._ended = False

    @property
    def item_bytes(self) -> int:
        """The largest item that a reader with the same limits can receive."""
        return self.feed.journal.item_bytes

    @property
    def head(self) -> int:
        """The offset after the last durable item."""
        return self.feed.journal.head

    def start(self) -> None:
        """Start the feed, unless its stream is complete."""
        if not self.feed.journal.sealed:
            self.feed.start(Source(lambda: self), replays=False)

    def put(self, items: list[Item]) -> None:
        """Add items."""
        self._lists.append(items)
        self.tail += len(items)
        self._more.set()

    def end(self) -> None:
        """No item follows: the journal is sealed when it has all."""
        self._ended = True
        self._more.set()

    async def durable(self) -> None:
        """Wait until all items are durable.

        Raises:
            Exception: the feed's error.
        """
        while self.head < self.tail:
            changed = self.feed.changed
            if self.feed.error is not None:
                raise self.feed.error
            if self.head < self.tail:
                await changed.wait()

    async def __anext__(self) -> list[Item]:
        while not self._lists:
            if self._ended:
                raise StopAsyncIteration
            self._more.clear()
            await self._more.wait()
        items = self._lists.popleft()
        size = sum(map(len, items))
        while self._lists and len(items) < _BATCH_ITEMS and size < _BATCH_BYTES:
            more = self._lists.popleft()
            size += sum(map(len, more))
            items += more
        return items
