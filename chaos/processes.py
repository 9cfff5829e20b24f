"""Start the processes of a pipeline, and find those of Spark, to kill and pause them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["PATIENCE", "Driver", "Service", "free_port", "strike", "workers"]

PATIENCE = 120.0
"Seconds without an answer after which a cell fails."


def free_port() -> int:
    """Return a free port of the loopback interface."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
    return port


class Service:
    """A process that can be killed and started again at the same address."""

    def __init__(self, command: list[str], log: Path, ready: bytes = b"ready ") -> None:
        self._command = command
        self._log = log
        self._ready = ready
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pids(self) -> list[int]:
        """The process, if it lives."""
        return [self._process.pid] if self._process is not None and self._process.returncode is None else []

    async def start(self) -> None:
        """Start it, and return when it has printed that it listens."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdout=asyncio.subprocess.PIPE, stderr=log
            )
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            while self._ready not in (line := await self._process.stdout.readline()):
                if not line:
                    raise RuntimeError(f"{' '.join(self._command[:4])} does not start: {self._log.read_text()[-500:]}")

    async def stop(self) -> None:
        """Kill it, if it lives."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def again(self) -> None:
        """Start it again after a kill."""
        await self.stop()
        await self.start()


class Driver:
    """The process of chaos/driver.py."""

    def __init__(self, master: str, log: Path) -> None:
        self._master = master
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """The driver's Python process."""
        assert self._process is not None
        return self._process.pid

    @property
    def lives(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start Spark."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "chaos.driver", self._master,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log, start_new_session=True,
            )  # fmt: skip
        if not (await self._hear()).get("ready"):
            raise RuntimeError(f"Spark does not start: {self._log.read_text()[-500:]}")

    async def run(self, command: dict[str, Any]) -> dict[str, Any]:
        """Run a query to its end; return the answer, empty if the process was killed."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        return await self._hear()

    async def _hear(self) -> dict[str, Any]:
        assert self._process is not None and self._process.stdout is not None
        line = await self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {}
        return answer

    async def stop(self) -> None:
        """Kill the process and all that it has started."""
        if self._process is None:
            return
        for pid in [*_descendants(self._process.pid), self._process.pid]:
            strike([pid], signal.SIGKILL)
        await self._process.wait()
        self._process = None


def workers(driver: int, part: str) -> list[int]:
    """Return the descendants of a driver whose command line contains ``part``; not those with such children."""
    found = [pid for pid in _descendants(driver) if part in _command(pid)]
    return [pid for pid in found if not any(_parent(other) == pid for other in found)]


def strike(pids: Iterable[int], number: int) -> int:
    """Send a signal to processes; return how many got it."""
    struck = 0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            struck += 1
    return struck


def _descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for each in _pids():
        children.setdefault(_parent(each), []).append(each)
    found: list[int] = []
    waiting = [pid]
    while waiting:
        waiting += (below := children.get(waiting.pop(), []))
        found += below
    return found


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _parent(pid: int) -> int:
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""
