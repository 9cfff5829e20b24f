"""Frames behind their lengths: taken apart and put together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afflux.core.framing import LengthPrefix

_PREFIXES = [
    LengthPrefix(3),
    LengthPrefix(4, inclusive=True),
    LengthPrefix(1),
    LengthPrefix(2, inclusive=True, reserved=0x8000),
]


@pytest.mark.parametrize("prefix", _PREFIXES, ids=repr)
@given(frames=st.lists(st.binary(max_size=200), max_size=8))
def test_what_is_joined_is_split_again(prefix: LengthPrefix, frames: list[bytes]) -> None:
    data = b"".join(map(prefix.join, frames))
    assert list(map(bytes, prefix.split(data))) == frames


def test_the_bytes_of_a_prefix() -> None:
    assert LengthPrefix(3).join(b"abc") == b"\x00\x00\x03abc"
    assert LengthPrefix(4, inclusive=True).join(b"abc") == b"\x00\x00\x00\x07abc"


def test_the_size_of_a_frame() -> None:
    assert LengthPrefix(3).size(b"xy\x00\x01\x02", 2) == 0x102
    assert LengthPrefix(2, inclusive=True).size(b"\x00\x05") == 3
    assert LengthPrefix(2, inclusive=True).size(b"\x00\x01") == -1
    assert LengthPrefix(2, inclusive=True, reserved=0x8000).size(b"\x80\x05") == 3
    assert LengthPrefix(2, reserved=0x8000).most == 0x7FFF


@pytest.mark.parametrize("prefix", [LengthPrefix(1), LengthPrefix(1, inclusive=True)], ids=repr)
def test_a_frame_of_the_greatest_length_fits_and_no_longer_one(prefix: LengthPrefix) -> None:
    assert prefix.join(b"x" * prefix.most).startswith(b"\xffx")
    with pytest.raises(OverflowError):
        prefix.join(b"x" * (prefix.most + 1))
