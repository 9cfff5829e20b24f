"""The log file of a command: what others print goes into it, and its path is told after a failure."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from afflux.spark.logfile import LogFile

PROGRAM = """
import os, subprocess, sys, threading
from afflux.core.errors import Error
from afflux.spark.declaring import OptionError
from afflux.spark.logfile import LogFile

def noise():
    print("python's stdout")
    print("python's stderr", file=sys.stderr)
    subprocess.run(["sh", "-c", "echo the JVM; echo the JVM 2 >&2"])
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()

try:
    with LogFile() as log:
        noise()
        log.say("progress")
        {do}
except BaseException as error:
    print("failed:", *getattr(error, "__notes__", ()))
print(log.path.exists())
print("after", file=sys.stderr)
"""


def ran(do: str, folder: Path) -> tuple[list[str], str]:
    """The lines on stdout and what is on stderr, after the noise and ``do``."""
    program = PROGRAM.replace("{do}", do)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=_environment(folder), check=True
    )
    return done.stdout.splitlines(), done.stderr


def _environment(folder: Path) -> dict[str, str]:
    return os.environ | {"TMPDIR": str(folder)}


def test_a_success_leaves_only_the_own_lines(tmp_path: Path) -> None:
    assert ran("pass", tmp_path) == (["False"], "progress\nafter\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("do", ["raise Error('x')", "raise ValueError('no mistake of the user')"])
def test_a_failure_tells_the_file_which_has_everything(do: str, tmp_path: Path) -> None:
    out, errors = ran(do, tmp_path)
    (log,) = tmp_path.iterdir()
    assert errors == "progress\nafter\n"
    assert out == [f"failed: Spark's log: {log} ({log.stat().st_size:,} bytes)", "True"]
    text = log.read_text()
    for line in ("python's stdout", "python's stderr", "the JVM", "the JVM 2", "ZeroDivisionError: division by zero"):
        assert f"{line}\n" in text


@pytest.mark.parametrize("do", ["raise OptionError('x')", "raise KeyboardInterrupt"])
def test_a_mistake_or_an_interruption_leaves_no_file(do: str, tmp_path: Path) -> None:
    assert ran(do, tmp_path) == (["failed:", "False"], "progress\nafter\n")


def test_what_is_logged_after_the_end_is_not_printed(tmp_path: Path) -> None:
    """Handlers keep the stream of the log: a thread of py4j logs while the JVM ends."""
    out, errors = ran("import logging; logging.error('early')", tmp_path)
    program = PROGRAM.replace("{do}", "import logging; logging.error('early')") + "logging.error('late')\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=_environment(tmp_path))
    assert (done.returncode, done.stdout.splitlines(), done.stderr) == (0, out, errors)


def test_a_success_keeps_warnings_about_lost_data(tmp_path: Path) -> None:
    out, errors = ran("print('data loss accepted: offsets 5 to 7')", tmp_path)
    assert out == ["True"]
    assert re.fullmatch(rf"progress\nwarnings are in Spark's log: {tmp_path}/\S+ \(\d+ bytes\)\nafter\n", errors)


def test_a_large_log_loses_its_middle_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    most = 4000
    with LogFile(most) as log:
        for number in range(1000):
            subprocess_line(f"line {number:04}")
        log.bound()
        subprocess_line("last")
        text = log.path.read_text()
    assert len(text) <= most
    assert text.startswith("line 0000\nline 0001\n")
    assert text.endswith("line 0999\nlast\n")
    assert re.search(r"\n\[afflux: 7,000 bytes removed here\]\n", text)


def subprocess_line(line: str) -> None:
    """Write as a child does, past Python's streams."""
    os.write(2, f"{line}\n".encode())
