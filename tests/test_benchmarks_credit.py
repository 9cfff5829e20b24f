"""The arena of credit: its score, its rule, and what the page tells of the committed figures. Nothing is timed."""

from __future__ import annotations

import json

import pytest
from benchmarks import credit


def answers(rate: float, age: float) -> list[dict[str, float]]:
    return [{"rate": rate, "age": age, "age_p99": age, "score": credit.score(rate, age), "peak": 1.0}]


def test_the_score_weighs_age() -> None:
    assert credit.score(1000, 0) == 1000
    assert credit.score(1000, 0.015) == pytest.approx(500)
    assert credit.score(1000, 0.015, weight=0) == 1000


@pytest.mark.parametrize(("rate", "won", "lost"), [(1030, 1, 0), (1010, 0, 0), (960, 0, 0), (940, 0, 1)])
def test_the_rule(rate: float, won: int, lost: int) -> None:
    samples = {"near": {"8": answers(10, 0), "256": answers(1000, 0), "auto": answers(rate, 0)}}
    lines = credit.verdict(samples)
    assert lines[0].startswith(f"beats every fixed window on {won} of 1: ")
    assert lines[1].startswith(f"loses more than 5 % on {lost}: ")


def test_the_page_states_the_committed_figures() -> None:
    figures = json.loads(credit.RESULTS.read_text(encoding="utf-8"))
    assert [list(figures[one.name]) for one in credit.WORKLOADS] == [list(credit.SETTINGS)] * 6
    page = credit.PAGE.read_text(encoding="utf-8")
    assert credit.page_of(page, figures) == page, "make it anew: python -m benchmarks.credit --read FILE --page"


def test_a_file_is_read_again_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert credit.main(["--read", str(credit.RESULTS), "--weights"]) == 0
    told = capsys.readouterr().out
    assert "beats every fixed window on" in told
    assert "with an exponent of 0.5" in told
