"""Typed values and plain ones: what becomes what, what is refused, and in which words."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, NewType, NotRequired, Optional, Required, TypedDict
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afflux.convert import DEPTH, Mismatch, name_of, plain, reader, text_of, text_reader

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


@dataclass
class Leg:
    symbol: str
    size: int = 1


@dataclass
class Order:
    side: Side
    legs: list[Leg]
    price: float | None = None
    tags: dict[str, str] = field(default_factory=dict)
    total: int = field(init=False, default=0)


@dataclass
class Tree:
    name: str
    children: list[Tree] = field(default_factory=list)


@dataclass
class Positive:
    n: int

    def __post_init__(self) -> None:
        if self.n <= 0:
            raise ValueError("n is above 0")


@dataclass
class Buy:
    kind: Literal["buy"]
    price: float


@dataclass
class Sell:
    kind: Literal["sell", "short"]
    size: int


@dataclass
class Node:
    inner: Node | Leaf | None
    kind: Literal["node"] = "node"


@dataclass
class Leaf:
    inner: Node | Leaf | None
    kind: Literal["leaf"] = "leaf"


class Point(TypedDict):
    x: float
    y: NotRequired[float]


class Partial(TypedDict, total=False):
    a: Required[int]
    b: int


@dataclass
class Unknown:
    what: Nowhere  # type: ignore[name-defined] # noqa: F821 -- on purpose


@dataclass
class Holds:
    what: object
    file: complex


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
    ],
)
def test_text_that_is_none(kind: Any, text: str, words: str) -> None:
    with pytest.raises(Mismatch, match=f"^the value: {words}"):
        text_reader(kind)(text)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (bytes, "no text stands for bytes; it does for str, int, float, bool, UUID, date, datetime, an Enum and a"),
        (list[int], r"no text stands for list\[int\]"),
        (int | str, r"no text stands for int \| str"),
        (Mixed, "Mixed has two members with the same text"),
        (Odd, "Odd has a member that is a list; data and text have no such value"),
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
        with pytest.raises(TypeError, match=f"no text stands for {what}"):
            text_of(value)


# Data.


@pytest.mark.parametrize(
    ("kind", "value", "made"),
    [
        (Any, {"a": [1]}, {"a": [1]}),
        (object, None, None),
        (int, 5, 5),
        (float, 5, 5.0),
        (float, 0.5, 0.5),
        (bool, True, True),
        (str, "", ""),
        (bytes, b"x", b"x"),
        (None, None, None),
        (UUID, str(ID), ID),
        (date, "2026-02-28", date(2026, 2, 28)),
        (datetime, "2026-02-28T12:00:00", datetime(2026, 2, 28, 12)),
        (datetime, datetime(2026, 2, 28, tzinfo=UTC), datetime(2026, 2, 28, tzinfo=UTC)),
        (Side, "buy", Side.BUY),
        (Level, 2, Level.HIGH),
        (Literal["a", 1], 1, 1),
        (Literal[Side.BUY], "buy", Side.BUY),
        (list, [1, "a"], [1, "a"]),
        (list[int], [1, 2], [1, 2]),
        (Sequence[float], [1, 2.5], [1.0, 2.5]),
        (Iterable[int], [1], [1]),
        (typing.List[int], [1], [1]),  # noqa: UP006 -- some write it so
        (set[str], ["a", "a"], {"a"}),
        (frozenset[int], [1], frozenset({1})),
        (tuple[int, ...], [1, 2], (1, 2)),
        (tuple, [1, "a"], (1, "a")),
        (tuple[int, str], [1, "a"], (1, "a")),
        (dict, {"a": 1}, {"a": 1}),
        (dict[str, Any], {"a": b"1"}, {"a": b"1"}),
        (dict[int, list[int]], {"1": [2]}, {1: [2]}),
        (Mapping[Side, bool], {"buy": True}, {Side.BUY: True}),
        (int | str, "1", "1"),
        (int | float, 1, 1),
        (float | int, 1, 1),
        (UUID | str, "none", "none"),
        (str | date, "2026-01-02", date(2026, 1, 2)),
        (datetime | date, "2026-01-02", date(2026, 1, 2)),
        (str | Side, "buy", Side.BUY),
        (list[int] | dict[str, int] | None, {"a": 1}, {"a": 1}),
        (int | Any, [1], [1]),
        (Point, {"x": 1, "z": 5}, {"x": 1.0}),
        (Point, {"x": 1, "y": 2}, {"x": 1.0, "y": 2.0}),
        (Partial, {"a": 1}, {"a": 1}),
        (Leg, {"symbol": "EUR", "more": 1}, Leg("EUR")),
        (Buy | Sell, {"kind": "short", "size": 2}, Sell("short", 2)),
        (Tree, {"name": "a", "children": [{"name": "b"}]}, Tree("a", [Tree("b")])),
    ],
)
def test_data_becomes(kind: Any, value: Any, made: Any) -> None:
    found = reader(kind)(value)
    assert found == made
    assert type(found) is type(made)


def test_a_dataclass_in_a_dataclass() -> None:
    data = {"side": "buy", "legs": [{"symbol": "EUR"}, {"symbol": "USD", "size": 2}], "total": 9}
    assert reader(Order)(data) == Order(Side.BUY, [Leg("EUR"), Leg("USD", 2)])


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (int, True, "the value: expected int, not True"),
        (int, 1.0, "the value: expected int, not 1.0"),
        (int, "1", "the value: expected int, not '1'"),
        (float, 10**400, "the value: expected float, not a very large int"),
        (float, True, "the value: expected float, not True"),
        (bool, 1, "the value: expected bool, not 1"),
        (str, b"x", "the value: expected str, not b'x'"),
        (bytes, "x", "the value: expected bytes, not 'x'"),
        (None, 0, "the value: expected None, not 0"),
        (UUID, 5, "the value: expected UUID, not 5"),
        (date, "x", "the value: expected date (ISO 8601), not 'x'"),
        (Side, ["buy"], "the value: expected Side ('buy' or 'sell'), not a list"),
        (Level, True, "the value: expected Level (1 or 2), not True"),
        (Literal[1], True, "the value: expected 1, not True"),
        (list[int], {"a": 1}, "the value: expected list[int], not a map"),
        (list[int], [1, "x"], "the value[1]: expected int, not 'x'"),
        (set[Any], [[1]], "the value: expected set[Any], not a list"),
        (tuple[int, str], [1], "the value: expected tuple[int, str], not 1 items"),
        (tuple[int, str], [1, 2], "the value[1]: expected str, not 2"),
        (tuple[int, str], 5, "the value: expected tuple[int, str], not 5"),
        (dict[str, Any], {b"a": 1}, "the value: expected dict[str, Any], not a map"),
        (dict[str, int], {b"a": 1}, "the value[b'a']: expected text for a key, not b'a'"),
        (dict[int, int], {"a": 1}, "the value['a']: expected int, not 'a'"),
        (dict[str, int], {"a": "b"}, "the value['a']: expected int, not 'b'"),
        (dict[str, int], [], "the value: expected dict[str, int], not a list"),
        (dict, [], "the value: expected dict, not a list"),
        (int | None, "x", "the value: expected int | None, not 'x'"),
        (int | UUID | date, "x", "the value: expected int | UUID | date, not 'x'"),
        (Point, {}, "the value.x: expected float, but it is missing"),
        (Point, [], "the value: expected Point, not a list"),
        (Partial, {"b": 1}, "the value.a: expected int, but it is missing"),
        (Leg, {"size": 1}, "the value.symbol: expected str, but it is missing"),
        (Order, {"side": "buy", "legs": [{"symbol": 5}]}, "the value.legs[0].symbol: expected str, not 5"),
        (Positive, {"n": 0}, "the value: expected Positive, but n is above 0"),
        (Buy | Sell, {"kind": "hold"}, "the value.kind: expected 'buy' or 'sell' or 'short', not 'hold'"),
        (Buy | Sell, {}, "the value.kind: expected 'buy' or 'sell' or 'short', not None"),
        (Buy | Sell, {"kind": "buy"}, "the value.price: expected float, but it is missing"),
    ],
)
def test_data_that_does_not_fit(kind: Any, value: Any, words: str) -> None:
    with pytest.raises(Mismatch) as caught:
        reader(kind)(value)
    assert str(caught.value) == words


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (complex, "data can not become complex; it can become None, bool, int, float, bytes, UUID"),
        (Holds, "Holds.file: data can not become complex"),
        (Unknown, "Unknown has a field of a type that is not known at run time: name 'Nowhere'"),
        (Odd, "Odd has a member that is a list"),
        (list[int] | tuple[int, ...], "holds two kinds of list, which can not be told apart"),
        (Leg | Positive, r"Leg \| Positive holds two kinds of map; give each a field such as kind: Literal"),
        (Buy | dict[str, int], "holds two kinds of map"),
        (dict[bytes, int], "no text stands for bytes"),
    ],
)
def test_types_that_data_can_not_become(kind: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        reader(kind)


def test_kinds_of_maps_are_told_apart_before_they_are_read() -> None:
    """Trying one after the other would double the work on each level."""
    value: dict[str, Any] = {"kind": "leaf", "inner": 5}
    for level in range(60):
        value = {"kind": "leaf" if level % 2 else "node", "inner": value}
    with pytest.raises(Mismatch, match=r"(\.inner){61}: expected Node \| Leaf \| None, not 5"):
        reader(Node | Leaf)(value)


def test_a_type_with_a_name_of_its_own() -> None:
    """As ``type Ids = list[int]`` makes it from Python 3.12 on."""

    class Alias:
        __value__ = list[int]

    assert reader(Alias())([1]) == [1]


def test_the_name_of_a_type() -> None:
    assert name_of(dict[str, list[int] | None]) == "dict[str, list[int] | None]"
    assert name_of(tuple[int, ...]) == "tuple[int, ...]"
    assert name_of(Any) == "Any"


# And back.


@pytest.mark.parametrize(
    ("value", "made"),
    [
        (
            Order(Side.BUY, [Leg("EUR")]),
            {
                "side": "buy",
                "legs": [{"symbol": "EUR", "size": 1}],
                "price": None,
                "tags": {},
                "total": 0,
            },
        ),
        ((1, {2}, frozenset({3})), [1, [2], [3]]),
        ({2: "a", True: "b", ID: 1, Side.BUY: 2}, {"2": "a", "true": "b", str(ID): 1, "buy": 2}),
        ([Level.LOW, ID, date(2026, 1, 2)], [1, str(ID), "2026-01-02"]),
        (type("Text", (str,), {})("a"), "a"),
        (type("Real", (float,), {})(1.5), 1.5),
        (type("Whole", (int,), {})(2), 2),
        (bytearray(b"x"), b"x"),
        (memoryview(b"x"), b"x"),
    ],
)
def test_plain_forms(value: Any, made: Any) -> None:
    found = plain(value)
    assert found == made
    assert type(found) is type(made)


def test_other_maps_and_lists() -> None:
    from collections import ChainMap, UserDict, namedtuple

    assert plain(ChainMap({"a": (1,)})) == {"a": [1]}
    assert plain(UserDict({"a": 1})) == {"a": 1}
    assert plain(namedtuple("Pair", "a b")(1, 2)) == [1, 2]


def test_values_that_have_no_plain_form() -> None:
    for value in (object(), 1j, {None: 1}, {b"a": 1}, [print]):
        with pytest.raises(TypeError):
            plain(value)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_how_deep_values_may_nest() -> None:
    assert plain(nested(DEPTH)) == nested(DEPTH)
    with pytest.raises(ValueError, match=f"nest deeper than {DEPTH}"):
        plain(nested(DEPTH + 1))
    endless: list[Any] = []
    endless.append(endless)
    for value in (endless, {"a": endless}, ({"b": endless},)):
        with pytest.raises(ValueError, match="nest deeper"):
            plain(value)


@given(
    st.builds(
        Order,
        st.sampled_from(Side),
        st.lists(st.builds(Leg, st.text(), st.integers())),
        st.none() | st.floats(allow_nan=False, allow_infinity=False),
        st.dictionaries(st.text(), st.text()),
    )
)
def test_an_order_and_back(order: Order) -> None:
    assert reader(Order)(plain(order)) == order
