"""The benchmark of captures: captures have the content that they should have, and figures are judged by their bars."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("numpy")

from benchmarks.capture import RESULTS, Asked, measure
from benchmarks.capture_files import KINDS, make
from benchmarks.capture_report import PAGE, report, rewritten, section

from afflux.capture.output import write_tables


@pytest.mark.parametrize("kind", KINDS)
def test_captures_have_the_content_that_is_told(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "made.pcap"
    truth = make(kind, file, 300_000)
    assert file.stat().st_size == truth.bytes
    rows = write_tables([str(file)], str(tmp_path / "tables"))
    assert rows["violations"] == rows["stalls"] == 0
    assert (rows["frames"], rows["connections"], rows["streams"]) == (truth.frames, truth.connections, truth.streams)


@pytest.mark.slow
@pytest.mark.long
def test_everything_without_spark_is_measured(tmp_path: Path) -> None:
    figures: dict[str, Any] = {}
    lines: list[str] = []
    assert not measure(Asked(megabytes=1, more=0, patience=200, spark=False), tmp_path, figures, lines.append), lines
    alone = [run for run in figures["runs"] if run["way"] == "alone"]
    assert {run["kind"] for run in alone} == set(KINDS)
    assert all(run["memory_mib"]["process"] > 20 and run["load"] >= 0 for run in alone)
    assert [step["what"] for step in next(run for run in alone if run["warm"])["steps"]] == [
        "stream-0.pcap", "stream-0.pcap", "stream-1.pcap",
    ]  # fmt: skip


def _run(way: str, file: str, *seconds: float, memory: float = 100.0) -> dict[str, Any]:
    steps = [{"what": file, "bytes": FIGURES["captures"][file]["bytes"], "seconds": each, "cpu": each}
             for each in seconds]  # fmt: skip
    steps[:-1] = [step | {"bytes": 100_000_000, "what": "small"} for step in steps[:-1]]
    return {"way": way, "kind": "mtu", "file": file, "warm": len(seconds) > 1, "load": 0.5, "seconds": sum(seconds),
            "memory_mib": {"process": memory}, "steps": steps}  # fmt: skip


FIGURES: dict[str, Any] = {
    "date": "2026-11-23T00:00:00+00:00",
    "cpu": "a processor",
    "cores": 2,
    "load": [3.0, 1.0, 1.0],
    "system": "Linux",
    "versions": {"pyspark": "4.3.0"},
    "captures": {"small": {"bytes": 100_000_000}, "large": {"bytes": 1_000_000_000}},
    "not_run": ["tshark is not installed"],
}


def test_figures_are_judged_by_their_bars() -> None:
    runs = [
        _run("alone", "large", 4.0, memory=110), _run("spark", "large", 20.0), _run("dpkt", "large", 44.0),
        _run("alone", "large", 1.0, 0.5, 6.0), _run("alone", "small", 1.0),
    ]  # fmt: skip
    text = section(FIGURES | {"runs": runs})
    title = KINDS["mtu"]
    assert f"| {title}: one process, without Spark | 1,000 | 250 | 250 | 0.5 | ≥ 200 | met |" in text
    assert f"| {title}: Spark, local[2] | 1,000 | 50 |  | 0.5 | ≥ 100 | not met |" in text
    assert "| the same, over dpkt, by CPU time |  | × 11.00 |  |  | ≥ 10 | met |" in text
    assert f"| {title}: one process, without Spark | 10.00 | 12.00 | ≤ 11.50 | not met |" in text
    assert f"| {title}: one process, without Spark, process | 100: 100, 1,000: 110 | × 1.10 | ≤ 1.15 | met |" in text
    assert "Load 3.0 before the run" in text and "Not measured: tshark is not installed." in text
    assert f"{title}: Spark, local[2]" in report(FIGURES | {"runs": runs})


def test_a_wrong_count_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import capture

    def less(kind: str, path: Path, size: int) -> Any:
        from dataclasses import replace

        made = make(kind, path, size)
        return replace(made, packets=made.packets - 1)

    monkeypatch.setattr(capture, "make", less)
    monkeypatch.setattr(capture, "_missing", lambda way: None if way == "dpkt" else f"{way} is left out")
    figures: dict[str, Any] = {}
    pytest.importorskip("dpkt")
    assert measure(Asked(megabytes=1, more=0, patience=60, spark=False), tmp_path, figures, lambda text: None)
    assert any("packets were found, and the capture has" in each for each in figures["not_run"])


def test_the_page_has_the_figures() -> None:
    page = PAGE.read_text(encoding="utf-8")
    if RESULTS.exists():
        assert rewritten(page, json.loads(RESULTS.read_text(encoding="utf-8"))) == page
    with pytest.raises(ValueError, match=r"made of benchmarks/captures\.json"):
        rewritten("no marks", FIGURES | {"runs": []})
