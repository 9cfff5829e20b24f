"""The receive buffer: however the bytes are cut, the same messages come out, and nothing is copied without need."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afflux.core.buffer import ReceiveBuffer
from afflux.core.errors import Violation


def parse(buffer: ReceiveBuffer, data: bytes) -> list[bytes]:
    """Messages with a length byte before them."""
    block = buffer.feed(data)
    if block is None:
        return []
    messages, position = [], 0
    while position < len(block) and position + 1 + block[position] <= len(block):
        messages.append(block[position + 1 : position + 1 + block[position]])
        position += 1 + block[position]
    if position < len(block):
        buffer.keep(block, position, 1 + block[position])
    return messages


def test_nothing_held_returns_the_object_itself() -> None:
    buffer = ReceiveBuffer(100)
    data = b"whole"
    assert buffer.feed(data) is data
    assert buffer.pending == 0


def test_a_tail_waits_until_it_is_whole() -> None:
    buffer = ReceiveBuffer(100)
    buffer.keep(b"xxab", 2, 4)
    assert buffer.pending == 2
    assert buffer.feed(b"c") is None
    assert buffer.pending == 3
    assert buffer.feed(b"de") == b"abcde"
    assert buffer.pending == 0
    rest = b"f"
    assert buffer.feed(rest) is rest


def test_without_a_need_the_next_bytes_bring_the_tail_back() -> None:
    buffer = ReceiveBuffer(100)
    buffer.keep(b"ab", 1)
    assert buffer.feed(b"c") == b"bc"


def test_nothing_read_yet_may_have_a_need_too() -> None:
    buffer = ReceiveBuffer(100)
    buffer.keep(b"", 0, 3)
    assert buffer.feed(b"ab") is None
    assert buffer.feed(b"c") == b"abc"


def test_held_back_until_taken() -> None:
    buffer = ReceiveBuffer(100)
    buffer.keep(b"ab", 0, 1 << 62)
    assert buffer.feed(b"cd") is None
    assert buffer.take() == b"abcd"
    assert buffer.take() == b""
    assert buffer.feed(b"e") == b"e"


def test_held_back_until_the_need_is_changed() -> None:
    buffer = ReceiveBuffer(100)
    buffer.keep(b"ab", 0, 1 << 62)
    assert buffer.feed(b"cd") is None
    buffer.keep(b"", 0, 0)
    assert buffer.feed(b"") == b"abcd"


def test_clear_forgets_bytes_and_need() -> None:
    buffer = ReceiveBuffer(100)
    buffer.keep(b"ab", 0, 10)
    buffer.clear()
    assert buffer.pending == 0
    assert buffer.feed(b"c") == b"c"


@pytest.mark.parametrize(("size", "fits"), [(9, True), (10, True), (11, False)])
def test_keep_is_bounded(size: int, fits: bool) -> None:
    buffer = ReceiveBuffer(10)
    if fits:
        buffer.keep(b"." * (size + 1), 1, 1 << 62)
        assert buffer.pending == size
        return
    with pytest.raises(Violation) as caught:
        buffer.keep(b"." * (size + 1), 1, 1 << 62)
    assert (caught.value.reason, caught.value.rule) == ("buffer-full", "connection_bytes")


def test_feed_is_bounded_while_it_holds_back() -> None:
    buffer = ReceiveBuffer(10)
    buffer.keep(b".", 0, 1 << 62)
    assert buffer.feed(b"." * 8) is None
    assert buffer.feed(b".") is None
    with pytest.raises(Violation, match="buffer-full"):
        buffer.feed(b".")


def test_a_whole_message_is_not_bounded_by_what_may_be_held() -> None:
    buffer = ReceiveBuffer(10)
    assert buffer.feed(b"." * 100) == b"." * 100
    buffer.keep(b".", 0, 11)
    assert buffer.feed(b"." * 100) == b"." * 101


def test_memory_follows_the_bytes_and_not_the_length() -> None:
    buffer = ReceiveBuffer(1 << 24)
    buffer.keep(b"a", 0, 1 << 24)
    tracemalloc.start()
    for _ in range(4096):
        buffer.feed(b"bc")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 8193


@given(
    messages=st.lists(st.binary(max_size=255), max_size=20),
    cuts=st.lists(st.integers(0, 5200), max_size=40),
)
def test_cut_anywhere_the_messages_are_the_same(messages: list[bytes], cuts: list[int]) -> None:
    wire = b"".join(bytes([len(message)]) + message for message in messages)
    edges = [0, *sorted(cut for cut in cuts if cut < len(wire)), len(wire)]
    buffer = ReceiveBuffer(256)
    found: list[bytes] = []
    for start, end in pairwise(edges):
        found += parse(buffer, wire[start:end])
        assert buffer.pending <= 256
    assert found == messages
    assert buffer.pending == 0


@given(st.lists(st.binary(max_size=40), max_size=10))
def test_byte_by_byte(messages: list[bytes]) -> None:
    buffer = ReceiveBuffer(256)
    wire = b"".join(bytes([len(message)]) + message for message in messages)
    found = [message for byte in wire for message in parse(buffer, bytes([byte]))]
    assert found == messages


def test_nothing_of_a_view_is_kept() -> None:
    """Its owner fills it anew for the next read."""
    memory = bytearray(b"abcd")
    buffer = ReceiveBuffer(100)
    with memoryview(memory)[:3] as view:
        whole = buffer.feed(view)
    assert whole == b"abc"
    buffer.keep(b"abc", 1, 4)
    with memoryview(memory)[3:] as view:
        assert buffer.feed(view) is None
    memory[:] = b"EFGH"
    with memoryview(memory)[:1] as view:
        joined = buffer.feed(view)
    assert (whole, joined) == (b"abc", b"bcdE")
    assert isinstance(whole, bytes)
    assert isinstance(joined, bytes)
