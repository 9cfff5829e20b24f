"""The run of all benchmarks of Spark: what it measures reaches the report, and nothing is judged wrongly."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("cbor2")
pytest.importorskip("pyspark")

from benchmarks import spark_delay, spark_memory, spark_scaling, spark_source
from benchmarks.marks import between
from benchmarks.spark import RESULTS, SMOKE, main, measure, updated
from benchmarks.spark_parts import PARTS, Figure, Part
from benchmarks.spark_report import PAGE, report, rewritten, section

MIB = 1 << 20


@pytest.mark.slow
def test_parts_run_in_processes_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "spark.json"
    assert main(["--smoke", "--only", "decode", "relay", "--out", str(out)]) == 0
    figures = json.loads(out.read_text())
    assert [part["name"] for part in figures["parts"]] == ["decode", "relay"] and not figures["not_run"]
    by = {figure["what"]: figure for part in figures["parts"] for figure in part["figures"]}
    assert by["json"]["bar"] == 1_000_000 and by["SQLite: live"]["bar"] == 200_000
    assert all(figure["value"] > 0 for figure in by.values())
    shown = capsys.readouterr().out
    assert all(what in shown for what in by)


@pytest.mark.spark
@pytest.mark.long
def test_delays_are_compared_with_the_floor(spark: Any, tmp_path: Path) -> None:
    out = tmp_path / "figures"
    assert spark_delay.main(["--seconds", "1", "--out", str(out)]) in (0, 1)
    told = json.loads(out.read_text())
    (part,) = (part for part in PARTS if part.name == "delay")
    floor, p50, p99, over = (figure.value for figure in part.figures(told))
    assert 0 < p50 <= p99 and floor > 0
    assert over == pytest.approx(p50 / floor)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
def test_references_are_measured_in_the_session_of_the_source(spark: Any, tmp_path: Path) -> None:
    out = tmp_path / "figures"
    assert spark_source.main(["--rows", "3000", "--runs", "1", "--references", "--out", str(out)]) == 1  # too few rows
    told = json.loads(out.read_text())
    assert set(spark_source.BARS) < told["figures"].keys()
    (part,) = (part for part in PARTS if part.name == "source")
    by = {figure.what: figure for figure in part.figures(told)}
    assert len(by) == len(told["figures"]) + 1 == 9
    assert by["batch, over the socket source"].value == pytest.approx(
        by["journal, discarded by a batch"].value / by["reference: Spark's socket source"].value
    )


@pytest.mark.spark
def test_every_process_is_sampled(spark: Any, tmp_path: Path) -> None:
    out = tmp_path / "figures"
    assert spark_memory.main(["--seconds", "2", "--out", str(out)]) in (0, 1)
    told = json.loads(out.read_text())
    assert {"driver", "slow peer", "server with the journal", "Python worker", "reader of the query"} < set(
        told["figures"]
    )
    assert told["about"]["rows"] >= 5_000
    assert all(figure["mean_mib"] > 20 for figure in told["figures"].values())


def test_a_process_that_grows_is_not_flat() -> None:
    def fitted(mib_per_sample: float) -> dict[str, Any]:
        return spark_memory.fitted([(float(at), (100 + max(at, 30) * mib_per_sample) * MIB) for at in range(90)])

    level, growing, shrinking = fitted(0), fitted(1), fitted(-1)
    assert (level["growth_mib"], level["flat"], level["mean_mib"]) == (0, True, 100)
    assert growing["growth_mib"] == 59 and growing["mib_per_minute"] == 60 and not growing["flat"]
    assert shrinking["flat"]
    early = spark_memory.fitted([(float(at), (min(at, 29) * 10 + 100) * MIB) for at in range(90)])
    assert early["flat"] and early["growth_mib"] == 0  # the first third does not count


async def test_items_have_the_time_at_which_they_were_made() -> None:
    from afflux.core.payload import Payload

    blocks = [block async for block in spark_delay.Stamps().stream(Payload(b'{"count": 40, "rate": 2000}'))]
    assert sum(map(len, blocks)) == 40
    endless = spark_delay.Stamps().stream(Payload(b'{"count": 1000000, "rate": 2000}'))
    first, second = [[int(item) for item in await anext(endless)] for _ in range(2)]
    await endless.aclose()
    assert first == sorted(first) and second == sorted(second) and first[-1] < second[0]


async def test_the_slow_peer_takes_all_items_at_its_rate() -> None:
    import afflux

    async with afflux.serve("tcp://127.0.0.1:0", spark_memory.Slow()) as server, afflux.connect(server.uri) as peer:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        async with peer.channel([b"x"] * 1000) as answers:
            assert [item async for item in answers] == []
        assert loop.time() - begun >= 0.9 * 1000 / spark_memory.RATE


@pytest.mark.parametrize(
    ("figure", "verdict"),
    [
        (Figure("a", 5, "rows/s"), ""),
        (Figure("a", 5, "rows/s", 5), "met"),
        (Figure("a", 4.9, "rows/s", 5), "not met"),
        (Figure("a", 5, "times", 5, most=True), "met"),
        (Figure("a", 5.1, "times", 5, most=True), "not met"),
    ],
)
def test_verdicts(figure: Figure, verdict: str) -> None:
    assert figure.verdict == verdict


def test_a_part_that_fails_or_lacks_something_is_named() -> None:
    def part(name: str, needs: str | None = None) -> Part:
        return Part(name=name, title=name, words=lambda asked: [asked.rows], figures=lambda told: iter(()), needs=needs)

    figures: dict[str, Any] = {}
    lines: list[str] = []
    assert measure([part("none"), part("other", "no-such-command")], SMOKE, figures, lines.append) == ["none"]
    assert figures["parts"] == [] and len(figures["not_run"]) == 2
    assert "none failed: " in figures["not_run"][0] and "No module named benchmarks.spark_none" in lines[-1]
    assert figures["not_run"][1] == "other: no-such-command is not installed"


def test_unknown_parts_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "source", "sauce"]) == 2
    assert "no part sauce; parts are source, batches, decode" in capsys.readouterr().err
    assert spark_scaling.EXECUTORS == (1, 2)


FIGURES: dict[str, Any] = {
    "date": "2026-11-23T00:00:00+00:00",
    "cpu": "a processor",
    "cores": 2,
    "load": [3.0, 1.0, 1.0],
    "system": "Linux",
    "versions": {"pyspark": "4.3.0"},
    "asked": {"runs": 5, "rows": 12_000_000},
    "parts": [
        {
            "name": "source",
            "title": "Reading",
            "figures": [
                Figure("fast", 3_612_345, "rows/s", 3_500_000)._asdict() | {"verdict": "met"},
                Figure("delay", 2.345, "times", 2, most=True)._asdict() | {"verdict": "not met"},
                Figure("reference", 12_345, "rows/s")._asdict() | {"verdict": ""},
            ],
        }
    ],
    "not_run": ["jetstream: nats-server is not installed"],
}


def test_terminal_and_page_show_the_same_figures() -> None:
    for text in (report(FIGURES), section(FIGURES)):
        assert "12,000,000 rows a read. Load 3.0 before the run: other work shares this machine" in text
        assert "Not measured: jetstream: nats-server is not installed." in text
    assert "| fast | 3.61 M rows/s | ≥ 3.50 M | met |" in section(FIGURES)
    assert "| delay | 2.35 times | ≤ 2.00 | not met |" in section(FIGURES)
    assert "| reference | 12.3 k rows/s |  |  |" in section(FIGURES)
    with pytest.raises(ValueError, match=r"made of benchmarks/spark\.json"):
        rewritten("no marks", FIGURES)


def test_a_part_that_is_measured_alone_has_its_date_and_machine() -> None:
    slow = {"name": "slow", "title": "Slow", "figures": []}
    of_other = {"date": "2026-02-03T04:05:06+00:00", "cpu": "another CPU", "parts": [slow]}
    published = {**FIGURES, "parts": [*FIGURES["parts"], slow], "not_run": []}
    page = section(updated(published, of_other))
    assert page.startswith(section({**FIGURES, "not_run": []}))
    assert "| Slow (2026-02-03, another CPU) | measured | bar |  |" in page


def test_the_page_has_the_figures() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert between(page, "benchmarks/spark.json", "make bench-spark", "x\n") != page
    if RESULTS.exists():
        assert rewritten(page, json.loads(RESULTS.read_text(encoding="utf-8"))) == page
