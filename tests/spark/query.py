"""A query in a process of its own, to be killed: ``python query.py URI DATA OUT`` writes Parquet into OUT/table.

It prints the number of each finished batch, and never ends by itself.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROWS_A_BATCH = 500


def start(spark: Any, uri: str, data: str, out: Path) -> Any:
    """Start the query, or go on where its checkpoint says."""
    frame = spark.readStream.format("afflux").option("uri", uri).option("requestData", data)
    frame = frame.option("maxRowsPerBatch", ROWS_A_BATCH).option("partitions", 2).option("pollTimeoutMs", 100)
    writing = frame.load().writeStream.format("parquet").option("checkpointLocation", str(out / "checkpoint"))
    return writing.start(str(out / "table"))


def main(uri: str, data: str, out: Path) -> None:
    from afflux.spark.session import build

    quick = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    query = start(build("afflux-killed", "local[2]", **quick), uri, data, out)
    seen = -1
    while not query.awaitTermination(0.02):
        for progress in query.recentProgress:
            if progress["batchId"] > seen and progress["numInputRows"]:
                seen = progress["batchId"]
                print(seen, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
