"""A process that decodes many tasks of captures, as Spark's Python workers do, needs no more memory than for one."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytestmark = pytest.mark.slow

from benchmarks.capture_files import make  # noqa: E402

MOST = 1.15
"The peak of a task, over that of the second one: the first one also compiles or loads kernels."
TASKS = 8
WORKER = """
import sys
from contextlib import suppress
from pathlib import Path
from shutil import rmtree

import numpy as np

with suppress(ImportError):  # an extra; its import would count as growth where it comes late
    import numba

from afflux.capture.places import captures_in
from afflux.capture.units import Decoding, units_of
from afflux.spark.capturejob import write_unit
from afflux.spark.captureoptions import CaptureOptions
from afflux.spark.captures import CaptureReader, UnitPartition

path, made = sys.argv[1], Path(sys.argv[2])
(unit,) = units_of(captures_in([path]), Decoding().limits, count=1)


def memory(name):
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status[name].split()[0])


def write():
    assert write_unit(str(made), Decoding(), (), unit).rows["frames"]
    rmtree(made)


def read():
    reader = CaptureReader(CaptureOptions.parse({"path": path}))
    assert sum(len(batch) for batch in reader.read(UnitPartition(unit)))
"""
MANY = """
for _ in range(int(sys.argv[3])):
    Path("/proc/self/clear_refs").write_text("5")  # begins a new VmHWM
    write()
    print(memory("VmHWM"))
"""
HOLES = """
work = {"write": write, "read": read}[sys.argv[3]]
work()
held = [np.ones(96 * 1_024, np.uint8) for _ in range(1_000)]
del held[::2]
print(memory("VmRSS"))
work()
print(memory("VmRSS"))
"""


def told(program: str, kind: str, size: int, directory: Path, word: str) -> list[int]:
    """The numbers that a process prints."""
    path = directory / "a.pcap"
    make(kind, path, size)
    command = [sys.executable, "-c", WORKER + program, str(path), str(directory / "made"), word]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    return [int(line) for line in ran.stdout.split()]


@pytest.mark.parametrize("kind", ["stream", "mtu"])
def test_the_memory_of_many_tasks(kind: str, tmp_path: Path) -> None:
    peaks = told(MANY, kind, 24_000_000, tmp_path, str(TASKS))
    assert len(peaks) == TASKS
    assert max(peaks[1:]) <= MOST * peaks[1], peaks


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries keep less, and cannot be asked for it")
@pytest.mark.parametrize("work", ["write", "read"])
def test_free_memory_between_used_pieces_is_given_back_after_a_task(work: str, tmp_path: Path) -> None:
    """48,000 KiB are free in pieces of 96 KiB."""
    before, after = told(HOLES, "mtu", 1_000_000, tmp_path, work)
    assert after < before - 30_000
