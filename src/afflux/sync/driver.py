"""Drive one connection of a blocking program: an engine, its link, and the sources of its channels."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from time import monotonic
from typing import Protocol

from afflux.core.bucket import Bucket
from afflux.core.credit import StreamStatus
from afflux.core.engine import Engine, Leases
from afflux.core.errors import ConnectionClosed, Error, LeaseExpired, LimitExceeded
from afflux.core.events import Event, Verb, singly
from afflux.core.payload import PayloadLike
from afflux.sync.dispatch import HANDLERS
from afflux.sync.guard import Guard
from afflux.sync.inbox import Inbox
from afflux.sync.pump import Pump
from afflux.sync.sources import Sources
from afflux.transports.address import Address
from afflux.transports.base import Link
from afflux.watching import Watch

__all__ = ["Driver"]

_MARGIN_S = 0.05
"Seconds by which two cancels may arrive closer together than they were sent."
_JAM = "buffer-full: nothing more can arrive until items of other streams are consumed; give those less credit"


class Closable(Protocol):
    """A stream or session without references that is still to be canceled at the peer."""

    def close(self) -> None:
        """Cancel the stream or session."""


class Driver:
    """One connection."""

    def __init__(self, engine: Engine, link: Link, expects: Address, watch: Watch | None = None) -> None:
        self.engine = engine
        if watch is not None:
            watch.begin(engine)
        self.watch = watch
        "Logs the connection; None while that is not logged."
        self.error: Error | None = None
        "Why the connection ended; None for an orderly end."
        self.over = False
        self.dropped: deque[Closable] = deque()
        "Streams and sessions that were collected while a verb was at work, or by another thread."
        self.done: list[object] = []
        "Sources that have ended. They are dropped outside of verbs: a generator may have code to run."
        self.guard = Guard(self.sweep, self.dropped, self.done)
        "Entered by every verb."
        self.pump = Pump(self, link, expects)
        self.inboxes: dict[int, Inbox] = {}
        self.sources = Sources(self)
        self._cancels: Bucket | None = None
        "The cancels that the peer still accepts, as far as this side can determine; None before the first."
        self.leases = engine.leases
        "Counts requests; None where they need no lease."
        self.lease_wait: float | None = None
        "Seconds that a request waits for a lease; None: it fails immediately."
        self.lease_granted = False
        "The peer has granted a lease, possibly of no requests."

    def open(
        self,
        verb: Verb,
        payload: PayloadLike,
        *,
        credit: int = 0,
        columnar: bool = False,
        timeout: float | None = None,
    ) -> int:
        """Open a stream, by the engine's rules. Before it, wait for a lease, if ``lease_wait`` is set, and while the
        peer would treat the next cancel as a flood.

        Raises:
            LeaseExpired: there is no lease, or none came in time.
            TimeoutError: after many cancels this stream would have to wait longer; nothing was sent.
        """
        if verb != "fire":
            self.pace(timeout)
        if (leases := self.leases) is None:
            return self.engine.open(verb, payload, credit=credit, columnar=columnar)
        if self.lease_wait is not None:
            self._wait_for_lease(leases, self.lease_wait)
        elif leases.lease(monotonic())[0] <= 0:
            self.pump.turn(monotonic())  # the next one may have come: no other call reads it
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
        """Cancel a stream."""
        self.count_cancel()
        self.engine.cancel(stream)

    def count_cancel(self) -> None:
        """Count a cancel that this side is about to send."""
        if self._cancels is None:
            burst, rate = self.engine.limits.cancel_bucket
            self._cancels = Bucket(burst - min(burst / 4, rate * _MARGIN_S), rate)
        now = monotonic()
        self._cancels.take(min(1.0, self._cancels.level(now)), now)

    def forget(self, stream: int) -> bool:
        """Forget a stream. Returns whether it was live, in one direction at least."""
        receiving = self.inboxes.pop(stream, None) is not None
        return self.sources.stop(stream) or receiving

    def wait(
        self, done: Callable[[], bool], timeout: float | None, *, stream: int | None = None, patient: bool = False
    ) -> bool:
        """Move bytes until ``done()``, the end of the connection, or the timeout; return ``done()``. ``stream`` is the
        one whose items are awaited.

        Exceptions of signal handlers and of interrupted sources pass through: the verb then has to cancel its stream.

        Raises:
            LimitExceeded: nothing can arrive, because unconsumed items fill the connection. Not if ``patient``.
        """
        until = None if timeout is None else monotonic() + timeout
        if self.dropped:
            self.sweep()
        for early in self.guard.around:
            early()
        while not done() and not self.over:
            if until is not None and monotonic() >= until:
                return False
            more = bool(self.sources.outboxes) and self.sources.feed(stream)
            if not done() and not self.over:
                if self.pump.jammed and not patient:
                    raise LimitExceeded(_JAM, rule="connection_bytes")
                self.pump.turn(monotonic() if more else until)
        return done()

    def check(self) -> None:
        """Raise unless the connection can be used by this process and thread. Nothing was sent: it is safe to try
        again."""
        if self.over:
            error = self.reason()
            error.may_have_been_processed = False
            raise error

    def reason(self) -> Error:
        """The error for calls that come after the end."""
        return ConnectionClosed("the connection is closed") if self.error is None else self.error.again()

    @property
    def mine(self) -> bool:
        """Whether the connection can be used; False in a child process and after the end."""
        return not self.over and self.guard.here

    def sweep(self) -> None:
        """At the end of a verb: cancel dropped streams, and release the sources that have ended."""
        while self.dropped:
            self.dropped.popleft().close()
        if self.done:
            try:
                self.guard.outside()
                self.done.clear()
            finally:
                self.guard.resumed()

    def write(self) -> None:
        """Write what is queued, as far as the link accepts it."""
        self.pump.write()

    def statuses(self) -> list[StreamStatus]:
        """Return the live streams. A stream with unconsumed items waits for the application."""
        found = self.engine.streams(room=self.pump.room(), now=monotonic())
        unread = {stream for stream, inbox in self.inboxes.items() if inbox.arrived}
        return [
            replace(one, reason="application") if one.stream in unread and one.reason == "producer" else one
            for one in found
        ]

    def dispatch(self, events: list[Event]) -> None:
        """Dispatch events to the streams that they concern."""
        if events and self.watch is not None:
            self.watch.seen(events)
        for event in singly(events):
            if (handle := HANDLERS.get(type(event))) is not None:
                handle(self, event)

    def end(self, error: Error | None) -> None:
        """The connection is over: every stream fails, once."""
        if self.over:
            return
        self.over = True
        self.error = error
        reason, safe = self.reason(), self.reason()
        safe.may_have_been_processed = False
        for stream, inbox in self.inboxes.items():
            inbox.finish(safe if self.engine.unsent(stream) else reason)
        self.inboxes.clear()
        self.sources.end()
