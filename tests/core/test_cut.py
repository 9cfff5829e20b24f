"""Messages that are cut from received bytes together are those that reading them one by one finds."""

from __future__ import annotations

import pytest

from afflux.core.cut import SMALL, cut

SAME = b"\x00\x00\x00\x01\x28\x20"
LEAST = len(SAME)
ROWS = [b"%03d" % number * (number % 40) for number in range(2000)]


def message(data: bytes, *, same: bytes = SAME, length: int | None = None) -> bytes:
    """One message: the length, the rest of the header, the data."""
    return (LEAST + len(data) if length is None else length).to_bytes(3, "big") + same + data


def block_of(*datas: bytes) -> bytes:
    return b"".join(map(message, datas))


def one_by_one(block: bytes) -> list[bytes]:
    """The data of the messages at the start of the block."""
    datas, position, head = [], 0, 3 + len(SAME)
    while block[position + 3 : position + head] == SAME:
        size = int.from_bytes(block[position : position + 3], "big") - LEAST
        if not 0 <= size <= len(block) - position - head:
            break
        datas.append(block[position + head : position + head + size])
        position += head + size
    return datas


def cut_of(block: bytes, *, position: int = 0, most: int = 1 << 31, ahead: int = 200) -> tuple[list[bytes], int]:
    return cut(block, position, len(block), 3, SAME, LEAST, most, ahead)


@pytest.mark.parametrize("ahead", [20, 500, 1 << 20])
def test_all_messages_are_cut(ahead: int) -> None:
    block = block_of(*ROWS)
    assert cut_of(block, ahead=ahead) == (ROWS, len(block))


def test_cutting_begins_at_a_position() -> None:
    block = b"before" + block_of(b"a", b"", b"bc")
    assert cut_of(block, position=6) == ([b"a", b"", b"bc"], len(block))


@pytest.mark.parametrize("most", [1, 2, 100])
def test_at_most_so_many(most: int) -> None:
    assert cut_of(block_of(*ROWS), most=most) == (ROWS[:most], len(block_of(*ROWS[:most])))


@pytest.mark.parametrize("rest", [1, 8, 9, 11])
def test_a_message_that_is_not_whole_stays(rest: int) -> None:
    whole = block_of(b"abc", b"de")
    assert cut_of(whole + message(b"fgh")[:rest]) == ([b"abc", b"de"], len(whole))


@pytest.mark.parametrize(
    "other",
    [
        message(b"x", same=b"\x00\x00\x00\x03\x28\x20"),
        message(b"with " + SAME + b" inside"),
        message(SAME),
        message(b"short", length=LEAST - 1),
        message(b"none", length=0),
        message(b"reserved", length=1 << 23 | LEAST + 8),
        message(b"long" * SMALL),
    ],
    ids=["another header", "a header in the data", "a header as the data", "short", "none", "reserved", "long"],
)
@pytest.mark.parametrize("behind", [b"", block_of(b"behind", b"it", b"all")], ids=["the last", "more behind"])
@pytest.mark.parametrize("ahead", [30, 1 << 20])
def test_only_whole_messages_with_the_header_are_cut(other: bytes, behind: bytes, ahead: int) -> None:
    block = block_of(b"abc", b"de", b"f") + other + behind
    datas, position = cut_of(block, ahead=ahead)
    assert datas == one_by_one(block)[: len(datas)]
    assert len(datas) >= 1
    assert position == len(block_of(*datas))


def test_a_large_message_stays_and_the_largest_small_one_does_not() -> None:
    small, large = b"s" * (SMALL - LEAST), b"l" * (SMALL - LEAST + 1)
    assert cut_of(block_of(b"a", small, b"b"), ahead=1 << 20)[0] == [b"a", small, b"b"]
    assert cut_of(block_of(b"a", large, b"b"), ahead=1 << 20)[0] == [b"a"]
    assert cut_of(block_of(b"a", large), ahead=1 << 20)[0] == [b"a"]


@pytest.mark.parametrize("block", [b"", b"\x00\x00", message(b"abc", same=b"\x00\x00\x00\x03\x28\x20")])
def test_where_there_is_no_such_message_nothing_is_cut(block: bytes) -> None:
    assert cut_of(block) == ([], 0)
