"""Keep a client connected: resume its session on a new transport, or connect again.

1. A session that can be resumed loses nothing: its driver stays, and gets another transport.
2. Without resumption, or when the session is over, every live stream has failed; the peer gets a new driver.
3. Tries are separated by a backoff with jitter, and by the rate that a server allows (``resume_rate``). A refused
   connection, or one that ends sooner than the wait before it, counts as one more try: the waits keep growing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from random import Random, getrandbits

from afflux.aio.driver import Driver
from afflux.core.errors import ConnectFailed, ConnectionClosed, Error, SetupRefused
from afflux.core.limits import Limits
from afflux.retry.backoff import Backoff
from afflux.retry.tries import ResumeTries
from afflux.transports.clock import clock_of
from afflux.watching import CONNECTIONS, quoted

__all__ = ["Keeper"]


class Keeper:
    """Restores the connection of one peer.

    ``join(driver)`` opens a transport for a driver; ``renew()`` opens a new connection and assigns it to the peer.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        join: Callable[[Driver], Awaitable[None]],
        renew: Callable[[], Awaitable[Driver]],
        resume: Backoff | None,
        reconnect: Backoff | None,
        random: Random | None = None,
    ) -> None:
        self._now = clock_of(asyncio.get_running_loop())
        self._join = join
        self._renew = renew
        self._reconnect = reconnect
        self._random = random or Random(getrandbits(64))
        self._resumes = None if resume is None else ResumeTries(limits, resume, self._random)
        self._tries: Iterator[float] | None = None
        "The waits before further connections."
        self._wait = self._renewed_at = 0.0
        "The wait before the last connection, and the time when that was opened."
        self._rejoining: asyncio.Task[None] | None = None
        "Resumes the session."
        self._reconnecting: asyncio.Task[None] | None = None
        "Opens the next connection."
        self._renewed: asyncio.Future[Driver] | None = None
        self._failure: Error | None = None
        "Why the last try failed."
        self._settled = False
        "There will be no other connection."
        self._stopped = False
        "There will be no other transport either."

    # -- the same session, on another transport ---------------------------------------------------------------

    def suspended(self, driver: Driver) -> None:
        """The transport is gone: open another."""
        if not self._stopped and (self._rejoining is None or self._rejoining.done()):
            self._rejoining = driver.tasks.spawn(self._rejoin(driver))

    def resumed(self) -> None:
        """The session was resumed."""
        if self._resumes is not None:
            self._resumes.succeeded()

    async def _rejoin(self, driver: Driver) -> None:
        failure: Error | None = None
        tries = self._resumes
        while driver.state.away and tries is not None and (due := tries.next(now := self._now())) is not None:
            if (watch := driver.state.watch) is not None:
                watch.trying(due - now)
            await asyncio.sleep(due - now)
            tries.begin(self._now())
            try:
                await self._join(driver)
            except Error as error:
                failure = error
        if driver.state.away:
            driver.abort(failure or ConnectionClosed("the session was not resumed: no tries are left"))

    # -- a new connection -------------------------------------------------------------------------------------

    def ended(self, driver: Driver) -> None:
        """The connection is over: make another, if ``reconnect`` is set."""
        if self._rejoining is not None:
            self._rejoining.cancel()  # it may be in a long wait
            self._rejoining = None
        if self._settled or self._reconnect is None:
            return
        driver.renew = self._next
        if self._renewed is None or self._renewed.done():
            self._renewed = driver.state.loop.create_future()
            refused = isinstance(driver.state.error, SetupRefused) or self._now() < self._renewed_at + self._wait
            if self._tries is None or not refused:
                self._tries = self._reconnect.waits(self._random)
            self._failure = None
            failure = driver.state.error or ConnectionClosed("the connection is closed")
            self._reconnecting = driver.state.loop.create_task(self._connect(self._tries, self._renewed, failure))

    async def _connect(self, tries: Iterator[float], renewed: asyncio.Future[Driver], failure: Error) -> None:
        for wait in tries:
            CONNECTIONS.info("connecting again in %.3g s: %s", wait, quoted(failure.message))
            await asyncio.sleep(wait)
            try:
                driver = await self._renew()
                driver.state.check()
            except Error as error:
                failure = self._failure = error
            else:
                self._wait, self._renewed_at = wait, self._now()
                renewed.set_result(driver)
                return
        renewed.set_exception(failure)
        renewed.exception()  # retrieved: without a waiter it is not worth a line in the log

    async def _next(self) -> Driver:
        """Return the driver of the new connection.

        Raises:
            ConnectionClosed: it did not come within ``patience``, or will not come.
        """
        backoff, renewed = self._reconnect, self._renewed
        if self._settled or backoff is None or renewed is None:
            raise ConnectionClosed("the connection is closed")
        try:
            async with asyncio.timeout(backoff.patience):
                return await asyncio.shield(renewed)
        except TimeoutError:
            why = "" if self._failure is None else f": {self._failure.message}"
            raise ConnectFailed(f"the connection did not come back within {backoff.patience:g} s{why}") from None
        except Error as error:
            raise error.again() from error

    # -- the end ----------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Open no further connection; a suspended session may still be resumed."""
        self._settled = True
        await _ended(self._reconnecting)
        if self._renewed is not None and not self._renewed.done():
            self._renewed.set_exception(ConnectionClosed("this side closed the connection"))
            self._renewed.exception()

    async def stop(self) -> None:
        """Restore nothing any more, and end tries in flight."""
        self._stopped = True
        await self.settle()
        await _ended(self._rejoining)


async def _ended(task: asyncio.Task[None] | None) -> None:
    if task is not None and not task.done():
        task.cancel()
        await asyncio.wait((task,))
