"""Processes that die: a parent that has imported everything once and forks a child for each life. No tests.

A child runs one of the functions in ``lives.py``. What it tells comes back as lines; so does its end.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent


class Child:
    """One life."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.lines: asyncio.Queue[str] = asyncio.Queue()
        self.code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def kill(self) -> None:
        """SIGKILL: no last words."""
        os.kill(self.pid, signal.SIGKILL)

    async def line(self) -> str:
        """The next thing that it tells; "" when it has ended."""
        return await self.lines.get()

    async def ended(self) -> int:
        """Wait for its end: the exit code, or the signal's number below 0."""
        return await self.code


class Nursery:
    """The parent, for the loop of one test."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        assert process.stdin is not None
        assert process.stdout is not None
        self._in, self._out = process.stdin, process.stdout
        self._children: dict[int, Child] = {}
        self._born: asyncio.Queue[int] = asyncio.Queue()
        self._early: dict[int, list[str]] = defaultdict(list)
        self._rest = b""

    async def __aenter__(self) -> Nursery:
        os.set_blocking(self._out.fileno(), False)
        asyncio.get_running_loop().add_reader(self._out.fileno(), self._read)
        return self

    async def __aexit__(self, *error: object) -> None:
        for child in self._children.values():
            if not child.code.done():
                with suppress(ProcessLookupError):  # it has ended by itself, which is not told yet
                    child.kill()
                await child.ended()
        asyncio.get_running_loop().remove_reader(self._out.fileno())

    async def start(self, life: str, *arguments: Any) -> Child:
        """A child that runs this function of lives.py."""
        self._in.write(json.dumps([life, *arguments]).encode() + b"\n")
        self._in.flush()
        pid = await self._born.get()
        child = self._children[pid] = Child(pid)
        for text in self._early.pop(pid, []):
            self._tell(pid, text)
        return child

    def _read(self) -> None:
        data = os.read(self._out.fileno(), 0x10000)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            pid, _, text = line.decode().partition(" ")
            if text == "born":
                self._born.put_nowait(int(pid))
            elif int(pid) in self._children:
                self._tell(int(pid), text)
            else:
                self._early[int(pid)].append(text)

    def _tell(self, pid: int, text: str) -> None:
        child = self._children[pid]
        if text.startswith("ended "):
            child.code.set_result(int(text[6:]))
            child.lines.put_nowait("")
        else:
            child.lines.put_nowait(text)


@contextmanager
def process() -> Iterator[subprocess.Popen[bytes]]:
    """The parent's process."""
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    with subprocess.Popen(
        [sys.executable, "-m", "tests.resume.nursery"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as parent:
        try:
            yield parent
        finally:
            assert parent.stdin is not None
            parent.stdin.close()
            parent.wait()


# -- in the parent's process ----------------------------------------------------------------------------------


def tell(text: str) -> None:
    """A line to the test, from a child."""
    os.write(1, f"{os.getpid()} {text}\n".encode())


def _reap(*_: object) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        os.write(1, f"{pid} ended {os.waitstatus_to_exitcode(status)}\n".encode())


def _main() -> None:
    from tests.resume import lives

    signal.signal(signal.SIGCHLD, _reap)
    for line in sys.stdin:
        life, *arguments = json.loads(line)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        pid = os.fork()
        if not pid:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
            lives.live(life, arguments)
        os.write(1, f"{pid} born\n".encode())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])


if __name__ == "__main__":
    _main()
