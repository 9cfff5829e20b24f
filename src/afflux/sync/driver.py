"""One connection of a blocking program: the events of its engine go to whom they concern. Verbs are in peer.py."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from time import monotonic
from typing import Any, cast

from afflux.core.engine import Engine, Leasing
from afflux.core.errors import Error, LeaseExpired, Rejected
from afflux.core.events import (
    Block,
    Canceled,
    Closed,
    Completed,
    Event,
    Failed,
    Items,
    Leased,
    Opened,
    Pushed,
    Readable,
    Resumed,
    Suspended,
    Verb,
    singly,
)
from afflux.core.payload import PayloadLike
from afflux.sync.pump import Pump
from afflux.transports.base import Link

__all__ = ["Driver", "Inbox", "Outbox"]


class Inbox:
    """What has arrived on one stream and was not taken yet."""

    __slots__ = ("arrived", "broken", "ended", "error", "unread")

    def __init__(self) -> None:
        self.arrived: deque[Items | Block] = deque()
        self.ended = False
        "Nothing more will arrive."
        self.error: Exception | None = None
        "Why it ended, if not in order."
        self.broken: Exception | None = None
        "Why nothing more can be said, though all has arrived."
        self.unread = 0
        "Bytes of a session that wait in the engine."

    def finish(self, error: Exception | None) -> None:
        """Nothing more will arrive. The first reason counts."""
        if not self.ended:
            self.ended, self.error = True, error
        self.broken = self.broken or error


class Outbox:
    """A channel's source, and where its answer goes."""

    __slots__ = ("ahead", "inbox", "items")

    def __init__(self, items: Iterator[PayloadLike], inbox: Inbox) -> None:
        self.items = items
        self.inbox = inbox
        self.ahead: list[PayloadLike] = []
        "The item that was taken to see whether there is one: completing needs no credit."


class Driver(Pump):
    """One connection."""

    def __init__(self, engine: Engine, link: Link, expects: str) -> None:
        super().__init__(engine, link, expects)
        self.inboxes: dict[int, Inbox] = {}
        self.outboxes: dict[int, Outbox] = {}
        self.leased: bool = getattr(engine, "leased", False)
        "Requests need a lease."
        self.lease_wait: float | None = None
        "Seconds that a request waits for one; None: it fails at once."
        self.lease_heard = False
        "The peer has granted one, if only for nothing."

    def open(self, verb: Verb, payload: PayloadLike, *, credit: int = 0, columnar: bool = False) -> int:
        """Open a stream, by the engine's rules; wait for a lease before it, when that is wanted.

        Raises:
            LeaseExpired: there is none, or none came in time.
        """
        if not self.leased:
            return self.engine.open(verb, payload, credit=credit, columnar=columnar)
        if self.lease_wait is not None:
            self._wait_for_lease(self.lease_wait)
        return self.engine.open(verb, payload, credit=credit, columnar=columnar, now=monotonic())

    def _wait_for_lease(self, seconds: float) -> None:
        engine = cast("Leasing", self.engine)
        if not self.wait(lambda: engine.lease(monotonic())[0] > 0, seconds):
            self.check()
            raise LeaseExpired(f"no lease to send a request under came within {seconds:g} s", rule="R-41")

    def wait(self, done: Callable[[], bool], timeout: float | None) -> bool:
        """Move bytes until ``done()``, the end of the connection, or the end of time; return ``done()``."""
        until = None if timeout is None else monotonic() + timeout
        while not done() and not self.over:
            if until is not None and monotonic() >= until:
                return False
            more = bool(self.outboxes) and self._feed()
            if not done():
                self.turn(monotonic() if more else until)
        return done()

    def tell(self, events: list[Event]) -> None:
        """Events go to those whom they concern."""
        for event in singly(events):
            tell = _TELL.get(type(event))
            if tell is not None:
                tell(self, event)

    def end(self, error: Error | None) -> None:
        """The connection is over: every stream hears it, once."""
        if self.over:
            return
        self.over = True
        self.error = error
        reason, safe = self.reason(), self.reason()
        safe.may_have_been_processed = False
        unsent = getattr(self.engine, "unsent", None)  # some engines know of which streams nothing was written
        for stream, inbox in self.inboxes.items():
            inbox.finish(safe if unsent is not None and unsent(stream) else reason)
        self.inboxes.clear()
        self.outboxes.clear()

    # -- sources ------------------------------------------------------------------------------------------------

    def _feed(self) -> bool:
        """Send what the channels' sources give, not too much at once; whether there may be more to send."""
        more = False
        for stream, outbox in list(self.outboxes.items()):
            try:
                more |= self._feed_one(stream, outbox)
            except Exception as error:
                self.outboxes.pop(stream, None)
                if self.inboxes.pop(stream, None) is not None:
                    self.engine.fail(stream, error)
                outbox.inbox.finish(error)
        return more

    def _feed_one(self, stream: int, outbox: Outbox) -> bool:
        limits = self.engine.limits
        quota = min(self.engine.credit(stream), limits.loop_frames)
        room = min(self.room(), limits.loop_bytes)
        batch: list[PayloadLike] = []
        ahead = outbox.ahead
        if not ahead:
            ahead.extend(islice(outbox.items, 1))
        while ahead and len(batch) < quota and room > 0:
            item = ahead.pop()
            batch.append(item)
            room -= len(item)
            ahead.extend(islice(outbox.items, 1))
        if ahead:
            if batch:
                self.engine.send(stream, batch)
            return bool(batch)
        del self.outboxes[stream]
        if batch:
            self.engine.send(stream, batch, complete=True)
        else:
            self.engine.complete(stream)
        return False

    # -- events -------------------------------------------------------------------------------------------------

    def _arrived(self, event: Items | Block) -> None:
        inbox = self.inboxes.get(event.stream)
        if inbox is None:
            return
        inbox.arrived.append(event)
        if event.complete:
            inbox.ended = True
            del self.inboxes[event.stream]

    def _readable(self, event: Readable) -> None:
        if (inbox := self.inboxes.get(event.stream)) is not None:
            inbox.unread += event.size
            if event.complete:
                inbox.finish(None)  # it stays: what is still said may fail

    def _completed(self, event: Completed) -> None:
        if (inbox := self.inboxes.pop(event.stream, None)) is not None:
            inbox.finish(None)

    def _failed(self, event: Failed) -> None:
        self.outboxes.pop(event.stream, None)
        if (inbox := self.inboxes.pop(event.stream, None)) is not None:
            inbox.finish(event.error)

    def _canceled(self, event: Canceled) -> None:
        self.outboxes.pop(event.stream, None)

    def _opened(self, event: Opened) -> None:
        self.engine.consumed(len(event.payload), 1)
        if event.verb != "fire":
            self.engine.fail(event.stream, Rejected("a blocking client serves nothing"))
        self.engine.release(event.stream)

    def _pushed(self, event: Pushed) -> None:
        self.engine.consumed(len(event.metadata))

    def _leased(self, event: Leased) -> None:
        self.lease_heard = True

    def _suspended(self, event: Suspended) -> None:
        self.detach()

    def _resumed(self, event: Resumed) -> None:
        if self.redial is not None:
            self.redial.succeeded()

    def _closed(self, event: Closed) -> None:
        self.end(event.error)


_TELL: dict[type, Callable[[Driver, Any], None]] = {
    Items: Driver._arrived,
    Block: Driver._arrived,
    Readable: Driver._readable,
    Completed: Driver._completed,
    Failed: Driver._failed,
    Canceled: Driver._canceled,
    Opened: Driver._opened,
    Pushed: Driver._pushed,
    Leased: Driver._leased,
    Suspended: Driver._suspended,
    Resumed: Driver._resumed,
    Closed: Driver._closed,
}
