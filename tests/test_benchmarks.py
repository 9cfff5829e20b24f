"""The ruler runs: every workload with every contender, and what is counted is exact. Nothing is timed here."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from benchmarks.__main__ import main
from benchmarks.pairs import Failure, Sample, pair
from benchmarks.peers import CONTENDERS, PEERS, Contender
from benchmarks.report import as_json, machine, tables
from benchmarks.runner import Plan, Results, measure_all, smoke_all
from benchmarks.workloads import WORKLOADS, Workload


def plan(*contenders: Contender, workloads: tuple[Workload, ...] = WORKLOADS, runs: int = 1) -> Plan:
    return Plan(contenders=contenders, workloads=workloads, runs=runs, seconds=0.001, patience=60)


def quiet(line: str) -> None:
    """Progress is for terminals."""


@pytest.mark.parametrize("contender", CONTENDERS, ids=str)
async def test_every_workload_runs_and_is_counted_exactly(contender: Contender) -> None:
    if reason := contender.why_not():
        pytest.skip(reason)
    results = await smoke_all(plan(contender), quiet)
    assert results.failures == {}
    mine = [workload for workload in WORKLOADS if workload.kind in PEERS[contender.peer].kinds]
    assert [name for name, _ in results.samples] == [workload.name for workload in mine]
    for workload in mine:
        (sample,) = results.samples[workload.name, contender]
        assert (sample.amount, sample.bytes) == (workload.smoke, workload.smoke * workload.size)


async def test_rounds_repeat_the_same_amount_of_work() -> None:
    contender = Contender("skeleton", "asyncio")
    results = await measure_all(plan(contender, workloads=(WORKLOADS[1], WORKLOADS[3]), runs=2), quiet)
    assert results.failures == {}
    for samples in results.samples.values():
        assert len(samples) == 2
        assert len({sample.amount for sample in samples}) == 1


async def test_a_wrong_count_is_no_measurement() -> None:
    async with pair(Contender("skeleton", "asyncio")) as processes:
        honest = WORKLOADS[0]
        wrong = honest._replace(size=65)  # requests have 64 bytes
        await processes.measure(honest, 5)
        with pytest.raises(Failure, match="counted 5 items and 320 bytes, not 5 and 325"):
            await processes.measure(wrong, 5)


async def test_a_process_that_breaks_says_why() -> None:
    async with pair(Contender("skeleton", "asyncio")) as processes:
        with pytest.raises(Failure, match="the process ended: ConnectionError: the server went away"):
            await processes.measure(WORKLOADS[3]._replace(size=0), 5)


async def test_too_slow_is_given_up() -> None:
    contender = Contender("skeleton", "asyncio")
    hasty = plan(contender)
    hasty.patience = 0.0
    results = await measure_all(hasty, quiet)
    assert set(results.failures.values()) == {"given up after 0 s"}
    assert results.samples == {}


def test_who_is_not_here_is_named() -> None:
    results = asyncio.run(smoke_all(plan(Contender("skeleton", "no_such_loop")), quiet))
    assert results.absent == {
        Contender("skeleton", "no_such_loop"): "no module no_such_loop here (make setup installs it)"
    }


def test_the_report_tells_ratios_of_medians() -> None:
    ours, theirs = Contender("afflux", "asyncio"), Contender("rsocket", "asyncio")
    work = WORKLOADS[3]

    def sample(seconds: float) -> Sample:
        return Sample(
            amount=1000,
            bytes=64_000,
            seconds=seconds,
            client_cpu=0.25,
            server_cpu=0.5,
            client_peak=3 << 20,
            server_peak=2 << 20,
        )

    results = Results()
    results.samples[work.name, ours] = [sample(seconds) for seconds in (0.01, 0.02, 9.0)]
    results.samples[work.name, theirs] = [sample(seconds) for seconds in (0.04, 0.05, 0.06)]
    results.failures["request-1", theirs] = "the process ended: it was tired"
    about = machine()
    text = tables(plan(ours, theirs, runs=3), results, about)
    row = next(line for line in text.splitlines() if line.startswith(work.title))
    assert row.removeprefix(work.title).split() == ["20", "k/s", "×", "2.5", "50", "k/s"]
    assert "500+250" in text  # µs a request
    assert "2+3" in text
    assert "the process ended: it was tired: rsocket/asyncio request-1" in text
    figures = as_json(plan(ours, theirs, runs=3), results, about)["workloads"][3]["contenders"]
    assert figures["rsocket/asyncio"]["afflux_over_it"] == 2.5
    assert figures["afflux/asyncio"]["per_second"] == 50_000


def test_the_command_writes_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "results.json"
    words = [
        "--smoke",
        "--peers",
        "skeleton",
        "--loops",
        "asyncio",
        "--only",
        "request-64",
        "stream-1k",
        "--out",
        str(out),
    ]
    assert main(words) == 0
    assert "2 measurements ran and were counted exactly" in capsys.readouterr().out
    found = json.loads(out.read_text())
    assert [workload["name"] for workload in found["workloads"]] == ["request-64", "stream-1k"]
    assert {"date", "cpu", "cores", "versions", "not_run"} <= found.keys()


def test_an_unknown_workload_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "juggling"]) == 2
    assert "stream-64" in capsys.readouterr().err


def test_the_figures_tell_nothing_of_the_machine_s_paths() -> None:
    from pathlib import Path

    figures = (Path(__file__).resolve().parent.parent / "benchmarks" / "results.json").read_text()
    assert "/src" not in figures
    assert "PYTHONPATH" not in figures
