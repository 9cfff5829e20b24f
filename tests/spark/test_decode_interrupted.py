"""Stop ``afflux spark decode`` while it works: by signals, and by the death of its JVM. It says one line or none, keeps
the old tables, and leaves no files and no processes."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytestmark = pytest.mark.slow

from benchmarks import capture_files  # noqa: E402
from benchmarks.capture_files import make  # noqa: E402

from tests.examples import short  # noqa: E402
from tests.spark.starting import quick_start  # noqa: E402

PROC = Path("/proc")
MARK = "AFFLUX_TEST_RUN"
OWN_LINE = re.compile(r" +\d+\.\d s  \S.*")
PATIENCE = 100
OLD = {"old": "tables"}


def living(mark: str) -> dict[int, str]:
    """The command lines of the processes that a run has started, and of itself, by pid."""
    found = {}
    for path in PROC.glob("[0-9]*"):
        try:
            if f"{MARK}={mark}\0".encode() in (path / "environ").read_bytes():
                found[int(path.name)] = (path / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
    return {pid: words for pid, words in found.items() if words}  # not those that have ended


@contextmanager
def decoding(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A run that replaces tables, in a process group of its own, with its log in the folder."""
    for name in ("tmp", "tables"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "tables" / "_afflux.json").write_text(json.dumps({"version": 1} | OLD))
    command = [sys.executable, "-m", "afflux", "spark", "decode", str(folder / "captures"), *words]
    environment = os.environ | quick_start() | {"TMPDIR": str(folder / "tmp"), MARK: str(folder)}
    command += ["--out", str(folder / "tables")]
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True, start_new_session=True, env=environment) as run:
        try:
            yield run
        finally:
            for pid in living(str(folder)):
                os.kill(pid, signal.SIGKILL)


def wait(process: subprocess.Popen[str], wanted: str) -> None:
    """Wait for a line on stderr with this text."""
    assert process.stderr is not None
    assert any(wanted in line for line in process.stderr)


def left(folder: Path) -> tuple[set[str], set[str]]:
    """What is beside the old tables: in their directory, and beside the captures."""
    assert json.loads((folder / "tables" / "_afflux.json").read_text()) == {"version": 1} | OLD
    names = {path.name for path in folder.iterdir()} - {"tables", "captures", "tmp"}
    return names, {path.name for path in (folder / "captures").iterdir() if not path.name.startswith("part-")}


def ended(folder: Path) -> None:
    """Wait until no process of the run is left."""
    while found := living(str(folder)):
        for pid, words in found.items():
            try:
                end = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            try:
                assert select.select([end], [], [], PATIENCE)[0], words
            finally:
                os.close(end)


def until(run: subprocess.Popen[str], seen: Callable[[], object]) -> None:
    """Wait until a run, which goes on, has done something: look after each moment in which it does not end."""
    while not seen():
        with pytest.raises(subprocess.TimeoutExpired):
            run.wait(0.01)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four captures, each of other clients: copies would be passed over."""
    (tmp_path / "captures").mkdir()
    for number in range(4):
        monkeypatch.setattr(capture_files, "_CLIENT", 0x0A020000 + 0x1000 * number)
        make("mtu", tmp_path / "captures" / f"part-{number}.pcap", 16_000_000)
    return tmp_path


@pytest.mark.parametrize("number", short([signal.SIGINT, signal.SIGTERM], smoke=[signal.SIGINT]))
def test_in_the_middle_without_spark(number: signal.Signals, folder: Path) -> None:
    with decoding(folder, "--master", "none") as run:
        until(run, lambda: list(folder.glob(".tables.tmp-*/attempt-*/frames/*.parquet")))
        run.send_signal(number)
        out, errors = run.communicate(timeout=PATIENCE)
    assert (run.returncode, out, errors) == (130, "", "")
    assert left(folder) == (set(), set())
    assert list((folder / "tmp").iterdir()) == []


@pytest.mark.spark
@pytest.mark.skipif(not PROC.exists(), reason="processes are found in /proc")
@pytest.mark.parametrize("at", ["starting Spark", "Spark ", "4 captures,"])
@pytest.mark.parametrize("gap", short([0.02, 0.1, 0.4], smoke=[0.02]))
def test_ctrl_c_again_and_again(at: str, gap: float, folder: Path) -> None:
    """A terminal sends it to all processes of the command: while Spark starts, indexes and decodes, then again and
    again until the command has ended. It ends soon, and nothing of it is left."""
    with decoding(folder, "--master", "local[2]", "--tables", "connections") as run:
        wait(run, at)
        while run.poll() is None:
            for _ in range(2):  # as a wrapper does that passes on what the terminal has sent to all
                os.killpg(run.pid, signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                run.wait(gap)
        out, errors = run.communicate(timeout=PATIENCE)
        ended(folder)
    assert (run.returncode, out) == (130, "")
    assert all(map(OWN_LINE.fullmatch, errors.splitlines())), errors
    beside, indexes = left(folder)
    assert (beside, list((folder / "tmp").iterdir())) == (set(), [])
    assert all(name.endswith(".afflux-index") for name in indexes)


@pytest.mark.spark
@pytest.mark.skipif(not PROC.exists(), reason="processes are found in /proc")
@pytest.mark.long
def test_a_signal_to_all_processes_and_a_jvm_that_dies(folder: Path) -> None:
    """The signal comes while captures are indexed: nothing of the index stays. The JVM dies while tasks decode."""
    small = ("--master", "local[2]", "--tables", "connections")
    with decoding(folder, *small) as run:
        wait(run, "Spark ")
        until(run, lambda: list((folder / "captures").glob("*.afflux-index/.tmp-*")))
        os.killpg(run.pid, signal.SIGTERM)
        out, errors = run.communicate(timeout=PATIENCE)
        ended(folder)
    assert (run.returncode, out) == (130, "")
    assert all(map(OWN_LINE.fullmatch, errors.splitlines())), errors
    assert left(folder) == (set(), set())
    assert list((folder / "tmp").iterdir()) == []
    with decoding(folder, *small) as run:
        wait(run, "4 captures,")
        (jvm,) = (pid for pid, words in living(str(folder)).items() if "SparkSubmit" in words)
        os.kill(jvm, signal.SIGKILL)
        out, errors = run.communicate(timeout=PATIENCE)
        ended(folder)
    (log,) = (folder / "tmp").glob("afflux-spark-*.log")
    text = (
        "afflux: Spark's JVM has ended, for example because memory ran out, or by a signal to all processes of the "
        "command; the tables are as they were before: run the command again"
    )
    assert (run.returncode, out) == (1, "")
    assert errors.splitlines()[-1] == f"{text}; Spark's log: {log} ({log.stat().st_size:,} bytes)"
    assert all(map(OWN_LINE.fullmatch, errors.splitlines()[:-1])), errors
    assert left(folder)[0] == set()
