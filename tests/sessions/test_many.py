"""Values that are decoded and encoded together: the same as one by one. Rule numbers are Limit-Stream's."""

from __future__ import annotations

from typing import Any

import pytest

from afflux import Limits
from afflux.sessions import Monitor, session_type
from afflux.sessions.machine import Kind
from afflux.sessions.many import Messages
from afflux.sessions.types import Basic, Field, Name, Struct, ValueType
from afflux.sessions.values import Codec, ValueMismatch, codecs

BOOL, INT, UINT, FLOAT, DOUBLE, STRING = Basic
PAIR = Struct("Pair", (Field("left", UINT), Field("right", STRING)))
HEAD = b"header, "


def codec(kind: ValueType) -> Codec:
    return codecs({"Pair": PAIR}, {}, Limits())(kind)


def messages(parts: list[bytes]) -> Messages:
    block = b"before" + b"".join(HEAD + part for part in parts) + b"behind"
    return Messages(block, 6, len(HEAD), len(parts[0]), len(parts))


TEXTS = ["", "a", "é" * 15, "x" * 31, "y" * 32, "é" * 127, "z" * 255, "u" * 256, "v" * 65_535]


@pytest.mark.parametrize(
    "form", ["a0", "d900", "da0000", "db00000000", "01", "", "ff", "a1", "a1ff", "d9ff61", "da000161"]
)
def test_texts_of_several_sizes(form: str) -> None:
    """Each size, then a message in another form, or one that is no text, between two texts."""
    each = codec(STRING)
    parts = [each.pack(text) for text in TEXTS]
    assert each.unpack_many(parts) == TEXTS
    parts = [*parts[:2], bytes.fromhex(form), parts[2]]
    assert each.unpack_many(parts) == one_by_one(each, parts)


def test_other_values_of_several_sizes() -> None:
    each = codec(INT)
    parts = [each.pack(value) for value in (1, 1000, -7, 1 << 40)]
    assert each.unpack_many(parts) == [1, 1000, -7, 1 << 40]
    assert each.unpack_many([*parts[:2], b"\xc0", parts[2]]) == [1, 1000]


def one_by_one(codec: Codec, parts: list[bytes]) -> list[Any]:
    values: list[Any] = []
    try:
        for part in parts:
            values.append(codec.unpack(part))
    except ValueMismatch:
        pass
    return values


ALIKE: list[tuple[ValueType, list[Any]]] = [
    (BOOL, [True, False, True]),
    (UINT, [0, 1, 127]),
    (UINT, [128, 200, 255]),
    (UINT, [256, 65_535]),
    (UINT, [65_536, (1 << 32) - 1]),
    (UINT, [1 << 32, (1 << 64) - 1]),
    (INT, [7]),
    (INT, [-1, -32, -5]),
    (INT, [-33, -128]),
    (INT, [-129, -32_768]),
    (INT, [-32_769, -(1 << 31)]),
    (INT, [-(1 << 31) - 1, -(1 << 63)]),
    (INT, [1 << 32, (1 << 63) - 1]),
    (FLOAT, [0.5, -2.0, 1024.0]),
    (DOUBLE, [0.1, -1e300]),
    (STRING, ["", "", ""]),
    (STRING, ["abc", "dé", "xyz"]),
    (STRING, ["x" * 31, "y" * 31]),
    (STRING, ["x" * 64, "é" * 32]),
    (STRING, ["x" * 255, "y" * 255]),
    (STRING, ["x" * 256, "y" * 256]),
    (STRING, ["x" * 65_535, "y" * 65_535]),
    (STRING, ["x" * 65_536, "y" * 65_536]),
    (Name("Pair"), [(1, "a"), (2, "b")]),
]


@pytest.mark.parametrize(("kind", "values"), ALIKE)
def test_values_of_one_size(kind: ValueType, values: list[Any]) -> None:
    each = codec(kind)
    parts = each.pack_many(values)
    assert parts == [each.pack(value) for value in values]
    parts = [part for part in parts if len(part) == len(parts[0])]
    assert each.unpack_many(messages(parts)) == one_by_one(each, parts) == values[: len(parts)]


@pytest.mark.parametrize(
    ("kind", "parts", "valid"),
    [
        (UINT, ["01", "c0", "02"], 1),
        (UINT, ["ff", "01"], 0),
        (UINT, ["cc01", "d001", "d0ff", "cc02"], 2),
        (UINT, ["d0ff", "d001"], 0),
        (UINT, ["d07f", "d0ff"], 1),
        (INT, ["cf7fffffffffffffff", "cfffffffffffffffff"], 1),
        (UINT, ["cd01", "cc01"], 0),
        (STRING, ["a161", "a1ff"], 1),
        (STRING, ["a161", "a062"], 1),
        (STRING, ["d90161", "d90162"], 2),
        (STRING, ["c0" * 40, "c0" * 40], 0),
        (STRING, ["", ""], 0),
        (UINT, ["", ""], 0),
        (DOUBLE, ["", ""], 0),
        (DOUBLE, ["ca3f000000", "ca3f800000"], 2),
        (DOUBLE, ["ca3f000000", "cb3f000000"], 1),
        (DOUBLE, ["ca3f", "ca3f"], 0),
    ],
)
def test_the_valid_ones_before_an_invalid_one(kind: ValueType, parts: list[str], valid: int) -> None:
    """R-32. Formats that are longer than necessary are values too."""
    data = [bytes.fromhex(part) for part in parts]
    each = codec(kind)
    found = each.unpack_many(messages(data))
    assert found == one_by_one(each, data)
    assert len(found) == valid


def test_the_values_before_a_wrong_one_are_encoded() -> None:
    """R-31."""
    assert codec(UINT).pack_many([1, 2, -3, 4]) == [b"\x01", b"\x02"]
    assert codec(STRING).pack_many([7]) == []


# Loops of machines

ITEMS = session_type(
    {
        "name": "items",
        "states": [["recv", "uint", 1], ["choose", 2, 3], ["send", "string", 1], ["end"]],
        "types": {},
    }
)


def test_a_loop_is_a_step_that_may_follow_itself() -> None:
    server, client = ITEMS.server, ITEMS.client
    assert [server.loop(state, Kind.SEND) for state in range(4)] == [None, 2, 2, None]
    assert [client.loop(state, Kind.RECV) for state in range(4)] == [None, 2, 2, None]
    assert [server.loop(state, Kind.RECV) for state in range(4)] == [None] * 4


def test_a_monitor_takes_the_steps_of_a_loop() -> None:
    server, client = Monitor(ITEMS.server), Monitor(ITEMS.client)
    assert server.packed(["a"]) == []
    assert client.packed([1]) == [], "no loop"
    client.took_sent(1)
    server.took_received(1)
    assert (client.messages, server.messages) == (0, 0), "no loop, no step"
    server.received(client.send(3))
    parts = server.packed(["a", "b", 3, "d"])
    assert parts == [b"\xa1a", b"\xa1b"]
    server.took_sent(2)
    assert client.unpacked(messages(parts)) == ["a", "b"]
    client.took_received(2)
    assert (client.messages, server.messages, client.expected) == (3, 3, "offer of branches 1 to 2")
    assert server.sent_last
    assert not client.sent_last
    server.choose(2)
    client.chosen(1)
    server.end()
    client.ended()
    assert server.packed(["a"]) == client.unpacked(messages(parts)) == []
