"""What is aimed at: for each workload whom to stand beside, and how many times as fast. Nothing is measured here.

A bar is what has to be reached, an ambition what would be fine. Both are ratios of medians of one run under uvloop. A
test never asserts them: what a machine is busy with decides too. ``by_cpu`` is less touched by that: the ratio of the
CPU times of the busier end, which throughput would have if each end had a core to itself. It is told, not judged.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

from benchmarks.peers import LOOPS, PEERS

__all__ = ["BARS", "JUDGED", "MISSING", "OURSELVES", "Bar", "targets"]

OURSELVES: Final = "afflux"
JUDGED: Final = "uvloop"
"The loop on which a ratio is judged; those of the other loops stand beside it."
_LISTS: Final = "afflux-batches"
"Told as well where it has a part: the same with lists of items."


class Bar(NamedTuple):
    """One sentence of the targets."""

    workload: str
    beside: str
    "The peer; this library itself for a comparison with another workload."
    bar: float | None = None
    "The ratio that has to be reached."
    ambition: float | None = None
    "The ratio that would be fine."
    ours: str = OURSELVES
    "Who is judged."
    other: str = ""
    "The other workload, when it is not the same one."
    measure: Literal["items", "bytes", "memory"] = "items"
    """``items``: items a second, times theirs. ``bytes``: bytes a second, times theirs. ``memory``: what the larger of
    both processes took beyond what it had when idle, in payloads; at most, not at least."""

    @property
    def words(self) -> str:
        """With what it is compared, for people."""
        if self.measure == "memory":
            return "the payload, in memory"
        if self.other:
            return f"{'itself' if self.beside == self.ours else self.beside}: {self.other}"
        return self.beside


BARS: Final = (
    Bar("request-256", "rsocket", bar=8),
    Bar("request-256", "rsocket-js", bar=1, ambition=1.5),
    Bar("request-1", "rsocket", bar=2),
    Bar("request-1", "skeleton", ambition=0.9),
    Bar("stream-64", "rsocket", bar=20),
    Bar("stream-64", "rsocket-js", bar=1.5),
    Bar("stream-64", "skeleton", ambition=0.6),
    Bar("stream-64-credit-256", OURSELVES, bar=0.8, ambition=0.9, other="stream-64"),
    Bar("stream-1k", "rsocket", bar=15),
    Bar("stream-1k", "rsocket-js", bar=1.5),
    Bar("stream-1k", "skeleton", ambition=0.6),
    Bar("stream-64k", "rsocket-js", bar=4),
    Bar("stream-64k", "grpc", bar=3),
    Bar("stream-64k", "skeleton", ambition=0.6),
    Bar("payload-16m", OURSELVES, bar=0.5, other="stream-64k", measure="bytes"),
    Bar("payload-16m", OURSELVES, bar=3, measure="memory"),
    Bar("payload-256m", OURSELVES, bar=0.5, other="stream-64k", measure="bytes"),
    Bar("payload-256m", OURSELVES, bar=3, measure="memory"),
    Bar("stream-1k", OURSELVES, bar=1, ours="afflux-sync"),
    Bar("request-256", OURSELVES, bar=0.8, ours="afflux-reactivesocket"),
    Bar("stream-64", OURSELVES, bar=0.8, ours="afflux-reactivesocket"),
    Bar("stream-64-credit-256", OURSELVES, bar=0.8, ours="afflux-reactivesocket"),
    Bar("stream-1k", OURSELVES, bar=0.8, ours="afflux-reactivesocket"),
    Bar("stream-64", OURSELVES, bar=0.8, ours="afflux-rsio"),
    Bar("stream-64-credit-256", OURSELVES, bar=0.8, ours="afflux-rsio"),
    Bar("stream-1k", OURSELVES, bar=0.8, ours="afflux-rsio"),
    Bar("request-64", "jeri", bar=2, ambition=4, ours="afflux-jmux"),
    Bar("session-1m", "jeri", bar=3, ambition=10, ours="afflux-jmux"),
)
"Every bar, workload by workload."

MISSING: Final = {
    "bridge between two protocols": "not built yet",
    "idle connections": "measured separately by make bench-many",
    "slow streams among fast ones, cost as work grows": "measured separately by make bench-scale",
}
"What is aimed at and not measured here, and why."


def targets(figures: dict[str, Any]) -> list[dict[str, Any]]:
    """Each bar with what came of it: ratios by loop and a verdict, of us and, where they have a part, of lists."""
    workloads = {workload["name"]: workload for workload in figures["workloads"]}
    told = []
    for bar in BARS:
        if bar.workload in workloads:
            entry = {
                "workload": bar.workload,
                "ours": bar.ours,
                "beside": bar.words,
                "at": "most" if bar.measure == "memory" else "least",
                "bar": bar.bar,
                "ambition": bar.ambition,
                **_came(bar, workloads),
            }
            lists = _came(_of_lists(bar), workloads) if bar.ours == OURSELVES else {"ratios": {}}
            told.append({**entry, "lists": lists if lists["ratios"] else None})
    return told


def _of_lists(bar: Bar) -> Bar:
    return bar._replace(ours=_LISTS, beside=_LISTS if bar.beside == OURSELVES else bar.beside)


def _came(bar: Bar, workloads: dict[str, Any]) -> dict[str, Any]:
    """Ratios by loop, what they would be by the CPU time alone, and the verdict."""
    ratios, by_cpu = {}, {}
    for loop in LOOPS:
        ours, theirs = _both(bar, workloads, loop)
        if ours is not None and bar.measure == "memory":
            ratios[loop] = float(max(ours["memory_in_items"].values()))
        elif ours is not None and theirs is not None:
            unit = "mb_per_second" if bar.measure == "bytes" else "per_second"
            ratios[loop] = round(float(ours[unit] / theirs[unit]), 4)
            cost = "cpu_s_per_gb" if bar.measure == "bytes" else "cpu_s_per_million"
            by_cpu[loop] = round(float(max(theirs[cost].values()) / max(ours[cost].values())), 4)
    return {"ratios": ratios, "by_cpu": by_cpu, "verdict": _verdict(bar, ratios.get(JUDGED))}


def _both(bar: Bar, workloads: dict[str, Any], loop: str) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The figures of both on one loop; a peer that has only one of its own is taken on that."""
    ours = workloads[bar.workload]["contenders"].get(f"{bar.ours}/{loop}")
    loops = PEERS[bar.beside].loops
    there = workloads.get(bar.other or bar.workload, {"contenders": {}})["contenders"]
    return ours, there.get(f"{bar.beside}/{loops[0] if len(loops) == 1 else loop}")


def _verdict(bar: Bar, ratio: float | None) -> str:
    if ratio is None:
        return "not run"
    if bar.measure == "memory":
        ratio = -ratio
        bar = bar._replace(bar=-bar.bar if bar.bar else None)
    if bar.ambition is not None and ratio >= bar.ambition:
        return "ambition met"
    if bar.bar is None:
        return "ambition not met"
    return "met" if ratio >= bar.bar else "not met"
