"""What size and number cost is measured and counted, and what is told of it is what was measured. Nothing is timed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks import scale, scale_report
from benchmarks.figures import as_text
from benchmarks.marks import between
from benchmarks.pairs import Failure
from benchmarks.scale import RESULTS, Asked, Sample, ends, figures_of, main, targets

MI = 1 << 20


def row(of: str, n: int, rate: float, peak: float = 0.0, cpu: float = 1.0) -> dict[str, Any]:
    return {"of": of, "n": n, "per_second": rate, "cpu_us": cpu, "peak": {"server": 1.0, "client": peak}}


def verdicts(*rows: dict[str, Any]) -> list[tuple[float, str]]:
    grown = [row(of, n, 1.0) for of in ("of items", "of streams") for n in (1, 10)]
    return [(entry["measured"], entry["verdict"]) for entry in targets([*rows, *grown])[:-2]]


def test_the_command_runs_all_of_it_and_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "scale.json"
    assert main(["--smoke", "--out", str(out)]) == 0
    assert "12 measurements ran and were counted exactly" in capsys.readouterr().out
    figures = json.loads(out.read_text())
    assert [(one["of"], one["n"]) for one in figures["rows"]] == [
        ("64 KiB answer", 2 * MI),
        ("64 KiB items", 2 * MI),
        ("answer", 2 * MI),
        ("beside", 64),
        ("beside big", 64),
        ("beside slow", 64),
        ("beside stalled", 64),
        ("items", 2 * MI),
        ("of items", 100),
        ("of items", 1000),
        ("of streams", 1),
        ("of streams", 10),
    ]
    assert len(figures["targets"]) == 9
    for entry in figures["targets"]:
        assert entry["what"] in scale_report.report(figures)


async def test_a_wrong_count_is_no_figure() -> None:
    async with ends("asyncio", MI, 1) as both:
        with pytest.raises(Failure, match="items: counted 3 items and 192 bytes, not 4 of 64"):
            await both.do("items", 64, 4, n=3)


def test_a_failure_is_reported_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def broken(*_: object) -> None:
        raise Failure("items: counted 3")

    monkeypatch.setattr(scale, "measure", broken)
    assert main(["--smoke"]) == 1
    assert capsys.readouterr().err == "items: counted 3\n"


def test_payloads_are_judged_by_bytes_and_memory() -> None:
    small = row("64 KiB items", 16 * MI, 256.0)  # 16 MiB a second
    assert verdicts(small, row("items", 16 * MI, 0.5, 3.0 * 16 * MI)) == [(0.5, "met"), (3.0, "met")]
    assert verdicts(small, row("items", 16 * MI, 0.4, 3.1 * 16 * MI)) == [(0.4, "not met"), (3.1, "not met")]


def test_fast_streams_may_lose_a_twentieth() -> None:
    alone = row("beside", 64, 100.0)
    assert verdicts(alone, row("beside big", 64, 95.0), row("beside slow", 64, 94.0)) == [
        (0.95, "met"),
        (0.94, "not met"),
    ]


def test_growth_is_judged_by_the_slowest() -> None:
    flat = [row("of items", n, rate) for n, rate in ((1, 100.0), (10, 89.0), (100, 100.0))]
    found = targets([*flat, row("of streams", 1, 100.0), row("of streams", 10, 200.0)])
    assert [(entry["measured"], entry["verdict"]) for entry in found] == [(0.89, "not met"), (1.0, "met")]


def test_figures_are_medians_and_memory_the_worst() -> None:
    samples = [Sample(rate, 1e-6 * rate, rate, 2 * rate) for rate in (1.0, 2.0, 9.0)]
    found = {(of, n): samples for of in ("of items", "of streams") for n in (1, 10)}
    figures = figures_of(Asked(loop="asyncio", runs=3), found, "by night")
    first = figures["rows"][0]
    assert (first["per_second"], first["cpu_us"], first["peak"]) == (2.0, 2.0, {"server": 9.0, "client": 18.0})
    assert "by night" in scale_report.section(figures)
    assert json.loads(as_text(figures)) == figures


def test_a_page_without_marks_is_reported() -> None:
    with pytest.raises(ValueError, match=r"the page has no lines '<!-- made of a.json by make it: begin -->'"):
        between("# A page\n", "a.json", "make it", "figures")
    page = "# A page\n<!-- made of a.json by make it: begin -->\nold\n<!-- end -->\nmore\n"
    made = between(page, "a.json", "make it", "figures")
    assert made == page.replace("old", "\nfigures")
    assert between(made, "a.json", "make it", "figures") == made


def test_the_page_agrees_with_the_figures() -> None:
    page = scale_report.PAGE.read_text(encoding="utf-8")
    committed = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert scale_report.rewritten(page, committed) == page, "make it anew: python -m benchmarks.scale --draw"
    assert committed["targets"] == targets(committed["rows"])
