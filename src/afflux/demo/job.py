"""Run the demo job: start a server and a query, kill the query halfway, restart it, and verify the result.

Server and query are processes that log to ``server.log`` and ``query.log``. Events are reported to a callback; see
``afflux.cli.demo`` for their display.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afflux.demo.flights import TOTAL, archive
from afflux.demo.processes import JobFailed, Service, end, last_words, line, process
from afflux.demo.verify import Verdict, verify
from afflux.spark.session import check

__all__ = ["MARK", "JobFailed", "Report", "Result", "clear", "run"]

Report = Callable[[str, dict[str, Any]], None]
"Called with an event's name and its facts."

MARK = "afflux-demo.json"
"This file marks a directory as created by this job, so that the next run may clear it."

MADE = (
    *("flights", "delays", "by_carrier", "by_hour", "journal", "checkpoint", "server.log", "query.log", MARK),
    *("relay", "windows", "windows-checkpoint", "sink", "sink-checkpoint", "relay.log", "sink.log"),
)
"Everything that a run leaves in its directory, of this job and of the live one."


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

    @property
    def exact(self) -> bool:
        """Whether no row is lost or duplicated and nothing differs."""
        return self.verdict.exact

    def line(self) -> dict[str, Any]:
        """Return the result as the command prints it."""
        return {
            "rows": self.verdict.rows,
            "expected": self.expected,
            "lost": self.verdict.lost,
            "duplicated": self.verdict.duplicated,
            "crashes": self.crashes,
            "exact": self.exact,
            "seconds": round(self.seconds, 1),
            "out": str(self.out),
        }


async def run(out: Path, *, rows: int = TOTAL, batch: int, crash: bool = True, report: Report) -> Result:
    """Run the job in ``out``.

    Raises:
        MissingExtra: the flight data, pyspark or Java is not installed.
        Unsupported: every installed Java is too old.
        JobFailed: a process failed.
        FileExistsError: ``out`` contains files of something else.
    """
    started = time.monotonic()
    archive()
    check()
    out = out.absolute()
    clear(out)
    report("starting", {"what": "the server"})
    command = ("serve", "{listen}", "--demo", "--journal", str(out / "journal"))
    async with Service(out / "server.log", *command) as server:
        uri = server.uri
        report("serving", {"uri": uri})
        report("starting", {"what": "Spark"})
        crashes = int(crash and await _query(uri, out, rows, batch, report, kill_at=rows // 2))
        if crashes:
            report("restarted", {})
        if crashes or not crash:
            await _query(uri, out, rows, batch, report)
    report("checking", {})
    verdict = await asyncio.to_thread(verify, out, rows)
    return Result(expected=rows, seconds=time.monotonic() - started, crashes=crashes, verdict=verdict, out=out)


def clear(out: Path) -> None:
    """Create the directory, or clear that of an earlier run.

    Raises:
        FileExistsError: it contains other files.
    """
    if out.exists() and any(out.iterdir()) and not (out / MARK).is_file():
        raise FileExistsError(f"{out} contains other files; choose another --out")
    out.mkdir(parents=True, exist_ok=True)
    for name in MADE:
        path = out / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    (out / MARK).write_text(json.dumps({"made_by": "afflux demo"}) + "\n")


async def _query(uri: str, out: Path, rows: int, batch: int, report: Report, kill_at: int | None = None) -> bool:
    """Run the query to its end, or kill it within the batch that reaches ``kill_at`` and return True."""
    log = out / "query.log"
    options = ("--uri", uri, "--out", str(out), "--rows", str(rows), "--batch", str(batch))
    async with process(log, "-m", "afflux.demo.query", *options) as running:
        while told := await line(running, log):
            facts = json.loads(told)
            event = facts.pop("event")
            report(event, facts)
            if event == "done":
                return False
            if event == "written" and kill_at is not None and facts["end"] >= kill_at:
                end(running, signal.SIGKILL)
                report("killed", {"batch": facts["batch"]})
                return True
        raise JobFailed(f"the query ended too early: {last_words(log)}")
