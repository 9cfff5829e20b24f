"""Spark's daemon of Python workers, with what tasks import already imported: ``spark.python.daemon.module``.

A worker ends after each task that fails. Its successor is forked, and does not import everything again.
"""

from __future__ import annotations

from contextlib import suppress

import numpy
import pandas
import pyarrow
import pyspark.worker
from pyspark.daemon import manager

with suppress(ImportError):  # one test hides afflux
    import afflux.spark.format

__all__ = ["afflux", "manager", "numpy", "pandas", "pyarrow", "pyspark"]

if __name__ == "__main__":
    manager()
