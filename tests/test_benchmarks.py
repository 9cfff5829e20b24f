"""The ruler runs: every workload with every contender, and what is counted is exact. Nothing is timed here."""

from __future__ import annotations

import asyncio
import json
import shutil
import tomllib
from itertools import cycle
from pathlib import Path

import pytest
from benchmarks.__main__ import main
from benchmarks.bars import BARS
from benchmarks.pairs import Failure, Pair, Sample, pair
from benchmarks.peers import PEERS, Contender, chosen, java, node
from benchmarks.peers.base import Count, check_metadata
from benchmarks.runner import Plan, measure_all, smoke_all
from benchmarks.workloads import METADATA_BYTES, ROW_SIZES, SHORT, WORKLOADS, Workload

SMALL = tuple(workload for workload in WORKLOADS if not workload.large)
SIXTEEN = next(workload for workload in WORKLOADS if workload.name == "payload-16m")
ONCE = chosen(PEERS, ["uvloop"])
"""Every peer on one loop. `make bench-smoke` has them all on all loops, and the workloads that take gigabytes."""


def plan(*contenders: Contender, workloads: tuple[Workload, ...] = WORKLOADS, runs: int = 1) -> Plan:
    return Plan(contenders=contenders, workloads=workloads, runs=runs, seconds=0.001, patience=60)


def quiet(line: str) -> None:
    """Progress is for terminals."""


async def counted_exactly(contender: Contender, workloads: tuple[Workload, ...]) -> None:
    results = await smoke_all(plan(contender, workloads=workloads), quiet)
    assert results.failures == {}
    mine = [workload for workload in workloads if PEERS[contender.peer].why_not(workload) is None]
    assert sorted(name for name, _ in results.samples) == sorted(workload.name for workload in mine)
    for workload in mine:
        (sample,) = results.samples[workload.name, contender]
        assert (sample.amount, sample.bytes) == (workload.smoke, workload.bytes_of(workload.smoke))


def test_every_peer_is_tried() -> None:
    assert sorted(contender.peer for contender in ONCE) == sorted(PEERS)


@pytest.mark.parametrize("contender", ONCE, ids=str)
async def test_every_workload_runs_and_is_counted_exactly(contender: Contender) -> None:
    if reason := contender.why_not():
        pytest.skip(reason)
    await counted_exactly(contender, SMALL)


async def test_a_large_payload_is_counted_exactly() -> None:
    await counted_exactly(Contender("afflux", "asyncio"), (SIXTEEN,))


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


def test_metadata_that_does_not_arrive_is_no_measurement() -> None:
    assert check_metadata(Count(3, 700), 3 * METADATA_BYTES) == Count(3, 700)
    with pytest.raises(ValueError, match="3 items with 0 bytes of metadata"):
        check_metadata(Count(3, 700), 0)


def test_a_short_stream_has_all_rows_alike_often() -> None:
    (work,) = (workload for workload in WORKLOADS if workload.kind == "short")
    sizes = cycle(ROW_SIZES)
    assert work.bytes_of(7) == 7 * sum(next(sizes) for _ in range(SHORT))


async def test_a_process_that_breaks_reports_why() -> None:
    async with pair(Contender("skeleton", "asyncio")) as processes:
        with pytest.raises(Failure, match="the process ended: ConnectionError: the server disconnected"):
            await processes.measure(WORKLOADS[3]._replace(size=-1), 5)


async def test_too_slow_is_given_up() -> None:
    contender = Contender("skeleton", "asyncio")
    hasty = plan(contender)
    hasty.patience = 0.0
    results = await measure_all(hasty, quiet)
    assert set(results.failures.values()) == {"abandoned after 0 s"}
    assert results.samples == {}


async def test_what_compiles_while_it_runs_is_warmed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    entry, contender, work = PEERS["skeleton"], Contender("skeleton", "asyncio"), WORKLOADS[0]
    monkeypatch.setitem(PEERS, "skeleton", entry._replace(warm_s=0.2))
    done = []

    class Spy(Pair):
        async def measure(self, workload: Workload, amount: int) -> Sample:
            done.append(sample := await super().measure(workload, amount))
            return sample

    monkeypatch.setattr("benchmarks.pairs.Pair", Spy)
    results = await measure_all(plan(contender, workloads=(work,), runs=2), quiet)
    assert results.failures == {}
    measured = results.samples[work.name, contender]
    for sample in measured:
        before = done[: done.index(sample)]
        assert sum(one.seconds for one in before) >= 0.2
        del done[: len(before) + 1]


async def test_memory_is_measured_from_where_it_began() -> None:
    large = SIXTEEN
    async with pair(Contender("skeleton", "asyncio"), "large") as processes:
        sample = await processes.measure(large, 2)
    assert sample.client_peak - sample.client_idle >= large.size  # a whole payload has been in its hands
    assert sample.server_peak - sample.server_idle >= large.size


def test_who_is_not_here_is_named() -> None:
    results = asyncio.run(smoke_all(plan(Contender("skeleton", "no_such_loop")), quiet))
    assert results.absent == {
        Contender("skeleton", "no_such_loop"): "no module no_such_loop here (make setup installs it)"
    }


def test_without_grpcio_the_reason_states_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PEERS, "grpc", PEERS["grpc"]._replace(imports="no_grpc_here"))
    assert Contender("grpc", "asyncio").why_not() == "no module no_grpc_here here (make bench installs it)"


def test_without_node_the_reason_states_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    reason = node.installed(tmp_path)
    assert reason == "node not found: install Node.js 18 or newer (Debian: apt-get install nodejs npm)"


def test_without_the_java_original_the_reason_states_where_to_name_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for tool in ("java", "javac"):
        (tmp_path / tool).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(java.RIVER, raising=False)
    told = "Apache River not found: put its jars (jsk-platform, jsk-lib; from Maven Central) in AFFLUX_RIVER"
    assert Contender("jeri", "java").why_not() == told


def test_without_java_the_reason_states_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(java.RIVER, str(tmp_path / "a.jar"))
    told = "java not found: install a JDK, 11 or newer (Debian: apt-get install default-jdk-headless)"
    assert Contender("jeri", "java").why_not() == told


@pytest.mark.skipif(shutil.which("javac") is None, reason="needs a JDK")
def test_jars_of_something_else_are_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(java.RIVER, str(tmp_path))
    assert Contender("jeri", "java").why_not() == (
        "javac fails with the jars of AFFLUX_RIVER (package net.jini.core.constraint does not exist)"
    )


@pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm: install Node.js 18 or newer")
def test_without_a_compiled_build_the_reason_states_what_makes_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AFFLUX_COMPILED", str(tmp_path))
    reason = Contender("afflux-compiled", "uvloop").why_not()
    assert reason is not None
    assert f"in {tmp_path}: MYPYC_OPT_LEVEL=3 make compiled" in reason
    assert "AFFLUX_COMPILED" in reason


def test_the_bars_of_java_include_that_of_the_compiled_build() -> None:
    bars = {(bar.ours, bar.bar) for bar in BARS if (bar.workload, bar.beside) == ("request-256", "rsocket-java")}
    assert bars == {("afflux", 0.65), ("afflux-compiled", 1)}


def test_when_npm_cannot_install_the_reason_states_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "js"
    home.mkdir()
    for name in (".npmrc", "package.json", "package-lock.json"):
        shutil.copy(node.HOME / name, home)
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "cache"))
    reason = node.installed(home)
    assert reason is not None
    assert reason.startswith("npm ci in js/ failed (npm error")
    assert reason.endswith("is the npm registry reachable?")


def test_the_lock_file_names_no_registry() -> None:
    lock = json.loads((node.HOME / "package-lock.json").read_text())
    wanted = json.loads((node.HOME / "package.json").read_text())["dependencies"]
    installed = {name.removeprefix("node_modules/"): entry for name, entry in lock["packages"].items() if name}
    assert {name: entry["version"] for name, entry in installed.items()} == wanted
    assert all("integrity" in entry and "resolved" not in entry for entry in installed.values())


def test_what_make_bench_installs_is_whole_and_in_no_other_list() -> None:
    root = Path(__file__).resolve().parent.parent
    lists = [(root / "requirements" / name).read_text() for name in ("lock.txt", "bench.txt")]
    lock, bench = ({line.partition("==")[0].lower() for line in text.splitlines() if "==" in line} for text in lists)
    assert lock & bench == set()
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {wanted.partition(">")[0] for wanted in extras["bench"]} <= lock | bench


def test_who_has_one_loop_takes_part_whatever_is_asked_for() -> None:
    assert [str(one) for one in chosen(["rsocket", "rsocket-js", "grpc"], ["uvloop"])] == [
        "grpc/asyncio",
        "rsocket/uvloop",
        "rsocket-js/node",
    ]


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
    out_and_err = capsys.readouterr()
    assert "2 measurements ran and were counted exactly" in out_and_err.out
    assert out_and_err.err.count(": skeleton/asyncio\n") == 2  # no terminal: a line for each workload
    found = json.loads(out.read_text())
    assert [workload["name"] for workload in found["workloads"]] == ["request-64", "stream-1k"]
    assert {"date", "cpu", "cores", "versions", "not_run"} <= found.keys()


def test_an_unknown_workload_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "juggling"]) == 2
    assert "stream-64" in capsys.readouterr().err
