"""Register ``format("afflux")``: Spark finds modules ``pyspark_*`` with a ``DefaultSource``. See afflux.spark."""

from __future__ import annotations

from afflux.spark.format import AffluxFormat as DefaultSource

__all__ = ["DefaultSource"]
