"""Verify the tables of the demo job against the totals of the flight file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afflux.demo.flights import Delay, Totals, totals

__all__ = ["Verdict", "verify"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of the verification."""

    rows: int
    "Rows in the table of flights."
    lost: int
    "Missing offsets."
    duplicated: int
    "Rows with a duplicate offset."
    differences: tuple[str, ...]
    "Differences between the tables and the file, as text."
    by_carrier: dict[str, Delay]
    "The table by carrier, as written."
    by_hour: dict[int, Delay]
    "The table by hour, as written."

    @property
    def exact(self) -> bool:
        """Whether no row is lost or duplicated and nothing differs."""
        return not (self.lost or self.duplicated or self.differences)


def verify(out: Path, expected: int) -> Verdict:
    """Compare the tables in ``out`` with the first ``expected`` flights of the file."""
    import pyarrow.compute as pc

    table = _table(out / "flights", ["offset", "carrier", "hour", "dep_delay"])
    offsets = table.column("offset")
    there = set(pc.unique(offsets).to_pylist())
    true = totals(expected)
    by_carrier: dict[str, Delay] = _delays(out / "by_carrier", "carrier")
    by_hour: dict[int, Delay] = _delays(out / "by_hour", "hour")
    return Verdict(
        rows=table.num_rows,
        lost=len(set(range(expected)) - there),
        duplicated=table.num_rows - len(there),
        differences=tuple(_differences(true, table, by_carrier, by_hour)),
        by_carrier=by_carrier,
        by_hour=by_hour,
    )


def _differences(true: Totals, table: Any, by_carrier: dict[str, Delay], by_hour: dict[int, Delay]) -> list[str]:
    found = []
    if table.num_rows != true.rows:
        found.append(f"{table.num_rows:,} rows, the file has {true.rows:,}")
    for name, measured, wanted in (
        ("by_carrier", by_carrier, true.by_carrier),
        ("by_hour", by_hour, true.by_hour),
        ("flights by carrier", _count(table, "carrier"), true.by_carrier),
        ("flights by hour", _count(table, "hour"), true.by_hour),
    ):
        if measured != wanted:
            found.append(f"{name} differs from the file")
    return found


def _table(path: Path, columns: list[str]) -> Any:
    import pyarrow.dataset as ds

    return ds.dataset(path, format="parquet").to_table(columns=columns)


def _delays(path: Path, column: str) -> dict[Any, Delay]:
    rows = _table(path, [column, "flights", "departures", "minutes"]).to_pylist()
    return {row[column]: Delay(row["flights"], row["departures"], row["minutes"]) for row in rows}


def _count(table: Any, column: str) -> dict[Any, Delay]:
    """Compute the totals from the rows themselves, to detect wrong sums in both tables."""
    grouped = table.group_by(column).aggregate([("offset", "count"), ("dep_delay", "count"), ("dep_delay", "sum")])
    return {
        row[column]: Delay(row["offset_count"], row["dep_delay_count"], row["dep_delay_sum"] or 0)
        for row in grouped.to_pylist()
    }
