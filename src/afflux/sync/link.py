"""One engine over one blocking socket: the only loop of the blocking side.

1. A turn writes what the engine has, reads what is there, and tells each stream what came for it.
2. Nothing happens between two calls: whoever waits, turns.
3. Writing never waits without reading, so two ends that both write cannot block each other.

Verbs live in peer.py.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable
from time import monotonic

from afflux.core.engine import Engine
from afflux.core.errors import ConnectionClosed, Error, Rejected
from afflux.core.events import (
    Block,
    Canceled,
    Closed,
    Completed,
    Event,
    Failed,
    Granted,
    Items,
    Opened,
    Pushed,
)

__all__ = ["Link", "Listener"]

_READ = 0x40000
"Bytes asked of the socket at once."


class Listener:
    """What one stream hears. Every method may be replaced by one that does something."""

    def arrived(self, event: Items | Block) -> None:
        """Items came."""

    def ended(self, error: Error | None) -> None:
        """Nothing more will come."""

    def stopped(self) -> None:
        """The peer wants nothing more from this side."""


class Link:
    """One connection."""

    def __init__(self, engine: Engine, sock: socket.socket) -> None:
        self.engine = engine
        self.listeners: dict[int, Listener] = {}
        self.error: Error | None = None
        "Why the connection ended, if not in order."
        self._socket = sock
        sock.setblocking(False)
        self._poll = select.poll()
        self._unsent = memoryview(b"")
        self._process = os.getpid()
        self._moved = monotonic()
        "When bytes last left, for the write stall."
        self._gone = False

    @property
    def over(self) -> bool:
        """True when the connection has ended."""
        return self.engine.closed

    def check(self) -> None:
        """Raise unless this process may use the connection and it still stands.

        Raises:
            ConnectionClosed: it is over, or belongs to another process.
        """
        if os.getpid() != self._process:
            raise ConnectionClosed("this connection was made before a fork: make a new one in the child process")
        if self.engine.closed:
            raise self.reason()

    def reason(self) -> Error:
        """The error for those who come when it is over."""
        return self.error or ConnectionClosed("the connection is closed")

    def wait(self, ready: Callable[[], bool], timeout: float | None) -> None:
        """Turn until ``ready`` or the end of the connection.

        Raises:
            TimeoutError: not ready within ``timeout`` seconds; None waits for as long as the peer is alive.
        """
        until = None if timeout is None else monotonic() + timeout
        while not ready() and not self.engine.closed:
            left = None if until is None else until - monotonic()
            if left is not None and left <= 0:
                raise TimeoutError(f"nothing came within {timeout:g} s")
            self.turn(left)

    def flush(self, timeout: float | None = None) -> None:
        """Turn until all is written, reading what comes meanwhile."""
        self._send()
        self.wait(lambda: not self._unsent and not self.engine.queued, timeout)

    def room(self) -> int:
        """Bytes that may still be queued."""
        return self.engine.room(len(self._unsent))

    def turn(self, timeout: float | None = 0.0) -> None:
        """Write, wait at most ``timeout`` seconds (None: until something happens), read, tell."""
        self._send()
        if self._gone or self.engine.closed:
            return
        now = monotonic()
        deadline = self.engine.deadline
        if deadline is not None:
            left = max(0.0, deadline - now)
            timeout = left if timeout is None else min(left, timeout)
        mask = (select.POLLIN if self.engine.wants_read else 0) | (select.POLLOUT if self._unsent else 0)
        if self._unsent:
            timeout = min(1.0 if timeout is None else timeout, 1.0)
        self._poll.register(self._socket, mask)
        found = self._poll.poll(None if timeout is None else timeout * 1000 + 1)
        if any(what & ~select.POLLOUT for _, what in found):
            self._receive()
        now = monotonic()
        if deadline is not None and now >= deadline and not self.engine.closed:
            self._tell(self.engine.tick(now))
        self._send()
        if self._unsent and now - self._moved > self.engine.limits.write_stall_s:
            self.abort(ConnectionClosed("write-stall: the peer takes no bytes", rule="write_stall_s"))

    def close(self, *, drain: bool) -> None:
        """Say goodbye, wait a moment for the last bytes to leave, close the socket."""
        if os.getpid() != self._process:
            self._socket.close()  # a copy from before a fork: the connection is the parent's
            return
        try:
            if not self.engine.closed:
                self._tell(self.engine.close(monotonic(), drain=drain))
            until = monotonic() + self.engine.limits.flush_s
            while not self._gone and (self._unsent or self.engine.queued) and monotonic() < until:
                self._send()
                self._poll.register(self._socket, select.POLLOUT)
                self._poll.poll(100)
        finally:
            self.abort(None)

    def abort(self, error: Error | None) -> None:
        """Cut the link."""
        if not self.engine.closed:
            self._tell(self.engine.close(monotonic()))
        self.error = self.error or error
        self._gone = True
        self._unsent = memoryview(b"")
        self._socket.close()

    def _send(self) -> None:
        """Write as much as the socket takes now."""
        engine = self.engine
        while not self._gone:
            if not self._unsent:
                self._unsent = memoryview(engine.outgoing(_READ))
                if not self._unsent:
                    self._moved = monotonic()
                    return
            try:
                sent = self._socket.send(self._unsent)
            except BlockingIOError:
                return
            except OSError:
                self._lost()
                return
            self._unsent = self._unsent[sent:]
            self._moved = monotonic()

    def _receive(self) -> None:
        try:
            data = self._socket.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._tell(self.engine.receive(data, monotonic()))
        else:
            self._lost()

    def _lost(self) -> None:
        """The transport has ended."""
        self._gone = True
        self._unsent = memoryview(b"")
        self._tell(self.engine.receive_eof(monotonic()))

    def _tell(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Items | Block):
                self._items(event)
            elif isinstance(event, Completed):
                self._end(event.stream, None)
            elif isinstance(event, Failed):
                self._end(event.stream, event.error)
            elif isinstance(event, Canceled):
                self._canceled(event)
            elif isinstance(event, Opened):
                self._refuse(event)
            elif isinstance(event, Pushed):
                self.engine.consumed(len(event.metadata))
            elif isinstance(event, Closed):
                self.error = self.error or event.error
            elif isinstance(event, Granted):
                continue  # whoever waits for credit asks the engine

    def _items(self, event: Items | Block) -> None:
        listener = self.listeners.get(event.stream)
        if listener is None:
            self.engine.consumed(size_of(event))
            return
        listener.arrived(event)
        if event.complete:
            self._end(event.stream, None)

    def _end(self, stream: int, error: Error | None) -> None:
        listener = self.listeners.pop(stream, None)
        if listener is not None:
            listener.ended(error)

    def _canceled(self, event: Canceled) -> None:
        listener = self.listeners.get(event.stream)
        if listener is not None:
            listener.stopped()
        if event.final:
            self._end(event.stream, None)

    def _refuse(self, event: Opened) -> None:
        """The server asks a client that has no handler."""
        self.engine.consumed(len(event.payload))
        self.engine.release(event.stream)
        self.engine.fail(event.stream, Rejected("this client answers no requests"))


def size_of(event: Items | Block) -> int:
    """Bytes of data and metadata of an event's items."""
    if isinstance(event, Items):
        return sum(map(len, event.payloads))
    return sum(event.ends) - sum(event.starts)
