"""The parts of the relay that need no network: framings, keys, the window."""

from __future__ import annotations

import json
from itertools import pairwise
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afflux.core.errors import Error, LimitExceeded
from afflux.core.limits import Limits
from afflux.gateway.framing import FRAMINGS, Cutter
from afflux.gateway.keys import shard_by
from afflux.gateway.window import Window

ITEMS = st.lists(st.binary(max_size=200), max_size=20)


def framed(framing: str, items: list[bytes]) -> bytes:
    size = FRAMINGS[framing]
    return b"".join(len(item).to_bytes(size, "big") + item if size else item + b"\n" for item in items)


@given(st.sampled_from(sorted(FRAMINGS)), ITEMS, st.lists(st.integers(0, 4000), max_size=8))
def test_items_do_not_depend_on_where_the_bytes_are_cut(framing: str, items: list[bytes], cuts: list[int]) -> None:
    if framing == "lines":
        items = [item.replace(b"\n", b"").rstrip(b"\r") for item in items]
    data, cutter, found = framed(framing, items), Cutter(framing, 200), []
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, stop in pairwise(places):
        found += cutter.cut(data[start:stop])
    assert found + cutter.end() == items


def test_the_end_of_the_bytes() -> None:
    lines = Cutter("lines", 10)
    assert lines.cut(b"a\r\n\nb\r") == [b"a", b""]
    assert lines.end() == [b"b"]
    prefixed = Cutter("u16", 10)
    assert prefixed.cut(b"\0\2ab\0") == [b"ab"]
    with pytest.raises(Error, match="ends inside of an item: 1 bytes of it"):
        prefixed.end()


def test_an_item_has_a_limit() -> None:
    for framing, exact, more in (("u8", b"\x0a" + b"x" * 10, b"\x0b"), ("lines", b"x" * 10 + b"\n", b"x" * 11)):
        assert Cutter(framing, 10).cut(exact) == [b"x" * 10]
        with pytest.raises(LimitExceeded, match="an item has 11 bytes, and at most 10 are allowed"):
            Cutter(framing, 10).cut(more)


def test_the_shard_of_an_item() -> None:
    shard_of = shard_by("/a~1b/1", 7)

    def item(value: object) -> bytes:
        return json.dumps({"a/b": [None, value]}).encode()

    assert shard_of(item("x")) == crc32(b"x") % 7
    assert shard_of(item({"b": 1, "a": [2]})) == crc32(b'{"a":[2],"b":1}') % 7
    assert shard_of(item(None)) == crc32(b"null") % 7
    for other in (b"", b"\xff", b"[]", b'{"a/b": {}}', b'{"a/b": [1]}', b'{"a/b": 5}', b"[" * 100_000):
        assert shard_of(other) == 0
    assert shard_by("/~01", 7)(b'{"~1": "x"}') == crc32(b"x") % 7


def test_the_window_is_the_smallest_of_its_bounds() -> None:
    limits = Limits.server()
    budget = limits.connection_bytes // 4

    def window(size: int) -> Window:
        """A window after so many items of one size that the average is exact."""
        made = Window(limits)
        for _ in range(400):
            made.arrived(1, size)
        made.begin()
        return made

    huge = 1 << 60
    assert window(0).grant(0, huge) == budget // 64
    assert window(1 << 20).grant(0, huge) == budget // ((1 << 20) + 64)
    assert window(budget * 2).grant(0, huge) == 1
    assert window(64).grant(0, 1300) == 10
    assert window(64).grant(7, 1300) == 3
    assert window(64).grant(9, 1300) == 0  # less than a quarter
    assert window(64).grant(0, 0) == 1
    assert window(64).grant(1, 0) == 0
    assert Window(Limits.trusted()).grant(0, huge) == 8065
    tiny = window(0)
    assert tiny.grant(0, 640) == 10
    assert tiny.grant(0, 640) == 0
    tiny.arrived(10, 0)
    assert tiny.grant(10, 640) == 0
    assert tiny.grant(0, 640) == 10


def test_the_window_counts_blocks_by_their_bytes_and_items() -> None:
    limits = Limits.server()
    budget, huge = limits.connection_bytes // 4, 1 << 60
    window = Window(limits)
    window.begin(blocks=True)
    assert window.grant(0, huge) == budget // (0x80000 + 64)  # before the first one, blocks are expected
    window.begin(blocks=True)
    for _ in range(400):
        window.arrived(1, 0x20000)
        window.contained(1, 1000)
    window.begin()
    for _ in range(400):
        window.contained(1, 1000)
    most = budget // (0x20000 + 64)
    assert window.grant(0, huge) == most
    window.arrived(most, most * 0x20000)
    assert window.grant(1000 * (most - 1), huge) == 0  # as many items as blocks are not durable
    assert window.grant(0, huge) == most
