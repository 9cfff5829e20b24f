"""Register ``format("afflux-capture")``: Spark finds modules ``pyspark_*`` with ``DefaultSource``. See afflux.spark."""

from __future__ import annotations

from afflux.spark.captures import CaptureSource as DefaultSource

__all__ = ["DefaultSource"]
