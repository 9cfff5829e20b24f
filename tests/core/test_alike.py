"""The messages of one size and one header that are found together are those that comparing them one by one finds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afflux.core.alike import MANY, alike

HEADER = b"\x00\x00\x0a\x01\x28\x20"
SIZE = 7
STRIDE = len(HEADER) + SIZE


def one_by_one(block: bytes, most: int) -> int:
    """How many messages at the start of the block have the first one's header."""
    count = 0
    while count < min(most, len(block) // STRIDE):
        if block[count * STRIDE : count * STRIDE + len(HEADER)] != block[: len(HEADER)]:
            break
        count += 1
    return count if count >= MANY else 0


def found(block: bytes, most: int = 1 << 31) -> int:
    return alike(block, 0, len(block), STRIDE, most, len(HEADER))


def block_of(count: int) -> bytes:
    return (HEADER + bytes(SIZE)) * count


@pytest.mark.parametrize("count", [1, MANY - 1, MANY, 16, 128, 256, 257, 900])
def test_all_messages_are_found(count: int) -> None:
    assert found(block_of(count)) == one_by_one(block_of(count), 1 << 31) == (count if count >= MANY else 0)


@pytest.mark.parametrize("most", [MANY - 1, MANY, 100, 300])
def test_no_more_than_asked_for_are_found(most: int) -> None:
    assert found(block_of(400), most) == (most if most >= MANY else 0)


@pytest.mark.parametrize("place", range(len(HEADER)))
@pytest.mark.parametrize("other", [8, 15, 16, 100, 254, 256, 300])
def test_one_message_with_another_header_ends_them(other: int, place: int) -> None:
    block = bytearray(block_of(400))
    block[other * STRIDE + place] ^= 1
    assert found(bytes(block)) == other


@given(st.integers(1, 600), st.lists(st.tuples(st.integers(0, 600), st.integers(0, STRIDE - 1))), st.integers(1, 700))
def test_random_changes(count: int, changes: list[tuple[int, int]], most: int) -> None:
    block = bytearray(block_of(count))
    for message, place in changes:
        block[message % count * STRIDE + place] ^= 1
    assert found(bytes(block), most) == one_by_one(bytes(block), most)
