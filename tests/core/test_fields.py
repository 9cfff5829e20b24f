"""Field kinds: sizes, bounds, Arrow names, and what they read and write inside a frame of every kind."""

from __future__ import annotations

from typing import Annotated, ClassVar

import pytest
from hypothesis import given

from afflux.core.errors import Violation
from afflux.core.fields import (
    U8,
    U16,
    U24,
    U31,
    U32,
    U63,
    U64,
    Bytes16,
    Data,
    Fixed,
    Flag,
    Kind,
    Rest,
    Sized,
    Text8,
    TypeWord,
    UInt,
    Varying,
)
from afflux.core.frame import Frame, Malformed, frame
from tests.strategies.frames import frames_of, values


@frame(0x7FFF)
class Everything(Frame):
    """One field of every kind, under a header that RSocket does not have: flags first, 32 bits wide."""

    word: ClassVar[Annotated[int, TypeWord(32, shift=16)]]
    bright: Annotated[bool, Flag("B", 0x8000)] = False
    u8: U8
    u16: U16
    u24: U24
    u31: U31
    u32: U32
    text: Text8 = ""
    u63: U63
    u64: U64
    octets: Bytes16 = b""
    name: Annotated[str | None, Sized(8, text=True, flag=Flag("T", 0x0001), at_least=2)] = None
    tail: Data = b""


ONES = Everything(u8=1, u16=1, u24=1, u31=1, u32=1, u63=1, u64=1)

KINDS: list[tuple[UInt, int, int, str]] = [
    (UInt(8), 1, 0xFF, "uint8"),
    (UInt(16), 2, 0xFFFF, "uint16"),
    (UInt(24), 3, 0xFFFFFF, "uint32"),
    (UInt(31), 4, 0x7FFFFFFF, "uint32"),
    (UInt(32), 4, 0xFFFFFFFF, "uint32"),
    (UInt(63), 8, 0x7FFFFFFFFFFFFFFF, "uint64"),
    (UInt(64), 8, 0xFFFFFFFFFFFFFFFF, "uint64"),
]


@pytest.mark.parametrize(("kind", "size", "largest", "arrow"), KINDS)
def test_an_integer_knows_its_size_its_bound_and_its_arrow_type(
    kind: UInt, size: int, largest: int, arrow: str
) -> None:
    assert (kind.size, kind.largest, kind.arrow) == (size, largest, arrow)
    assert kind.reserved is (kind.bits in (31, 63))
    assert not kind.optional


def test_every_other_kind_knows_its_arrow_type_and_whether_it_may_be_missing() -> None:
    assert Flag("X", 1).arrow == "bool"
    assert (Sized(8, text=True).arrow, Sized(16).arrow, Rest().arrow) == ("string", "binary", "binary")
    assert Sized(24, flag=Flag("M", 1)).optional
    assert not Sized(24).optional
    assert not TypeWord(16, shift=10).in_value
    assert Kind().check("anything") == []


def test_the_bytes_of_every_kind_are_as_drawn() -> None:
    one = Everything(
        bright=True,
        u8=0x01,
        u16=0x0203,
        u24=0x040506,
        u31=0x0708090A,
        u32=0x0B0C0D0E,
        text="hi",
        u63=0x0F10111213141516,
        u64=0x1718191A1B1C1D1E,
        octets=b"!!",
        name="me",
        tail=b"end",
    )
    wire = bytes.fromhex(
        "7fff8001 01 0203 040506 0708090a 0b0c0d0e 02 6869 0f10111213141516 1718191a1b1c1d1e 0002 2121 02 6d65 656e64"
    )
    assert one.encode() == wire
    assert Everything.decode(wire, 0, len(wire)) == one
    assert one.encoded_size == len(wire)
    assert one.encode(prefixed=True) == len(wire).to_bytes(3, "big") + wire


def test_a_reserved_bit_is_written_zero_and_masked_when_read() -> None:
    wire = bytearray(Everything(u8=1, u16=1, u24=1, u31=5, u32=1, u63=6, u64=1).encode())
    wire[10] |= 0x80  # before u31
    wire[19] |= 0x80  # before u63
    read = Everything.decode(bytes(wire), 0, len(wire))
    assert (read.u31, read.u63) == (5, 6)


@pytest.mark.repetitive
@given(frames_of(Everything))
def test_any_value_survives_the_wire(one: Everything) -> None:
    wire = one.encode()
    assert Everything.decode(b"before" + wire + b"after", 6, 6 + len(wire)) == one
    assert len(wire) == one.encoded_size


@given(frames_of(Everything))
def test_every_truncation_is_malformed_up_to_the_open_end(one: Everything) -> None:
    wire = one.encode()
    for end in range(len(wire) - len(one.tail)):
        with pytest.raises(Malformed):
            Everything.decode(wire, 0, end)


@pytest.mark.parametrize(
    "wrong",
    [
        {"u8": -1},
        {"u8": 0x100},
        {"u24": 0x1000000},
        {"u31": 0x80000000},
        {"u63": 1 << 63},
        {"u64": 1 << 64},
        {"text": "x" * 256},
        {"text": "é"},
        {"octets": bytes(0x10000)},
        {"name": "x"},
        {"name": "éé"},
    ],
)
def test_a_value_out_of_bounds_cannot_be_constructed(wrong: dict[str, object]) -> None:
    right = {field.name: getattr(ONES, field.name) for field in ONES.LAYOUT if field.kind.in_value}
    with pytest.raises(Violation, match=next(iter(wrong))):
        Everything(**(right | wrong))


def test_text_that_is_not_ascii_is_malformed() -> None:
    wire = Everything(u8=1, u16=1, u24=1, u31=1, u32=1, text="a", u63=1, u64=1).encode().replace(b"\x01a", b"\x01\xff")
    with pytest.raises(Malformed, match="text is not ASCII"):
        Everything.decode(wire, 0, len(wire))


def test_the_two_families_of_kinds_leave_the_work_to_their_members() -> None:
    varying, fixed = Varying(), Fixed()
    for method in (varying.decode, varying.encode, varying.parts, varying.length, fixed.raw, fixed.write):
        with pytest.raises(NotImplementedError):
            method("x")


def test_there_is_no_strategy_for_what_is_not_a_value() -> None:
    with pytest.raises(TypeError, match="no strategy"):
        values(TypeWord(16, shift=10))


def test_fixed_kinds_name_one_local_each_except_24_bits() -> None:
    assert TypeWord(16, shift=10).raw("x") == TypeWord(16, shift=10).write("x") == ["word"]
    assert UInt(24).raw("x") == ["x_high", "x_low"]
    assert UInt(8).raw("x") == ["x"]
    assert issubclass(UInt, Fixed)
