"""Typed values and plain ones: what becomes what, what is refused, and in which words."""

from __future__ import annotations

from datetime import UTC, date, datetime
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, NewType, Optional
from uuid import UUID

import pytest

from afflux.codecs.kinds import Mismatch, name_of
from afflux.codecs.text import text_of, text_reader

ID = UUID("12345678-1234-5678-1234-567812345678")


class Side(Enum):
    BUY = "buy"
    SELL = "sell"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(Enum):
    ONE = 1
    TEXT = "1"


class Odd(Enum):
    PAIR = (1, 2)


UserId = NewType("UserId", int)


# Text.


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (str, "a b", "a b"),
        (int, "-12", -12),
        (int, "007", 7),
        (UserId, "5", 5),
        (Annotated[int, "a count"], "5", 5),
        (float, "-1", -1.0),
        (float, "2.5e-3", 0.0025),
        (bool, "true", True),
        (bool, "false", False),
        (UUID, str(ID), ID),
        (UUID, str(ID).upper(), ID),
        (date, "2026-02-28", date(2026, 2, 28)),
        (datetime, "2026-02-28T12:00:00+00:00", datetime(2026, 2, 28, 12, tzinfo=UTC)),
        (Side, "sell", Side.SELL),
        (Level, "2", Level.HIGH),
        (Literal["eur", 5], "5", 5),
        (int | None, "5", 5),
        (Optional[Side], "buy", Side.BUY),  # noqa: UP045 -- some write it so
    ],
)
def test_text_becomes(kind: Any, text: str, value: object) -> None:
    made = text_reader(kind)(text)
    assert made == value
    assert type(made) is type(value)


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        (int, "", "expected int, not ''"),
        (int, "1.0", "expected int, not '1.0'"),
        (int, " 1", "expected int"),
        (int, "1_000", "expected int"),
        (int, "\u0661", "expected int"),
        (int, "9" * 5000, "expected int, not '99999999999999999999999999999999'…"),
        (float, "nan", "expected float, not 'nan'"),
        (float, "inf", "expected float"),
        (float, "1e999", "expected float"),
        (float, "1_0.5", "expected float"),
        (bool, "True", r"expected bool \(true or false\), not 'True'"),
        (bool, "1", "expected bool"),
        (UUID, "{" + str(ID) + "}", "expected UUID"),
        (UUID, ID.hex, "expected UUID"),
        (date, "2026-02-30", r"expected date \(ISO 8601\), not '2026-02-30'"),
        (datetime, "noon", r"expected datetime \(ISO 8601\)"),
        (Side, "hold", r"expected Side \('buy' or 'sell'\), not 'hold'"),
        (Literal["eur", 5], "6", "expected 'eur' or 5, not '6'"),
        (Literal["a", "b", 5], "6", "expected 'a', 'b' or 5, not '6'"),
        (Literal[1, 2, 3, 4, 5, 6, 7, 8, 9], "0", "expected 1, 2, 3, 4, 5, 6, 7, 8, …, not '0'"),
    ],
)
def test_text_that_is_none(kind: Any, text: str, words: str) -> None:
    with pytest.raises(Mismatch, match=f"^the value: {words}"):
        text_reader(kind)(text)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (bytes, "bytes has no text form; supported: str, int, float, bool, UUID, date, datetime, an Enum and a"),
        (list[int], r"list\[int\] has no text form"),
        (int | str, r"int \| str has no text form"),
        (Mixed, "Mixed has two members with the same text"),
        (Odd, "Odd has a member that is a list, which has no form as data or text"),
    ],
)
def test_types_without_text(kind: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        text_reader(kind)


@pytest.mark.parametrize("value", ["a", -5, 1.5, True, False, ID, date(2026, 1, 2), datetime(2026, 1, 2, 3), Side.BUY])
def test_text_and_back(value: Any) -> None:
    assert text_reader(type(value))(text_of(value)) == value


def test_no_text_stands_for_it() -> None:
    for value, what in ((b"x", "b'x'"), ([1], "a list"), ({}, "a map"), (None, "None")):
        with pytest.raises(TypeError, match=f"{what} has no text form"):
            text_of(value)


def test_the_name_of_a_type() -> None:
    assert name_of(dict[str, list[int] | None]) == "dict[str, list[int] | None]"
    assert name_of(tuple[int, ...]) == "tuple[int, ...]"
    assert name_of(Any) == "Any"
