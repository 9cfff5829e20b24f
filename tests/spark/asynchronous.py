"""A query with asynchronous progress tracking, which supports few sinks: noop is one.

``python -m tests.spark.asynchronous URI DATA DIRECTORY`` reports that it has read all items, and waits to be killed.
"""

from __future__ import annotations

import sys

from afflux.spark.session import build
from tests.spark.conftest import QUICK

ROWS = 200_000


def main(uri: str, data: str, directory: str) -> None:
    spark = build("asynchronous", "local[2]", **QUICK)
    source = spark.readStream.format("afflux").options(
        uri=uri, requestData=data, maxRowsPerBatch=10_000, pollTimeoutMs=50, acknowledgeAs="async"
    )
    options = {"asyncProgressTrackingEnabled": True, "asyncProgressTrackingCheckpointIntervalMs": 60_000}
    sink = source.load().writeStream.format("noop").options(**options, checkpointLocation=f"{directory}/checkpoint")
    query = sink.start()
    while sum(progress["numInputRows"] for progress in query.recentProgress) < ROWS:
        query.processAllAvailable()
    print(f"read {ROWS}", flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
