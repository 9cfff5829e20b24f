"""Generate the section of docs/benchmarks.md from ``results.json``, deterministically."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks import words
from benchmarks.bars import JUDGED, OURSELVES
from benchmarks.marks import between
from benchmarks.peers import LOOPS, NODE, PEERS

__all__ = ["PAGE", "rewritten", "section"]

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"


def rewritten(page: str, figures: dict[str, Any]) -> str:
    """Return the page with a new section.

    Raises:
        ValueError: the marks are missing.
    """
    return between(page, "benchmarks/results.json", "make bench", section(figures))


def section(figures: dict[str, Any]) -> str:
    """Return the environment, the targets, the workloads in which others are faster, and every figure."""
    other = next(loop for loop in LOOPS if loop != JUDGED)
    parts = [
        " ".join(_where(figures)),
        "### Targets",
        _targets(figures),
        "### Where others are faster",
        "\n".join(_ahead(figures)),
        f"### Throughput on {JUDGED}",
        "In parentheses: the ratio of `afflux`'s figure to that of the peer.",
        _by_peer(figures, JUDGED, _rate),
        f"### Throughput on {other}",
        _by_peer(figures, other, _rate),
        f"### CPU on {JUDGED}",
        "CPU seconds of server + client for a million requests or items, for a GB (10⁹ bytes) where items are large.",
        _by_peer(figures, JUDGED, lambda workload, figure, _: words.cpu(workload, figure)),
        f"### Peak memory on {JUDGED}",
        "MiB of server + client in total; an idle Python process uses 10, an idle Node.js 40.",
        _by_peer(figures, JUDGED, lambda workload, figure, _: words.memory(figure)),
        "### Not run",
        "\n".join(f"- {line}" for line in figures["not_run"]),
    ]
    return "\n\n".join(parts) + "\n"


def _where(figures: dict[str, Any]) -> Iterator[str]:
    versions = ", ".join(f"{name} {number}" for name, number in figures["versions"].items())
    yield f"Measured on {figures['date'][:10]}: {figures['cpu']}, {figures['cores']} cores; {versions}."
    yield f"Medians of {figures['runs']} alternating runs of about {figures['seconds']:g} s."
    yield from (f"**{doubt}**" for doubt in words.doubts(figures))


def _targets(figures: dict[str, Any]) -> str:
    titles = {workload["name"]: workload["title"] for workload in figures["workloads"]}
    rows = []
    for entry in figures["targets"]:
        compiled, lists = (entry.get(name) or {"ratios": {}, "verdict": ""} for name in ("compiled", "lists"))
        title = titles[entry["workload"]]
        rows.append(
            [
                title if entry["ours"] == OURSELVES else f"{title}, {_column(entry['ours'])}",
                entry["beside"],
                words.target(entry, "bar"),
                words.target(entry, "ambition"),
                _judged(entry),
                words.times(entry["by_cpu"].get(JUDGED)),
                _judged(compiled),
                _judged(lists),
            ]
        )
    header = ["workload", "relative to", "bar", "ambition", "measured", "by CPU", "compiled", "with lists"]
    return _table(header, [[_unbroken(cell) for cell in row] for row in rows])


def _unbroken(cell: str) -> str:
    """Keep a sign and its figure on one line, however narrow the column."""
    return re.sub("([≥≤×]) ", "\\1\u00a0", cell)


def _judged(came: dict[str, Any]) -> str:
    ratio = came["ratios"].get(JUDGED)
    verdict = f"**{came['verdict']}**" if came["verdict"] == "not met" else came["verdict"]
    return f"{words.times(ratio)} {verdict}".strip()


def _ahead(figures: dict[str, Any]) -> Iterator[str]:
    """List every peer that was faster than afflux on the judged loop; the skeleton, not a peer, is one line."""
    peers, skeleton = [], []
    for workload in figures["workloads"]:
        for name, figure in workload["contenders"].items():
            ratio = figure[f"{OURSELVES}_over_it"].get(JUDGED)
            peer = name.partition("/")[0]
            if ratio is None or ratio >= 1 or peer.startswith(OURSELVES):
                continue
            if peer == "skeleton":
                skeleton.append(1 / ratio)
            else:
                peers.append(f"- {workload['title']}: {peer} is {words.times(1 / ratio)} as fast.")
    yield from peers or ["- No peer in any workload of this run."]
    if skeleton:
        most = max(skeleton)
        yield (
            f"- The skeleton in {len(skeleton)} of {len(figures['workloads'])} workloads, up to {words.times(most)}: "
            "the cost of credit, states and errors."
        )


def _by_peer(figures: dict[str, Any], loop: str, cell: Callable[[Any, Any, float | None], str]) -> str:
    """Return a row per workload, and a column per peer that ran on this loop or has only one."""
    columns = {}
    ours_first = sorted(PEERS.items(), key=lambda item: not item[0].startswith(OURSELVES))
    for peer, entry in ours_first:
        name = f"{peer}/{entry.loops[0] if len(entry.loops) == 1 else loop}"
        if any(name in workload["contenders"] for workload in figures["workloads"]):
            columns[name] = _column(peer)
    rows = []
    for workload in figures["workloads"]:
        row = [workload["title"]]
        for name in columns:
            figure = workload["contenders"].get(name)
            row.append(cell(workload, figure, figure[f"{OURSELVES}_over_it"].get(loop)) if figure else "–")
        rows.append(row)
    return _table(["workload", *columns.values()], rows)


def _column(peer: str) -> str:
    loops = PEERS[peer].loops
    return f"{peer} (Node.js)" if loops == (NODE,) else f"{peer} ({loops[0]})" if len(loops) == 1 else peer


def _rate(workload: dict[str, Any], figure: dict[str, Any], ratio: float | None) -> str:
    return words.rate(workload, figure) + (f" ({words.times(ratio)})" if ratio is not None else "")


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---", *["--:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)
