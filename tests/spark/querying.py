"""A streaming query in a driver of its own, to be killed: ``python querying.py INPUT CHECKPOINT URI``."""

from __future__ import annotations

import sys
from typing import Any

from tests.spark.conftest import QUICK


def query(spark: Any, lines: str, checkpoint: str, uri: str, **options: object) -> Any:
    """Write the lines of text files, a file in each batch."""
    frame = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(lines).repartition(2)
    writer = frame.selectExpr("cast(value as binary) data").writeStream.format("afflux")
    writer = writer.options(**{"uri": uri, "checkpointLocation": checkpoint} | options)
    return writer.trigger(availableNow=True).start()


if __name__ == "__main__":
    from afflux.spark.session import build

    query(build("killed", "local[2,4]", **QUICK), *sys.argv[1:]).awaitTermination()
