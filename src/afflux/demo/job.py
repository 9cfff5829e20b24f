"""Run the demo job: start a server and a query, kill the query halfway, restart it, and verify the result.

Server and query are processes that log to ``server.log`` and ``query.log``. Events are reported to a callback; see
``afflux.cli.demo`` for their display.
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

__all__ = ["JobFailed", "Result", "Report", "run"]

Report = Callable[[str, dict[str, Any]], None]
"Called with an event's name and its facts."

MARK = "afflux-demo.json"
"This file marks a directory as created by this job, so that the next run may clear it."

MADE = ("flights", "delays", "by_carrier", "by_hour", "journal", "checkpoint", "server.log", "query.log", MARK)
"Everything that a run leaves in its directory."

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"Java options for a short run, which is faster with less compilation. JAVA_TOOL_OPTIONS takes precedence."

EVENT_TIMEOUT_S = 180.0
"Seconds without any event after which the job fails."


class JobFailed(Error):
    """A process of the job ended or reported nothing for too long. The message names it and its last log line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of the job."""

    expected: int
    "Rows requested."
    seconds: float
    "From start to verdict."
    crashes: int
    "Number of times the query was killed."
    verdict: Verdict
    "The verification of the tables."
    out: Path
    "The folder of the tables."

    def line(self) -> dict[str, Any]:
        """Return the result as the command prints it."""
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


async def run(out: Path, *, rows: int = TOTAL, batch: int, crash: bool = True, report: Report) -> Result:
    """Run the job in ``out``.

    Raises:
        MissingExtra: the flight data is not installed.
        JobFailed: a process failed.
        FileExistsError: ``out`` contains files of something else.
    """
    started = time.monotonic()
    archive()
    out = out.absolute()
    _clear(out)
    async with _server(out) as uri:
        report("serving", {"uri": uri})
        crashes = int(crash and await _query(uri, out, rows, batch, report, kill_at=rows // 2))
        if crashes:
            report("restarted", {})
        if crashes or not crash:
            await _query(uri, out, rows, batch, report)
    report("checking", {})
    verdict = await asyncio.to_thread(verify, out, rows)
    return Result(expected=rows, seconds=time.monotonic() - started, crashes=crashes, verdict=verdict, out=out)


def _clear(out: Path) -> None:
    """Create the directory, or clear that of an earlier run."""
    if out.exists() and any(out.iterdir()) and not (out / MARK).is_file():
        raise FileExistsError(f"{out} contains other files; choose another --out")
    out.mkdir(parents=True, exist_ok=True)
    for name in MADE:
        path = out / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    (out / MARK).write_text(json.dumps({"made_by": "afflux demo"}) + "\n")


@contextlib.asynccontextmanager
async def _process(log: Path, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a Python process in its own session, so that its children can be stopped with it."""
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
    """Run ``afflux serve --demo --journal``; yield its address."""
    log = out / "server.log"
    command = ("-m", "afflux", "serve", "tcp://127.0.0.1:0", "--demo", "--journal", str(out / "journal"))
    async with _process(log, *command) as process:
        line = await _line(process, log)
        ready, _, uri = line.strip().partition(" ")
        if ready != "ready":
            raise JobFailed(f"the server did not start: {_last(log)}")
        yield uri


async def _query(uri: str, out: Path, rows: int, batch: int, report: Report, kill_at: int | None = None) -> bool:
    """Run the query to its end, or kill it within the batch that reaches ``kill_at`` and return True."""
    log = out / "query.log"
    options = ("--uri", uri, "--out", str(out), "--rows", str(rows), "--batch", str(batch))
    async with _process(log, "-m", "afflux.demo.query", *options) as process:
        while line := await _line(process, log):
            facts = json.loads(line)
            event = facts.pop("event")
            report(event, facts)
            if event == "done":
                return False
            if event == "written" and kill_at is not None and facts["end"] >= kill_at:
                _end(process, signal.SIGKILL)
                report("killed", {"batch": facts["batch"]})
                return True
        raise JobFailed(f"the query ended too early: {_last(log)}")


async def _line(process: asyncio.subprocess.Process, log: Path) -> str:
    if process.stdout is None:
        raise JobFailed("the process has no stdout")
    try:
        return (await asyncio.wait_for(process.stdout.readline(), EVENT_TIMEOUT_S)).decode()
    except TimeoutError:
        raise JobFailed(f"no event for {EVENT_TIMEOUT_S:g} s: {_last(log)}") from None


def _last(log: Path) -> str:
    """Return the last Python error of a log, or its last line, and the path of the log."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]*[A-Z]\w*[a-z]\w*: ", line)]
    return f"{(errors or lines or ['no output'])[-1]} (see {log})"
