"""Declare how much a report shows and how much memory it uses. All bounds of the report are in this file."""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["Bounds"]

Mi = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The bounds of one report. The page states what it leaves out.

    Raises:
        ValueError: a bound is less than 1.
    """

    stalls: int = 12
    "Rows of the longest stalls."
    streams: int = 20
    "Rows of the streams that stalled most or failed."
    connections: int = 40
    "Rows of connections."
    routes: int = 24
    "Rows of routes, in the plot and in the tables of latencies."
    violations: int = 40
    "Rows of violations; each row is a rule, a frame and what was wrong."
    credit_plots: int = 6
    "Plots of credit against items."
    credit_points: int = 240
    "Points of a line in such a plot."
    ladders: int = 40
    "Streams whose ladder can be chosen."
    ladder_rows: int = 150
    "Arrows of a ladder."
    times: int = 240
    "Intervals of the plots over time."
    text: int = 160
    "Characters of a text that came from the capture; a longer text is cut and ends with …"
    groups: int = 256
    "Routes, rules and contents that are counted separately in memory; the others are counted together."
    kept_bytes: int = 64 * Mi
    "Bytes of frames and credit kept for the plots when the tables can be read only once."

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise ValueError(f"invalid bound {field.name}: expected at least 1, got {getattr(self, field.name)}")
