"""Read and write byte sessions (Jmux) in a blocking program: bytes move while a call waits. Rule numbers are Jmux's."""

from __future__ import annotations

from collections.abc import Callable

from afflux.calls import byte_sessions_of
from afflux.calls.arguments import SyncOnly
from afflux.core.errors import Canceled, Error, LimitExceeded, LocalProtocolError
from afflux.core.payload import payload_of
from afflux.sync.driver import Driver
from afflux.sync.inbox import Inbox

__all__ = ["Session"]


class Session(SyncOnly):
    """One session, returned by ``peer.session()``; ``with`` aborts a session that has not ended.

    The attribute ``may_have_been_processed`` of an error reports whether it is safe to try again. A timeout raises
    ``TimeoutError``; the session continues.
    """

    _over = True
    "The session was closed or aborted, or has not begun."

    def __init__(self, driver: Driver, stream: int, timeout: float | None) -> None:
        self._driver = driver
        self._engine = byte_sessions_of(driver.engine)
        self._timeout = timeout
        self._inbox = driver.inboxes[stream] = Inbox()
        self._finished = False
        self._over = False
        self.stream = stream
        "The session's number at this connection; the id on the wire, which is reused, is ``id``."

    @property
    def id(self) -> int | None:
        """The session's id on the wire; None while it waits for one, and when it is over."""
        return self._engine.session_id(self.stream)

    def write(self, data: bytes | bytearray | memoryview | str) -> None:
        """Send bytes of any length. Returns when all are queued, which waits for the peer's credit.

        Bytes that the peer does not want any more are dropped silently: its response stays valid.

        Raises:
            LocalProtocolError: the session was finished.
            Error: the session has failed.
        """
        if self._finished:
            raise LocalProtocolError("the session was finished: nothing can follow", stream=self.stream, rule="R-20")
        rest = memoryview(payload_of(data).data)
        with self._driver.guard:
            self._write(rest)

    def _write(self, rest: memoryview) -> None:
        engine, driver, room = self._engine, self._driver, self._driver.pump.room
        while rest:
            engine.starve(self.stream, engine.credit(self.stream) == 0)
            try:
                self._wait(lambda: not engine.takes(self.stream) or (engine.credit(self.stream) > 0 < room()))
            finally:
                engine.starve(self.stream, False)
            self._check()
            size = min(len(rest), engine.credit(self.stream), driver.engine.limits.loop_bytes)
            if not size:
                if (broken := self._inbox.broken) is not None:
                    raise broken.again() if isinstance(broken, Error) else broken
                return
            engine.write(self.stream, bytes(rest[:size]))
            rest = rest[size:]
            driver.write()

    def finish(self) -> None:
        """End this half: no more bytes follow."""
        with self._driver.guard:
            self._engine.finish(self.stream)
            self._finished = True
            self._forget()
            self._driver.write()

    def read(self, limit: int | None = None) -> bytes:
        """Return the bytes that have arrived, at most ``limit``; waits until there are any. b"" at the end.

        Raises:
            Error: the session failed before the end.
        """
        found = [b""]

        def some() -> bool:
            found[0] = found[0] or self._engine.read(self.stream, limit)  # called more than once
            return bool(found[0]) or self._inbox.ended

        with self._driver.guard:
            self._wait(some)
            if found[0]:
                self._inbox.unread -= len(found[0])
                self._driver.write()
            else:
                self._check()
                self._forget()
        return found[0]

    def read_all(self, most: int | None = None) -> bytes:
        """Return all bytes of the peer, at most ``most`` (``limits.payload_bytes`` if None).

        Raises:
            LimitExceeded: there are more; the session is aborted.
            Error: the session failed before the end.
        """
        most = self._driver.engine.limits.payload_bytes if most is None else most
        parts = bytearray()
        while data := self.read():
            parts += data
            if len(parts) > most:
                self.abort("payload-too-large")
                raise LimitExceeded(f"more than {most} bytes", stream=self.stream, rule="payload_bytes", too_large=True)
        return bytes(parts)

    def abort(self, reason: str = "") -> None:
        """End the session in both directions. Idempotent."""
        driver = self._driver
        if not driver.mine:
            return
        with driver.guard:
            if driver.forget(self.stream):
                driver.count_cancel()
            self._engine.abort(self.stream, reason)
            self._inbox.finish(Canceled("this side has aborted the session", stream=self.stream))
            self._over = True
            driver.write()

    def acknowledge(self) -> None:
        """With ``acknowledge=False``: report that the response was processed, if the server asked."""
        with self._driver.guard:
            self._engine.acknowledge(self.stream)
            self._driver.write()

    def close(self) -> None:
        """Abort the session if it has not ended or was not read to its end."""
        if self._over:
            return
        if not self._finished or not self._inbox.ended or self._inbox.unread:
            self.abort()
        elif self._driver.mine:
            with self._driver.guard:
                self._engine.decline(self.stream)
                self._driver.write()
        self._over = True

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if self._over or not (driver := self._driver).mine:
            return
        try:
            if driver.guard.idle:
                self.close()
                return
        except Error:  # another thread has begun a verb
            pass
        driver.dropped.append(self)

    def _forget(self) -> None:
        """Remove the session from the driver once everything was sent and has arrived."""
        if self._finished and self._inbox.ended:
            self._driver.inboxes.pop(self.stream, None)

    def _check(self) -> None:
        error = self._inbox.error
        if error is not None:
            raise error.again() if isinstance(error, Error) else error

    def _wait(self, done: Callable[[], bool]) -> None:
        in_time = self._driver.wait(lambda: self._inbox.error is not None or done(), self._timeout)
        if not in_time and not self._driver.over:
            raise TimeoutError(f"nothing within {self._timeout:g} s")
