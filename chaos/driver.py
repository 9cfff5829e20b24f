"""The driver of a pipeline, a process of its own: ``python -m chaos.driver MASTER``.

Commands and answers are lines of JSON. A command starts a query; the answer is its end, or the reason why it failed.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
QUICK = {
    "spark.driver.extraJavaOptions": _JVM,
    "spark.executor.extraJavaOptions": f"{_JVM} {os.environ.get('SPARK_SUBMIT_OPTS', '')}",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.noDataProgressEventInterval": "100",
}
"A JVM that starts sooner: most runs are short."


def main(master: str) -> None:
    """Answer commands until the end of the input."""
    from afflux.spark.session import build
    from afflux.spark.tail import reason_of

    spark = build("chaos", master, **QUICK)
    _tell(ready=True)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            run(spark, **command)
        except Exception as error:  # whatever Spark raises is an answer
            _tell(failed=reason_of(str(error))[:500])
        else:
            _tell(ended=True)
    spark.stop()


def run(spark: Any, kind: str, options: dict[str, str], table: str, checkpoint: str, rows: int) -> None:
    """Run one query until all rows are in the table."""
    if kind == "read":
        frame = spark.readStream.format("afflux").options(**options).load()
        writer = frame.select("partition", "offset", "data").writeStream.format("parquet").option("path", table)
    else:
        each = max(path.stat().st_size for path in Path(table).iterdir())
        spark.conf.set("spark.sql.files.maxPartitionBytes", each // 2 + 1)  # two tasks for each file, in its order
        frame = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(table)
        writer = frame.selectExpr("cast(value as binary) data").writeStream.format("afflux").options(**options)
    query = writer.option("checkpointLocation", checkpoint).trigger(processingTime="0 seconds").start()
    try:
        while not query.awaitTermination(0.1):
            if kind == "read" and _position(query) >= rows:
                return
            if kind == "write" and _batches(query) >= len(list(Path(table).iterdir())):
                return
    finally:
        query.stop()


def _position(query: Any) -> int:
    """Return how many items of the stream are in ended batches."""
    position = 0
    for progress in query.recentProgress:
        source = progress["sources"][0]
        end = source["endOffset"] if "addBatch" in progress["durationMs"] else source["startOffset"]
        shards = json.loads(end) if isinstance(end, str) else end or {}
        position = max(position, sum(shard["pos"] for shard in shards.values() if isinstance(shard, dict)))
    return position


def _batches(query: Any) -> int:
    """Return the number of ended batches; the progress of an idle query has the number of the next one."""
    ended = (each["batchId"] + ("addBatch" in each["durationMs"]) for each in query.recentProgress)
    return max(ended, default=0)


def _tell(**answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
