"""The benchmark of decoding runs; what it measures is not judged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("cbor2")

from benchmarks.spark_decode import BARS, main


def test_every_case_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rows", "200", "--runs", "1", "--out", str(tmp_path / "figures")]) in (0, 1)
    figures = json.loads((tmp_path / "figures").read_text())["figures"]
    assert set(BARS) < figures.keys() and all(figure["rows_per_s"] > 0 for figure in figures.values())
    assert len(capsys.readouterr().out.splitlines()) == len(figures)
