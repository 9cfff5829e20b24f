"""A query that starts at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afflux.spark.declaring import OptionError
from afflux.spark.offsets import Mark
from afflux.spark.options import Options
from afflux.spark.reading import Driver
from afflux.spark.seeking import first_since
from tests.spark.conftest import asked, running
from tests.spark.test_full import stored

URI = {"uri": "tcp://127.0.0.1:7000"}
DATA = asked(count=0)
START = 1_784_880_000
"2026-07-24T08:00:00Z, in seconds."


@given(st.lists(st.integers(0, 50), min_size=1).map(sorted), st.integers(-1, 51), st.data())
def test_the_search(times: list[int], wanted: int, data: Any) -> None:
    first = data.draw(st.integers(0, len(times)))
    asked_for: list[int] = []

    def time_of(offset: int) -> int:
        asked_for.append(offset)
        return times[offset]

    found = first_since(wanted, first, len(times), time_of)
    assert found == next((at for at in range(first, len(times)) if times[at] >= wanted), len(times))
    assert len(asked_for) <= len(times).bit_length() and all(first <= at < len(times) for at in asked_for)


def test_times_as_users_write_them() -> None:
    for text, micros in (
        ("1784880000123", START * 1_000_000 + 123_000),
        ("2026-07-24T08:00:00Z", START * 1_000_000),
        ("2026-07-24T10:00:00.000001+02:00", START * 1_000_000 + 1),
        ("1969-12-31T23:59:59.5Z", -500_000),
        ("0", 0),
    ):
        assert Options.parse(URI | {"startingTimestamp": text}).starting_timestamp == micros
    for text in ("", "now", "-1", "2026-07-24T08:00:00", "2026-07-24", "9" * 16, "1e9"):
        with pytest.raises(
            OptionError, match="option startingTimestamp must be milliseconds since 1970 or a time with"
        ):
            Options.parse(URI | {"startingTimestamp": text})
    for word in ("latest", "earliest"):
        with pytest.raises(OptionError, match="startingTimestamp and startingOffsets exclude each other"):
            Options.parse(URI | {"startingTimestamp": "0", "startingOffsets": word})


@pytest.fixture(scope="module")
def minutes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """A server with 40 blocks of ten items, stored a minute after each other; the first three are trimmed."""
    directory = tmp_path_factory.mktemp("minutes")
    blocks = [((START + 60 * at) * 1_000_000, [b"%d" % at] * 10) for at in range(40)]
    uri, journal = stored(directory, DATA, blocks)
    with type(journal)(journal.path, key=journal._backend.heads.key) as again:
        again.trim(30)
    with running(directory, at=uri):
        yield uri, journal.epoch


@pytest.mark.parametrize(
    ("seconds", "offset"),
    [(-60, 30), (0, 30), (180, 30), (181, 40), (239.999, 40), (240, 40), (2340, 390), (2341, 400)],
)
def test_the_first_item_since_a_time(minutes: tuple[str, int], seconds: float, offset: int) -> None:
    uri, epoch = minutes
    text = str(int((START + seconds) * 1000))
    with Driver(Options.parse({"uri": uri, "requestData": DATA, "startingTimestamp": text})) as driver:
        assert driver.start() == {0: Mark(epoch, offset)}


def test_the_progress_has_the_lag_in_seconds(minutes: tuple[str, int]) -> None:
    pytest.importorskip("pyspark")
    from pyspark.sql.types import BinaryType, StructField, StructType

    from afflux.spark.source import AffluxSource

    given = {"uri": minutes[0], "requestData": DATA, "maxRowsPerBatch": "105", "pollTimeoutMs": "0"}
    reader = AffluxSource(given).streamReader(StructType([StructField("data", BinaryType())]))
    end, shown = reader.initialOffset(), []
    for _ in range(4):
        end = reader.latestOffset(end)
        shown.append((head := reader.reportLatestOffset()["0"])["lag"])
        assert head.get("lagSeconds") == {265: 1560, 160: 900, 55: 300, 0: None}[head["lag"]]
    assert shown == [265, 160, 55, 0]
    reader.stop()


@pytest.mark.spark
def test_spark_reads_since_a_time(spark: Any, minutes: tuple[str, int]) -> None:
    reader = spark.read.format("afflux").options(uri=minutes[0], requestData=DATA)
    frame = reader.option("startingTimestamp", "2026-07-24T10:30:00+02:00").load()
    rows = frame.selectExpr("min(offset) first", "count(*) rows", "unix_micros(min(timestamp)) time").collect()
    assert rows == [(300, 100, (START + 1800) * 1_000_000)]
