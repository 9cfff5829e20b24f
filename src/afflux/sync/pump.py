"""How the bytes and the time of one connection move in a blocking program. Whom an event concerns is driver.py's.

Nothing blocks in a system call but ``poll``, and that never longer than until the next of: the caller's deadline,
the engine's deadline, the write stall. A connection belongs to the process that made it.
"""

from __future__ import annotations

import os
import select
import socket
from contextlib import suppress
from time import monotonic

from afflux.core.engine import Engine
from afflux.core.errors import ConnectionClosed, Error, RemoteProtocolError
from afflux.core.events import Event
from afflux.transports.base import foreign

__all__ = ["Pump"]

_READ = 0x40000


class Pump:
    """One engine on one socket."""

    def __init__(self, engine: Engine, sock: socket.socket, expects: str) -> None:
        sock.setblocking(False)
        self.engine = engine
        self.error: Error | None = None
        "Why the connection ended, if not in order."
        self.over = False
        self._socket = sock
        self._pid = os.getpid()
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._watched = select.POLLIN
        self._unsent = memoryview(b"")
        self._progress = monotonic()
        self._expects: str | None = expects

    # -- what the driver adds -----------------------------------------------------------------------------------

    def tell(self, events: list[Event]) -> None:
        """Tell everyone concerned."""
        raise NotImplementedError

    def end(self, error: Error | None) -> None:
        """The connection is over; the first reason counts."""
        raise NotImplementedError

    # -- what verbs call ----------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise unless the connection can be used, here and now."""
        if self._pid != os.getpid():
            raise ConnectionClosed(
                f"this connection belongs to process {self._pid}, not to {os.getpid()}: connect again after a fork"
            )
        if self.over:
            raise self.reason()

    def reason(self) -> Error:
        """The error for those who come when it is over."""
        return ConnectionClosed("the connection is closed") if self.error is None else self.error.again()

    @property
    def mine(self) -> bool:
        """Whether the connection can be used; False in a child process and after the end."""
        return not self.over and self._pid == os.getpid()

    def room(self) -> int:
        """Bytes that may still be queued."""
        return self.engine.room(len(self._unsent))

    def turn(self, until: float | None) -> None:
        """Write what is queued, wait for the socket until the time ``until`` at most, read, see to what is due."""
        self.write()
        if self.over:
            return
        for _, what in self._poll.poll(self._milliseconds(until)):
            if what & select.POLLOUT:
                self.write()
            if what & ~select.POLLOUT:
                self._read()
        self._tick(monotonic())

    def breathe(self) -> None:
        """See to what is due, without waiting: between the items of a stream that are there already."""
        deadline = self.engine.deadline
        if deadline is not None and deadline <= (now := monotonic()) and self.mine:
            self.turn(now)

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
                self._progress = monotonic()
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._read_rest()
            self._lose(None)
            return
        self._watch()

    def close(self, reason: str) -> None:
        """Close in order: say so, and wait at most ``flush_s`` for the peer to have read it."""
        if self.mine:
            self.write()
            self.tell(self.engine.close(monotonic(), reason=reason))
            self._finish()
        self.over = True
        self._socket.close()

    # -- inside -------------------------------------------------------------------------------------------------

    def _milliseconds(self, until: float | None) -> float | None:
        """How long to wait for the socket."""
        due = [time for time in (until, self.engine.deadline) if time is not None]
        if self._unsent:
            due.append(self._progress + self.engine.limits.write_stall_s)
        return max(0.0, min(due) - monotonic()) * 1000 if due else None

    def _tick(self, now: float) -> None:
        if self.over:
            return
        if self._unsent and now >= self._progress + self.engine.limits.write_stall_s:
            self._lose(ConnectionClosed("write-stall: the peer does not read", rule="write_stall_s"))
            return
        deadline = self.engine.deadline
        if deadline is not None and deadline <= now:
            self.tell(self.engine.tick(now))
            self.write()

    def _watch(self) -> None:
        wants = (select.POLLIN if self.engine.wants_read else 0) | (select.POLLOUT if self._unsent else 0)
        if wants != self._watched:
            self._watched = wants
            self._poll.modify(self._socket, wants)

    def _read(self) -> None:
        try:
            data = self._socket.recv(_READ)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
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

    def _read_rest(self) -> None:
        """The peer takes nothing more; what it said before, such as why, may still be there."""
        with suppress(OSError):
            while not self.over and (data := self._socket.recv(_READ)):
                self.tell(self.engine.receive(data, monotonic()))

    def _lose(self, error: Error | None) -> None:
        """The link is gone: every stream hears it, once."""
        if error is not None:
            self.end(error)
        self.tell(self.engine.receive_eof(monotonic()))
        self.end(None)

    def _finish(self) -> None:
        """Write the rest, end this half, and read what still comes: a close with unread input would reset the
        connection, and the peer might not read the last words."""
        until = monotonic() + self.engine.limits.flush_s
        with suppress(OSError):
            self.write()
            while self._unsent and monotonic() < until:
                self._poll.modify(self._socket, select.POLLOUT)
                self._poll.poll(max(0.0, until - monotonic()) * 1000)
                self.write()
            self._socket.shutdown(socket.SHUT_WR)
            self._poll.modify(self._socket, select.POLLIN)
            while self._poll.poll(max(0.0, until - monotonic()) * 1000) and self._socket.recv(_READ):
                pass
