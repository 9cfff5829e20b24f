"""Read and write byte sessions (Jmux) under asyncio. Rule numbers are Jmux's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from afflux.aio.flow import elsewhere, may_run_in
from afflux.calls import byte_sessions_of
from afflux.calls.arguments import AsyncOnly
from afflux.core.errors import Canceled, Error, LimitExceeded, LocalProtocolError
from afflux.core.payload import payload_of

if TYPE_CHECKING:
    from afflux.aio.driver import Driver
    from afflux.core.events import Acknowledged, Readable

__all__ = ["Session"]


class Session(AsyncOnly):
    """One session, returned by ``peer.session()`` or passed to a handler's ``session`` method.

    Leaving its ``async with`` aborts a session that has not ended. One task may read and one may write at a time. The
    attribute ``may_have_been_processed`` of an error reports whether it is safe to try again.
    """

    def __init__(self, driver: Driver, stream: int) -> None:
        self._driver = driver
        self._engine = byte_sessions_of(driver.engine)
        self.stream = stream
        "The session's number at this connection; the id on the wire, which is reused, is ``id``."
        self.error: BaseException | None = None
        "Why the session ended; None for an orderly end."
        self.notified = False
        "A task was waiting when the session failed, and receives the error."
        self._complete = False
        self._unread = 0
        self._unwanted = False
        self._finished = False
        self._asked = False
        self._starving = False
        self._positive: bool | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._listener: asyncio.Future[None] | None = None
        driver.streams.sessions[stream] = self

    def __repr__(self) -> str:
        state = "failed" if self.error is not None else "ended by the peer" if self.ended else "open"
        return f"<Session {self.stream}: {state}>"

    @property
    def id(self) -> int | None:
        """The session's id on the wire; None while it waits for one, and when it is over."""
        return self._engine.session_id(self.stream)

    @property
    def ended(self) -> bool:
        """Whether all bytes of the peer have arrived; they may not have been read."""
        return self._complete

    async def write(self, data: bytes | bytearray | memoryview | str) -> None:
        """Send bytes of any length. Returns when all are queued, which waits for the peer's credit.

        Bytes that the peer does not want any more are dropped silently: its response stays valid.

        Raises:
            LocalProtocolError: the session was finished, or belongs to another event loop.
            Error: the session has failed.
        """
        _check_loop(self._driver, self.stream)
        if self._finished:
            raise LocalProtocolError("the session was finished: nothing can follow", stream=self.stream, rule="R-20")
        rest = memoryview(payload_of(data).data)
        try:
            while rest:
                self._check()
                if self._unwanted:
                    await asyncio.sleep(0)  # a task that writes without end must not block all others
                    return
                size = min(len(rest), self._engine.credit(self.stream), self._driver.room.loop_bytes)
                if not size:
                    self._starve(True)
                    await self._wait("_writer")
                elif self._driver.output.room() <= 0:
                    await self._driver.calls.writable("session")
                else:
                    self._engine.write(self.stream, bytes(rest[:size]))
                    rest = rest[size:]
                    self._driver.output.flush_soon()
        finally:
            self._starve(False)

    def finish(self, *, acknowledge: bool = False, drop: bool = False) -> None:
        """End this half. A server may ask whether the client has processed the response (``acknowledge``, then
        ``acknowledged`` waits for it), and drop the rest of the request (``drop``)."""
        _check_loop(self._driver, self.stream)
        self._engine.finish(self.stream, ack=acknowledge, drop=drop)
        self._finished, self._asked = True, acknowledge
        self._driver.output.flush_soon()

    async def read(self, limit: int | None = None) -> bytes:
        """Return the bytes that have arrived, at most ``limit``; waits until there are any. b"" at the end.

        Raises:
            LocalProtocolError: the session belongs to another event loop.
            Error: the session failed before the end.
        """
        _check_loop(self._driver, self.stream)
        while not (data := self._engine.read(self.stream, limit)):
            if self._complete and not self._unread:
                return b""
            self._check()
            await self._wait("_reader")
        self._unread -= len(data)
        self._driver.output.flush_soon()
        return data

    async def read_all(self, most: int | None = None) -> bytes:
        """Return all bytes of the peer, at most ``most`` (``limits.payload_bytes`` if None).

        Raises:
            LimitExceeded: there are more; the session is aborted.
            Error: the session failed before the end.
        """
        most = self._driver.engine.limits.payload_bytes if most is None else most
        parts = bytearray()
        while data := await self.read():
            parts += data
            if len(parts) > most:
                self.abort("payload-too-large")
                raise LimitExceeded(f"more than {most} bytes", stream=self.stream, rule="payload_bytes", too_large=True)
        return bytes(parts)

    def abort(self, reason: str = "") -> None:
        """End the session in both directions. Idempotent."""
        _check_loop(self._driver, self.stream)
        self._engine.abort(self.stream, reason)
        self._forget()
        self._unwanted = True
        if self.error is None and not self._in_order:
            self.error = Canceled("this side has aborted the session", stream=self.stream)
        self.wake()
        self._driver.output.flush_soon()

    def acknowledge(self) -> None:
        """At a client, with ``acknowledge=False``: report that the response was processed, if the server asked."""
        _check_loop(self._driver, self.stream)
        self._engine.acknowledge(self.stream)
        self._driver.output.flush_soon()

    async def acknowledged(self) -> bool:
        """At a server, after ``finish(acknowledge=True)``: return whether the client has processed the response. False
        when it has not, or does not answer in time."""
        if not self._asked:
            raise LocalProtocolError("finish(acknowledge=True) asks for it", stream=self.stream, rule="R-42")
        _check_loop(self._driver, self.stream)
        while self._positive is None:
            if self.error is not None:
                return False
            await self._wait("_listener")
        return self._positive

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Abort the session if it has not ended or was not read to its end."""
        if self._in_order:
            self._engine.decline(self.stream)
            self._forget()
            self._driver.output.flush_soon()
        else:
            self.abort()

    async def begin(self, first: bytes, finish: bool) -> None:
        """Write the first bytes, and finish if they are all. Closes the session when that fails."""
        try:
            await self.write(first)
        except BaseException:
            self.close()
            raise
        if finish:
            self.finish()

    # -- called by the driver -----------------------------------------------------------------------------------

    def readable(self, event: Readable) -> None:
        """Bytes have arrived."""
        self._complete = event.complete
        self._unread += event.size
        self.wake()

    def on_acknowledged(self, event: Acknowledged) -> None:
        """The acknowledgement has arrived, or never will."""
        self._positive = event.positive
        if self._listener and not event.positive:
            self.notified = True
        self._forget()
        self.wake()

    def failed(self, error: BaseException) -> bool:
        """The session has failed, or the connection is over; bytes that have arrived can be read, as far as the engine
        still has them. Returns whether a task receives the error."""
        if self._reader or self._writer or self._listener:
            self.notified = True
        if self.error is None and not self._in_order:
            self.error = error
        if self._positive is None:
            self._positive = False
        self.stop()
        return self.notified

    def stop(self) -> None:
        """The peer wants no more bytes."""
        self._unwanted = True
        self.wake()

    def wake(self) -> None:
        """Wake all tasks that wait for the session."""
        for waiter in (self._reader, self._writer, self._listener):
            if waiter is not None and not waiter.done():
                waiter.set_result(None)

    # -- inside -------------------------------------------------------------------------------------------------

    @property
    def _in_order(self) -> bool:
        """Whether everything was sent and read."""
        return self._finished and self._complete and not self._unread

    def _check(self) -> None:
        if self.error is not None:
            raise self.error.again() if isinstance(self.error, Error) else self.error

    def _starve(self, waits: bool) -> None:
        """Run the peer's timer while a writer waits for credit."""
        if waits is not self._starving:
            self._starving = waits
            self._engine.starve(self.stream, waits)
            self._driver.output.flush_soon()

    def _forget(self) -> None:
        """Remove the session from the driver, unless an acknowledgement is still expected."""
        if not self._asked or self._positive is not None:
            self._driver.streams.sessions.pop(self.stream, None)

    async def _wait(self, who: str) -> None:
        if getattr(self, who) is not None:
            raise RuntimeError("another task waits for the same of this session")
        waiter = self._driver.state.loop.create_future()
        setattr(self, who, waiter)
        try:
            await waiter
        finally:
            setattr(self, who, None)


def _check_loop(driver: Driver, stream: int) -> None:
    """Raise in another event loop than the connection's, or in another thread, until the connection is over."""
    if not driver.state.over and not may_run_in(driver.state.loop):
        raise elsewhere("session", "its connection", stream)
