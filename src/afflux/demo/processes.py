"""Run the processes of the demo jobs. Each logs to a file, and ends with all that it has started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

from afflux.core.errors import Error

__all__ = ["JobFailed", "Service", "end", "last_words", "line", "process"]

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"Java options for a short run, which is faster with less compilation. JAVA_TOOL_OPTIONS takes precedence."

EVENT_TIMEOUT_S = 180.0
"Seconds without any event after which the job fails."


class JobFailed(Error):
    """A process of the job ended or reported nothing for too long. The message names it and its last log line."""


@contextlib.asynccontextmanager
async def process(log: Path, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a Python process in its own session, so that its children can be stopped with it. Its temporary files are
    in a folder of their own, which is removed at its end: a process that is killed removes nothing."""
    with tempfile.TemporaryDirectory(prefix="afflux-", ignore_cleanup_errors=True) as temporary:
        # It is not beside the log, because the path of a socket has at most 107 bytes.
        java = f'{os.environ.get("JAVA_TOOL_OPTIONS", SHORT_LIVED)} -XX:-UsePerfData "-Djava.io.tmpdir={temporary}"'
        environment = os.environ | {"JAVA_TOOL_OPTIONS": java, "TMPDIR": temporary, "SPARK_LOCAL_DIRS": temporary}
        with log.open("ab") as errors:
            running = await asyncio.create_subprocess_exec(
                sys.executable,
                *arguments,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env=environment,
                start_new_session=True,
            )
        try:
            yield running
        finally:
            if running.returncode is None:
                end(running, signal.SIGTERM)
                try:
                    await asyncio.wait_for(running.wait(), 30)
                except TimeoutError:
                    pass
            end(running, signal.SIGKILL)
            await running.wait()


def end(running: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Send a signal to a process and to those that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, number)


async def line(running: asyncio.subprocess.Process, log: Path) -> str:
    """Return the next line of a process; nothing after its end.

    Raises:
        JobFailed: none came for ``EVENT_TIMEOUT_S``.
    """
    if running.stdout is None:
        raise JobFailed("the process has no stdout")
    try:
        return (await asyncio.wait_for(running.stdout.readline(), EVENT_TIMEOUT_S)).decode()
    except TimeoutError:
        text = f"no event for {EVENT_TIMEOUT_S:g} s: the machine may be too slow. The log says: {last_words(log)}"
        raise JobFailed(text) from None


def last_words(log: Path) -> str:
    """Return the last Python error of a log, or its last line, and the path of the log."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]*[A-Z]\w*[a-z]\w*: ", line)]
    return f"{(errors or lines or ['no output'])[-1]} (see {log})"


class Service:
    """An afflux command that listens; it can be killed and started again at its address.

    Args:
        log: the file of its stderr.
        words: the command line. The word ``{listen}`` becomes the address, with a free port at the first start.
    """

    def __init__(self, log: Path, *words: str) -> None:
        self.uri = "tcp://127.0.0.1:0"
        "The address, after the start."
        self._log = log
        self._words = words
        self._process: asyncio.subprocess.Process | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Service:
        await self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def kill(self) -> None:
        """Kill it with SIGKILL, and return when it is gone."""
        if self._process is not None:
            end(self._process, signal.SIGKILL)
        await self._stack.aclose()

    async def restart(self) -> None:
        """Start it again at the same address, after :meth:`kill`."""
        await self._start()

    async def _start(self) -> None:
        words = [self.uri if word == "{listen}" else word for word in self._words]
        async with AsyncExitStack() as stack:
            self._process = await stack.enter_async_context(process(self._log, "-m", "afflux", *words))
            ready, _, uri = (await line(self._process, self._log)).strip().partition(" ")
            if ready != "ready":
                raise JobFailed(f"afflux {words[0]} did not start: {last_words(self._log)}")
            self.uri = uri
            self._stack = stack.pop_all()
