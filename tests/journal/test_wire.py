"""Blocks as items of an answer: golden bytes, parts of blocks, and every way to be wrong."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afflux.core.errors import Violation
from afflux.core.payload import Payload
from afflux.journal.blocks import Block, Pending, columns, sizes
from afflux.journal.wire import pack, unpack

FIRST, TIME_US = 1000, -5


def block_of(items: list[Payload]) -> Block:
    data, metadata = columns(items)
    pending = Pending(FIRST, TIME_US)
    pending.extend(data, metadata, sum(sizes(data, metadata)))
    return pending.pack()


def test_a_block_without_metadata_in_bytes() -> None:
    body = struct.pack("<III", 3, 0, 2) + b"abcde"
    crc = zlib.crc32(struct.pack("<QIqI", FIRST, 3, TIME_US, 0xFFFFFFFF) + body)
    wire = struct.pack("<III", 3, 0xFFFFFFFF, crc) + body
    items = [Payload(b"abc"), Payload(b""), Payload(b"de")]
    assert pack(block_of(items)) == wire
    assert unpack(wire, FIRST, TIME_US).payloads() == items


def test_a_block_with_metadata_in_bytes() -> None:
    body = struct.pack("<IIIIII", 3, 1, 2, 0, 1, 3) + b"xy" + b"abc.de"
    crc = zlib.crc32(struct.pack("<QIqI", FIRST, 3, TIME_US, 2) + body)
    wire = struct.pack("<III", 3, 2, crc) + body
    items = [Payload(b"abc"), Payload(b".", b""), Payload(b"de", b"xy")]
    assert pack(block_of(items)) == wire
    assert unpack(wire, FIRST, TIME_US).payloads() == items


payloads = st.builds(Payload, st.binary(max_size=5), st.none() | st.binary(max_size=5))


@given(st.lists(payloads, min_size=1, max_size=8), st.data())
def test_a_part_of_a_block_is_a_block(items: list[Payload], draw: st.DataObject) -> None:
    low = draw.draw(st.integers(0, len(items) - 1))
    high = draw.draw(st.integers(low + 1, len(items)))
    part = block_of(items).cut(FIRST + low, FIRST + high)
    assert unpack(pack(part), FIRST + low, TIME_US).payloads() == items[low:high]


def test_every_changed_byte_and_every_truncation_is_refused() -> None:
    wire = pack(block_of([Payload(b"abc"), Payload(b"de", b"xy")]))
    wrong = [wire[:size] for size in range(len(wire))] + [wire + b"."]
    wrong += [wire[:at] + bytes((wire[at] ^ 1,)) + wire[at + 1 :] for at in range(len(wire))]
    for data in wrong:
        with pytest.raises(Violation) as caught:
            unpack(data, FIRST, TIME_US)
        assert (caught.value.rule, caught.value.code) == ("C-9", 0x204)


@pytest.mark.parametrize(("first", "time_us"), [(FIRST + 1, TIME_US), (FIRST, TIME_US + 1)])
def test_a_block_at_another_position_is_refused(first: int, time_us: int) -> None:
    wire = pack(block_of([Payload(b"abc")]))
    with pytest.raises(Violation, match="the checksum of the block at offset"):
        unpack(wire, first, time_us)


def test_lengths_that_lie_with_a_right_checksum() -> None:
    for lengths, data in (((3, 4), b"abcde"), ((0xFFFFFFFF, 1), b"a"), ((1, 1), b"abc")):
        body = struct.pack("<II", *lengths) + data
        crc = zlib.crc32(struct.pack("<QIqI", FIRST, 2, TIME_US, 0xFFFFFFFF) + body)
        with pytest.raises(Violation, match="do not add up to its"):
            unpack(struct.pack("<III", 2, 0xFFFFFFFF, crc) + body, FIRST, TIME_US)


@pytest.mark.parametrize(("count", "marked"), [(0, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (1, 0xFFFFFFF0)])
def test_counts_that_lie_allocate_nothing(count: int, marked: int) -> None:
    with pytest.raises(Violation, match="cannot have"):
        unpack(struct.pack("<III", count, marked, 0) + bytes(8), FIRST, TIME_US)
