"""Dates, timestamps and zones in text; test_parity.py compares them with Spark's."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afflux.core.errors import Invalid
from afflux.spark.times import Zone, date_of, local_timestamp_of, system_zone, timestamp_of, zone_of

np = pytest.importorskip("numpy")

EPOCH = datetime(1970, 1, 1)


def zone(name: str) -> Zone:
    found = zone_of(name)
    assert found is not None
    return found


@given(st.dates())
def test_dates(day: date) -> None:
    assert date_of(day.isoformat()) == (day - EPOCH.date()).days


@pytest.mark.parametrize(
    ("later", "earlier"),
    [("0000-03-01", "0000-02-29"), ("0000-01-01", "-0001-12-31"), ("10000-01-01", "9999-12-31"), ("1970-01-01", "-1")],
)
def test_dates_that_python_lacks(later: str, earlier: str) -> None:
    first, second = date_of(earlier), date_of(later)
    assert first is not None and second == first + 1


@given(st.datetimes(), st.sampled_from(["America/New_York", "Europe/Lisbon", "Australia/Lord_Howe", "+05:30", "Z"]))
def test_timestamps(moment: datetime, name: str) -> None:
    own = {"+05:30": timedelta(hours=5, minutes=30), "Z": timedelta()}
    offset = own[name] if name in own else moment.replace(tzinfo=ZoneInfo(name)).utcoffset()
    assert offset is not None
    utc = (moment - EPOCH - offset) // timedelta(microseconds=1)
    assert timestamp_of(moment.isoformat(), zone(name)) == utc
    assert timestamp_of(f"{moment.isoformat(' ', 'microseconds')} {name}", zone("PST")) == utc
    assert local_timestamp_of(moment.isoformat()) == (moment - EPOCH) // timedelta(microseconds=1)


@given(
    st.lists(st.integers(-(10**17), 10**18), min_size=1, max_size=20),
    st.sampled_from(["America/New_York", "Pacific/Apia", "Australia/Lord_Howe", "Africa/Casablanca", "-03:30"]),
)
def test_arrays_of_local_times(local: list[int], name: str) -> None:
    seconds = [divmod(each // 1_000_000, 86_400) for each in local]
    wanted = [each - zone(name).offset(*second) * 1_000_000 for each, second in zip(local, seconds, strict=True)]
    assert zone(name).to_utc(np.array(local)).tolist() == wanted


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2013-03-10T02:30:00", datetime(2013, 3, 10, 7, 30)),  # the clock skips it: as if it had not been changed
        ("2013-11-03T01:30:00", datetime(2013, 11, 3, 5, 30)),  # it occurs twice: the first
        ("2050-07-01T12:00:00", datetime(2050, 7, 1, 16)),
        ("1883-11-18T12:03:57", datetime(1883, 11, 18, 16, 59, 59)),  # local mean time
    ],
)
def test_clock_changes(text: str, utc: datetime) -> None:
    micros = (utc - EPOCH) // timedelta(microseconds=1)
    new_york = zone("America/New_York")
    assert timestamp_of(text, new_york) == micros
    local = local_timestamp_of(text)
    assert new_york.to_utc(np.array([local])).tolist() == [micros]


def test_rules_repeat_after_the_years_of_python() -> None:
    summer, winter = (
        timestamp_of("12013-07-01", zone("Europe/Paris")),
        timestamp_of("12013-01-01", zone("Europe/Paris")),
    )
    assert summer is not None and winter is not None
    assert (summer // 1_000_000 % 86_400, winter // 1_000_000 % 86_400) == (22 * 3600, 23 * 3600)


@pytest.mark.parametrize(
    ("name", "hours"),
    [
        *[("Z", 0), ("UTC", 0), ("GMT", 0), ("UT", 0), ("+1", 1), ("-01", -1), ("+0130", 1.5), ("+1:30", 1.5)],
        *[("UTC+1", 1), ("GMT-02:00", -2), ("UT+0130", 1.5), ("EST", -5), ("PST", -8), ("Europe/Paris", 1), ("CET", 1)],
        *[
            ("+01:02:03", 1 + 2 / 60 + 3 / 3600),
            ("+010203", 1 + 2 / 60 + 3 / 3600),
            ("+18:00", 18),
            (" Asia/Tokyo ", 9),
        ],
        *[("+12:3", 12.05)],
    ],
)
def test_zones(name: str, hours: float) -> None:
    assert zone(name).offset(15_706, 0) == hours * 3600


@pytest.mark.parametrize(
    "name",
    [
        *["", "z", "utc", "Foo/Bar", "+19:00", "+18:00:01", "+01:60", "+010", "GMT5", "../../etc/passwd", "Europe/"],
        *["Factory", "ROC", "localtime", "SystemV/EST5EDT", "EDT", "+٠٥:٣٠", "+05:30Z", "UTC +5", "Europe/Paris+1"],
    ],
)
def test_other_text_is_not_a_zone(name: str) -> None:
    assert zone_of(name) is None


def test_the_zone_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", ":Europe/Paris")
    assert system_zone() == "Europe/Paris"
    monkeypatch.setenv("TZ", "Mars/Olympus")
    with pytest.raises(Invalid, match="the system's time zone 'Mars/Olympus' is unknown: set the option timeZone"):
        system_zone()
    monkeypatch.delenv("TZ")
    monkeypatch.setattr(Path, "resolve", lambda path: Path("/usr/share/zoneinfo/Asia/Tokyo"))
    assert system_zone() == "Asia/Tokyo"
    monkeypatch.setattr(Path, "resolve", lambda path: path)
    assert system_zone() == "UTC"


def test_the_days_of_a_zone_are_cached_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("afflux.spark.times._CACHED_DAYS", 3)
    own = Zone("x", ZoneInfo("Europe/Paris"))
    local = np.arange(0, 10 * 86_400_000_000, 86_400_000_000)
    assert own.to_utc(local).tolist() == (local - 3_600_000_000).tolist()
    assert len(own._days) <= 3
