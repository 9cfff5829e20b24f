"""The main job, end to end: real processes, a real Spark, a real SIGKILL; and how it fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from afflux.demo import job, processes
from tests.cli.running import afflux
from tests.spark.starting import quick_start

ROWS = 6_000


def ignore(event: str, facts: dict[str, Any]) -> None:
    """Nobody listens."""


@pytest.mark.spark
@pytest.mark.slow
def test_a_crash_halfway_loses_and_doubles_nothing(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    with tempfile.TemporaryDirectory() as temporary:  # short: Spark makes sockets in it
        ran = afflux(f"demo --rows {ROWS} --out {out}", env=quick_start() | {"TMPDIR": temporary}, timeout=300)
        assert os.listdir(temporary) == []
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert (told["rows"], told["expected"], told["lost"], told["duplicated"]) == (ROWS, ROWS, 0, 0)
    assert (told["crashes"], told["exact"], told["out"]) == (1, True, str(out))
    assert "SIGKILL" in ran.stderr
    assert "granted" in ran.stderr
    assert max(map(len, ran.stderr.replace(str(tmp_path), "").splitlines())) <= 80
    assert "0 lost, 0 duplicated" in ran.stderr
    assert all(f"\n{carrier} " in ran.stderr for carrier in ("UA", "B6", "EV"))


async def test_a_directory_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(FileExistsError, match="contains other files"):
        await job.run(tmp_path, rows=1, batch=1, report=ignore)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


async def test_an_earlier_run_is_cleared_and_nothing_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    (tmp_path / job.MARK).write_text("{}")
    (tmp_path / "flights").mkdir()
    (tmp_path / "flights" / "part").write_text("old")
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(job.JobFailed, match=r"did not start: no output \(see .*server\.log\)"):
        await job.run(tmp_path, rows=1, batch=1, report=ignore)
    assert not (tmp_path / "flights").exists()
    assert (tmp_path / "notes").read_text() == "mine"


def test_a_mistake_in_its_options_is_reported(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    taken = afflux(f"demo --rows 10 --out {tmp_path}")
    assert (taken.returncode, taken.stdout) == (1, "")
    assert "choose another --out" in taken.stderr
    assert afflux("demo --rows 0").returncode == 2


async def test_the_temporary_files_of_a_process_end_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it is killed, as an interrupted demo kills its processes."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    log = tmp_path / "query.log"
    program = "import tempfile, sys; print(tempfile.mkstemp()[1], flush=True); sys.stdin.read()"
    async with processes.process(log, "-c", program) as running:
        made = Path((await processes.line(running, log)).strip())
        assert made.exists() and made.parent.parent == tmp_path
        processes.end(running, signal.SIGKILL)
    assert [path.name for path in tmp_path.iterdir()] == ["query.log"]


@pytest.mark.parametrize("live", [[], ["--live"]])
def test_without_pyspark_nothing_is_started(tmp_path: Path, live: list[str]) -> None:
    arguments = ["demo", *live, "--out", f"{tmp_path}/out"]
    program = f"import sys; sys.modules['pyspark'] = None; import afflux.cli; sys.exit(afflux.cli.main({arguments!r}))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    told = 'afflux: a Spark session (pyspark is missing) needs the extra "spark": pip install "afflux[spark]"\n'
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", told)
    assert not any((tmp_path / "out").glob("*"))
