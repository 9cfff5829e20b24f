"""A query whose whole process is killed, and that goes on from its checkpoint: every offset once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import HERE, asked
from tests.spark.serving import item

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = 4000


def start(uri: str, data: str, out: Path) -> subprocess.Popen[str]:
    command = [sys.executable, str(HERE / "query.py"), uri, data, str(out), str(ROWS)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)


def test_each_offset_is_written_once(spark: Any, uri: str, tmp_path: Path) -> None:
    data = asked(count=ROWS, size=40, open=True)
    with start(uri, data, tmp_path) as first:
        assert first.stdout is not None
        finished = 0
        for line in first.stdout:
            finished = int(line.split()[0]) + 1
            if finished >= 3:
                break
        os.killpg(first.pid, signal.SIGKILL)
    assert 3 <= finished < 8
    with start(uri, data, tmp_path) as second:
        told, _ = second.communicate()
    assert second.returncode == 0
    batches = [int(line.split()[0]) for line in told.splitlines()]
    assert batches and batches[0] >= finished and batches[-1] == 7
    rows = spark.read.parquet(str(tmp_path / "table")).orderBy("offset").collect()
    assert [row.offset for row in rows] == list(range(ROWS))
    assert [bytes(row.data) for row in rows] == [item(None, number, 40) for number in range(ROWS)]
