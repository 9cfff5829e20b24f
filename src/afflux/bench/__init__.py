"""Load-test a server and measure latency, throughput and stalls.

::

    plan = Plan(uri="tcp://127.0.0.1:7000", rate=500, duration=10, data=b"hello")
    result = await run(plan)
    print(result.latency.percentile(99) / 1e6, "ms")
"""

from __future__ import annotations

from afflux.bench.hdrlog import decode, encode
from afflux.bench.histogram import Histogram
from afflux.bench.load import run
from afflux.bench.meter import UNBOUNDED
from afflux.bench.plan import Plan
from afflux.bench.progress import Progress
from afflux.bench.result import Result
from afflux.bench.tally import Failure
from afflux.bench.thresholds import Threshold

__all__ = [
    "UNBOUNDED",
    "Failure",
    "Histogram",
    "Plan",
    "Progress",
    "Result",
    "Threshold",
    "decode",
    "encode",
    "run",
]
