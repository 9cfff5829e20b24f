"""Define the targets: for each workload the peer to compare with and the required ratio.

A bar is a required ratio, an ambition a desired one. Both refer to the median of the ratios of the runs under uvloop.
Tests never assert them, because they depend on the load of the machine. ``by_cpu`` depends on it less: it is the ratio
of the CPU times of the busier end, the throughput ratio if each end had a core of its own. It is reported but not
judged.
"""

from __future__ import annotations

from statistics import median
from typing import Any, Final, Literal, NamedTuple

from benchmarks.peers import LOOPS, PEERS

__all__ = ["BARS", "JUDGED", "MISSING", "OURSELVES", "Bar", "targets"]

OURSELVES: Final = "afflux"
JUDGED: Final = "uvloop"
"The loop on which ratios are judged; the other loops are also reported."
_LISTS: Final = "afflux-batches"
"Also reported where supported: the same with lists of items."


class Bar(NamedTuple):
    """One target."""

    workload: str
    beside: str
    "The peer; afflux itself for a comparison with another workload."
    bar: float | None = None
    "The required ratio."
    ambition: float | None = None
    "The desired ratio."
    ours: str = OURSELVES
    "The contender that is judged."
    other: str = ""
    "The other workload, if it differs."
    measure: Literal["items", "bytes", "memory", "cpu"] = "items"
    """``items``: items per second, relative to the peer. ``bytes``: bytes per second, relative to the peer. ``memory``:
    memory of the larger process above its idle memory, in payloads; ``cpu``: CPU time of both processes for an item,
    relative to the peer. The last two are maxima, not minima."""

    @property
    def most(self) -> bool:
        """Whether the ratio may be at most the bar, not at least."""
        return self.measure in ("memory", "cpu")

    @property
    def words(self) -> str:
        """The description of what it is compared with."""
        if self.measure == "memory":
            return "the payload, in memory"
        if self.other:
            other = f"{'itself' if self.beside == self.ours else self.beside}: {self.other}"
            return f"{other}, CPU" if self.measure == "cpu" else other
        return self.beside


_TRANSPORT: Final = ("request-256", "stream-64", "stream-1k", "stream-rows")
"The workloads in which transports are compared."

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
    Bar("request-1", OURSELVES, bar=0.9, ours="afflux-rsocket-draft"),
    Bar("request-256", OURSELVES, bar=0.9, ours="afflux-rsocket-draft"),
    Bar("stream-64", OURSELVES, bar=0.9, ours="afflux-rsocket-draft"),
    Bar("stream-64-credit-256", OURSELVES, bar=0.9, ours="afflux-rsocket-draft"),
    Bar("stream-1k", OURSELVES, bar=0.9, ours="afflux-rsocket-draft"),
    Bar("stream-rows", OURSELVES, bar=0.9, ours="afflux-rsocket-draft"),
    Bar("request-1", OURSELVES, bar=0.8, ours="afflux-rsocket-draft-entries"),
    Bar("request-256", OURSELVES, bar=0.8, ours="afflux-rsocket-draft-entries"),
    Bar("stream-64", OURSELVES, bar=0.8, ours="afflux-rsocket-draft-entries"),
    Bar("stream-64-credit-256", OURSELVES, bar=0.8, ours="afflux-rsocket-draft-entries"),
    Bar("stream-1k", OURSELVES, bar=0.8, ours="afflux-rsocket-draft-entries"),
    Bar("stream-rows", OURSELVES, bar=0.8, ours="afflux-rsocket-draft-entries"),
    Bar("stream-64", OURSELVES, bar=0.5, ours="afflux-limit"),
    Bar("stream-64-credit-256", OURSELVES, bar=0.5, ours="afflux-limit"),
    Bar("stream-1k", OURSELVES, bar=0.5, ours="afflux-limit"),
    Bar("stream-rows", OURSELVES, bar=0.5, ours="afflux-limit"),
    Bar("stream-64", OURSELVES, bar=0.8, ours="afflux-limit-unchecked"),
    Bar("stream-64-credit-256", OURSELVES, bar=0.8, ours="afflux-limit-unchecked"),
    Bar("stream-1k", OURSELVES, bar=0.8, ours="afflux-limit-unchecked"),
    Bar("stream-rows", OURSELVES, bar=0.8, ours="afflux-limit-unchecked"),
    Bar("stream-rows", "rsocket-js", bar=4, ambition=6),
    Bar("stream-rows-credit-256", OURSELVES, bar=1, other="stream-rows"),
    Bar("stream-rows-metadata", "rsocket-js", bar=2, ambition=3),
    Bar("stream-rows-metadata", OURSELVES, bar=2, other="stream-rows", measure="cpu"),
    Bar("channel-rows", OURSELVES, bar=0.6, other="stream-rows"),
    Bar("streams-20", "rsocket-js", bar=3, ambition=5),
    Bar("routed-16", "rsocket-js", bar=1.5, ambition=2.5),
    Bar("routed-256", "rsocket-js", bar=2.5, ambition=4),
    Bar("connections-100", "rsocket-js", bar=1, ambition=1.5),
    *(Bar(name, OURSELVES, bar=0.6, ours=f"afflux-{over}") for over in ("tls", "ws") for name in _TRANSPORT),
    *(Bar(name, "afflux-ws", bar=0.3, ours="afflux-uvicorn") for name in _TRANSPORT),
    Bar("request-1", "rsocket-java", bar=0.8, ambition=1),
    Bar("request-256", "rsocket-java", bar=0.65, ambition=1),
    Bar("request-256", "rsocket-java", bar=1, ours="afflux-compiled"),
    Bar("stream-64", "rsocket-java", bar=1.3, ambition=2),
    Bar("stream-64-credit-256", "rsocket-java", bar=1.3, ambition=2),
    Bar("stream-near", "rsocket-java", bar=1.2, ambition=2),
    Bar("stream-near-credit-256", "rsocket-java", bar=1.2, ambition=2),
    Bar("stream-1k", "rsocket-java", bar=1.3, ambition=2),
    Bar("request-64", "jeri", bar=2, ambition=4, ours="afflux-jmux"),
    Bar("session-1m", "jeri", bar=3, ambition=10, ours="afflux-jmux"),
)
"Every bar, by workload."

MISSING: Final = {
    "bridge between two protocols": "not built yet",
    "idle connections": "measured separately by make bench-many",
    "slow streams among fast ones, cost as work grows": "measured separately by make bench-scale",
}
"Targets that are not measured here, with the reason."


def targets(figures: dict[str, Any]) -> list[dict[str, Any]]:
    """Return each bar with its result: ratios by loop and a verdict, for afflux and, where supported, for lists."""
    workloads = {workload["name"]: workload for workload in figures["workloads"]}
    told = []
    for bar in BARS:
        if bar.workload in workloads:
            entry = {
                "workload": bar.workload,
                "ours": bar.ours,
                "beside": bar.words,
                "at": "most" if bar.most else "least",
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
    """Return the ratios by loop, the ratios by CPU time, and the verdict."""
    ratios, by_cpu = {}, {}
    for loop in LOOPS:
        ours, theirs = _both(bar, workloads, loop)
        if ours is not None and bar.measure == "memory":
            ratios[loop] = float(max(ours["memory_in_items"].values()))
        elif ours is not None and theirs is not None:
            of = _both_ends if bar.measure == "cpu" else _rate
            unit = "bytes" if bar.measure == "bytes" else "amount"
            runs = list(zip(ours["samples"], theirs["samples"], strict=False))
            ratios[loop] = round(median(of(mine, unit) / of(its, unit) for mine, its in runs), 4)
            by_cpu[loop] = round(median(_cpu(its, unit) / _cpu(mine, unit) for mine, its in runs), 4)
    return {"ratios": ratios, "by_cpu": by_cpu, "verdict": _verdict(bar, ratios.get(JUDGED))}


def _rate(sample: dict[str, float], unit: str) -> float:
    return sample[unit] / sample["seconds"]


def _cpu(sample: dict[str, float], unit: str) -> float:
    """Return the CPU seconds of the busier end for one unit."""
    return max(sample["client_cpu"], sample["server_cpu"]) / sample[unit]


def _both_ends(sample: dict[str, float], unit: str) -> float:
    """Return the CPU seconds of both ends together for one unit."""
    return (sample["client_cpu"] + sample["server_cpu"]) / sample[unit]


def _both(bar: Bar, workloads: dict[str, Any], loop: str) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Return the figures of both on one loop; a peer with a single loop is compared on that one."""
    ours = workloads[bar.workload]["contenders"].get(f"{bar.ours}/{loop}")
    loops = PEERS[bar.beside].loops
    there = workloads.get(bar.other or bar.workload, {"contenders": {}})["contenders"]
    return ours, there.get(f"{bar.beside}/{loops[0] if len(loops) == 1 else loop}")


def _verdict(bar: Bar, ratio: float | None) -> str:
    if ratio is None:
        return "not run"
    if bar.most:
        ratio = -ratio
        bar = bar._replace(bar=-bar.bar if bar.bar else None)
    if bar.ambition is not None and ratio >= bar.ambition:
        return "ambition met"
    if bar.bar is None:
        return "ambition not met"
    return "met" if ratio >= bar.bar else "not met"
