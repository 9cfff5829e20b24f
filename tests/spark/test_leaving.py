"""Commands on Spark end with their own lines only, whatever ends them: signals, errors, a JVM that dies."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.examples import short
from tests.spark.conftest import QUICK, asked
from tests.spark.starting import quick_start

pytestmark = [pytest.mark.spark, pytest.mark.slow]

CONF = [word for name, value in QUICK.items() for word in ("--conf", f"{name}={value}")]
OWN_LINE = re.compile(r" +\d+\.\d s  \S.*")
ENDLESS = asked(count=300, open=True, every_ms=20)


@contextmanager
def tailing(uri: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """``afflux spark tail`` of an endless stream, in a process group of its own, with its log in the folder."""
    command = [sys.executable, "-m", "afflux", "spark", "tail", uri, "-d", ENDLESS, "--out", str(folder / "table")]
    (folder / "logs").mkdir()
    environment = os.environ | quick_start() | {"TMPDIR": str(folder / "logs")}
    command += ["--master", "local[2]", *CONF]
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True, start_new_session=True, env=environment) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def lines_until(process: subprocess.Popen[str], wanted: str) -> list[str]:
    """The lines on stderr up to one with this text."""
    assert process.stderr is not None
    found = []
    for line in process.stderr:
        found.append(line.rstrip("\n"))
        if wanted in line:
            return found
    raise AssertionError(f"no {wanted!r} in {found}")


def end_of(process: subprocess.Popen[str]) -> tuple[str, list[str]]:
    """What is left of stdout and stderr."""
    out, errors = process.communicate(timeout=300)
    return out, errors.splitlines()


def logs(folder: Path) -> list[Path]:
    return list((folder / "logs").glob("afflux-spark-*.log"))


def java_of(process: subprocess.Popen[str]) -> int:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return next(int(child) for child in children if b"java" in Path(f"/proc/{child}/cmdline").read_bytes())


def interrupt(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does


@pytest.mark.long
def test_a_second_interrupt_ends_a_batch_with_own_lines_only(uri: str, tmp_path: Path) -> None:
    with tailing(uri, tmp_path) as process:
        lines = lines_until(process, " rows/s")
        interrupt(process)
        lines += lines_until(process, "stops after this batch")
        interrupt(process)
        out, rest = end_of(process)
    assert process.returncode == 130
    assert all(map(OWN_LINE.fullmatch, lines + rest)), lines + rest
    assert json.loads(out)["rows"] >= 300
    assert logs(tmp_path) == []


@pytest.mark.parametrize("number", short([signal.SIGINT, signal.SIGTERM], smoke=[signal.SIGTERM]))
def test_a_signal_while_spark_starts_leaves_nothing(number: int, uri: str, tmp_path: Path) -> None:
    with tailing(uri, tmp_path) as process:
        lines = lines_until(process, "starting Spark")
        os.killpg(process.pid, number)
        out, rest = end_of(process)
    assert (process.returncode, out) == (130, "")
    assert all(map(OWN_LINE.fullmatch, lines + rest)), lines + rest
    assert logs(tmp_path) == []


def test_a_jvm_that_dies_is_one_line_with_the_log(uri: str, tmp_path: Path) -> None:
    with tailing(uri, tmp_path) as process:
        lines = lines_until(process, " rows/s")
        os.kill(java_of(process), signal.SIGKILL)
        out, rest = end_of(process)
    (log,) = logs(tmp_path)
    *own, last = lines + rest
    assert (process.returncode, out) == (1, "")
    assert all(map(OWN_LINE.fullmatch, own)), own
    assert last.startswith("afflux: Spark's JVM has ended")
    # Processes that outlive the command may still write to the log.
    assert re.search(rf"Spark's log: {re.escape(str(log))} \([\d,]+ bytes\)$", last)
