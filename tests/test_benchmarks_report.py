"""What is told of a run: ratios, targets, tables, page and picture. Figures are made up, and never judged."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from benchmarks import __main__ as command
from benchmarks import front, page, picture, words
from benchmarks.bars import BARS, OURSELVES, Bar, targets
from benchmarks.figures import RESULTS, as_text, figures_of, machine
from benchmarks.pairs import Sample
from benchmarks.peers import CONTENDERS, PEERS, Contender
from benchmarks.report import report
from benchmarks.runner import Plan, Results
from benchmarks.workloads import WORKLOADS, Workload

NAMED = {workload.name: workload for workload in WORKLOADS}
MIB = 1 << 20


def sample(work: Workload, per_second: float, peak: int = 3 * MIB) -> Sample:
    """A thousand items at some rate; the server took a quarter of a second of CPU, the client half a second."""
    return Sample(
        amount=1000,
        bytes=1000 * work.size,
        seconds=1000 / per_second,
        client_cpu=0.5,
        server_cpu=0.25,
        client_peak=peak,
        server_peak=2 * MIB,
        client_idle=MIB,
        server_idle=MIB,
    )


def figures(
    rates: dict[tuple[str, str], float | list[float]], failures: dict[tuple[str, str], str] | None = None
) -> Any:
    """The figures of a made-up run: rates by workload and contender."""
    results = Results()
    for (name, who), rate in rates.items():
        each = rate if isinstance(rate, list) else [rate]
        results.samples[name, contender(who)] = [sample(NAMED[name], one) for one in each]
    for (name, who), reason in (failures or {}).items():
        results.failures[name, contender(who)] = reason
    whole = Plan(contenders=CONTENDERS, workloads=WORKLOADS, runs=3, seconds=0.1, patience=60)
    return figures_of(whole, results, machine(whole))


def contender(name: str) -> Contender:
    return Contender(*name.split("/"))


def test_a_ratio_is_the_median_of_the_ratios_of_the_runs_on_the_same_loop() -> None:
    made = figures(
        {
            ("stream-64", "afflux/uvloop"): [100, 50_000, 90_000],
            ("stream-64", "rsocket/uvloop"): [40, 10_000, 60_000],
            ("stream-64", "rsocket/asyncio"): [1, 1, 1],
        }
    )
    there = made["workloads"][3]["contenders"]
    assert there["rsocket/uvloop"]["afflux_over_it"] == {"uvloop": 2.5}
    (target,) = (one for one in made["targets"] if (one["workload"], one["beside"]) == ("stream-64", "rsocket"))
    assert target["ratios"] == {"uvloop": 2.5}
    assert there["afflux/uvloop"]["afflux_over_it"] == {}
    assert there["afflux/uvloop"]["per_second"] == 50_000
    assert (there["afflux/uvloop"]["least"], there["afflux/uvloop"]["most"]) == (100, 90_000)


def test_who_has_one_loop_stands_beside_both_of_ours() -> None:
    made = figures(
        {
            ("stream-64", "afflux/uvloop"): 90_000,
            ("stream-64", "afflux/asyncio"): 30_000,
            ("stream-64", "rsocket-js/node"): 60_000,
            ("stream-64", "grpc/asyncio"): 1000,
        }
    )
    there = made["workloads"][3]["contenders"]
    assert there["rsocket-js/node"]["afflux_over_it"] == {"asyncio": 0.5, "uvloop": 1.5}
    assert there["grpc/asyncio"]["afflux_over_it"] == {"asyncio": 30, "uvloop": 90}


def test_cpu_and_memory_stand_beside_the_throughput() -> None:
    made = figures({("stream-64", "afflux/uvloop"): 50_000, ("payload-16m", "afflux/uvloop"): 50})
    small = made["workloads"][3]["contenders"]["afflux/uvloop"]
    assert small["cpu_s_per_million"] == {"server": 250, "client": 500}
    assert small["peak_mib"] == {"server": 2, "client": 3}
    large = next(one for one in made["workloads"] if one["name"] == "payload-16m")["contenders"]["afflux/uvloop"]
    assert large["memory_in_items"] == {"server": 0.06, "client": 0.12}
    assert large["cpu_s_per_gb"] == {"server": 0.015, "client": 0.03}


def test_the_report_has_a_block_for_each_workload() -> None:
    made = figures(
        {("stream-64", "afflux/asyncio"): 50_000, ("stream-64", "rsocket/asyncio"): [20_000] * 3},
        {("request-1", "rsocket/asyncio"): "the process ended: it was tired"},
    )
    lines = [re.sub(" {2,}", "  ", line.strip()) for line in report(made).splitlines()]
    assert "afflux/asyncio  50.0 k/s*  250 + 500  2 + 3" in lines  # one run of three
    assert "rsocket/asyncio  20.0 k/s  250 + 500  2 + 3  × 2.50" in lines
    assert "the process ended: it was tired: rsocket/asyncio request-1" in lines
    assert "rsocket-js, payload-16m, payload-256m: it does not send fragments" in lines
    assert "afflux-jmux, jeri, request-256: a connection has 128 sessions" in lines
    assert "bridge between two protocols: not built yet" in lines
    assert not any(line.startswith("request/response 64 B, 1 concurrent  median") for line in lines)


@pytest.mark.parametrize(
    ("bar", "rate", "verdict"),
    [
        (Bar("stream-64", "rsocket", bar=2, ambition=4), 1.99, "not met"),
        (Bar("stream-64", "rsocket", bar=2, ambition=4), 2, "met"),
        (Bar("stream-64", "rsocket", bar=2, ambition=4), 4, "ambition met"),
        (Bar("stream-64", "rsocket", bar=2), 4, "met"),
        (Bar("stream-64", "rsocket", ambition=4), 3.9, "ambition not met"),
        (Bar("stream-64", "rsocket", ambition=4), 4, "ambition met"),
        (Bar("stream-64", "grpc", bar=2), 9, "not run"),
    ],
)
def test_a_target_is_judged(monkeypatch: pytest.MonkeyPatch, bar: Bar, rate: float, verdict: str) -> None:
    monkeypatch.setattr("benchmarks.bars.BARS", (bar,))
    made = figures({("stream-64", "afflux/uvloop"): rate * 1000, ("stream-64", "rsocket/uvloop"): 1000})
    (told,) = made["targets"]
    assert told["verdict"] == verdict
    assert told["ratios"] == ({} if verdict == "not run" else {"uvloop": rate})


def test_a_workload_may_be_compared_with_another_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "benchmarks.bars.BARS", (Bar("stream-64-credit-256", OURSELVES, bar=0.8, ambition=0.9, other="stream-64"),)
    )
    made = figures(
        {
            ("stream-64", "afflux/uvloop"): 1000,
            ("stream-64-credit-256", "afflux/uvloop"): 850,
            ("stream-64", "afflux-batches/uvloop"): 2000,
            ("stream-64-credit-256", "afflux-batches/uvloop"): 1000,
            ("stream-64", "afflux-compiled/uvloop"): 4000,
            ("stream-64-credit-256", "afflux-compiled/uvloop"): 3600,
        }
    )
    (told,) = made["targets"]
    assert told["compiled"] == {"ratios": {"uvloop": 0.9}, "by_cpu": {"uvloop": 1}, "verdict": "ambition met"}
    assert (told["beside"], told["ratios"], told["verdict"]) == ("itself: stream-64", {"uvloop": 0.85}, "met")
    assert told["lists"] == {"ratios": {"uvloop": 0.5}, "by_cpu": {"uvloop": 1}, "verdict": "not met"}


def test_bytes_are_compared_where_items_have_two_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    bar = Bar("payload-16m", OURSELVES, bar=0.5, other="stream-64k", measure="bytes")
    monkeypatch.setattr("benchmarks.bars.BARS", (bar,))
    made = figures({("payload-16m", "afflux/uvloop"): 2, ("stream-64k", "afflux/uvloop"): 1024})
    assert made["targets"][0]["ratios"] == {"uvloop": 0.5}


def test_the_busier_end_decides_by_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.bars.BARS", (Bar("stream-64", "rsocket", bar=2),))
    work, results = NAMED["stream-64"], Results()
    results.samples[work.name, contender("afflux/uvloop")] = [sample(work, 10)]  # 0.25 + 0.5
    slow = sample(work, 10)
    slow.server_cpu = 2.0
    results.samples[work.name, contender("rsocket/uvloop")] = [slow]
    whole = Plan(contenders=CONTENDERS, workloads=[work], runs=1, seconds=0.1, patience=60)
    (told,) = figures_of(whole, results, machine(whole))["targets"]
    assert (told["ratios"], told["by_cpu"], told["verdict"]) == ({"uvloop": 1}, {"uvloop": 4}, "not met")


@pytest.mark.parametrize(("payloads", "verdict"), [(3.0, "met"), (3.1, "not met")])
def test_memory_is_at_most_so_many_payloads(monkeypatch: pytest.MonkeyPatch, payloads: float, verdict: str) -> None:
    monkeypatch.setattr("benchmarks.bars.BARS", (Bar("payload-16m", OURSELVES, bar=3, measure="memory"),))
    work = NAMED["payload-16m"]
    results = Results()
    peak = MIB + int(payloads * work.size)
    results.samples[work.name, Contender(OURSELVES, "uvloop")] = [sample(work, 5, peak)]
    whole = Plan(contenders=CONTENDERS, workloads=[work], runs=1, seconds=0.1, patience=60)
    (told,) = figures_of(whole, results, machine(whole))["targets"]
    assert (told["ratios"]["uvloop"], told["verdict"], told["at"]) == (payloads, verdict, "most")


@pytest.mark.parametrize(("cpu_s", "verdict"), [(0.75, "met"), (0.76, "not met")])
def test_cpu_is_at_most_so_many_times_that_of_another_workload(
    monkeypatch: pytest.MonkeyPatch, cpu_s: float, verdict: str
) -> None:
    bar = Bar("stream-rows-metadata", OURSELVES, bar=1, other="stream-rows", measure="cpu")
    monkeypatch.setattr("benchmarks.bars.BARS", (bar,))
    results, works = Results(), [NAMED["stream-rows"], NAMED["stream-rows-metadata"]]
    for work in works:
        results.samples[work.name, Contender(OURSELVES, "uvloop")] = [sample(work, 10)]  # 0.25 + 0.5
    (one,) = results.samples["stream-rows-metadata", Contender(OURSELVES, "uvloop")]
    one.client_cpu, one.server_cpu = cpu_s, 0.0
    whole = Plan(contenders=CONTENDERS, workloads=works, runs=1, seconds=0.1, patience=60)
    (told,) = figures_of(whole, results, machine(whole))["targets"]
    assert (told["ratios"]["uvloop"], told["verdict"], told["at"]) == (round(cpu_s / 0.75, 4), verdict, "most")
    assert told["beside"] == "itself: stream-rows, CPU"


def test_bars_are_of_workloads_and_peers_that_exist() -> None:
    for bar in BARS:
        assert bar.workload in NAMED
        assert not bar.other or bar.other in NAMED
        assert {bar.ours, bar.beside} <= PEERS.keys()
        assert PEERS[bar.ours].why_not(NAMED[bar.workload]) is None
        assert PEERS[bar.beside].why_not(NAMED[bar.other or bar.workload]) is None
        assert bar.bar or bar.ambition


def test_numbers_have_three_figures() -> None:
    shown = [words.short(value) for value in (0.123, 0.9949, 1.0, 9.996, 16.0, 99.94, 99.96, 1234.5)]
    assert shown == ["0.12", "0.99", "1.00", "10.0", "16.0", "99.9", "100", "1,234"]
    one = {"per_second": 1_234_567.0, "mb_per_second": 79.01}
    assert words.rate({"in_bytes": False}, one) == "1.23 M/s"
    assert words.rate({"in_bytes": True}, one) == "79.0 MB/s"


def test_the_page_states_where_others_are_ahead() -> None:
    made = figures(
        {
            ("request-1", "afflux/uvloop"): 1000,
            ("request-1", "rsocket-js/node"): 3000,
            ("request-1", "rsocket/uvloop"): 500,
            ("request-1", "skeleton/uvloop"): 4000,
            ("request-1", "afflux-sync/uvloop"): 2000,
        }
    )
    text = page.section(made)
    assert "- request/response 64 B, 1 concurrent: rsocket-js is × 3.00 as fast.\n" in text
    assert f"- The skeleton in 1 of {len(WORKLOADS)} workloads, up to × 4.00:" in text
    assert len(re.findall(" as fast", text)) == 1
    assert "| 500 k/s" not in text
    assert "0.50 k/s (× 2.00)" in text


def test_doubts_stand_with_the_figures() -> None:
    made = {**figures({}), "cores": 2, "load": [0.5, 0, 0]}
    assert "Load" not in page.section(made)
    assert "Load" not in report(made)
    doubtful = {**made, "load": [0.6, 0, 0], "note": "The cat slept on it."}
    for text in (page.section(doubtful), report(doubtful)):
        assert "Load 0.6 before the run: other work shares this machine" in text
        assert "The cat slept on it." in text


def test_results_of_a_part_are_not_published(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "RESULTS", tmp_path / "results.json")
    words = "--runs 1 --seconds 0.01 --peers skeleton --loops asyncio --only request-64"
    assert command.main(words.split()) == 0
    assert "only a part" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_sign_and_its_figure_stay_on_one_line(committed: Any) -> None:
    targets = page.section(committed).partition("### Targets")[2].partition("###")[0]
    assert re.search("≥\u00a0[0-9]", targets)
    assert re.search("×\u00a0[0-9]", targets)
    assert re.findall("[≥≤×] ", targets) == []


def test_what_draws_may_be_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "page.md"
    made.write_text(page.PAGE.read_text())
    readme = tmp_path / "README.md"
    readme.write_text(front.README.read_text())
    monkeypatch.setattr(command, "PAGE", made)
    monkeypatch.setattr(command, "README", readme)
    monkeypatch.setattr(command, "PICTURE", tmp_path / "img" / "picture.svg")
    monkeypatch.setitem(__import__("sys").modules, "altair", None)
    assert command.main(["--draw"]) == 1
    assert "no module altair here (make bench installs it)" in capsys.readouterr().out
    assert made.read_text() == page.PAGE.read_text()
    assert readme.read_text() == front.README.read_text()
    assert not (tmp_path / "img").exists()


# -- what is committed --------------------------------------------------------------------------------------------


@pytest.fixture(name="committed", scope="module")
def _committed() -> Any:
    return json.loads(RESULTS.read_text())


def test_the_figures_contain_no_path_of_the_machine() -> None:
    text = RESULTS.read_text()
    assert "/src" not in text
    assert "PYTHONPATH" not in text
    assert "/work" not in text


def test_the_results_are_written_as_they_are_read(committed: Any) -> None:
    assert as_text(committed) == RESULTS.read_text()


def test_the_targets_of_the_results_are_those_of_the_bars(committed: Any) -> None:
    assert committed["targets"] == targets(committed)


def test_the_page_states_the_results(committed: Any) -> None:
    text = page.PAGE.read_text()
    assert page.rewritten(text, committed) == text, "make it anew: python -m benchmarks --draw"


def test_the_readme_states_the_results(committed: Any) -> None:
    text = front.README.read_text()
    assert front.figures_of_the_readme(text, committed) == text, "make it anew: python -m benchmarks --draw"


def test_the_readme_has_a_dash_where_a_library_was_not_measured() -> None:
    measured = {("stream-1k", "afflux/uvloop"): 4000.0, ("stream-1k", "rsocket/asyncio"): 2000.0}
    made = figures({**measured, ("request-1", "afflux/uvloop"): 1000.0})
    text = front.figures_of_the_readme(front.README.read_text(), made)
    rows = text.splitlines()
    assert "|  | afflux | rsocket (PyPI) |" in rows
    assert "| request/response 64 B, 1 concurrent | 1.00 k/s | – |" in rows
    assert "| stream 1 KiB, unbounded credit | 4.00 k/s | 2.00 k/s |" in rows
    assert "–: not measured." in text


def test_the_readme_has_no_column_for_a_library_without_any_figure() -> None:
    workloads = ("request-1", "request-256", "stream-64", "stream-1k", "stream-64k")
    made = figures({(name, who): 4000.0 for name in workloads for who in ("afflux/uvloop", "rsocket-js/node")})
    text = front.figures_of_the_readme(front.README.read_text(), made)
    assert "|  | afflux | rsocket-js |\n| --- | --: | --: |\n" in text
    assert "not measured" not in text
    assert "Not available there: rsocket-java, rsocket." in text


def test_the_picture_shows_the_results(committed: Any) -> None:
    described = ElementTree.parse(picture.PICTURE).getroot().find("{http://www.w3.org/2000/svg}desc")
    assert described is not None
    assert described.text is not None
    assert described.text.endswith(picture.digest(committed)), "draw it anew: python -m benchmarks --draw"


def test_the_picture_is_the_same_each_time_and_fetches_nothing(committed: Any) -> None:
    for module in ("altair", "vl_convert"):
        pytest.importorskip(module, reason=f"no module {module} here (make bench installs it)")
    few = {**committed, "workloads": committed["workloads"][-2:]}
    drawn = picture.draw(few)
    assert picture.draw(few) == drawn
    texts = {text.text for text in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")}
    for panel in picture.panels(few):
        assert {panel["title"], *(row["rate"] for row in panel["rows"])} <= texts
    assert re.findall(r"(?:href|src)=|url\(|@import", drawn) == []
