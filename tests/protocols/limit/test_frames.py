"""Frames of Limit-Stream: header, lengths, flags, metadata; integers; error codes; payloads of sessions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afflux.core.errors import ApplicationError, ConnectionClosed, RemoteProtocolError, SetupRefused, Violation
from afflux.core.frame import Malformed, UnknownFrame
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.protocols.limit import Choice, Opening, Value
from afflux.protocols.limit.codes import Code, error_for, name_of
from afflux.protocols.limit.frames import FRAMES, Choose, End, ErrorFrame, Ext, PayloadFrame, Setup, decode, record
from afflux.protocols.limit.integers import packed, unpacked


def test_R_3_a_length_of_24_bits_does_not_count_itself() -> None:
    assert End().encode(prefixed=True) == bytes.fromhex("000006 000000004400")
    with pytest.raises(Violation, match="at most 16777215 fit") as caught:
        PayloadFrame(stream=1, data=bytes(0xFFFFFF - 5)).encode()
    assert caught.value.rule == "R-3"
    assert len(PayloadFrame(stream=1, data=bytes(0xFFFFFF - 6)).encode()) == 0xFFFFFF


@pytest.mark.parametrize("size", range(6))
def test_R_4_a_frame_has_a_header(size: int) -> None:
    with pytest.raises(Malformed, match=f"a frame of {size} bytes"):
        decode(bytes(size))


def test_R_5_the_id_is_always_there() -> None:
    """D-1: the types have RSocket's numbers; CHOOSE and END have free ones."""
    for code, kind in FRAMES.items():
        required: dict[str, Any] = {"code": 1} if kind is ErrorFrame else {"extended_type": 1} if kind is Ext else {}
        assert kind(stream=0x01020304, **required).encode()[:5] == bytes((1, 2, 3, 4, code << 2))
    assert sorted(FRAMES) == [0x01, 0x0A, 0x0B, 0x10, 0x11, 0x3F]


def test_the_first_bit_is_masked() -> None:
    assert decode(bytes.fromhex("80000001280001")) == PayloadFrame(stream=1, data=b"\x01")


def test_R_6_unassigned_flags_are_ignored() -> None:
    assert decode(bytes.fromhex("0000000128ff01")) == PayloadFrame(stream=1, data=b"\x01")
    assert PayloadFrame(stream=1, data=b"\x01").encode() == bytes.fromhex("00000001280001")


def test_R_7_every_frame_may_have_I() -> None:
    for kind in FRAMES.values():
        required: dict[str, Any] = {"code": 1} if kind is ErrorFrame else {"extended_type": 1} if kind is Ext else {}
        assert decode(kind(stream=3, ignore=True, **required).encode()).ignore


@pytest.mark.parametrize("ignorable", [False, True])
def test_R_8_a_type_that_is_unknown(ignorable: bool) -> None:
    with pytest.raises(UnknownFrame, match="type 0x05 is unknown") as caught:
        decode(bytes.fromhex("00000007") + (0x05 << 10 | ignorable << 9).to_bytes(2, "big"))
    assert (caught.value.rule, caught.value.stream, caught.value.ignorable) == ("R-8", 7, ignorable)


def test_R_9_metadata_stands_before_data() -> None:
    frame = PayloadFrame(stream=9, metadata=b"md", data=b"\x01")
    assert frame.encode() == bytes.fromhex("00000009 2900 000002 6d64 01")
    assert decode(frame.encode()) == frame


def test_R_11_empty_data_takes_no_bytes() -> None:
    """R-12: and metadata has its length even without data, since no frame has only metadata (D-4)."""
    frame = PayloadFrame(stream=9, metadata=b"")
    assert frame.encode() == bytes.fromhex("00000009 2900 000000")
    assert decode(frame.encode()) == frame
    assert decode(bytes.fromhex("00000009 2800")) == PayloadFrame(stream=9)


@pytest.mark.parametrize("ignorable", [False, True])
@pytest.mark.parametrize("rest", ["000003 6d64", "ffffff", "0000", ""])
def test_R_10_a_length_of_metadata_beyond_the_frame(rest: str, ignorable: bool) -> None:
    """FG-14, D-4."""
    head = bytes.fromhex("00000009") + (0x0A << 10 | 0x100 | ignorable << 9).to_bytes(2, "big")
    with pytest.raises(Malformed) as caught:
        decode(head + bytes.fromhex(rest))
    assert (caught.value.rule, caught.value.stream, caught.value.ignorable) == ("R-10", 9, ignorable)


@pytest.mark.parametrize("ignorable", [False, True])
def test_R_10_bytes_behind_the_end(ignorable: bool) -> None:
    """FG-19."""
    with pytest.raises(Malformed, match="END is followed by 1 bytes") as caught:
        decode(End(ignore=ignorable).encode() + b"x")
    assert caught.value.ignorable is ignorable


def test_a_record_names_what_can_not_be_read() -> None:
    assert record(b"\0")["type"] is None
    assert record(bytes.fromhex("000000001400"))["type"] == "0x05"
    assert record(Setup(metadata=b"sum").encode(), payload="text")["metadata"] == "sum"


# -- integers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "cc80"),
        (255, "ccff"),
        (256, "cd0100"),
        (65535, "cdffff"),
        (65536, "ce00010000"),
        (1 << 32, "cf0000000100000000"),
        ((1 << 64) - 1, "cfffffffffffffffff"),
        (-1, "ff"),
        (-32, "e0"),
        (-33, "d0df"),
        (-128, "d080"),
        (-129, "d1ff7f"),
        (-200, "d1ff38"),
        (-32769, "d2ffff7fff"),
        (-(1 << 31) - 1, "d3ffffffff7fffffff"),
        (-(1 << 63), "d38000000000000000"),
    ],
)
def test_R_31_the_shortest_form(value: int, data: str) -> None:
    """D-9."""
    assert packed(value).hex() == data
    assert unpacked(bytes.fromhex(data)) == value


@given(st.integers(-(1 << 63), (1 << 64) - 1))
def test_R_31_every_integer_comes_back(value: int) -> None:
    assert unpacked(packed(value)) == value


@pytest.mark.parametrize("data", ["cc05", "cd0005", "ce00000005", "cf0000000000000005", "d005", "d10005", "d200000005"])
def test_R_31_every_format_is_read(data: str) -> None:
    assert unpacked(bytes.fromhex(data)) == 5


@pytest.mark.parametrize("value", [1 << 64, -(1 << 63) - 1])
def test_R_31_what_does_not_fit_is_refused(value: int) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        packed(value)


@pytest.mark.parametrize("data", ["", "c0", "c2", "0101", "cc", "cc0505", "90", "cb3ff8000000000000", "a161", "c1"])
def test_R_32_anything_else_is_not_one_integer(data: str) -> None:
    with pytest.raises(Violation, match="one integer") as caught:
        unpacked(bytes.fromhex(data))
    assert caught.value.rule == "R-32"


# -- codes --------------------------------------------------------------------------------------------------------


def test_errors_of_the_connection() -> None:
    """D-1."""
    limits = Limits.tiny()
    refused = error_for(Code.REJECTED_SETUP, b"no", 0, limits)
    assert (type(refused), str(refused), refused.may_have_been_processed) == (SetupRefused, "no", False)
    closed = error_for(Code.CONNECTION_ERROR, b"", 0, limits)
    assert (type(closed), str(closed), closed.code) == (ConnectionClosed, "CONNECTION_ERROR", 0x101)
    assert str(error_for(0x301, b"", 0, limits)) == name_of(0x301) == "0x00000301"


def test_errors_of_a_message() -> None:
    limits = Limits.tiny()
    failed = error_for(Code.APPLICATION_ERROR, b"x" * 10_000 + b"\xff", 7, limits)
    assert (type(failed), len(str(failed)), failed.stream) == (ApplicationError, limits.error_text_bytes[1], 7)
    busy = error_for(Code.CONNECTION_ERROR, b"", 7, limits)
    assert (type(busy), str(busy), busy.code) == (RemoteProtocolError, "CONNECTION_ERROR", 0x101)


# -- payloads -----------------------------------------------------------------------------------------------------


def test_payloads_of_a_session_are_values() -> None:
    assert Opening("sum", b"d") == Payload(b"d", b"sum")
    assert Opening("sum").channel == "sum"
    assert Choice(1) == Choice(1) != Choice(2)
    assert Choice(1) != Payload(b"\x01")
    assert len({Choice(1), Choice(1), Choice(1, b"m")}) == 2
    assert repr(Choice(1)) == "Choice(1)"
    assert repr(Value([1, "x"])) == "Value([1, 'x'])"
    assert Choose(stream=1, data=Choice(300).data).data == b"\xcd\x01\x2c"
