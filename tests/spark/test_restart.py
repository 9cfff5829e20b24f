"""A query whose whole process is killed, and that goes on from its checkpoint in another: every offset once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import HERE, asked
from tests.spark.query import ROWS_A_BATCH, start
from tests.spark.serving import item

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.slow]

BATCHES = 8
ROWS = BATCHES * ROWS_A_BATCH


def test_each_offset_is_written_once(spark: Any, uri: str, tmp_path: Path) -> None:
    data = asked(count=ROWS, size=40, open=True)
    command = [sys.executable, str(HERE / "query.py"), uri, data, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as killed:
        assert killed.stdout is not None
        finished = 0
        for line in killed.stdout:
            finished = int(line) + 1
            if finished >= 3:
                break
        os.killpg(killed.pid, signal.SIGKILL)
    assert 3 <= finished < BATCHES, "it was killed in the middle"

    query = start(spark, uri, data, tmp_path)
    done = 0
    while done < BATCHES and not query.awaitTermination(0.02):
        done = max((each["batchId"] + 1 for each in query.recentProgress if each["numInputRows"]), default=0)
    query.stop()
    rows = spark.read.parquet(str(tmp_path / "table")).orderBy("offset").collect()
    assert [row.offset for row in rows] == list(range(ROWS))
    assert [bytes(row.data) for row in rows] == [item(None, number, 40) for number in range(ROWS)]
