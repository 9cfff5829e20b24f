"""Open the connections of a load, and count those that are refused, by cause.

1. A connection counts as open when the server has answered on it: a KEEPALIVE, or its part of a handshake. A server
   that refuses a connection accepts the socket first, so a connected socket shows nothing. Where the server answers no
   KEEPALIVE, the socket has to do.
2. A refused connection is not tried again. The load runs on the others.
3. When nothing has been opened or refused for ``connect_timeout``, the remaining connections count as refused, because
   the server does not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

import afflux
from afflux.bench.progress import TELL_S, Progress, Tell
from afflux.bench.tally import Tally, kind_of
from afflux.bench.trip import Trip, round_trip
from afflux.core.errors import ConnectFailed, Error
from afflux.transports.durations import in_words

if TYPE_CHECKING:
    from afflux.aio.client import ClientHandlers
    from afflux.aio.peer import Peer
    from afflux.bench.plan import Plan

__all__ = ["PAUSE_S", "Clock", "Opened", "connected"]

Clock = Callable[[], float]
"Monotonic seconds."

_Task = asyncio.Task[None]

PAUSE_S = 0.1
"Seconds before the first attempt to open a lost connection again."

_DIALING = 32
"Connections that are opened concurrently."


class _Unanswered(ConnectFailed, TimeoutError):
    """The server took the connection and did not answer in time."""


class Opened:
    """The connections of a plan while they are opened, and afterwards."""

    def __init__(self, plan: Plan) -> None:
        self.trip = Trip(None)
        "The round trip, measured before the connections are opened."
        self.peers: list[Peer] = []
        "The open connections."
        self.tally = Tally()
        "Counts the refused connections."
        self.refusal: Error | None = None
        "The error of the first refused connection."
        self._given_up: Error | None = None
        "Why the remaining connections are not waited for."
        self._plan = plan
        self._few = asyncio.Semaphore(_DIALING)
        self._clock = asyncio.get_running_loop().time
        self._begun = self._changed = self._clock()
        self._again = afflux.Backoff(first=PAUSE_S, most=1.0, patience=plan.timeout / 2)

    @property
    def silent(self) -> bool:
        """Whether the server has shown nothing: no answer to KEEPALIVE, or no KEEPALIVE to answer."""
        return not self.trip.answered or not self._plan.address.entry.keepalives

    async def measure(self, clock: Clock, tell: Tell | None) -> None:
        """Measure the round trip."""
        measured = asyncio.ensure_future(round_trip(self._plan, clock))
        try:
            await self._watch(measured, tell)
            self.trip = measured.result()
        finally:
            measured.cancel()
            await asyncio.wait((measured,))

    async def open_all(self, tell: Tell | None) -> None:
        """Try each connection once."""
        self._changed = self._clock()
        tasks = [asyncio.ensure_future(self._open()) for _ in range(self._plan.connections)]
        together = asyncio.gather(*tasks)
        try:
            await self._watch(together, tell, tasks)
            together.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            with suppress(asyncio.CancelledError, Exception):  # raised already, or the run was canceled
                await together

    async def _watch(self, all_done: asyncio.Future[Any], tell: Tell | None, tasks: Iterable[_Task] = ()) -> None:
        """Report the progress until ``all_done``; give up when the server opens and refuses nothing any more."""
        while not all_done.done():
            await asyncio.wait((all_done,), timeout=TELL_S)
            if tell is not None:
                tell(self._progress())
            if self._given_up is None and self._clock() - self._changed > self._plan.connect_timeout:
                self._given_up = _Unanswered(self._unanswered())
                for task in tasks:
                    task.cancel()

    def _unanswered(self) -> str:
        text = f"no answer within {in_words(self._plan.connect_timeout)}"
        if self.peers or self.refusal is not None or self.trip.seconds is not None:
            return text
        return f"{text}; does it speak {self._plan.address.protocol}?"

    async def close(self) -> None:
        """Close the open connections."""
        await asyncio.gather(*(peer.close() for peer in self.peers))

    async def _open(self) -> None:
        plan, peer = self._plan, None
        try:
            async with self._few:
                peer = await afflux.connect(
                    plan.uri,
                    limits=plan.limits,
                    setup=plan.setup,
                    metadata_mime=plan.metadata_mime,
                    data_mime=plan.data_mime,
                    timeout=plan.connect_timeout,
                    reconnect=self._again,
                )
            if self.trip.answered:
                await _answered(peer)
        except Error as error:
            self._refused(error)
        except asyncio.CancelledError:
            if self._given_up is None:
                raise
            self._refused(self._given_up)
        else:
            self.peers.append(peer)
            self._changed = self._clock()
            peer = None
        finally:
            if peer is not None:
                await peer.close()

    def _refused(self, error: Error) -> None:
        self._changed = self._clock()
        self.refusal = self.refusal or error
        self.tally.refuse(kind_of(error))

    def _progress(self) -> Progress:
        refused = self.tally.refused
        settled = len(self.peers) + refused
        return Progress(
            phase="connecting",
            elapsed=self._clock() - self._begun,
            share=settled / self._plan.connections,
            done=settled,
            failed=refused,
            items=0,
        )


@asynccontextmanager
async def connected(plan: Plan, clock: Clock, tell: Tell | None) -> AsyncIterator[Opened]:
    """Open the connections of a plan; those that are lost later are opened again."""
    opened = Opened(plan)
    try:
        await opened.measure(clock, tell)
        await opened.open_all(tell)
        yield opened
    finally:
        await opened.close()


async def _answered(peer: Peer) -> None:
    """Wait until the server has answered on a new connection.

    Raises:
        Error: the server refused the connection, or it was lost.
    """
    driver, entry = peer._driver, peer._protocol
    handlers = cast("ClientHandlers", driver.owner)
    driver.state.check()
    if entry.keepalives and "session" not in entry.features:
        driver.state.run(driver.engine.tick, driver.engine.deadline)  # sends a KEEPALIVE
    elif handlers.greeted:
        return
    await asyncio.wait((handlers.next_input(), driver.closed), return_when=asyncio.FIRST_COMPLETED)
    driver.state.check()
