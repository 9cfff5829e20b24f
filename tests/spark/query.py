"""A query in a process of its own, to be killed: ``python query.py URI DATA OUT ROWS`` writes Parquet into OUT/table.

It prints a line for each finished batch, and ends when it has read ROWS rows.
"""

from __future__ import annotations

import sys
from pathlib import Path

from afflux.spark.session import build

ROWS_A_BATCH = 500


def main(uri: str, data: str, out: Path, rows: int) -> None:
    spark = build("afflux-killed", "local[2]")
    frame = spark.readStream.format("afflux").option("uri", uri).option("requestData", data)
    frame = frame.option("maxRowsPerBatch", ROWS_A_BATCH).option("partitions", 2).option("pollTimeoutMs", 100)
    writing = frame.load().writeStream.format("parquet").option("checkpointLocation", str(out / "checkpoint"))
    query = writing.start(str(out / "table"))
    seen = -1
    while not query.awaitTermination(0.02):
        for progress in query.recentProgress:
            if progress["batchId"] > seen:
                seen = progress["batchId"]
                print(seen, progress["numInputRows"], flush=True)
                if (seen + 1) * ROWS_A_BATCH >= rows:
                    query.stop()
                    spark.stop()
                    return


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
