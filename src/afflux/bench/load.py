"""Generate the load: tasks that send requests, and one task that supervises them. See ``tally`` for the counts.

1. Each stream is a task that takes turns from the ``schedule`` until none are left. A turn carries the scheduled start
   of its request; latency is measured from there.
2. Every turn has an outcome: succeeded, failed, cut or unfinished. Slow requests are never omitted.
3. One task periodically checks all streams and cancels requests that take longer than ``timeout``. This costs less than
   a timer for each request, and bounds the end of the run.
4. A lost connection is reopened. A stream whose connection cannot be reopened stops; when all have stopped, the run
   ends. Connections that the server refuses at the beginning have no streams; see ``opening``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from math import inf
from typing import Literal, cast

import afflux
from afflux.aio.flow import ItemStream
from afflux.aio.peer import Peer
from afflux.bench.meter import Meter
from afflux.bench.opening import PAUSE_S, Clock, connected
from afflux.bench.plan import Plan
from afflux.bench.progress import TELL_S, Progress, Tell
from afflux.bench.result import Result
from afflux.bench.schedule import Arrivals, Closed, Open, Turns
from afflux.bench.tally import Tally, kind_of
from afflux.bench.trip import TRIP_S
from afflux.core.errors import (
    ConnectFailed,
    ConnectionClosed,
    Error,
    LocalProtocolError,
    SetupRefused,
    Unsupported,
)
from afflux.protocols.rsocket.codes import Code
from afflux.transports.durations import in_words

__all__ = ["Gate", "run", "run_share"]

_HOPELESS = (LocalProtocolError, Unsupported)
"Errors that every further request would raise as well, as would a client that the server refuses."


Gate = Callable[[], Awaitable[object]]
_Batches = AsyncGenerator[list[afflux.Payload], None]


async def run(
    plan: Plan,
    *,
    tell: Tell | None = None,
    stop: asyncio.Event | None = None,
    gate: Gate | None = None,
    clock: Clock | None = None,
) -> Result:
    """Run the load and return the measurements.

    Args:
        plan: the load.
        tell: called periodically with the progress; it must be fast, because it delays the measurement.
        stop: set it to stop early; the result covers the time until then and is marked as interrupted.
        gate: awaited when everything is ready, before measuring starts.
        clock: returns monotonic seconds, for simulated time.

    Raises:
        ConnectFailed: no connection could be made.
        SetupRefused: the server refused this client.
        LocalProtocolError: the request cannot be sent.
    """
    if plan.workers > 1:
        from afflux.bench.workers import run_workers

        result = await run_workers(plan, tell=tell, stop=stop, gate=gate)
    else:
        result = await run_share(plan, tell=tell, stop=stop, gate=gate, clock=clock)
    if result.refusal is not None and not result.connections_open:
        raise result.refusal
    return result


async def run_share(
    plan: Plan,
    *,
    tell: Tell | None = None,
    stop: asyncio.Event | None = None,
    gate: Gate | None = None,
    clock: Clock | None = None,
) -> Result:
    """Run the load of one process; see ``run``. If the server refuses every connection, the result has no requests."""
    stop = stop or asyncio.Event()
    plan.payload()
    async with connected(plan, clock or time.perf_counter, tell) as opened:
        trip, silent = opened.trip.seconds, opened.silent
        if plan.warmup and opened.peers:
            await Load(plan.warm(), opened.peers, trip, tell, stop, clock, warming=True, silent=silent).run()
        if gate is not None:
            await gate()
        result = await Load(plan, opened.peers, trip, tell, stop, clock, silent=silent).run()
    result.tally.merge(opened.tally)
    result.refusal = opened.refusal
    return result


class _Slot:
    """The state of one stream for the supervising task."""

    __slots__ = ("since", "task", "why")

    task: asyncio.Task[None]

    def __init__(self) -> None:
        self.since: float | None = None
        "When its request started or its last item arrived; None between requests."
        self.why: Literal["timeout", "cut", "unfinished"] | None = None
        "Why its request is being canceled."

    def give_up(self, why: Literal["timeout", "cut", "unfinished"]) -> None:
        """Cancel the request in flight."""
        if self.since is not None and self.why is None:
            self.why = why
            self.task.cancel()


class Load:
    """One phase of a run, on open connections."""

    def __init__(
        self,
        plan: Plan,
        peers: list[Peer],
        trip: float | None,
        tell: Tell | None,
        stop: asyncio.Event,
        clock: Clock | None,
        *,
        warming: bool = False,
        silent: bool = False,
    ) -> None:
        self._plan = plan
        self._silent = silent
        self._warming = warming
        self._peers = peers
        self._trip = trip
        self._tell = tell
        self._stop = stop
        self._exact = clock is None
        self._clock = clock or time.perf_counter
        self._payload = plan.payload()
        self._slots: list[_Slot] = []
        self._unserved = 0
        self._stopped = 0
        self._hopeless: Error | None = None
        self._lost: Error | None = None
        self._start = self._until = inf
        self._tally = Tally()
        self._turns = self._schedule()
        asks = {"request": self._request, "fire": self._fire, "stream": self._flow, "channel": self._flow}
        self._ask: Callable[[Peer, float, _Slot], Awaitable[None]] = asks[plan.verb]

    async def run(self) -> Result:
        """Run the phase.

        Raises:
            SetupRefused, LocalProtocolError, Unsupported: no request can succeed.
        """
        for peer in [peer for _ in range(self._plan.streams) for peer in self._peers]:
            slot = _Slot()
            slot.task = asyncio.ensure_future(self._work(peer, slot))
            self._slots.append(slot)
        await asyncio.sleep(0)  # all streams now wait for their first turn
        started, cpu, begun = time.time(), time.process_time(), time.perf_counter()
        self._begin()
        tasks = [slot.task for slot in self._slots]
        together, watch = asyncio.gather(*tasks), asyncio.ensure_future(self._supervise())
        try:
            await asyncio.wait((together, watch), return_when=asyncio.FIRST_COMPLETED)
            if watch.done():
                watch.result()
            await together
        finally:
            for task in (watch, *tasks):
                task.cancel()
            await asyncio.wait((watch, *tasks))
            await asyncio.wait((together,))
            if not together.cancelled():
                together.exception()  # already raised, or the run was canceled
            self._turns.close()
        if self._hopeless is not None:
            raise self._hopeless
        used = time.process_time() - cpu
        return self._result(started, used / max(1e-9, time.perf_counter() - begun))

    # -- streams ------------------------------------------------------------------------------------------------

    async def _work(self, peer: Peer, slot: _Slot) -> None:
        """Take turns until none are left."""
        turns, ask, clock = self._turns, self._ask, self._clock
        delay = self._tally.delay if self._plan.rate is not None else None
        while (meant := await turns.take()) is not None:
            start = meant
            if delay is not None:
                start = clock()
                delay.record(int((start - meant) * 1e9))
            slot.since = start
            try:
                await ask(peer, meant, slot)
                if delay is not None:
                    self._tally.served(start, clock())
            except asyncio.CancelledError:
                if slot.why is None:
                    raise
                slot.task.uncancel()
                self._given_up(slot, meant)
            except Error as error:
                slot.since = None  # the request has ended: nothing to cancel
                if not await self._failed(error):
                    self._stopped += 1
                    return
            finally:
                slot.since = None

    async def _request(self, peer: Peer, meant: float, slot: _Slot) -> None:
        answer = await peer.request(self._payload)
        self._tally.answered(meant, self._clock(), len(answer))

    async def _fire(self, peer: Peer, meant: float, slot: _Slot) -> None:
        await peer.fire(self._payload)
        self._tally.ended(meant, self._clock())

    async def _flow(self, peer: Peer, meant: float, slot: _Slot) -> None:
        await _connected(peer)
        start = self._clock()
        plan = self._plan
        meter = Meter(plan.credit, self._trip, start, plan.take, plan.limits.connection_bytes // 4)
        try:
            async with self._opened(peer) as stream, aclosing(_batches(stream)) as batches:
                stream.request(meter.opened(start))
                await self._take(stream, batches, meter, meant, slot)
        finally:
            self._tally.flowed(meter)
        self._tally.ended(meant, self._clock())

    async def _take(self, stream: ItemStream, batches: _Batches, meter: Meter, meant: float, slot: _Slot) -> None:
        """Consume items to the end, or up to ``take``."""
        clock, came, take = self._clock, self._tally.came, self._plan.take
        first: float | None = meant
        before, here = meant, False
        async for batch in batches:
            now = clock()
            (meter.worked if here else meter.waited)(now)
            size = _size(batch)
            came(len(batch), size, now, before, first)
            more = meter.came(len(batch), size, now)
            first, before = None, now
            if slot.since is not None:
                slot.since = now
            if meter.taken == take:
                return
            if more:
                stream.request(more)
            here = stream.limited_by() == "application"
            meter.worked(clock())
        meter.waited(clock())

    def _opened(self, peer: Peer) -> ItemStream:
        plan = self._plan
        if plan.verb == "stream":
            return peer.stream(self._payload, credit=0)
        item = plan.data
        rest = (self._payload if number == 0 else item for number in range(plan.items))
        return peer.channel(rest, credit=0)

    # -- failures -----------------------------------------------------------------------------------------------

    def _given_up(self, slot: _Slot, meant: float) -> None:
        """Count a request that the supervising task has canceled."""
        why, slot.why = slot.why, None
        if why == "timeout":
            what = "item" if self._plan.flows else "answer"
            text = f"no {what} within {in_words(self._plan.timeout)}"
            if self._unheard():
                text += f", and nothing before; does it speak {self._plan.address.protocol}?"
                self._turns.stop(self._clock())  # each further request would wait as long
            self._tally.gave_up("Timeout", self._clock() - meant, text)
        elif why == "cut":
            self._tally.cut += 1
        else:
            self._tally.unfinished += 1

    def _unheard(self) -> bool:
        """Return whether the server has never sent anything."""
        if not self._silent or self._tally.succeeded or self._tally.items or self._lost:
            return False
        return self._plan.address.entry.keepalives or not any(peer._driver.input.taken for peer in self._peers)

    async def _failed(self, error: Error) -> bool:
        """Count the error; return whether the stream may continue."""
        self._tally.fail(kind_of(error))
        if isinstance(error, _HOPELESS) or (isinstance(error, SetupRefused) and error.code != Code.CONNECTION_ERROR):
            self._hopeless = self._hopeless or error
            self._turns.stop(self._clock())
            return False
        if isinstance(error, ConnectFailed):
            self._lost = error
            return False
        await asyncio.sleep(PAUSE_S if isinstance(error, ConnectionClosed) else 0)
        return True

    async def _supervise(self) -> None:
        """Cancel slow requests, end the run after its duration or on ``stop``, and report progress."""
        period = min(TELL_S, max(0.01, self._plan.timeout / 20))
        stopped = asyncio.ensure_future(self._stop.wait())
        guards = [asyncio.ensure_future(self._guard(peer)) for peer in self._peers if self._plan.verb == "fire"]
        try:
            self._report(self._start)
            while not self._stop.is_set():
                now = self._clock()
                wait = min(period, self._until - now) if now < self._until else period
                await asyncio.wait((stopped,), timeout=wait)
                now = self._clock()
                if now >= self._until and self._plan.cuts:
                    for slot in self._slots:
                        slot.give_up("cut")
                patience = self._patience()
                for slot in self._slots:
                    if slot.since is not None and now - slot.since > patience:
                        slot.give_up("timeout")
                self._report(now)
            self._unserved = self._turns.stop(self._clock())
            self._until = min(self._until, self._clock())
            for slot in self._slots:
                slot.give_up("unfinished")
        finally:
            for task in (stopped, *guards):
                task.cancel()

    def _patience(self) -> float:
        """Return the seconds after which a request is given up. A server that has never sent anything was waited for
        before, when the round trip was measured, and will be after: that counts."""
        timeout = self._plan.timeout
        if self._plan.address.entry.keepalives and self._unheard():
            return max(timeout / 2, timeout - 2 * TRIP_S)
        return timeout

    async def _guard(self, peer: Peer) -> None:
        """Count lost connections. Fires do not raise on a loss: the next one waits for the next connection."""
        with suppress(Error):  # if it cannot be reopened, the next fire raises
            while True:
                driver = peer._driver
                await asyncio.shield(driver.closed)
                self._tally.connections_lost += 1
                if driver.renew is None:
                    return
                await driver.renew()

    # -- results ------------------------------------------------------------------------------------------------

    def _schedule(self) -> Turns:
        plan = self._plan
        seconds = inf if plan.seconds is None else plan.seconds
        if plan.rate is None:
            return Closed(self._clock, count=plan.requests, seconds=seconds)
        offset, step = plan.turn
        arrivals = Arrivals(plan.rate, plan.timeout, count=plan.requests, seconds=seconds, offset=offset, step=step)
        return Open(arrivals, self._clock, exact=self._exact)

    def _begin(self) -> None:
        start = self._start = self._clock()
        if self._plan.seconds is not None:
            self._until = self._tally.until = start + self._plan.seconds
        self._turns.begin(start)

    def _report(self, now: float) -> None:
        if self._tell is None:
            return
        plan, tally = self._plan, self._tally
        elapsed = now - self._start
        done, failed = tally.succeeded + tally.cut, tally.failed
        shares = []
        if plan.seconds is not None:
            shares.append(elapsed / plan.seconds)
        if plan.requests is not None:
            shares.append((done + failed) / plan.requests)
        self._tell(
            Progress(
                phase="waiting" if now >= self._until else "warming up" if self._warming else "measuring",
                elapsed=elapsed,
                share=min(1.0, max(shares)) if shares else None,
                done=done + failed,
                failed=failed,
                items=tally.items,
            )
        )

    def _result(self, started: float, cpu: float) -> Result:
        plan, tally, turns = self._plan, self._tally, self._turns
        lost = self._lost if self._stopped == len(self._slots) else None
        duration = min(self._clock(), self._until) - self._start
        if plan.rate is not None and not self._stop.is_set() and lost is None:
            planned = inf if plan.requests is None else plan.requests * plan.turn[1] / plan.rate
            duration = max(duration, min(planned, plan.seconds or inf))
        not_started = backlog = 0
        if isinstance(turns, Open):
            not_started, backlog = turns.arrivals.given_up, turns.arrivals.backlog
            tally.gave_up(
                "NotStarted", plan.timeout, f"not started within {plan.timeout:g} s of its scheduled start", not_started
            )
        tally.unfinished += self._unserved
        return Result(
            plan=plan,
            tally=tally,
            started=started,
            duration=duration,
            requests=turns.begun + not_started + self._unserved,
            late=turns.late,
            late_here=turns.late_here,
            backlog=backlog,
            not_started=not_started,
            trip=self._trip,
            cpu=cpu,
            interrupted=self._stop.is_set(),
            lost=None if lost is None else str(lost),
        )


async def _connected(peer: Peer) -> None:
    """Wait for a connection that is being reopened. Requests and fires wait by themselves; a stream with manual credit
    opens immediately or fails.

    Raises:
        ConnectFailed: the connection could not be reopened.
    """
    await peer._driver.current()


def _size(batch: list[afflux.Payload]) -> int:
    """Return the bytes of data and metadata. Avoids len(payload), a call that takes 60 of the 600 ns per item."""
    size = 0
    for payload in batch:
        size += len(payload.data)
        if payload.metadata is not None:
            size += len(payload.metadata)
    return size


def _batches(stream: ItemStream) -> _Batches:
    return cast("_Batches", stream.batches())
