"""Move bytes and timeouts between an engine and its link in a blocking program.

Only ``poll`` blocks, and never longer than until the next of: the caller's deadline, the engine's deadline, the write
stall. A connection belongs to the process that made it.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from afflux.core.errors import ConnectionClosed, Error, RemoteProtocolError
from afflux.core.events import Event
from afflux.sync.ends import ends_of
from afflux.sync.polling import LinkPoll
from afflux.sync.redial import Redial
from afflux.transports.address import Address
from afflux.transports.base import Link
from afflux.transports.strangers import stranger_at

if TYPE_CHECKING:
    from afflux.sync.driver import Driver

__all__ = ["Pump"]

_READ = 0x10000
_MOST_READ = 0x40000
"Bytes of one read, while reads fill them."


class Pump:
    """One engine on one link."""

    def __init__(self, driver: Driver, link: Link, expects: Address) -> None:
        self._driver = driver
        self._engine = driver.engine
        self._guard = driver.guard
        self._link = link
        self._gone = False
        "The link is closed for good."
        self._poll = LinkPoll(driver.guard)
        self._poll.register(link)
        self._unsent = memoryview(b"")
        self._progress = monotonic()
        self._size = _READ
        "Bytes of the next read."
        self._expects: Address | None = expects
        self.away = False
        "The session has no link for now."
        self.redial: Redial | None = None
        "Opens another link for the session; None without resumption."

    # -- called by verbs -----------------------------------------------------------------------------------------

    @property
    def jammed(self) -> bool:
        """Whether reading waits for the application, which itself waits: the wait would never end."""
        if self._poll.watched & select.POLLIN:
            return False
        engine = self._engine
        return not engine.wants_read and not engine.queued and not self._unsent and not self.away

    @property
    def certificate(self) -> dict[str, Any] | None:
        """The peer's certificate."""
        return self._link.certificate

    def room(self) -> int:
        """Bytes that may still be queued."""
        return self._engine.room(len(self._unsent))

    def turn(self, until: float | None) -> None:
        """Write what is queued, wait for the link until the time ``until`` at most, read, and run due timers."""
        self.write()
        if self._driver.over:
            return
        if self.away:
            self._rejoin(until)
            return
        pending = self._engine.wants_read and self._link.pending()
        for _, what in (
            self._poll.wait(self._link, self._poll.watched, 0 if pending else self._milliseconds(until)) or ()
        ):
            if what & select.POLLOUT:
                self.write()
            if what & ~select.POLLOUT:
                pending = True
        if pending and not self._driver.over and not self.away:
            self._read()
        self._tick(monotonic())

    def breathe(self) -> None:
        """Run due timers without waiting, between the items of a stream that have arrived already."""
        deadline = self._engine.deadline
        if deadline is not None and deadline <= (now := monotonic()) and self._driver.mine:
            self.turn(now)

    def write(self) -> None:
        """Write what is queued, as far as the link accepts it."""
        if self.away or self._gone:
            return
        try:
            if self._poll.watched & select.POLLOUT:
                self._link.flush()
            while self._unsent or (data := self._outgoing()):
                if not self._unsent:
                    self._unsent = memoryview(data)
                    self._progress = monotonic()
                sent = self._link.send(self._unsent)
                self._unsent = self._unsent[sent:]
                self._progress = monotonic()
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._unsent = memoryview(b"")
            self._read_rest()
            self._lose(None)
            return
        self._poll.watch(self._link, self._link.events(self._engine.wants_read, bool(self._unsent)))

    def close(self, reason: str) -> None:
        """Close in order: report it to the peer, and wait at most ``flush_s`` until the peer has read it."""
        if not self._driver.mine:
            self._driver.over = True
            self._close_link()
            return
        with self._guard:
            try:
                self.write()
                self._take(lambda: self._engine.close(monotonic(), reason=reason))
                if not self.away and not self._gone:
                    self._finish()
            finally:
                self._driver.end(None)
                self._close_link()

    # -- another link -------------------------------------------------------------------------------------------

    def detach(self) -> None:
        """The link is over and the session is not: write the last frames, and close the link."""
        with suppress(OSError, Error):
            while data := self._outgoing():
                self._link.send(memoryview(data))
        self._poll.unregister(self._link)
        self._link.close()
        self._unsent = memoryview(b"")
        self.away = True
        if self.redial is not None:
            self.redial.plan()

    def _rejoin(self, until: float | None) -> None:
        """Wait for the next try, until the time ``until`` at most, and make the try."""
        redial = self.redial
        if redial is None or redial.due is None:
            text = "the session was not resumed: no tries are left"
            self._driver.end((redial and redial.error) or ConnectionClosed(text))
            return
        due = redial.due
        if redial.link is None:
            times = [time for time in (due, until, self._engine.deadline) if time is not None]
            if (seconds := min(times) - monotonic()) > 0:
                self._guard.wait(sleep, seconds)
            now = monotonic()
            self._tick(now)
            if self._driver.over or not self.away or now < due:
                return
            self._guard.wait(redial.dial, until)
        if (link := redial.take()) is not None:
            self._join(link)

    def _join(self, link: Link) -> None:
        if self._driver.over or not self.away:  # a signal handler has resumed the session or closed the connection
            link.close()
            return
        self._link, self.away = link, False
        if (watch := self._driver.watch) is not None:
            watch.connected(monotonic(), *ends_of(link))
        self._poll.register(link)
        if (resumption := self._engine.resumption) is not None:
            self._take(resumption.reconnect, monotonic())
        self.write()

    # -- inside -------------------------------------------------------------------------------------------------

    def _outgoing(self) -> bytes:
        """Return the next bytes to write."""
        data = self._engine.outgoing()
        if data and (watch := self._driver.watch) is not None:
            watch.sent(data)
        return data

    def _receive(self, data: bytes) -> None:
        if (watch := self._driver.watch) is not None:
            watch.received(data)
        self._take(self._engine.receive, data, monotonic())

    def _take(self, work: Callable[..., list[Event]], *arguments: Any) -> None:
        """Call a method of the engine, and dispatch its events. An exception in it ends the connection."""
        try:
            self._driver.dispatch(work(*arguments))
        except BaseException:
            self._driver.end(ConnectionClosed("the connection was ended because an error interrupted its engine"))
            self._close_link()
            raise

    def _close_link(self) -> None:
        """Close the link. Nothing more is written."""
        self._gone = True
        self._unsent = memoryview(b"")
        self._link.close()
        if (watch := self._driver.watch) is not None:
            watch.ended(self._driver.error, monotonic())
        if self.redial is not None and (link := self.redial.take()) is not None:
            link.close()

    def _milliseconds(self, until: float | None) -> float | None:
        """Return how long to wait for the link."""
        due = [time for time in (until, self._engine.deadline) if time is not None]
        if self._unsent:
            due.append(self._progress + self._engine.limits.write_stall_s)
        return max(0.0, min(due) - monotonic()) * 1000 if due else None

    def _tick(self, now: float) -> None:
        if self._driver.over:
            return
        if self._unsent and now >= self._progress + self._engine.limits.write_stall_s:
            self._lose(ConnectionClosed("write-stall: the peer does not read", rule="write_stall_s"))
            return
        deadline = self._engine.deadline
        if deadline is not None and deadline <= now:
            self._take(self._engine.tick, now)
            self.write()

    def _read(self) -> None:
        try:
            data = self._link.recv(self._size)
        except (BlockingIOError, InterruptedError):
            return
        except Error as error:
            self._lose(error)
            return
        except OSError:
            data = b""
        if not data:
            self._lose(None)
            return
        self._size = _MOST_READ if len(data) == self._size else _READ
        if self._expects is not None:
            if reason := stranger_at(self._expects, data, client=False):
                self._refuse_foreign(data, reason)
                return
            self._expects = None
        self._receive(data)
        self.write()

    @property
    def _resumable(self) -> bool:
        """Whether the session would outlive its transport."""
        resumption = self._engine.resumption
        return resumption is not None and resumption.resumable

    def _refuse_foreign(self, data: bytes, text: str) -> None:
        """The peer speaks another protocol. The engine answers as it answers any invalid first frame; the application
        gets the name of the protocol."""
        error = RemoteProtocolError.of_handshake(text)
        if not self._resumable:
            self._driver.end(error)
            self._receive(data)
            self.write()
        if not self._engine.closed:
            self._lose(error)

    def _read_rest(self) -> None:
        """The peer reads nothing more; frames that it sent before, such as the reason, may still arrive."""
        left = self._engine.limits.connection_bytes
        try:
            while left > 0 and not self._driver.over and not self.away and (data := self._link.recv(_READ)):
                left -= len(data)
                self._receive(data)
        except Error as error:
            if not self._resumable:
                self._driver.end(error)
        except OSError:
            pass

    def _lose(self, error: Error | None) -> None:
        """The link is gone: every stream fails, once."""
        if error is not None and not self._resumable:
            self._driver.end(error)
        self._take(self._engine.receive_eof, monotonic())
        if not self.away:
            self._driver.end(None)

    def _finish(self) -> None:
        """Write the rest, end this half, and read until the peer's end: a close with unread input would reset the
        connection, and the peer might not receive the last frames."""
        until = monotonic() + self._engine.limits.flush_s
        self.write()
        while self._unsent and self._polled(self._link.events(False, True), until):
            self.write()
        try:
            self._link.end_writing()
        except (OSError, Error):
            return
        while self._polled(select.POLLIN, until) and self._drop_input():
            pass

    def _polled(self, wants: int, until: float) -> bool:
        """Wait for the link; return False when the time is over."""
        left = until - monotonic()
        if self._gone or left <= 0:
            return False
        found = self._poll.wait(self._link, wants, left * 1000)
        return (found is None or bool(found)) and not self._gone

    def _drop_input(self) -> bool:
        """Read and drop input; return False at the end."""
        try:
            return bool(self._link.recv(_READ))
        except (BlockingIOError, InterruptedError):
            return True
        except (OSError, Error):
            return False
