"""Compute from the flight file what the tables of the live job must contain, and compare them with it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from afflux.demo.flights import COLUMNS, Delay, ordered

__all__ = ["LATE", "Expected", "LiveVerdict", "Window", "compare", "expected"]

LATE = timedelta(hours=24)
"The delay of the watermark. No flight of the file left later than that after a flight that was scheduled after it."

Window = tuple[datetime, str]
"The begin of an hour of scheduled departures, and the airport."
Row = tuple[datetime, str, str, int | None]
"The scheduled departure, carrier, airport, and delay in minutes; None for a cancelled flight."

_PARTS = tuple(COLUMNS.index(name) for name in ("year", "month", "day", "hour", "minute"))
_CARRIER, _ORIGIN, _DELAY = (COLUMNS.index(name) for name in ("carrier", "origin", "dep_delay"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the tables of the first flights must contain."""

    rows: list[Row]
    "Each flight, by its number."
    closed: dict[Window, Delay]
    "The windows that the watermark has closed."
    open: int
    "The number of windows that are open at the end, and therefore not in the table."
    watermark: datetime
    "The watermark after the last flight."


def expected(count: int) -> Expected:
    """Count the first flights directly from the file. Times are local ones of New York, taken as UTC."""
    rows = [_row(line.split(",")) for line in ordered()[:count]]
    watermark = max(row[0] for row in rows) - LATE
    windows: dict[Window, Delay] = {}
    for scheduled, _, origin, delay in rows:
        key = scheduled.replace(minute=0), origin
        before = windows.get(key, Delay(0, 0, 0))
        departed = delay is not None
        windows[key] = Delay(before.flights + 1, before.departures + departed, before.minutes + (delay or 0))
    closed = {key: delay for key, delay in windows.items() if key[0] + timedelta(hours=1) <= watermark}
    return Expected(rows=rows, closed=closed, open=len(windows) - len(closed), watermark=watermark)


def _row(fields: list[str]) -> Row:
    year, month, day, hour, minute = (int(fields[part]) for part in _PARTS)
    delay = None if fields[_DELAY] == "NA" else int(fields[_DELAY])
    return datetime(year, month, day, hour, minute, tzinfo=UTC), fields[_CARRIER], fields[_ORIGIN], delay


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveVerdict:
    """The result of the comparison."""

    rows: int
    "Rows in the sink."
    lost: int
    "Flights that are not in the sink."
    doubled: int
    "Rows of the sink with the number of another row."
    windows: int
    "Windows in the table."
    differences: tuple[str, ...]
    "Differences between the tables and the file, as text."

    @property
    def exact(self) -> bool:
        """Whether no row is lost or doubled and nothing differs."""
        return not (self.lost or self.doubled or self.differences)


def compare(windows: Path, sink: Path, wanted: Expected) -> LiveVerdict:
    """Compare the table of windows, written by Spark, and the rows that the sink shows, with the file."""
    numbers, differing = 0, 0
    seen: set[int] = set()
    for row in _rows(sorted(sink.glob("query=*/batch=*/*.parquet"))):
        numbers += 1
        seen.add(number := row.pop("number"))
        there = (row["scheduled"], row["carrier"], row["origin"], row["dep_delay"])
        differing += not 0 <= number < len(wanted.rows) or wanted.rows[number] != there
    found: dict[Window, Delay] = {}
    count = 0
    for row in _rows(_listed(windows)):
        count += 1
        found[row["begin"], row["origin"]] = Delay(row["flights"], row["departures"], row["minutes"])
    differences = [f"{differing:,} rows in the sink differ from the file"] if differing else []
    wrong = sum(1 for key in wanted.closed.keys() | found.keys() if wanted.closed.get(key) != found.get(key))
    differences += [f"{wrong:,} windows differ from the file"] if wrong else []
    differences += [f"{count - len(found):,} windows are there twice"] if count > len(found) else []
    lost = len(wanted.rows) - len(seen & set(range(len(wanted.rows))))
    doubled = numbers - len(seen)
    return LiveVerdict(rows=numbers, lost=lost, doubled=doubled, windows=count, differences=tuple(differences))


def _rows(paths: list[Path]) -> Iterator[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for path in paths:
        table = pq.ParquetFile(path).read()
        for place, column in enumerate(table.schema):
            if pa.types.is_timestamp(column.type):
                moments = table.column(place).cast(pa.timestamp("us", "UTC"))
                table = table.set_column(place, column.name, moments)
        yield from table.to_pylist()


def _listed(table: Path) -> list[Path]:
    """Return the files that count, from the log of Spark's file sink: a compacted batch contains those before it."""
    log = table / "_spark_metadata"
    batches = {
        int(name[1]): path
        for path in (log.iterdir() if log.is_dir() else ())
        if (name := re.fullmatch(r"(\d+)(?:\.compact)?", path.name))
    }
    first = max((number for number, path in batches.items() if path.suffix), default=0)
    entries = [
        json.loads(text)
        for number in sorted(batches)
        if number >= first
        for text in batches[number].read_text().splitlines()[1:]
    ]
    return [Path(unquote(urlsplit(each["path"]).path)) for each in entries]
