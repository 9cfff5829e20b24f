"""A driver with three streaming queries, to be killed.

``python -m tests.spark.querying INPUT DIRECTORY STAGING COMMITTED READ DATA``: the first two write the lines of INPUT
to the receivers STAGING and COMMITTED. The third reads the stream READ with asynchronous progress tracking, which
supports few sinks: noop is one. It reports when it has read all items. Workers are not used again (SP-21); those of the
driver that continues are.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.spark.conftest import session, until

ROWS = 60_000
"Rows of the stream READ."


def query(spark: Any, lines: str, checkpoint: str, uri: str, **options: object) -> Any:
    """Write the lines of text files, a file in each batch."""
    frame = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(lines).repartition(2)
    writer = frame.selectExpr("cast(value as binary) data").writeStream.format("afflux")
    writer = writer.options(**{"uri": uri, "checkpointLocation": checkpoint} | options)
    return writer.trigger(availableNow=True).start()


def reading(spark: Any, checkpoint: str, uri: str, data: str) -> Any:
    """Read a stream, and log the offsets of a few batches only."""
    source = spark.readStream.format("afflux").options(
        uri=uri, requestData=data, maxRowsPerBatch=ROWS // 10, pollTimeoutMs=50, acknowledgeAs="async"
    )
    options = {"asyncProgressTrackingEnabled": True, "asyncProgressTrackingCheckpointIntervalMs": 60_000}
    return source.load().writeStream.format("noop").options(**options, checkpointLocation=checkpoint).start()


def main(lines: str, directory: str, staging: str, committed: str, read: str, data: str) -> None:
    spark = session("killed", "local[8,4]", **{"spark.python.worker.reuse": "false"})
    for name, receiver in (("staging", staging), ("committed", committed)):
        query(spark, lines, str(Path(directory, name)), receiver)
    third = reading(spark, str(Path(directory, "read")), read, data)
    until(third, lambda progress: json.loads(progress["sources"][0]["endOffset"])["0"]["pos"] == ROWS)
    print("read", flush=True)
    third.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
