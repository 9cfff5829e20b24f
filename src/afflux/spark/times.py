"""Parse dates, timestamps and time zones in text as Spark's ``cast`` and ``from_json`` do.

1. Dates are days since 1970-01-01, and timestamps microseconds since 1970-01-01T00:00:00Z, in the proleptic Gregorian
   calendar: ``datetime`` has only the years 1 to 9999, Spark has more.
2. A timestamp without a zone is in the session's zone. A local time that a clock change skips moves forward by the
   length of the gap, and one that occurs twice is the earlier one, as in Java.
3. Zones are those of the system, so that Python and Java agree as far as their copies of the tz database do.
"""

from __future__ import annotations

import os
import re
from datetime import date, datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from afflux.core.errors import Invalid

__all__ = ["MAX_SECONDS", "Zone", "date_of", "local_timestamp_of", "system_zone", "timestamp_of", "zone_of"]

_SPACE = "".join(map(chr, range(0x21))) + "\x7f"
"Characters around a value that Spark ignores."
_DATE = re.compile(r"([+-]?)([0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_TIMESTAMP = re.compile(
    r"([+-]?)([0-9]{4,6})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T]([0-9]{1,2})(?::([0-9]{1,2})"
    r"(?::([0-9]{1,2})(?:\.([0-9]*))?([^0-9.].*)?)?)?)?)?)?",
    re.DOTALL,
)
_DAYS = re.compile(r"[+-]?\d{1,1000}")
"A number of days, which may have the digits of any script, as in Java."
_OFFSET = re.compile(r"([+-])(?:([0-9])|([0-9]{2})(?:([0-9]{2})([0-9]{2})?|:([0-9]{2})(?::([0-9]{2}))?)?)")
_REGION = re.compile(r"[A-Za-z][A-Za-z0-9~/._+-]+")

_EPOCH = date(1970, 1, 1).toordinal()
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
_DAY_S = 86_400
_MAX_OFFSET_S = 18 * 3600
_INT32, _INT64 = 1 << 31, 1 << 63
_JULIAN_DAYS = -141_427
"1582-10-15: Spark rebases numbers of days before it from the Julian calendar."
_CACHED_DAYS = 100_000
_TABLE_DAYS = 2_000
"Days between the first and the last up to which a table of all is cheaper than to sort."
MAX_SECONDS = (_INT64 - 1) // 1_000_000
"The most seconds of a timestamp."

_NOT_JAVAS = {"Factory", "ROC", "localtime", "posixrules"}
"Names of the tz database that Java does not have. Java's own ``SystemV/…`` are not in the tz database any more."
_SHORT_IDS = dict(
    re.findall(
        r"(\S+)=(\S+)",
        "EST=-05:00 HST=-10:00 MST=-07:00 ACT=Australia/Darwin AET=Australia/Sydney AGT=America/Argentina/Buenos_Aires "
        "ART=Africa/Cairo AST=America/Anchorage BET=America/Sao_Paulo BST=Asia/Dhaka CAT=Africa/Harare "
        "CNT=America/St_Johns CST=America/Chicago CTT=Asia/Shanghai EAT=Africa/Addis_Ababa ECT=Europe/Paris "
        "IET=America/Indiana/Indianapolis IST=Asia/Kolkata JST=Asia/Tokyo MIT=Pacific/Apia NET=Asia/Yerevan "
        "NST=Pacific/Auckland PLT=Asia/Karachi PNT=America/Phoenix PRT=America/Puerto_Rico PST=America/Los_Angeles "
        "SST=Pacific/Guadalcanal VST=Asia/Ho_Chi_Minh",
    )
)
"The abbreviations that ``java.time.ZoneId.SHORT_IDS`` defines."


def date_of(text: str) -> int | None:
    """Return the days since 1970-01-01 of ``yyyy[-m[-d]]``, with anything after a space or T, or of a number of days.

    Spark's ``from_json`` accepts up to seven digits of a year, a sign, and a number of days with up to three or at
    least eight digits. None if the text is not a date.
    """
    for attempt in _attempts(text):
        matched = _DATE.fullmatch(attempt.strip(_SPACE))
        if matched:
            sign, year, month, day = matched.groups()
            days = _days(int(sign + year), int(month or 1), int(day or 1))
            if days is not None and -_INT32 <= days < _INT32:
                return days
    if _DAYS.fullmatch(text) and max(text) <= "\uffff" and _JULIAN_DAYS <= int(text) < _INT32:
        return int(text)
    return None


def timestamp_of(text: str, zone: Zone) -> int | None:
    """Return the microseconds since 1970 (UTC) of ``yyyy[-m[-d[ h[:m[:s[.f][ zone]]]]]]``; None if it is not that.

    Args:
        text: ``T`` may separate date and time; digits of the fraction after the sixth are ignored.
        zone: the zone of text without one.
    """
    for attempt in _attempts(text):
        parsed = _local(attempt)
        if parsed is not None:
            days, seconds, micros, named = parsed
            own = zone if named is None else zone_of(named)
            if own is not None:
                total = (days * _DAY_S + seconds - own.offset(days, seconds)) * 1_000_000 + micros
                if -_INT64 <= total < _INT64:
                    return total
    return None


def local_timestamp_of(text: str) -> int | None:
    """Return the microseconds between 1970-01-01T00:00:00 and a local time; None if the text has a zone, or is none."""
    parsed = _local(text)
    if parsed is None or parsed[3] is not None:
        return None
    days, seconds, micros, _ = parsed
    total = (days * _DAY_S + seconds) * 1_000_000 + micros
    return total if -_INT64 <= total < _INT64 else None


def _attempts(text: str) -> tuple[str, ...]:
    """Return the text, and the text without GMT, which Spark ignores if it cannot parse the whole."""
    return (text, text.replace("GMT", "")) if "GMT" in text else (text,)


def _local(text: str) -> tuple[int, int, int, str | None] | None:
    """Return days, seconds of the day, microseconds and the text of the zone."""
    matched = _TIMESTAMP.fullmatch(text.strip(_SPACE))
    if matched is None:
        return None
    sign, year, month, day, hour, minute, second, fraction, zone = matched.groups()
    days = _days(int(sign + year), int(month or 1), int(day or 1))
    h, m, s = int(hour or 0), int(minute or 0), int(second or 0)
    if days is None or h > 23 or m > 59 or s > 59:
        return None
    return days, h * 3600 + m * 60 + s, int((fraction or "")[:6].ljust(6, "0")), zone


def _days(year: int, month: int, day: int) -> int | None:
    """Return the days since 1970-01-01; None for a day that does not exist."""
    within = year % _CYCLE_YEARS + _CYCLE_YEARS
    try:
        ordinal = date(within, month, day).toordinal()
    except ValueError:
        return None
    return ordinal - _EPOCH + (year - within) // _CYCLE_YEARS * _CYCLE_DAYS


class Zone:
    """A time zone: a fixed offset, or a region of the tz database."""

    def __init__(self, name: str, rules: int | ZoneInfo) -> None:
        self.name = name
        self._rules = rules
        self._days: dict[int, int | None] = {}

    def offset(self, days: int, seconds: int) -> int:
        """Return the seconds east of UTC at a local time: days since 1970-01-01, seconds of that day."""
        if isinstance(self._rules, int):
            return self._rules
        ordinal = days + _EPOCH
        if ordinal < 1:
            ordinal = 1  # local mean time, before the first rule of any zone
        elif ordinal >= date.max.toordinal():  # rules repeat as the calendar does
            ordinal -= -((date.max.toordinal() - ordinal - 1) // _CYCLE_DAYS) * _CYCLE_DAYS
        hour, rest = divmod(seconds, 3600)
        day = date.fromordinal(ordinal)
        moment = datetime(day.year, day.month, day.day, hour, rest // 60, rest % 60, tzinfo=self._rules)
        offset = moment.utcoffset()
        if offset is None:
            raise AssertionError("a time zone has an offset at any time")
        return offset.days * _DAY_S + offset.seconds

    def to_utc(self, local: Any) -> Any:
        """Return UTC times of local times, both numpy arrays of microseconds since 1970 (int64)."""
        import numpy as np

        if isinstance(self._rules, int):
            return local - self._rules * 1_000_000
        if not len(local):
            return local
        every = local // (_DAY_S * 1_000_000)
        first, last = int(every.min()), int(every.max())
        if last - first < _TABLE_DAYS:
            days, inverse = np.arange(first, last + 1), every - first
        else:
            days, inverse = np.unique(every, return_inverse=True)
        offsets = [self._whole_day(int(day)) for day in days]
        shifts = np.array([0 if offset is None else offset for offset in offsets], np.int64)[inverse]
        changing = np.array([offset is None for offset in offsets], np.bool_)[inverse]
        for row in np.flatnonzero(changing):
            seconds = int(local[row]) // 1_000_000
            shifts[row] = self.offset(seconds // _DAY_S, seconds % _DAY_S)
        return local - shifts * 1_000_000

    def _whole_day(self, day: int) -> int | None:
        """Return the offset of a local day; None if it changes on that day."""
        if day not in self._days:
            if len(self._days) >= _CACHED_DAYS:
                self._days.clear()
            first = self.offset(day, 0)
            self._days[day] = first if first == self.offset(day + 1, 0) else None
        return self._days[day]


@lru_cache(maxsize=1024)
def zone_of(name: str) -> Zone | None:
    """Return the zone that Spark understands: ``Z``, ``+01:00``, ``UTC+1``, ``Europe/Paris``, ``PST``; None if none."""
    text = re.sub(r"([+-])([0-9]):", r"\g<1>0\2:", name.strip(_SPACE), count=1)
    text = re.sub(r"([+-])([0-9]{2}):([0-9])$", r"\1\2:0\3", text)
    text = _SHORT_IDS.get(text, text)
    if text in ("Z", "UTC", "GMT", "UT"):
        return Zone(name, 0)
    offset = _offset(re.sub(r"^(UTC|GMT|UT)(?=[+-])", "", text))
    if offset is not None:
        return Zone(name, offset)
    if _REGION.fullmatch(text) and text in _regions():
        return Zone(name, ZoneInfo(text))
    return None


def _offset(text: str) -> int | None:
    matched = _OFFSET.fullmatch(text)
    if matched is None:
        return None
    sign, short, hours, minutes, seconds, *colons = matched.groups()
    h, m, s = int(short or hours), int(minutes or colons[0] or 0), int(seconds or colons[1] or 0)
    total = h * 3600 + m * 60 + s
    if m > 59 or s > 59 or total > _MAX_OFFSET_S:
        return None
    return -total if sign == "-" else total


@cache
def _regions() -> frozenset[str]:
    return frozenset(available_timezones() - _NOT_JAVAS)


def system_zone() -> str:
    """Return the system's time zone, which is Spark's without ``spark.sql.session.timeZone``: TZ, else /etc/localtime.

    Raises:
        Invalid: the system's zone is not a zone of the tz database.
    """
    name = os.environ.get("TZ", "").removeprefix(":")
    if not name:
        _, found, name = str(Path("/etc/localtime").resolve()).rpartition("zoneinfo/")
        name = name if found else "UTC"
    if zone_of(name) is None:
        raise Invalid(f"the system's time zone {name!r} is unknown: set the option timeZone", rule="timeZone")
    return name
