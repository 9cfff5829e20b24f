"""The blocking loop: one wait writes what is queued, reads what comes, and tells it to the streams. Verbs are not here.

Nothing blocks in a system call but ``poll``, and that never longer than until the next of: the caller's deadline,
the engine's deadline, the write stall.
"""

from __future__ import annotations

import os
import select
import socket
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import monotonic
from typing import Any

from afflux.core.engine import Engine
from afflux.core.errors import ConnectionClosed, Error, Rejected, RemoteProtocolError
from afflux.core.events import Block, Canceled, Closed, Completed, Event, Failed, Items, Opened, Pushed
from afflux.core.payload import PayloadLike
from afflux.transports.base import foreign

__all__ = ["Driver", "Inbox", "Outbox"]

_READ = 0x40000
_ITEMS_PER_TURN = 256
_BYTES_PER_TURN = 0x10000


class Inbox:
    """What has arrived on one stream and was not taken yet."""

    __slots__ = ("arrived", "ended", "error")

    def __init__(self) -> None:
        self.arrived: deque[Items | Block] = deque()
        self.ended = False
        "Nothing more will arrive."
        self.error: Exception | None = None
        "Why it ended, if not in order."

    def finish(self, error: Exception | None) -> None:
        """Nothing more will arrive. The first reason counts."""
        if not self.ended:
            self.ended, self.error = True, error


class Outbox:
    """A channel's source, and what was taken from it and not sent."""

    __slots__ = ("inbox", "items", "waiting")

    def __init__(self, items: Iterator[PayloadLike], inbox: Inbox) -> None:
        self.items = items
        self.inbox = inbox
        self.waiting: list[PayloadLike] = []


class Driver:
    """One connection over a blocking program's socket."""

    def __init__(self, engine: Engine, sock: socket.socket, expects: str) -> None:
        sock.setblocking(False)
        self.engine = engine
        self.inboxes: dict[int, Inbox] = {}
        self.outboxes: dict[int, Outbox] = {}
        self.error: Error | None = None
        "Why the connection ended, if not in order."
        self.over = False
        self._socket = sock
        self._pid = os.getpid()
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._unsent = memoryview(b"")
        self._progress = monotonic()
        self._expects: str | None = expects

    # -- what verbs call --------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise unless the connection can be used, here and now."""
        if self._pid != os.getpid():
            raise ConnectionClosed(
                f"this connection belongs to process {self._pid}, not to {os.getpid()}: connect again after a fork"
            )
        if self.over:
            raise self.error or ConnectionClosed("the connection is closed")

    @property
    def mine(self) -> bool:
        """Whether the connection can be used; False in a child process and after the end."""
        return not self.over and self._pid == os.getpid()

    def room(self) -> int:
        """Bytes that may still be queued."""
        return self.engine.room(len(self._unsent))

    def wait(self, done: Callable[[], bool], timeout: float | None) -> bool:
        """Move bytes until ``done()``, the end of the connection, or the end of time; return ``done()``."""
        until = None if timeout is None else monotonic() + timeout
        while not done():
            if self.over:
                return done()
            if self.outboxes:
                self._feed()
            self.write()
            seconds = self._seconds(until)
            if not self.turn(seconds) and until is not None and monotonic() >= until:
                return done()
        return True

    def turn(self, seconds: float | None) -> bool:
        """Wait at most so long for the socket; read, write, and see to what is due. False when nothing came."""
        came = False
        for _, what in self._poll.poll(None if seconds is None else -(-seconds * 1000 // 1)):
            came = True
            if what & select.POLLOUT:
                self.write()
            if what & ~select.POLLOUT:
                self._read()
        deadline = self.engine.deadline
        if deadline is not None and deadline <= (now := monotonic()):
            self.tell(self.engine.tick(now))
            self.write()
        return came

    def breathe(self) -> None:
        """See to what is due, without waiting: between the items of a stream that are there already."""
        deadline = self.engine.deadline
        if deadline is not None and deadline <= monotonic():
            self.write()
            if self.mine:
                self.turn(0.0)

    def write(self) -> None:
        """Hand the socket what it takes."""
        engine = self.engine
        try:
            while self._unsent or (data := engine.outgoing()):
                if not self._unsent:
                    self._unsent = memoryview(data)
                    self._progress = monotonic()
                sent = self._socket.send(self._unsent)
                self._unsent = self._unsent[sent:]
                if sent:
                    self._progress = monotonic()
        except BlockingIOError:
            pass
        except OSError as error:
            self._lose(error)
            return
        self._watch()

    def tell(self, events: list[Event]) -> None:
        """Events go to those whom they concern."""
        for event in events:
            tell = _TELL.get(type(event))
            if tell is not None:
                tell(self, event)

    def cut(self, error: Error) -> None:
        """Give up the link without a word."""
        self._lose(error)

    def close(self, reason: str) -> None:
        """Close in order: say so, wait at most ``flush_s`` for the peer to have read it."""
        if self.mine:
            self.tell(self.engine.close(monotonic(), reason=reason))
            self._finish()
        self._socket.close()

    # -- inside -----------------------------------------------------------------------------------------------

    def _seconds(self, until: float | None) -> float | None:
        """How long to wait for the socket."""
        due = [time for time in (until, self.engine.deadline) if time is not None]
        if self._unsent:
            due.append(self._progress + self.engine.limits.write_stall_s)
        now = monotonic()
        if self._unsent and now >= self._progress + self.engine.limits.write_stall_s:
            self._lose(ConnectionClosed("write-stall: the peer does not read", rule="write_stall_s"))
            return 0.0
        return max(0.0, min(due) - now) if due else None

    def _watch(self) -> None:
        wants = (select.POLLIN if self.engine.wants_read else 0) | (select.POLLOUT if self._unsent else 0)
        self._poll.modify(self._socket, wants)

    def _read(self) -> None:
        try:
            data = self._socket.recv(_READ)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(error)
            return
        if not data:
            self._lose(None)
            return
        if self._expects is not None:
            if strange := foreign(data):
                self._lose(RemoteProtocolError(f"the peer speaks {strange}, not {self._expects}", rule="handshake"))
                return
            self._expects = None
        self.tell(self.engine.receive(data, monotonic()))
        self.write()

    def _lose(self, error: Exception | None) -> None:
        """The link is gone: every stream hears it, once."""
        if isinstance(error, Error):
            self.error = error
        self.tell(self.engine.receive_eof(monotonic()))
        self._end(self.error)

    def _end(self, error: Error | None) -> None:
        self.over = True
        self.error = self.error or error
        reason = self.error or ConnectionClosed("the connection is closed")
        for inbox in self.inboxes.values():
            inbox.finish(reason)
        self.inboxes.clear()
        self.outboxes.clear()

    def _finish(self) -> None:
        """Write the rest, end this half, and read what still comes, for at most ``flush_s``."""
        until = monotonic() + self.engine.limits.flush_s
        with suppress(OSError):
            self._poll.modify(self._socket, select.POLLOUT)
            while (self._unsent or self.engine.queued) and monotonic() < until:
                self._poll.poll(max(0.0, until - monotonic()) * 1000)
                self.write()
                self._poll.modify(self._socket, select.POLLOUT)
            self._socket.shutdown(socket.SHUT_WR)
            self._poll.modify(self._socket, select.POLLIN)
            while monotonic() < until and self._poll.poll(max(0.0, until - monotonic()) * 1000):
                if not self._socket.recv(_READ):
                    break

    def _feed(self) -> None:
        """Send what the channels' sources give, within credit and room, and not too much of it at once."""
        for stream, outbox in list(self.outboxes.items()):
            try:
                self._feed_one(stream, outbox)
            except Exception as error:
                self.outboxes.pop(stream, None)
                if self.inboxes.pop(stream, None) is not None:
                    self.engine.fail(stream, error)
                outbox.inbox.finish(error)

    def _feed_one(self, stream: int, outbox: Outbox) -> None:
        items, size = outbox.waiting, sum(map(len, outbox.waiting))
        outbox.waiting = []
        quota = min(self.engine.credit(stream), _ITEMS_PER_TURN)
        room = min(self.room(), _BYTES_PER_TURN)
        ended = False
        while len(items) < quota and size < room and not ended:
            for item in outbox.items:
                items.append(item)
                size += len(item)
                break
            else:
                ended = True
        if items[quota:]:
            outbox.waiting = items[quota:]
            items = items[:quota]
        if items:
            self.engine.send(stream, items, complete=ended)
        elif ended:
            self.engine.complete(stream)
        if ended:
            del self.outboxes[stream]

    # -- events -----------------------------------------------------------------------------------------------

    def _arrived(self, event: Items | Block) -> None:
        inbox = self.inboxes.get(event.stream)
        if inbox is None:
            return
        inbox.arrived.append(event)
        if event.complete:
            inbox.ended = True
            del self.inboxes[event.stream]

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
        self.engine.consumed(len(event.payload))
        if event.verb != "fire":
            self.engine.fail(event.stream, Rejected("a blocking client serves nothing"))
        self.engine.release(event.stream)

    def _pushed(self, event: Pushed) -> None:
        self.engine.consumed(len(event.metadata))

    def _closed(self, event: Closed) -> None:
        self._end(event.error)


_TELL: dict[type, Callable[[Driver, Any], None]] = {
    Items: Driver._arrived,
    Block: Driver._arrived,
    Completed: Driver._completed,
    Failed: Driver._failed,
    Canceled: Driver._canceled,
    Opened: Driver._opened,
    Pushed: Driver._pushed,
    Closed: Driver._closed,
}
