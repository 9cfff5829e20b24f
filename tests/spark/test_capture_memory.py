"""A process that decodes many tasks of captures, as Spark's Python workers do, needs no more memory than for one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

from benchmarks.capture_files import make  # noqa: E402

MOST = 1.15
"The peak of many tasks, over that of the first."
TASKS = 8
SIZE = 24_000_000
WORKER = """
import sys
from contextlib import suppress
from pathlib import Path
from shutil import rmtree

with suppress(ImportError):  # an extra; its import would count as growth where it comes late
    import numba

from afflux.capture.places import captures_in
from afflux.capture.units import Decoding, units_of
from afflux.spark.capturejob import write_unit

path, made, tasks = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
decoding = Decoding()
(unit,) = units_of(captures_in([path]), decoding.limits, count=1)
for _ in range(tasks):
    assert write_unit(str(made), decoding, (), unit).rows["frames"]
    rmtree(made)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    print(status["VmHWM"].split()[0], flush=True)
"""


@pytest.mark.parametrize("kind", ["stream", "mtu"])
def test_the_memory_of_many_tasks(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    make(kind, path, SIZE)
    command = [sys.executable, "-c", WORKER, str(path), str(tmp_path / "made"), str(TASKS)]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    peaks = [int(line) for line in ran.stdout.split()]
    assert len(peaks) == TASKS
    assert peaks[-1] <= MOST * peaks[0], peaks
