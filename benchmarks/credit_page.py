"""Generate the table of docs/credit.md from ``credit.json``: the adaptive window compared with fixed ones."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks import words
from benchmarks.marks import between

__all__ = ["PAGE", "rewritten"]

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "credit.md"


def rewritten(page: str, titles: dict[str, str], samples: dict[str, Any], verdict: list[str]) -> str:
    """Return the page with a new table; ``verdict`` is the result of the rule.

    Raises:
        ValueError: the marks are missing.
    """
    header = ["workload", "`auto`", "best fixed window", "256, the default", "unbounded"]
    lines = [header, ["---", *("---:" for _ in header[1:])]]
    for name, by_setting in samples.items():
        best = max((one for one in by_setting if one != "auto"), key=lambda one: _median(by_setting[one], "score"))
        cells = (by_setting["auto"], by_setting[best], by_setting["256"], by_setting["unbounded"])
        mine, other, usual, most = map(_cell, cells)
        lines.append([titles[name], mine, f"{best}: {other}", usual, most])
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    rule = "\n".join(f"- {line[:1].upper()}{line[1:]}." for line in verdict)
    return between(page, "benchmarks/credit.json", "make bench-credit", f"{table}\n\n{rule}\n")


def _cell(answers: list[dict[str, float]]) -> str:
    return f"{words.short(_median(answers, 'rate'))}/s, {words.short(_median(answers, 'age') * 1e3)} ms"


def _median(answers: list[dict[str, float]], key: str) -> float:
    return median(one[key] for one in answers)
