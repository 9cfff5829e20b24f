"""What is printed: the same figures for programs and for people, and names that the documentation has."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from afflux.bench import Plan, Result, Threshold, decode, report, tables
from afflux.bench.tally import Failure, Tally
from tests.bench.test_result import URI, part

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "how-to" / "load.md").read_text(encoding="utf-8")
THRESHOLDS = [Threshold.parse("p50>1ms"), Threshold.parse("errors>99")]


def shown(*results: Result) -> str:
    console = Console(file=io.StringIO(), width=120, highlight=False)
    report.show(results, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_json_has_every_figure_and_the_histogram() -> None:
    result = part()
    document = json.loads(report.as_json([result, part(2)], THRESHOLDS))
    assert document["schema"] == "afflux.bench/1"
    first, second = document["runs"]
    assert {name: first[name] for name in result.record()} == result.record()
    assert first["failures"] == [{"kind": "Rejected", "code": "0x202", "count": 1, "example": "no"}]
    assert [(each["threshold"], each["crossed"]) for each in first["thresholds"]] == [
        ("p50>1ms", True),
        ("errors>99", False),
    ]
    assert first["thresholds"][0]["value"] == pytest.approx(0.005, rel=1e-3)
    assert decode(base64.b64decode(first["latency_hdr"])).counts() == result.latency.counts()
    assert second["requests"] == 17


def test_a_line_is_a_run() -> None:
    (line,) = report.as_ndjson(part(), THRESHOLDS).splitlines()
    document = json.loads(report.as_json([part()], THRESHOLDS))["runs"][0]
    del document["latency_hdr"]
    assert json.loads(line) == document


def test_csv_has_the_same_names_and_a_row_for_each_run() -> None:
    rows = list(csv.DictReader(io.StringIO(report.as_csv([part(), part(2, verb="stream")]))))
    assert [list(row) for row in rows] == [list(part().record())] * 2
    assert (rows[0]["requests"], rows[1]["credit"], rows[0]["credit"]) == ("16", "256", "")


def test_the_log_has_a_line_for_each_series_of_each_run() -> None:
    lines = report.as_hdr_log([part(verb="stream", rate=1.0, credit=8), part()]).splitlines()
    assert [line.partition(",")[0] for line in lines[2:]] == [
        "Tag=latency.credit-8",
        "Tag=service.credit-8",
        "Tag=latency",
    ]


def test_every_name_is_in_the_documentation() -> None:
    """Names of a series are there as ``latency_…_ms``."""
    listed = set(re.findall(r"`([a-z0-9_…]+)`", PAGE))
    names = {re.sub(r"_(min|mean|stddev|p\d+|max)_ms$", "_…_ms", name) for name in part().record()}
    names |= {"failures", "thresholds", "latency_hdr", "schema", "runs"}
    assert names - listed == set()
    for figure in ("min", "mean", "stddev", "p50", "p90", "p95", "p99", "p999", "max"):
        assert figure in listed


def test_one_run_is_a_page() -> None:
    text = shown(part(verb="stream", rate=5.0))
    assert text.startswith(f"{URI}\nstream · 5 per second · 1 connection × 256 · 5.00 s · round trip 1.00 ms\n")
    for words in ("streams", "items", "received", "failed", "latency", "  service", "p99.9", "Rejected", "0x202"):
        assert words in text
    assert "stream time: 25.0 % waiting for credit, 50.0 % for the server, 25.0 % in this client" in text
    assert "2.0 of 5 requests per second; 1 started late, 1 of them because of this machine; longest queue 10" in text


def test_several_runs_are_a_table() -> None:
    text = shown(part(verb="stream", credit=8), part(2, verb="stream", credit="auto"))
    rows = [line.split() for line in text.splitlines() if line.startswith(("credit ", "8 ", "auto "))]
    assert [row[0] for row in rows] == ["credit", "8", "auto"] * 2
    assert max(map(len, text.splitlines())) <= 80
    assert "1 connection × 1 · 2 runs · round trip" in text
    assert "25.0 %" in text
    assert text.count("Rejected") == 2


def test_a_run_without_an_answer_has_no_chart() -> None:
    tally = Tally()
    tally.fail(Failure("Timeout", None, "[bold]no answer[/bold]"))
    text = shown(Result(plan=Plan(uri=URI), tally=tally, started=0.0, duration=1.0, requests=1))
    assert "up to" not in text
    assert "[bold]no answer[/bold]" in text


def test_the_chart_counts_every_value_once() -> None:
    result = part()
    result.tally.latency.record(3_000_000_000)
    rows = [line for line in shown(result).splitlines() if re.match(r"\d.* %", line)]
    shares = [float(found[1]) for line in rows if (found := re.search(r"([\d.]+) %", line))]
    assert sum(shares) == pytest.approx(100, abs=1)
    assert rows[-1].startswith("3.00 s")


@pytest.mark.parametrize(
    ("least", "greatest"), [(1e-6, 1e-6), (0.001, 0.0011), (0.0004, 0.9), (1e-9, 3600), (0.0, 5.0)]
)
def test_the_ranges_of_a_chart_cover_it_and_are_few(least: float, greatest: float) -> None:
    edges = tables.edges(least, greatest)
    assert edges == sorted(set(edges))
    assert edges[-1] >= greatest
    assert len(edges) <= 16


def test_remarkable_figures_are_reported() -> None:
    quiet = replace(part(), cpu=0.5)
    quiet.tally.cut = quiet.tally.unfinished = 0
    assert report.notes([quiet]) == []
    behind = replace(
        part(rate=10.0), requests=100, late=50, late_here=20, interrupted=True, lost="gone", cpu=0.99, trip=None
    )
    said = "\n".join(report.notes([behind]))
    for words in (
        "the server was lost: gone",
        "the server did not keep up: 2.0 of 10.0 requests per second, and up to 10 requests waited",
        "this machine started 20 of 100 requests more than 1 ms late",
        "this client used 99% of a processor",
        "the server does not answer KEEPALIVE",
        "2 endless streams were canceled",
        "interrupted: 3 requests were unfinished",
    ):
        assert words in said
    both = report.notes([part(verb="stream", credit=8), part(verb="stream")])
    assert [note.partition(":")[0] for note in both] == ["credit 8", "credit 256"]


def test_a_rate_that_was_kept_is_not_called_missed() -> None:
    """Of 60,000 a second 59,934 came, but 1.4 % had to wait for a free stream."""
    result = replace(part(rate=60_000.0), requests=300_000, late=4_300, late_here=100, backlog=77, cpu=0.5)
    result.tally.in_time = 299_670
    result.tally.cut = result.tally.unfinished = 0
    result.tally.delay.record(12_300_000)
    (note,) = report.notes([result])
    assert note.startswith(
        "the rate was achieved, but 4,200 of 300,000 requests (1.4%) waited for a free stream, up to 12.3 ms, "
        "up to 77 together: all 256 streams of each connection had work"
    )
    (note,) = report.notes([replace(result, plan=replace(result.plan, concurrency=1))])
    assert "the one stream of each connection had work" in note


def test_one_is_written_in_the_singular() -> None:
    result = replace(part(), interrupted=True)
    result.tally.cut = result.tally.unfinished = 1
    assert report.notes([result]) == [
        "1 endless stream was canceled at the end of the run; it has no latency",
        "interrupted: 1 request was unfinished and counted neither as success nor as failure",
    ]


def test_fires_are_sent_and_no_more_is_known() -> None:
    result = part(verb="fire")
    result.tally.cut = result.tally.unfinished = 0
    text = shown(result)
    for words in ("fires sent", "time to send", "sent within"):
        assert words in text
    for words in ("connections lost", "latency", "succeeded", "received"):
        assert words not in text
    unknown = "fires have no answer: they are counted as sent; it is unknown whether they arrived"
    assert report.notes([result]) == [unknown]
    result.tally.connections_lost = 1
    assert report.notes([result])[0].startswith("THE CONNECTION WAS LOST ONCE: fires in flight were lost with it")
    result.tally.connections_lost = 12
    assert "connections lost" in shown(result)
    assert report.notes([result])[0].startswith("THE CONNECTION WAS LOST 12 TIMES")
    assert report.notes([result])[1] == unknown


def test_no_line_ends_with_blanks_and_no_chart_with_nothing() -> None:
    result = part(verb="stream", rate=5.0)
    for text in (shown(result), shown(part(verb="stream", credit=8), part(2, verb="stream"))):
        assert [line for line in text.splitlines() if line != line.rstrip()] == []
    rows = [line for line in shown(result).splitlines() if re.match(r"\d.* %", line)]
    assert " 0.0 %" not in rows[0] + rows[-1]


def test_crossed_thresholds_name_their_run() -> None:
    assert report.crossed([part()], THRESHOLDS) == ["p50>1ms: measured 5.00 ms"]
    several = [part(verb="stream", credit=1), part(verb="stream", credit=2)]
    assert report.crossed(several, THRESHOLDS) == [
        "credit 1: p50>1ms: measured 5.00 ms",
        "credit 2: p50>1ms: measured 5.00 ms",
    ]
