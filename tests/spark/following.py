"""A driver with a query that follows captures, to be killed.

``python -m tests.spark.following CAPTURES DIRECTORY HELD``: after the first file, a task of the second batch writes to
the named pipe HELD in the middle of its rows, and waits forever.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.spark.conftest import session

ROOT = Path(__file__).parents[2]


def query(spark: Any, captures: Path, directory: Path, held: Path | None) -> Any:
    """Write the frames of the captures into ``DIRECTORY/table``; with ``held``, stop at the second of the two files."""
    columns = "conn STRING, type STRING, offset BIGINT, dir STRING"
    reader = spark.readStream.format("afflux-capture").option("columns", "conn, type, offset, dir")
    frame = reader.option("settleSeconds", 0.001).load(str(captures))

    def passed(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if held is not None and (directory / "table" / "_spark_metadata" / "0").exists():
                yield batch.slice(0, 1)
                held.write_bytes(b"1")
                signal.pause()
            yield batch

    writer = frame.mapInArrow(passed, columns).writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    return writer.start(str(directory / "table"))


def main(captures: str, directory: str, held: str) -> None:
    spark = session("following", "local[2]")
    second = Path(captures, "1.pcap")
    hidden = second.rename(second.with_name(".1.pcap"))
    made = query(spark, Path(captures), Path(directory), Path(held))
    made.processAllAvailable()
    hidden.rename(second)
    made.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
