"""Run a load in several processes and merge their results.

1. A worker is a process (``python -m afflux.bench.worker``) that receives its share of the plan on stdin and reports on
   stdout. The messages are pickles, written and read by afflux only.
2. All workers connect and warm up, and start measuring when the last one is ready.
3. A worker exits when its stdin closes, so none outlives its parent.
"""

from __future__ import annotations

import asyncio
import pickle
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from afflux.bench.load import Gate
from afflux.bench.plan import Plan
from afflux.bench.progress import TELL_S, Progress, Tell, together
from afflux.bench.result import Result
from afflux.core.errors import Error

__all__ = ["GO", "PREFIX", "STOP", "Message", "packed", "run_workers"]

PREFIX = 4
"Bytes of the length prefix of each message."

GO = b"g"
"Order: start measuring."

STOP = b"s"
"Order: stop early."

_EXIT_S = 10.0
"Seconds that a worker may take to exit."


class Message(NamedTuple):
    """A message of a worker."""

    what: str
    "``ready``, ``progress``, ``result`` or ``error``."
    value: Any = None


def packed(value: Any) -> bytes:
    """Encode a message."""
    data = pickle.dumps(value)
    return len(data).to_bytes(PREFIX, "big") + data


async def run_workers(plan: Plan, *, tell: Tell | None, stop: asyncio.Event | None, gate: Gate | None) -> Result:
    """Run a load in ``plan.workers`` processes; see ``run``."""
    workers: list[_Worker] = []
    stopped = asyncio.ensure_future((stop or asyncio.Event()).wait())
    stopped.add_done_callback(lambda task: None if task.cancelled() else _stop(workers))
    try:
        for share in plan.shares():
            workers.append(await _Worker.started(share))
        async with _Together(workers, tell) as all_of_them:
            await all_of_them.ready()
            if gate is not None:
                await gate()
            for worker in workers:
                worker.send(GO)
            return Result.together(plan, await all_of_them.results())
    finally:
        stopped.cancel()
        await asyncio.gather(*(worker.end() for worker in workers))


def _stop(workers: Sequence[_Worker]) -> None:
    for worker in workers:
        worker.send(STOP)


class _Worker:
    """One worker process, seen from the parent."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.progress: Progress | None = None

    @classmethod
    async def started(cls, plan: Plan) -> _Worker:
        """Start a process with its share of the plan, in a session of its own: Ctrl-C reaches only the parent, which
        stops it."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "afflux.bench.worker"),
            stdin=pipe,
            stdout=pipe,
            limit=1 << 24,
            start_new_session=True,
        )
        worker = cls(process)
        worker.send(packed(plan))
        return worker

    def send(self, data: bytes) -> None:
        """Send it an order."""
        if self._process.stdin is not None and self._process.returncode is None:
            self._process.stdin.write(data)

    async def listen(self) -> None:
        """Read its messages until it exits."""
        output = self._process.stdout
        if output is None:
            return
        with suppress(asyncio.IncompleteReadError):
            while True:
                size = int.from_bytes(await output.readexactly(PREFIX), "big")
                self._received(pickle.loads(await output.readexactly(size)))
        for future in (self.ready, self.result):
            if not future.done():
                future.set_exception(Error(f"a worker ended early, with exit code {await self._process.wait()}"))

    def _received(self, message: Message) -> None:
        if message.what == "progress":
            self.progress = message.value
        elif message.what == "error":
            for future in (self.ready, self.result):
                if not future.done():
                    future.set_exception(message.value)
        elif not (future := self.ready if message.what == "ready" else self.result).done():
            future.set_result(message.value)

    async def end(self) -> None:
        """Stop the process; kill it if necessary."""
        for future in (self.ready, self.result):
            future.cancel()
            if not future.cancelled():
                future.exception()
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(_EXIT_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


class _Together:
    """All workers, while their messages are read."""

    def __init__(self, workers: Sequence[_Worker], tell: Tell | None) -> None:
        self._workers = workers
        self._tell = tell

    async def __aenter__(self) -> _Together:
        self._readers = [asyncio.ensure_future(worker.listen()) for worker in self._workers]
        self._reporter = asyncio.ensure_future(self._report())
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [*self._readers, self._reporter]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    async def ready(self) -> None:
        """Wait until all workers are ready."""
        await asyncio.gather(*(worker.ready for worker in self._workers))

    async def results(self) -> list[Result]:
        """Return the result of each worker."""
        return list(await asyncio.gather(*(worker.result for worker in self._workers)))

    async def _report(self) -> None:
        while self._tell is not None:
            await asyncio.sleep(TELL_S)
            known = [worker.progress for worker in self._workers if worker.progress is not None]
            if known:
                self._tell(together(known))
