"""docs/spark.md says what is so, and nothing of Spark is imported before it is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from afflux.core.limits import Limits
from afflux.spark.arrow import COLUMNS
from afflux.spark.captureoptions import CaptureOptions
from afflux.spark.declaring import reference
from afflux.spark.options import Options
from afflux.spark.reading import CREDIT
from afflux.spark.sinkoptions import SinkOptions

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "spark.md").read_text(encoding="utf-8")
CAPTURES = (DOCS / "how-to" / "capture-tables.md").read_text(encoding="utf-8")


def test_the_options_are_those_of_the_code() -> None:
    assert f"\n{reference(Options)}\n" in PAGE
    assert f"\n{reference(SinkOptions)}\n" in PAGE
    assert f"\n{reference(CaptureOptions)}\n" in CAPTURES


def test_the_columns_are_those_of_the_code() -> None:
    for name, spark_type in COLUMNS.items():
        assert f"\n| `{name}` | {spark_type.upper()} | " in PAGE


def test_the_figures_are_those_of_the_code() -> None:
    assert f"{CREDIT:,} items" in PAGE
    assert f"at most {Limits.server().partitions:,}" in PAGE


def test_nothing_heavy_is_imported() -> None:
    program = (
        "import sys, afflux, afflux.spark, afflux.spark.session, afflux.spark.arrow, afflux.spark.rows\n"
        "import afflux.spark.reading, afflux.spark.ipc\n"
        "print(sorted({'pyspark', 'pyarrow', 'numpy', 'pandas', 'msgspec', 'cbor2'} & sys.modules.keys()))"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout == "[]\n"
