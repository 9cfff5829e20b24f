"""A load from several processes: one for each processor that it may use. They measure alone, and add up at the end.

1. A worker is a process of its own (``python -m afflux.bench.worker``) that gets its part of the plan on stdin and says
   on stdout what happens. What goes through the pipes are pickles, of our own making at both ends.
2. All of them connect and warm up, and begin to measure when the last one is ready.
3. A worker ends when its stdin does. So none outlives the process that has started it.
"""

from __future__ import annotations

import asyncio
import pickle
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from afflux.bench.load import Gate, Progress, Tell
from afflux.bench.plan import Plan
from afflux.bench.result import Result
from afflux.core.errors import Error

__all__ = ["GO", "PREFIX", "STOP", "Said", "packed", "run_workers"]

PREFIX = 4
"Bytes before each message, its length."

GO = b"g"
"Every worker is ready: measure."

STOP = b"s"
"End early."

_PATIENCE = 10.0
"Seconds that a worker gets to end in."


class Said(NamedTuple):
    """What a worker says."""

    what: str
    "ready, progress, result or error."
    value: Any = None


def packed(value: Any) -> bytes:
    """A message as it goes through a pipe."""
    data = pickle.dumps(value)
    return len(data).to_bytes(PREFIX, "big") + data


async def run_workers(plan: Plan, *, tell: Tell | None, stop: asyncio.Event | None, gate: Gate | None) -> Result:
    """Put a load on a server from ``plan.workers`` processes; see ``run``."""
    workers: list[_Worker] = []
    told = asyncio.ensure_future((stop or asyncio.Event()).wait())
    told.add_done_callback(lambda task: None if task.cancelled() else _stop(workers))
    try:
        for share in plan.shares():
            workers.append(await _Worker.started(share))
        async with _Together(workers, tell) as together:
            await together.ready()
            if gate is not None:
                await gate()
            for worker in workers:
                worker.say(GO)
            return Result.together(plan, await together.results())
    finally:
        told.cancel()
        await asyncio.gather(*(worker.end() for worker in workers))


def _stop(workers: Sequence[_Worker]) -> None:
    for worker in workers:
        worker.say(STOP)


class _Worker:
    """One process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.progress: Progress | None = None

    @classmethod
    async def started(cls, plan: Plan) -> _Worker:
        """A process that has its part of the plan."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "afflux.bench.worker", stdin=pipe, stdout=pipe, limit=1 << 24
        )
        worker = cls(process)
        worker.say(packed(plan))
        return worker

    def say(self, data: bytes) -> None:
        """Tell it."""
        if self._process.stdin is not None and self._process.returncode is None:
            self._process.stdin.write(data)

    async def listen(self) -> None:
        """Hear what it says, to the end."""
        output = self._process.stdout
        if output is None:
            return
        with suppress(asyncio.IncompleteReadError):
            while True:
                size = int.from_bytes(await output.readexactly(PREFIX), "big")
                self._heard(pickle.loads(await output.readexactly(size)))
        for future in (self.ready, self.result):
            if not future.done():
                future.set_exception(Error(f"a worker ended early, with exit code {await self._process.wait()}"))

    def _heard(self, said: Said) -> None:
        if said.what == "progress":
            self.progress = said.value
        elif said.what == "error":
            for future in (self.ready, self.result):
                if not future.done():
                    future.set_exception(said.value)
        elif not (future := self.ready if said.what == "ready" else self.result).done():
            future.set_result(said.value)

    async def end(self) -> None:
        """See to it that it ends."""
        for future in (self.ready, self.result):
            future.cancel()
            if not future.cancelled():
                future.exception()
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


class _Together:
    """All workers, while somebody listens to them."""

    def __init__(self, workers: Sequence[_Worker], tell: Tell | None) -> None:
        self._workers = workers
        self._tell = tell

    async def __aenter__(self) -> _Together:
        self._ears = [asyncio.ensure_future(worker.listen()) for worker in self._workers]
        self._mouth = asyncio.ensure_future(self._report())
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [*self._ears, self._mouth]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    async def ready(self) -> None:
        """Wait until all may begin."""
        await asyncio.gather(*(worker.ready for worker in self._workers))

    async def results(self) -> list[Result]:
        """What each has measured."""
        return list(await asyncio.gather(*(worker.result for worker in self._workers)))

    async def _report(self) -> None:
        while self._tell is not None:
            await asyncio.sleep(0.25)
            known = [worker.progress for worker in self._workers if worker.progress is not None]
            if known:
                self._tell(_sum(known))


def _sum(parts: Sequence[Progress]) -> Progress:
    shares = [part.share for part in parts if part.share is not None]
    return replace(
        parts[0],
        share=min(shares, default=None),
        done=sum(part.done for part in parts),
        failed=sum(part.failed for part in parts),
        items=sum(part.items for part in parts),
    )
