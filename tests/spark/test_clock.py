"""SP-23: no clock of the reader or of a task decides what is read."""

from __future__ import annotations

import itertools
import time

import pytest

from afflux.spark.options import Options
from afflux.spark.reading import SpanReader
from tests.spark.conftest import asked
from tests.spark.serving import item

pytest.importorskip("pyspark")


def test_a_wall_clock_that_jumps_changes_nothing(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql.types import BinaryType, StructField, StructType

    from afflux.spark.arrow import data_column
    from afflux.spark.source import AffluxSource

    jumps = itertools.cycle((0, 86_400, -86_400, 1 << 31, -(1 << 30)))
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.0 + next(jumps))
    monkeypatch.setattr(time, "time_ns", lambda: int(time.time() * 1e9))
    options = {"uri": uri, "requestData": asked(count=1_500), "maxRowsPerBatch": "400", "acknowledgeAs": "clock"}
    items: list[bytes] = []
    end = None
    for _ in range(5):  # the first batch is empty; a reader for each batch: Spark may start it again at any time
        reader = AffluxSource(options).streamReader(StructType([StructField("data", BinaryType())]))
        begin = reader.initialOffset() if end is None else end
        while (end := reader.latestOffset(begin)) == begin:
            pass
        for part in reader.partitions(begin, end):
            if part.value is not None:
                for chunk in SpanReader(Options.parse(options), part.value):
                    items += data_column(chunk).to_pylist()
        reader.commit(end)
        reader.stop()
    assert items == [item(None, number, 16) for number in range(len(items))]
    assert len(items) >= 1_200
