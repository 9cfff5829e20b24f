"""The query of the main job, in a process of its own so that it can be killed: ``python -m afflux.demo.query``.

It reads the flights with ``format("afflux")`` and writes, for each batch and under the batch's number, the flights
(``flights/batch=N``) and their delays by carrier and hour (``delays/batch=N``). A batch that is done again after a
crash overwrites what it wrote before: that, and a source that can be read again, is exactly once. When all rows are
there it adds the delays up into ``by_carrier`` and ``by_hour``. What it does is told on stdout, a JSON object a line.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["SCHEMA", "main"]

SCHEMA = ", ".join(
    f"{name} {'STRING' if name in ('carrier', 'tailnum', 'origin', 'dest', 'time_hour') else 'INT'}"
    for name in (
        "year",
        "month",
        "day",
        "dep_time",
        "sched_dep_time",
        "dep_delay",
        "arr_time",
        "sched_arr_time",
        "arr_delay",
        "carrier",
        "flight",
        "tailnum",
        "origin",
        "dest",
        "air_time",
        "distance",
        "hour",
        "minute",
        "time_hour",
    )
)
