"""Format figures consistently."""

from __future__ import annotations

from typing import Any

__all__ = ["cpu", "doubts", "memory", "rate", "short", "target", "times"]

_BUSY = 0.25
"Load per core above which the reader is warned."


def doubts(figures: dict[str, Any]) -> list[str]:
    """Return reasons to treat the figures with caution: other load on the machine, and remarks."""
    load, found = figures["load"], []
    if load is not None and load[0] > _BUSY * figures["cores"]:
        found.append(f"Load {load[0]:.1f} before the run: other work shares this machine; trust ratios, not figures.")
    return found + ([figures["note"]] if figures.get("note") else [])


def short(value: float) -> str:
    """Format three significant digits, or all digits before the point."""
    return f"{value:,.0f}" if value >= 99.95 else f"{value:#.3g}" if value >= 0.995 else f"{value:.2f}"


def rate(workload: dict[str, Any], figure: dict[str, Any]) -> str:
    """Format a rate: MB/s for large items, thousands or millions per second for others."""
    if workload["in_bytes"]:
        return f"{short(figure['mb_per_second'])} MB/s"
    if figure["per_second"] >= 999_500:
        return f"{short(figure['per_second'] / 1e6)} M/s"
    return f"{short(figure['per_second'] / 1e3)} k/s"


def cpu(workload: dict[str, Any], figure: dict[str, Any]) -> str:
    """Format CPU seconds of server and client per million items, or per GB of large ones."""
    spent = figure["cpu_s_per_gb" if workload["in_bytes"] else "cpu_s_per_million"]
    return f"{short(spent['server'])} + {short(spent['client'])}"


def memory(figure: dict[str, Any]) -> str:
    """Format peak memory of server and client, in MiB."""
    peak = figure["peak_mib"]
    return f"{peak['server']:,.0f} + {peak['client']:,.0f}"


def times(ratio: float | None) -> str:
    """Format a ratio."""
    return "" if ratio is None else f"× {short(ratio)}"


def target(entry: dict[str, Any], name: str) -> str:
    """Format a bar or an ambition."""
    if entry[name] is None:
        return ""
    return f"{'≤' if entry['at'] == 'most' else '≥'} {entry[name]:g}"
