"""The main job: a server, a query that is killed halfway and started again, and the check that nothing was lost.

Both run as processes of their own and write what they say into ``server.log`` and ``query.log``. What happens is told
to a callback as it happens; how it looks on a terminal is not decided here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afflux.core.errors import Error
from afflux.demo.flights import TOTAL, archive
from afflux.demo.verify import Verdict, verify

__all__ = ["JobFailed", "Result", "Tell", "run"]

Tell = Callable[[str, dict[str, Any]], None]
"Called with an event's name and its facts."

MARK = "afflux-demo.json"
"This file says that a directory was made by this job, so that the next run may clear it."

MADE = ("flights", "delays", "by_carrier", "by_hour", "journal", "checkpoint", "server.log", "query.log", MARK)
"All that a run leaves in its directory."

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"For a Java that lives half a minute: compiling less is faster. JAVA_TOOL_OPTIONS of one's own win."

PATIENCE = 180.0
"Seconds without any event after which the job gives up."


class JobFailed(Error):
    """A process of the job ended, or said nothing for too long; the message says which and what it said last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How the job ended."""

    expected: int
    "Rows asked for."
    seconds: float
    "From start to verdict."
    crashes: int
    "How often the query was killed."
    verdict: Verdict
    "What the tables hold."
    out: Path
    "Where they are."

    def line(self) -> dict[str, Any]:
        """The result as the command prints it."""
        return {
            "rows": self.verdict.rows,
            "expected": self.expected,
            "lost": self.verdict.lost,
            "duplicated": self.verdict.duplicated,
            "crashes": self.crashes,
            "exact": self.verdict.exact,
            "seconds": round(self.seconds, 1),
            "out": str(self.out),
        }


async def run(out: Path, *, rows: int = TOTAL, batch: int, crash: bool = True, tell: Tell) -> Result:
    """Do it all in ``out``.

    Raises:
        MissingExtra: the flights are not installed.
        JobFailed: a process failed.
        FileExistsError: ``out`` holds something that this job did not make.
    """
    started = time.monotonic()
    archive()
    out = out.absolute()
    _clear(out)
    async with _server(out) as uri:
        tell("serving", {"uri": uri})
        crashes = int(crash and await _query(uri, out, rows, batch, tell, kill_at=rows // 2))
        if crashes:
            tell("restarted", {})
        if crashes or not crash:
            await _query(uri, out, rows, batch, tell)
    tell("checking", {})
    verdict = await asyncio.to_thread(verify, out, rows)
    return Result(expected=rows, seconds=time.monotonic() - started, crashes=crashes, verdict=verdict, out=out)


def _clear(out: Path) -> None:
    """Make the directory, or empty the one that an earlier run made."""
    if out.exists() and any(out.iterdir()) and not (out / MARK).is_file():
        raise FileExistsError(f"{out} holds something else; choose another --out")
    out.mkdir(parents=True, exist_ok=True)
    for name in MADE:
        path = out / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    (out / MARK).write_text(json.dumps({"made_by": "afflux demo"}) + "\n")


@contextlib.asynccontextmanager
async def _process(log: Path, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A Python process in a session of its own, so that all it started can be ended with it."""
    environment = {"JAVA_TOOL_OPTIONS": SHORT_LIVED} | os.environ
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env=environment,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            _end(process, signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), 30)
            except TimeoutError:
                pass
        _end(process, signal.SIGKILL)
        await process.wait()


def _end(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


@contextlib.asynccontextmanager
async def _server(out: Path) -> AsyncIterator[str]:
    """``afflux serve --demo --journal``; yields its address."""
    log = out / "server.log"
    command = ("-m", "afflux", "serve", "tcp://127.0.0.1:0", "--demo", "--journal", str(out / "journal"))
    async with _process(log, *command) as process:
        line = await _line(process, log)
        ready, _, uri = line.strip().partition(" ")
        if ready != "ready":
            raise JobFailed(f"the server did not start: {_last(log)}")
        yield uri


async def _query(uri: str, out: Path, rows: int, batch: int, tell: Tell, kill_at: int | None = None) -> bool:
    """Run the query to its end; or kill it in the middle of the batch that reaches ``kill_at``, and return True."""
    log = out / "query.log"
    options = ("--uri", uri, "--out", str(out), "--rows", str(rows), "--batch", str(batch))
    async with _process(log, "-m", "afflux.demo.query", *options) as process:
        while line := await _line(process, log):
            facts = json.loads(line)
            event = facts.pop("event")
            tell(event, facts)
            if event == "done":
                return False
            if event == "written" and kill_at is not None and facts["end"] >= kill_at:
                _end(process, signal.SIGKILL)
                tell("killed", {"batch": facts["batch"]})
                return True
        raise JobFailed(f"the query ended too early: {_last(log)}")


async def _line(process: asyncio.subprocess.Process, log: Path) -> str:
    if process.stdout is None:
        raise JobFailed("the process has no stdout")
    try:
        return (await asyncio.wait_for(process.stdout.readline(), PATIENCE)).decode()
    except TimeoutError:
        raise JobFailed(f"nothing happened for {PATIENCE:g} s: {_last(log)}") from None


def _last(log: Path) -> str:
    """The last error of Python in a log, else its last line; and where the rest is."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]*[A-Z]\w*[a-z]\w*: ", line)]
    return f"{(errors or lines or ['no word'])[-1]} (see {log})"
