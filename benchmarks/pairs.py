"""Start a server process and a client process, and communicate with both. See runner.py for the commands."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

from benchmarks.peers import Contender
from benchmarks.workloads import Workload

__all__ = ["End", "Failure", "Pair", "Sample", "merged", "pair", "start"]

_ROOT = Path(__file__).resolve().parent.parent
_GRACE_S = 1.0
"Seconds that a process may take to exit after the end of its input."


class Failure(Exception):
    """An unusable measurement, with the reason for the report."""


@dataclass(slots=True, kw_only=True)
class Sample:
    """One measurement."""

    amount: int
    "Requests or items, as counted by the client."
    bytes: int
    "Bytes of data in them."
    seconds: float
    "Wall time, from the first call to the last item counted."
    client_cpu: float
    "CPU seconds of the client process during that time."
    server_cpu: float
    "CPU seconds of the server process during that time."
    client_peak: int
    "Peak memory of the client process so far, in bytes."
    server_peak: int
    "Peak memory of the server process so far, in bytes."
    client_idle: int = 0
    "Peak memory of the client process when connected, before any work."
    server_idle: int = 0
    "Peak memory of the server process when listening."

    @property
    def rate(self) -> float:
        """Requests or items per second."""
        return self.amount / self.seconds

    def as_dict(self) -> dict[str, float]:
        """Return the sample for the results."""
        return {name: round(value, 6) for name, value in asdict(self).items()}


def merged(slices: Sequence[Sample]) -> Sample:
    """Return the measurement that consists of these slices of one pair of processes."""
    last = slices[-1]
    return replace(
        last,
        **{
            name: sum(getattr(one, name) for one in slices)
            for name in ("amount", "bytes", "seconds", "client_cpu", "server_cpu")
        },
    )


class End:
    """One process that communicates in lines of JSON."""

    def __init__(self, process: asyncio.subprocess.Process, errors: IO[bytes]) -> None:
        self._process = process
        self._errors = errors

    async def hear(self) -> dict[str, Any]:
        """Return its next line.

        Raises:
            Failure: it exited without a line; the text is the last line of its errors.
        """
        if self._process.stdout is None:
            raise Failure("the process has no output")
        line = await self._process.stdout.readline()
        if not line:
            raise Failure(f"the process ended: {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def ask(self, command: dict[str, Any]) -> dict[str, Any]:
        """Send one line and return the answer."""
        if self._process.stdin is not None:
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
        return await self.hear()

    async def end(self) -> None:
        """Close its input, which ends the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(_GRACE_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    def _last_words(self) -> str:
        """Return the last informative line: exception groups end with rulers and counts."""
        self._errors.seek(0)
        lines = [line.strip(" |+-") for line in self._errors.read().decode(errors="replace").splitlines()]
        telling = (line[:200] for line in reversed(lines) if line.strip(".") and not line.endswith("more exceptions"))
        return next(telling, "without a word")


class Pair:
    """A client connected to its server. Created by ``pair``."""

    def __init__(self, server: End, client: End, idle: tuple[int, int]) -> None:
        self._server = server
        self._client = client
        self._idle = idle

    async def measure(self, workload: Workload, amount: int) -> Sample:
        """Run an amount of a workload.

        Raises:
            Failure: it failed, or what arrived is not exactly what was requested.
        """
        before = await self._server.ask({})
        client = await self._client.ask(workload.command(amount))
        server = await self._server.ask({})
        counted, expected = (client["items"], client["bytes"]), (amount, workload.bytes_of(amount))
        if counted != expected:
            raise Failure("counted {} items and {} bytes, not {} and {}".format(*counted, *expected))
        return Sample(
            amount=amount,
            bytes=client["bytes"],
            seconds=client["seconds"],
            client_cpu=client["cpu"],
            server_cpu=server["cpu"] - before["cpu"],
            client_peak=client["peak"],
            server_peak=server["peak"],
            server_idle=self._idle[0],
            client_idle=self._idle[1],
        )


@asynccontextmanager
async def pair(contender: Contender, settings: str = "default", *, one_core: bool = False) -> AsyncIterator[Pair]:
    """Start fresh processes for one contender; both have ended after the context. ``settings``: those of
    a workload. ``one_core``: both run on the same processor.

    Raises:
        Failure: one of them did not start.
    """
    with tempfile.TemporaryFile() as server_errors, tempfile.TemporaryFile() as client_errors:
        ends = [server := await start(contender.command("server", settings), server_errors, one_core=one_core)]
        try:
            listening = await server.hear()
            command = contender.command("client", settings, str(listening["port"]))
            ends.insert(0, client := await start(command, client_errors, one_core=one_core))
            connected = await client.hear()
            yield Pair(server, client, (listening["peak"], connected["peak"]))
        finally:
            for end in ends:
                await end.end()


async def start(command: list[str], errors: IO[bytes], *, one_core: bool = False) -> End:
    """Start a process that reads commands; the caller must end it. With ``one_core`` it runs on the last processor that
    this process may use."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, stderr=errors, cwd=_ROOT, preexec_fn=_stay if one_core else None
    )
    return End(process, errors)


def _stay() -> None:
    """Stay on one processor, where the system has this."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
