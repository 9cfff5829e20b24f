"""What Spark finds: any importable ``pyspark_*`` module with a ``DefaultSource``. The source lives in afflux.spark."""

from __future__ import annotations

from afflux.spark.source import AffluxSource as DefaultSource

__all__ = ["DefaultSource"]
