"""What is measured of many runs and is counted; what is told of it is what was measured. Nothing is judged here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks import many, many_report
from benchmarks.figures import as_text
from benchmarks.idle import ends
from benchmarks.many import Asked, figures_of, main, targets
from benchmarks.pairs import Failure
from benchmarks.workers import Served, measure, served

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")


def found(n: int = 10_000, mib: float = 100.0) -> dict[str, Any]:
    """Made-up figures of both loops; those of asyncio are never judged."""
    cost = {"server": 2.0, "client": 3.0}
    idle = dict.fromkeys(("fresh", "worked", "connect", "minute"), cost) | {"n": n, "per_second": 1234.5}
    stream = dict.fromkeys(("memory", "open", "item", "end", "beside"), cost)
    rate = {"of": "request", "cpu_workers": 0.5, "cpu_clients": 1.0, "with_a_core_each": 900}
    return {
        "connections": {
            "uvloop": idle | {"total": {"server": mib, "client": 1.0}},
            "asyncio": idle | {"total": {"server": 9999.0, "client": 1.0}},
        },
        "streams": {"uvloop": [stream | {"n": 100}, stream | {"n": n}]},
        "workers": {
            "load": {"clients": 2, "connections": 16, "runs": 5},
            "at_once": 16,
            "rates": [
                rate | {"workers": 2, "per_second": 300, "per_cpu_s": 450},
                rate | {"workers": 1, "per_second": 200, "per_cpu_s": 440},
            ],
            "spread": [
                {"workers": 1, "connections": 64, "busiest": 1.0, "worst": 1.0},
                {"workers": 2, "connections": 64, "busiest": 0.55, "worst": 0.61},
            ],
        },
    }


@pytest.fixture(autouse=True)
def few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is counted is right for a few as for many."""
    monkeypatch.setattr("benchmarks.idle._REQUESTS", 50)


@pytest.mark.long
def test_the_command_runs_all_of_it_and_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "many.json"
    assert main(["--smoke", "--loops", "asyncio", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    figures = json.loads(out.read_text())
    assert figures["connections"]["asyncio"]["n"] == 50
    assert [row["n"] for row in figures["streams"]["asyncio"]] == [50]
    assert [(row["of"], row["workers"], row["per_second"] > 0) for row in figures["workers"]["rates"]] == [
        (of, workers, True) for workers in (1, 2) for of in ("request", "stream")
    ]
    assert {entry["verdict"] for entry in figures["targets"]} == {"not run"}  # a few are not many
    assert figures["versions"].keys() == {"Python", "afflux", "uvloop"}
    for title in ("50 connections", "Concurrent streams", "Workers", "64 connections over 2 workers"):
        assert title in shown


def test_a_part_is_not_published(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    async def measured(asked: Asked, told: Any) -> dict[str, Any]:
        return {part: found()[part] if part in asked.parts else {} for part in many.PARTS}

    monkeypatch.setattr(many, "measure", measured)
    before = many.RESULTS.read_bytes(), many_report.PAGE.read_bytes()
    assert main(["--smoke", "--only", "streams", "--loops", "asyncio"]) == 0
    told = capsys.readouterr()
    assert "benchmarks/many.json stays as it is" in told.err
    assert "Workers" not in told.out
    assert (many.RESULTS.read_bytes(), many_report.PAGE.read_bytes()) == before


def test_too_few_open_files_are_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(many, "room", lambda wanted: 20)  # root may always have more
    out = tmp_path / "many.json"
    assert main(["--only", "connections", "--loops", "asyncio", "--seconds", "0", "--out", str(out)]) == 0
    figures = json.loads(out.read_text())
    told = "10,000 connections, only 20: a process may open no more files here (ulimit -Hn)"
    assert figures["connections"]["asyncio"]["n"] == 20
    assert figures["not_run"] == [told]
    assert told in capsys.readouterr().out
    assert figures["targets"][0]["verdict"] == "not run"


async def test_a_wrong_count_is_no_measurement() -> None:
    async with ends("asyncio", 2) as both:
        with pytest.raises(Failure, match="connect: counted 1, not 2"):
            await both.do("connect", 2, n=1, keepalive=20.0)


async def test_a_client_that_fails_reports_why() -> None:
    with pytest.raises(Failure, match="nothing listens there"):
        await measure(Served("tcp://127.0.0.1:1", ()), "request", clients=1, connections=1, seconds=0.1)


async def test_a_server_that_does_not_come_up_is_no_measurement() -> None:
    with pytest.raises(Failure, match="the server did not come up"):
        async with served(0):
            pass


@pytest.mark.parametrize(
    ("mib", "verdict"), [(200, "ambition met"), (200.1, "met"), (400, "met"), (400.1, "not met"), (9000, "not met")]
)
def test_memory_is_judged(mib: float, verdict: str) -> None:
    idle, streams = targets(found(mib=mib))
    assert (idle["verdict"], idle["measured"]["uvloop"]) == (verdict, mib)
    assert (streams["verdict"], streams["measured"]) == ("met", {"uvloop": 10_000})


def test_fewer_are_not_judged() -> None:
    assert [entry["verdict"] for entry in targets(found(n=9_999))] == ["not run", "not run"]


def test_the_report_and_the_page_agree() -> None:
    figures = figures_of(Asked(), found(), "quiet night")
    shown, page = many_report.report(figures), many_report.section(figures)
    for text in ("quiet night", "ambition met", "1,234", "2.00 + 3.00", "× 1.50", "55% (median) and 61% (at worst)"):
        assert text in shown
        assert text in page
    assert "over 1 workers" not in shown
    (memory,) = (line for line in page.splitlines() if "waits for credit" in line)
    assert memory.endswith("KiB |  | 2.00 + 3.00 |")  # of the memory of 100 nothing can be seen


# -- what is committed --------------------------------------------------------------------------------------------


@pytest.fixture(name="committed", scope="module")
def _committed() -> Any:
    return json.loads(many.RESULTS.read_text(encoding="utf-8"))


def test_the_results_are_written_as_they_are_read(committed: Any) -> None:
    assert many.RESULTS.read_text(encoding="utf-8") == as_text(committed)
    assert "/home" not in as_text(committed)
    assert "/work" not in as_text(committed)


def test_the_targets_of_the_results_are_those_of_the_bars(committed: Any) -> None:
    assert committed["targets"] == targets(committed)
    assert not {entry["verdict"] for entry in committed["targets"]} & {"not run"}


def test_the_page_states_the_results(committed: Any) -> None:
    page = many_report.PAGE.read_text(encoding="utf-8")
    assert many_report.rewritten(page, committed) == page
