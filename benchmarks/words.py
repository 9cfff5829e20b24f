"""How figures are written, everywhere the same. They come from figures.py."""

from __future__ import annotations

from typing import Any

__all__ = ["cpu", "doubts", "memory", "rate", "short", "target", "times"]

_BUSY = 0.25
"Load for each core above which the reader is warned."


def doubts(figures: dict[str, Any]) -> list[str]:
    """Why the figures are to be taken with care: what else the machine did, and what was remarked."""
    load, found = figures["load"], []
    if load is not None and load[0] > _BUSY * figures["cores"]:
        found.append(f"Load {load[0]:.1f} before the run: other work shares this machine; trust ratios, not figures.")
    return found + ([figures["note"]] if figures.get("note") else [])


def short(value: float) -> str:
    """Three figures, or all before the point."""
    return f"{value:,.0f}" if value >= 99.95 else f"{value:#.3g}" if value >= 0.995 else f"{value:.2f}"


def rate(workload: dict[str, Any], figure: dict[str, Any]) -> str:
    """MB/s for large items, thousands or millions a second for others."""
    if workload["in_bytes"]:
        return f"{short(figure['mb_per_second'])} MB/s"
    if figure["per_second"] >= 999_500:
        return f"{short(figure['per_second'] / 1e6)} M/s"
    return f"{short(figure['per_second'] / 1e3)} k/s"


def cpu(workload: dict[str, Any], figure: dict[str, Any]) -> str:
    """CPU seconds of server and client for a million items, or for a GB of large ones."""
    spent = figure["cpu_s_per_gb" if workload["in_bytes"] else "cpu_s_per_million"]
    return f"{short(spent['server'])} + {short(spent['client'])}"


def memory(figure: dict[str, Any]) -> str:
    """Peak memory of server and client, in MiB."""
    peak = figure["peak_mib"]
    return f"{peak['server']:,.0f} + {peak['client']:,.0f}"


def times(ratio: float | None) -> str:
    """A ratio."""
    return "" if ratio is None else f"× {short(ratio)}"


def target(entry: dict[str, Any], name: str) -> str:
    """A bar or an ambition."""
    if entry[name] is None:
        return ""
    return f"{'≤' if entry['at'] == 'most' else '≥'} {entry[name]:g}"
