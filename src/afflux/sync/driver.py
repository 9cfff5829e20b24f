"""Dispatch the events of one connection of a blocking program, and feed its channels from their sources.

A source is the program's own code, and may use the connection. Its verbs then wait inside the one that feeds it:

1. A source that is at work is not asked for more, so that no generator is entered twice.
2. What it has given leaves before it waits: it may wait for an answer to that.
3. While it waits, other sources that use connections are not begun, except that of the channel it takes items from.
   They might wait for what this one would give, and it could not go on before they are done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from time import monotonic
from typing import Any

from afflux.core.bucket import Bucket
from afflux.core.credit import StreamStatus
from afflux.core.engine import Engine, Leases
from afflux.core.errors import Canceled as CanceledError
from afflux.core.errors import Error, LeaseExpired, LimitExceeded, Rejected
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

_MARGIN_S = 0.05
"The peer may see cancels so much closer together than they were sent."
_JAM = "buffer-full: nothing more can come before the items of other streams are taken; give those less credit"


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

    __slots__ = ("ahead", "batch", "inbox", "items", "quota", "running", "waits")

    def __init__(self, items: Iterator[PayloadLike], inbox: Inbox, waits: bool) -> None:
        self.items = items
        self.inbox = inbox
        self.ahead: list[PayloadLike] = []
        "The item that was taken to see whether there is one: completing needs no credit."
        self.batch: list[PayloadLike] = []
        "What goes out together: at once when the source waits for something."
        self.quota = 0
        "The most items in it, by credit."
        self.running = False
        "The source is at work."
        self.waits = waits
        "The source has used a connection before."


class Driver(Pump):  # long: a method for each event, beside what verbs call
    """One connection."""

    def __init__(self, engine: Engine, link: Link, expects: str) -> None:
        super().__init__(engine, link, expects)
        self.inboxes: dict[int, Inbox] = {}
        self.outboxes: dict[int, Outbox] = {}
        self._cancels: Bucket | None = None
        "What the peer counts of this side's cancels, as far as that can be known here; None before the first."
        self.leases = engine.leases
        "Counts requests; None where they need no lease."
        self.lease_wait: float | None = None
        "Seconds that a request waits for one; None: it fails at once."
        self.lease_heard = False
        "The peer has granted one, if only for nothing."

    def open(
        self,
        verb: Verb,
        payload: PayloadLike,
        *,
        credit: int = 0,
        columnar: bool = False,
        timeout: float | None = None,
    ) -> int:
        """Open a stream, by the engine's rules. Before it, wait for a lease, when that is wanted, and while the peer
        would take the next cancel for a flood.

        Raises:
            LeaseExpired: there is none, or none came in time.
            TimeoutError: so many streams were canceled that this one has to wait longer; nothing was sent.
        """
        if verb != "fire":
            self.pace(timeout)
        if (leases := self.leases) is None:
            return self.engine.open(verb, payload, credit=credit, columnar=columnar)
        if self.lease_wait is not None:
            self._wait_for_lease(leases, self.lease_wait)
        elif leases.lease(monotonic())[0] <= 0:
            self.turn(monotonic())  # the next one may have come: nobody else reads it
            self.check()
        return self.engine.open(verb, payload, credit=credit, columnar=columnar, now=monotonic())

    def _wait_for_lease(self, leases: Leases, seconds: float) -> None:
        if not self.wait(lambda: leases.lease(monotonic())[0] > 0, seconds):
            self.check()
            raise LeaseExpired(f"no lease to send a request under came within {seconds:g} s", rule="LE-08")

    def pace(self, timeout: float | None) -> None:
        """Before another stream is opened: wait until it, and all that are open, could be canceled."""
        if self._cancels is None:
            return
        until = None if timeout is None else monotonic() + timeout
        while seconds := self._cancels.wait(min(len(self.inboxes) + 1, self._cancels.burst), now := monotonic()):
            if until is not None and now >= until:
                raise TimeoutError(f"too many streams were canceled: the next may be opened in {seconds:.2g} s")
            self.wait(lambda: False, seconds if until is None else min(seconds, until - now), patient=True)
            self.check()

    def cancel(self, stream: int) -> None:
        """Give a stream up at the peer."""
        self.count_cancel()
        self.engine.cancel(stream)

    def count_cancel(self) -> None:
        """The peer takes a token from its bucket of cancels for what this side is about to say."""
        if self._cancels is None:
            burst, rate = self.engine.limits.cancel_bucket
            self._cancels = Bucket(burst - min(burst / 4, rate * _MARGIN_S), rate)
        now = monotonic()
        self._cancels.take(min(1.0, self._cancels.level(now)), now)

    def forget(self, stream: int) -> bool:
        """Nobody waits for a stream any more; whether it was still under way, in one direction at least."""
        receiving = self.inboxes.pop(stream, None) is not None
        return self._stop_source(stream) or receiving

    def wait(
        self, done: Callable[[], bool], timeout: float | None, *, stream: int | None = None, patient: bool = False
    ) -> bool:
        """Move bytes until ``done()``, the end of the connection, or the end of time; return ``done()``. ``stream`` is
        the one whose items are waited for.

        It raises what a handler of a signal raises, or a source that was interrupted: then the verb has to give up what
        it has begun.

        Raises:
            LimitExceeded: nothing can come, because what has come and is not taken fills the connection. Not if
                ``patient``.
        """
        until = None if timeout is None else monotonic() + timeout
        if self.dropped:
            self.sweep()
        for early in self.guard.around:
            early()
        while not done() and not self.over:
            if until is not None and monotonic() >= until:
                return False
            more = bool(self.outboxes) and self._feed(stream)
            if not done() and not self.over:
                if self.jammed and not patient:
                    raise LimitExceeded(_JAM, rule="connection_bytes")
                self.turn(monotonic() if more else until)
        return done()

    def statuses(self) -> list[StreamStatus]:
        """The live streams. A stream whose items wait here to be consumed waits for the application."""
        found = self.engine.streams(room=self.room(), now=monotonic())
        unread = {stream for stream, inbox in self.inboxes.items() if inbox.arrived}
        return [
            replace(one, reason="application") if one.stream in unread and one.reason == "producer" else one
            for one in found
        ]

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
        for stream, inbox in self.inboxes.items():
            inbox.finish(safe if self.engine.unsent(stream) else reason)
        self.inboxes.clear()
        self.done.extend(self.outboxes.values())
        self.outboxes.clear()

    # -- sources ------------------------------------------------------------------------------------------------

    def _feed(self, wanted: int | None) -> bool:
        """Send what the channels' sources give, not too much at once; whether there may be more to send."""
        more, nested = False, bool(self.guard.around)
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
        """A source of this connection is about to wait, maybe for an answer to what it gave last."""
        for stream, outbox in list(self.outboxes.items()):
            if outbox.running and outbox.batch:
                batch, outbox.batch = outbox.batch, []
                outbox.quota -= len(batch)
                self.engine.send(stream, batch)
        if self.mine:
            self.write()

    def _source_failed(self, stream: int, outbox: Outbox, error: Exception) -> None:
        """The peer hears of it, even when it has sent everything; so does the one who takes the items."""
        if self.forget(stream):
            self.engine.fail(stream, error)
        outbox.inbox.finish(error)

    def _feed_one(self, stream: int, outbox: Outbox) -> bool:
        limits = self.engine.limits
        outbox.quota = min(self.engine.credit(stream), limits.loop_frames)
        self._fill(outbox, min(self.room(), limits.loop_bytes))
        batch, outbox.batch = outbox.batch, []
        if self.outboxes.get(stream) is not outbox:
            return False  # the stream has ended while its source was at work
        if outbox.ahead:
            if batch:
                self.engine.send(stream, batch)
            return bool(batch)
        self._stop_source(stream)
        if batch:
            self.engine.send(stream, batch, complete=True)
        else:
            self.engine.complete(stream)
        return False

    def _fill(self, outbox: Outbox, room: int) -> None:
        """Take a batch from the source, and one more in ``ahead`` unless it has ended. One that waits gives no more
        than one at a time: so long it has kept all others waiting."""
        ahead = outbox.ahead
        if ahead and not (outbox.quota > 0 < room):
            return
        with self.guard.source(self.send_early) as verbs:
            outbox.running = True
            try:
                if not ahead:
                    ahead.extend(islice(outbox.items, 1))
                while ahead and len(outbox.batch) < outbox.quota and room > 0:
                    item = ahead.pop()
                    outbox.batch.append(item)
                    room -= len(item)
                    ahead.extend(islice(outbox.items, 1))
                    if self.guard.verbs != verbs:
                        outbox.waits = True
                        break
            finally:
                outbox.running = False

    def _stop_source(self, stream: int) -> bool:
        """Take nothing more from a channel's source; whether there was one."""
        outbox = self.outboxes.pop(stream, None)
        if outbox is None:
            return False
        self.done.append(outbox)
        return True

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
        self._stop_source(event.stream)
        if (inbox := self.inboxes.pop(event.stream, None)) is not None:
            inbox.finish(event.error)

    def _canceled(self, event: Canceled) -> None:
        self._stop_source(event.stream)

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
