"""Spark's own sources, and a source of ready-made Arrow batches: what any source can reach in the same session.

- ``Arrow batches``: a Python data source that returns the same batch again and again, with the columns of
  ``format("afflux")``. It does no I/O, so it is the limit of sources in Python.
- ``rate source``: Spark's ``rate-micro-batch``, in the JVM; two columns of 8 bytes.
- ``socket source``: Spark's ``socket``, which reads lines of text of 128 bytes. It is slow, so it gets fewer rows.
"""

from __future__ import annotations

import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any, Final

from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

__all__ = ["SOCKET_ROWS", "Way", "references"]

Way = tuple[int, Callable[[], object]]
"The rows that a way reads, and the work."

SOCKET_ROWS: Final = 100_000
"The most rows of the socket source."
_BATCH: Final = 50_000
_PARTITIONS: Final = 2
_SIZE: Final = 128
_LOOK_S: Final = 0.02
_LIMIT_S: Final = 120.0

register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call] # of pyspark


class _Batches(DataSourceReader):
    def __init__(self, rows: int) -> None:
        self._rows = rows

    def partitions(self) -> list[InputPartition]:
        """Return as many partitions as the source under test has."""
        return [InputPartition(number) for number in range(_PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return a share of the rows."""
        import pyarrow as pa

        share = self._rows // _PARTITIONS + (partition.value < self._rows % _PARTITIONS)
        count = min(share, _BATCH)
        batch = pa.record_batch(
            {
                "data": pa.array([b"x" * _SIZE] * count, pa.binary()),
                "metadata": pa.nulls(count, pa.binary()),
                "partition": pa.array([0] * count, pa.int32()),
                "offset": pa.array(range(count), pa.int64()),
                "timestamp": pa.array([0] * count, pa.timestamp("us", "UTC")),
            }
        )
        for first in range(0, share, _BATCH):
            yield batch if share - first >= count else batch.slice(0, share - first)


class ArrowBatches(DataSource):
    """The source of ready-made batches."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "arrow-batches"

    def schema(self) -> str:
        """The default columns of afflux."""
        return "data BINARY, metadata BINARY, partition INT, offset BIGINT, timestamp TIMESTAMP"

    def reader(self, schema: Any) -> DataSourceReader:
        """Return the reader of a batch."""
        return _Batches(int(self.options["rows"]))


def references(spark: Any, rows: int, directory: Path) -> dict[str, Way]:
    """Return the ways, which discard the rows."""
    spark.dataSource.register(ArrowBatches)
    made = spark.read.format("arrow-batches").option("rows", rows).load()
    if made.count() != rows:
        raise SystemExit("the Arrow batches have other rows than asked for")
    few = min(rows, SOCKET_ROWS)
    return {
        "Arrow batches": (rows, lambda: made.write.format("noop").mode("overwrite").save()),
        "rate source": (rows, lambda: _rate(spark, rows, directory)),
        "socket source": (few, lambda: _socket(spark, few, directory)),
    }


def _rate(spark: Any, rows: int, directory: Path) -> None:
    reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
    _until(reader.option("numPartitions", _PARTITIONS).load(), rows, directory)


def _socket(spark: Any, rows: int, directory: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        sending = Thread(target=_send, args=(listening, rows))
        sending.start()
        port = listening.getsockname()[1]
        _until(spark.readStream.format("socket").options(host="127.0.0.1", port=port).load(), rows, directory)
        sending.join()


def _send(listening: socket.socket, rows: int) -> None:
    """Send lines to the first client. It stays connected until it closes the connection."""
    line = b"x" * (_SIZE - 1) + b"\n"
    client, _ = listening.accept()
    with client:
        for first in range(0, rows, 1000):
            client.sendall(line * min(1000, rows - first))
        client.recv(1)


def _until(frame: Any, rows: int, directory: Path) -> None:
    """Run a query until it has read that many rows."""
    with tempfile.TemporaryDirectory(dir=directory, ignore_cleanup_errors=True) as checkpoint:
        query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        deadline = time.monotonic() + _LIMIT_S
        try:
            while sum(progress["numInputRows"] for progress in query.recentProgress) < rows:
                if not query.isActive or time.monotonic() > deadline:
                    raise SystemExit(f"a reference has failed: {query.exception()}")
                time.sleep(_LOOK_S)
        finally:
            query.stop()
