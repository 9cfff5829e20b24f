"""Two crowds on one server: the command runs and counts, and its page tells what was measured."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from benchmarks import crowds, crowds_report
from benchmarks.crowds import main, plan
from benchmarks.figures import as_text

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")


@pytest.mark.long
def test_the_command_runs_all_of_it_and_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With one process and with two: every client is let in, and every request is answered."""
    before = crowds.RESULTS.read_bytes(), crowds_report.PAGE.read_bytes()
    out = tmp_path / "crowds.json"
    assert main(["--smoke", "--rate", "200", "--out", str(out)]) == 0
    figures = json.loads(out.read_text())
    assert [(one["workers"], one["n"], one["silent_refused"]) for one in figures["found"]] == [(1, 20, 0), (2, 20, 0)]
    for one in figures["found"]:
        for load in (one["alone"], one["beside"]):
            assert (load["connections_open"], load["connections_refused"]) == (20, 0)
            assert (load["requests"], load["succeeded"], load["failed"]) == (100, 100, 0)
            assert 0 < load["latency_p50_ms"] <= load["latency_p99_ms"] <= load["latency_max_ms"]
        assert 0 < one["memory"]["empty"] <= one["memory"]["both"]
    assert "clients that ask + silent clients" in capsys.readouterr().out
    assert (crowds.RESULTS.read_bytes(), crowds_report.PAGE.read_bytes()) == before


def test_connections_that_are_refused_are_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The server has room for one and a half of the two crowds."""
    words = ["--demo", "--limit=connections_per_address=off", "--limit=connections=30"]
    monkeypatch.setattr(crowds.Asked, "words", lambda asked: words)
    (one, _), _ = plan(20, 200.0, 0.5)
    monkeypatch.setattr(crowds, "plan", lambda *_: ([one], []))
    out = tmp_path / "crowds.json"
    assert main(["--smoke", "--rate", "200", "--out", str(out)]) == 0
    (told,) = json.loads(out.read_text())["found"]
    assert (told["alone"]["connections_open"], told["silent_refused"]) == (20, 0)
    assert (told["beside"]["connections_open"], told["beside"]["connections_refused"]) == (10, 10)


def test_a_server_that_does_not_come_up_is_no_measurement(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(crowds.Asked, "words", lambda asked: ["--demo", "--limit=connections=many"])
    assert main(["--smoke"]) == 1
    assert "the server did not come up" in capfd.readouterr().err


def test_one_process_has_as_many_as_its_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowds, "room", lambda wanted: 19_936)
    (one, two), not_run = plan(10_000, 1000.0, 10.0)
    assert ((one.workers, one.n), (two.workers, two.n)) == ((1, 9_800), (2, 10_000))
    assert not_run == ["2 × 10,000 on one process, only 2 × 9,800: a process may open no more files here (ulimit -Hn)"]
    monkeypatch.setattr(crowds, "room", lambda wanted: 100_000)
    (one, two), not_run = plan(10_000, 1000.0, 10.0)
    assert ((one.n, two.n), not_run) == ((10_000, 10_000), [])


def test_the_page_tells_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    page, text = crowds_report.PAGE.read_text(encoding="utf-8"), crowds.RESULTS.read_text(encoding="utf-8")
    figures = json.loads(text)
    assert as_text(figures) == text
    assert crowds_report.rewritten(page, figures) == page
    shown = crowds_report.report(figures)
    cells = [cell.strip() for line in re.findall(r"^\| (.*) \|$", page, re.MULTILINE) for cell in line.split("|")]
    assert all(cell in shown for cell in cells if figures["versions"]["afflux"] and cell.endswith(" ms"))
    with pytest.raises(ValueError, match="begin"):
        crowds_report.rewritten("nothing", figures)
