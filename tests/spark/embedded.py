"""A driver with a relay of its own, to be killed: ``python -m tests.spark.embedded URI DATA DIRECTORY``.

It prints the number of items that are safe in the table, after each batch that has some.
"""

from __future__ import annotations

import sys
from typing import Any

from tests.spark.conftest import session


def writing(spark: Any, uri: str, data: str, directory: str) -> Any:
    """Start the query."""
    given = {"uri": uri, "route": "replayed", "requestData": data, "replays": True, "pollTimeoutMs": 100}
    frame = spark.readStream.format("afflux").options(**given, journalDir=f"{directory}/journal").load()
    writer = frame.writeStream.format("parquet").option("checkpointLocation", f"{directory}/checkpoint")
    return writer.start(f"{directory}/table")


def main(uri: str, data: str, directory: str) -> None:
    query = writing(session("embedded", "local[2,4]"), uri, data, directory)
    safe = 0
    while not query.awaitTermination(0.05):
        rows = sum(progress["numInputRows"] for progress in query.recentProgress)
        if rows != safe:
            safe = rows
            print(safe, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
