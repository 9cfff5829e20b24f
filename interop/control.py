"""Control the peers as processes: one JSON object per line in each direction.

The runner sends ``{"id": 7, "do": "request", "data": "h:6869", "metadata": null}``; the peer answers with any number of
lines with that id (``next``, ``complete``, ``error``, ``ok``, ``ready``, ``stopped``). Lines without an id
are facts: ``{"fact": "canceled", "tag": "a"}``.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

__all__ = ["Crashed", "Facts", "Process", "started"]

ROOT = Path(__file__).resolve().parent.parent


class Crashed(Exception):  # noqa: N818 -- what happened to a process
    """A peer's process has exited or failed."""


class Facts:
    """The facts that a responder has reported."""

    def __init__(self) -> None:
        self.all: list[dict[str, Any]] = []
        "Every fact, in order."
        self._waiters: list[tuple[Callable[[dict[str, Any]], bool], asyncio.Future[dict[str, Any]]]] = []

    def tell(self, fact: dict[str, Any]) -> None:
        """Add a fact."""
        self.all.append(fact)
        for test, future in self._waiters:
            if not future.done() and test(fact):
                future.set_result(fact)
        self._waiters = [(test, future) for test, future in self._waiters if not future.done()]

    async def wait(self, name: str, **wanted: Any) -> dict[str, Any]:
        """Wait for the first fact of this name (and these values)."""

        def fits(fact: dict[str, Any]) -> bool:
            return fact["fact"] == name and all(fact.get(key) == value for key, value in wanted.items())

        for fact in self.all:
            if fits(fact):
                return fact
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiters.append((fits, future))
        return await future

    def named(self, name: str) -> list[dict[str, Any]]:
        """Return the facts of one name."""
        return [fact for fact in self.all if fact["fact"] == name]


class Process:
    """A running peer."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._next = 0
        self._answers: dict[int, asyncio.Queue[dict[str, Any]]] = {}
        self.facts = Facts()
        "Its facts since the last ``forget``."
        self.tells_leases = False
        "Whether it reports leases, and fails requests without one."
        self.said = b""
        "The end of its stderr."
        self._reading = [asyncio.ensure_future(self._read_lines()), asyncio.ensure_future(self._read_errors())]

    def say(self, do: str, **more: Any) -> tuple[int, asyncio.Queue[dict[str, Any]]]:
        """Send an order; its answers are put into the queue."""
        self._next += 1
        queue = self._answers[self._next] = asyncio.Queue()
        line = json.dumps({"id": self._next, "do": do, **more})
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        if self._process.returncode is not None:
            queue.put_nowait({"crash": "the process has ended"})
        return self._next, queue

    async def ask(self, do: str, **more: Any) -> dict[str, Any]:
        """Send an order and wait for its first answer."""
        _, queue = self.say(do, **more)
        return await got(queue)

    def forget(self) -> None:
        """Start a new conversation."""
        self.facts = Facts()
        self._answers.clear()

    async def stop(self) -> None:
        """Stop the process, which has its own process group."""
        if self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()
        await asyncio.gather(*self._reading, return_exceptions=True)

    async def _read_lines(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            told = json.loads(line)
            if told.get("fact") == "crash":
                self._all({"crash": told["message"]})
            if "fact" in told:
                self.facts.tell(told)
            elif (queue := self._answers.get(told["id"])) is not None:
                queue.put_nowait(told)
        self._all({"crash": "the process ended: " + self.said.decode(errors="replace")[-400:]})

    def _all(self, told: dict[str, Any]) -> None:
        for queue in self._answers.values():
            queue.put_nowait(told)

    async def _read_errors(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(0x10000):
            self.said = (self.said + data)[-4000:]


async def got(queue: asyncio.Queue[dict[str, Any]]) -> dict[str, Any]:
    """Return the next answer.

    Raises:
        Crashed: the peer has exited.
    """
    told = await queue.get()
    if "crash" in told:
        queue.put_nowait(told)
        raise Crashed(told["crash"])
    return told


@asynccontextmanager
async def started(command: Sequence[str], patience: float = 20) -> AsyncIterator[Process]:
    """Start a peer's process; it ends with the block."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=1 << 26,
        start_new_session=True,
    )
    peer = Process(process)
    try:
        async with asyncio.timeout(patience):
            await peer.facts.wait("started")
        yield peer
    finally:
        await peer.stop()
