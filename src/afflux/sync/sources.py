"""Feed the channels of one connection from their sources.

A source is the program's own code, and may use the connection. Its verbs then wait inside the verb that feeds it:

1. A source that is running is not asked for more, so that no generator is entered twice.
2. Items that it has produced are sent before it waits: it may wait for an answer to them.
3. While it waits, other sources that use connections are not started, except that of the channel it reads from.
   They might wait for items of this source, which could not continue before they return.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from afflux.core.errors import Canceled as CanceledError
from afflux.core.payload import PayloadLike, not_a_payload
from afflux.sync.inbox import Inbox

if TYPE_CHECKING:
    from afflux.sync.driver import Driver

__all__ = ["Outbox", "Sources"]


class Outbox:
    """A channel's source, and the inbox for its answer."""

    __slots__ = ("ahead", "batch", "inbox", "items", "quota", "running", "waits")

    def __init__(self, items: Iterator[PayloadLike], inbox: Inbox, waits: bool) -> None:
        self.items = items
        self.inbox = inbox
        self.ahead: list[PayloadLike] = []
        "The item that was taken to detect the end: completing needs no credit."
        self.batch: list[PayloadLike] = []
        "Items that are sent together: immediately when the source waits for something."
        self.quota = 0
        "The largest number of items in ``batch``, by credit."
        self.running = False
        "The source is running."
        self.waits = waits
        "The source has used a connection before."


class Sources:
    """The sources of one connection."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._engine = driver.engine
        self._guard = driver.guard
        self.outboxes: dict[int, Outbox] = {}

    def end(self) -> None:
        """The connection is over: use no source any more."""
        self._driver.done.extend(self.outboxes.values())
        self.outboxes.clear()

    def feed(self, wanted: int | None) -> bool:
        """Send a bounded number of items of the channels' sources; return whether there may be more to send."""
        more, nested = False, bool(self._guard.around)
        for stream, outbox in list(self.outboxes.items()):
            if self.outboxes.get(stream) is not outbox:
                continue
            if outbox.running:
                continue
            if nested and outbox.waits and stream != wanted:
                continue
            try:
                more |= self._feed_one(stream, outbox)
            except Exception as error:
                self._source_failed(stream, outbox, error)
            except BaseException:
                text = "the channel's source was interrupted"
                self._source_failed(stream, outbox, CanceledError(text, stream=stream))
                raise
        return more

    def send_early(self) -> None:
        """Send the items produced so far: a source of this connection is about to wait, maybe for an answer to them."""
        for stream, outbox in list(self.outboxes.items()):
            if outbox.running and outbox.batch:
                batch, outbox.batch = outbox.batch, []
                outbox.quota -= len(batch)
                self._engine.send(stream, batch)
        if self._driver.mine:
            self._driver.write()

    def _source_failed(self, stream: int, outbox: Outbox, error: Exception) -> None:
        """Send the error to the peer, even when it has completed its half, and raise it to the consumer of the
        items."""
        if self._driver.forget(stream):
            self._engine.fail(stream, error)
        outbox.inbox.finish(error)

    def _feed_one(self, stream: int, outbox: Outbox) -> bool:
        limits = self._engine.limits
        outbox.quota = min(self._engine.credit(stream), limits.loop_frames)
        self._fill(outbox, min(self._driver.pump.room(), limits.loop_bytes))
        batch, outbox.batch = outbox.batch, []
        if self.outboxes.get(stream) is not outbox:
            return False  # the stream has ended while its source was at work
        if outbox.ahead:
            if batch:
                self._engine.send(stream, batch)
            return bool(batch) or (outbox.waits and self._may_send(stream))
        self.stop(stream)
        if batch:
            self._engine.send(stream, batch, complete=True)
        else:
            self._engine.complete(stream)
        return False

    def _may_send(self, stream: int) -> bool:
        """Whether credit or room has come while a source waited."""
        return self._engine.credit(stream) > 0 < self._driver.pump.room()

    def _fill(self, outbox: Outbox, room: int) -> None:
        """Take a batch from the source, and one more item in ``ahead`` unless the source has ended. A source that waits
        produces one item at a time, because all others wait for it meanwhile."""
        ahead = outbox.ahead
        if ahead and not (outbox.quota > 0 < room):
            return
        with self._guard.source(self.send_early) as verbs:
            outbox.running = True
            try:
                if not ahead:
                    ahead.extend(islice(outbox.items, 1))
                while ahead and len(outbox.batch) < outbox.quota and room > 0:
                    item = ahead.pop()
                    try:
                        room -= len(item)
                    except TypeError:
                        raise not_a_payload(item) from None
                    outbox.batch.append(item)
                    ahead.extend(islice(outbox.items, 1))
                    if self._guard.verbs != verbs:
                        break
            finally:
                outbox.running = False
                outbox.waits |= self._guard.verbs != verbs

    def stop(self, stream: int) -> bool:
        """Take no more items from a channel's source; return whether there was one."""
        outbox = self.outboxes.pop(stream, None)
        if outbox is None:
            return False
        self._driver.done.append(outbox)
        return True
