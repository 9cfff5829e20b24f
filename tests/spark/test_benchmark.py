"""The benchmarks of Spark run; what they measure is not judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("cbor2")

from benchmarks import spark_source
from benchmarks.spark_decode import BARS, main


@pytest.mark.spark
def test_every_way_of_reading_is_measured(spark: Any, tmp_path: Path) -> None:
    out = tmp_path / "figures"
    assert spark_source.main(["--rows", "5000", "--runs", "1", "--out", str(out)]) == 1  # too few rows to be fast
    figures = json.loads(out.read_text())["figures"]
    assert set(spark_source.BARS) < figures.keys()
    assert all(figure["rows_per_s"] > 0 for figure in figures.values())


def test_every_case_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rows", "200", "--runs", "1", "--out", str(tmp_path / "figures")]) in (0, 1)
    figures = json.loads((tmp_path / "figures").read_text())["figures"]
    assert set(BARS) < figures.keys() and all(figure["rows_per_s"] > 0 for figure in figures.values())
    assert len(capsys.readouterr().out.splitlines()) == len(figures)
