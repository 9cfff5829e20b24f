"""The frames: the vectors both ways, what cannot be read, records, codes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afflux.core.errors import (
    ApplicationError,
    Canceled,
    ConnectionClosed,
    Invalid,
    Rejected,
    RemoteProtocolError,
    SetupRefused,
    Violation,
)
from afflux.core.frame import Malformed, UnknownFrame
from afflux.core.limits import Limits
from afflux.protocols.reactivesocket import codes, frames
from afflux.protocols.reactivesocket.codes import Code, code_for, error_for, name_of, of_wire, on_wire, text_of
from afflux.protocols.reactivesocket.frames import FRAMES, ReactiveSocketFrame, decode, record
from tests.protocols.reactivesocket.playbook import raw
from tests.strategies.frames import frames_of

LIMITS = Limits.server()


def any_frame() -> st.SearchStrategy[ReactiveSocketFrame]:
    return st.one_of([frames_of(frame) for frame in FRAMES.values()])


def test_the_layout_of_a_frame() -> None:
    """R-1, R-2, R-3, R-5, D-1: big endian, a length that counts itself, on TCP alone; so does that of metadata."""
    frame = frames.RequestResponse(stream=0x0102, metadata=b"md", data=b"d")
    body = bytes.fromhex("0004 4000 00000102 00000006 6d64 64")
    assert frame.encode() == body
    assert frame.encode(prefixed=True) == bytes.fromhex("00000013") + body


@given(any_frame())
def test_a_frame_comes_back(frame: ReactiveSocketFrame) -> None:
    data = frame.encode()
    assert decode(data) == frame
    assert frame.encoded_size == len(data)
    assert hash(decode(data)) == hash(frame)


@given(any_frame(), st.data())
def test_every_truncation_is_malformed_or_another_frame(frame: ReactiveSocketFrame, data: st.DataObject) -> None:
    encoded = frame.encode()
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]
    try:
        decode(cut)
    except Malformed as violation:
        assert violation.rule in ("R-2", "R-6")


@given(st.binary(max_size=64))
def test_garbage_is_a_frame_or_malformed(data: bytes) -> None:
    try:
        decode(data)
    except Malformed as violation:
        assert violation.rule in ("R-2", "R-6", "R-9")


def test_reserved_bits_are_masked_when_read() -> None:
    """R-4: of a metadata length; R-37: of N."""
    assert decode(raw(4, 0x4000, 2, b"\x80\0\0\x05md")[4:]) == frames.RequestResponse(
        stream=2, metadata=b"m", data=b"d"
    )
    assert decode(raw(9, 0, 2, b"\x80\0\0\x07")[4:]) == frames.RequestN(stream=2, n=7)
    assert decode(raw(8, 0x0800, 2, b"\x80\0\0\x07")[4:]) == frames.RequestChannel(stream=2, initial_n=7)


@pytest.mark.parametrize("length", [0, 1, 2, 3, 7, 0x7FFFFFFF])
def test_a_metadata_length_that_lies_makes_the_frame_unreadable(length: int) -> None:
    """R-6, D-3: below its own 4 bytes, or beyond the frame."""
    data = raw(4, 0x4000, 2, length.to_bytes(4, "big") + b"md")[4:]
    with pytest.raises(Malformed) as caught:
        decode(data)
    assert (caught.value.rule, caught.value.stream, caught.value.ignorable) == ("R-6", 2, True)


def test_metadata_that_is_empty_is_not_none() -> None:
    """A metadata length of 4 is legal."""
    assert decode(raw(4, 0x4000, 2, b"\0\0\0\x04d")[4:]) == frames.RequestResponse(stream=2, metadata=b"", data=b"d")


def test_flags_that_are_not_assigned_are_ignored() -> None:
    """R-7, I-2: that of N included, where N is always there."""
    data = raw(6, 0x0800, 2, b"\0\0\0\x07d")[4:]
    assert decode(data) == frames.RequestStream(stream=2, initial_n=7, data=b"d")
    assert decode(raw(9, 0xF7FF, 2, b"\0\0\0\x07")[4:]) == frames.RequestN(stream=2, n=7)
    assert frames.RequestN(stream=2, n=7).flags() == 0


def test_ext_has_no_stream() -> None:
    """R-8: its type stands where other frames have the stream id, and is never one."""
    frame = decode(raw(0xFFFF, 0, 6, b"body")[4:])
    assert frame == frames.Ext(extended_type=6, body=b"body")
    assert frame.stream == 0  # type: ignore[attr-defined]
    with pytest.raises(Malformed) as caught:
        decode(raw(0xFFFF, 0x4000, 6, b"\0")[4:])
    assert caught.value.stream == 0


@pytest.mark.parametrize(("flags", "ignorable"), [(0, False), (0x8000, True)])
def test_an_unknown_type_states_whether_it_may_be_skipped(flags: int, ignorable: bool) -> None:
    """R-9."""
    with pytest.raises(UnknownFrame) as caught:
        decode(raw(0x0E, flags, 4)[4:])
    assert (caught.value.ignorable, caught.value.stream, caught.value.code) == (ignorable, 4, 0x11)


@pytest.mark.parametrize(
    "make",
    [
        lambda: frames.RequestN(stream=2, n=0),
        lambda: frames.RequestStream(stream=2, initial_n=1 << 31),
        lambda: frames.RequestChannel(stream=2, initial_n=1 << 31),
        lambda: frames.ErrorFrame(stream=2, code=0),
        lambda: frames.Setup(metadata_mime="ü"),
    ],
)
def test_this_side_keeps_every_bound(make: Any) -> None:
    with pytest.raises(Violation):
        make()


def test_records() -> None:
    made = record(frames.RequestChannel(stream=2, initial_n=5, metadata=b"m", data=b"dd"))
    assert (made["protocol"], made["type"], made["stream"], made["n"]) == ("reactivesocket", "REQUEST_CHANNEL", 2, 5)
    assert (made["flags"], made["metadata_len"], made["data_len"]) == (["M", "N"], 1, 2)
    made = record(raw(0x0B, 0x3000, 2, b"x")[4:])
    assert (made["type"], made["flags"]) == ("RESPONSE", ["F", "C"])
    assert record(raw(0x0E)[4:])["type"] == "0x000E"
    assert record(raw(0x04, 0x4000, 2)[4:])["error"]["rule"] == "R-6"
    assert record(b"\0")["type"] is None


def test_codes_and_errors() -> None:
    """R-50: what is not known stays a number."""
    kinds = {
        1: SetupRefused,
        0x0F: SetupRefused,
        0x10: ConnectionClosed,
        0x11: ConnectionClosed,
        0x1F: ConnectionClosed,
    }
    for code, kind in kinds.items():
        error = error_for(code, b"", 0, LIMITS)
        assert type(error) is kind
        assert error.code == code
    streams = {0x21: ApplicationError, 0x22: Rejected, 0x23: Canceled, 0x24: Invalid, 0x25: ApplicationError}
    streams |= {0x2F: ApplicationError, 0x30: RemoteProtocolError, 0x11: RemoteProtocolError}
    for code, kind in streams.items():
        error = error_for(code, b"why", 2, LIMITS)
        assert type(error) is kind
        assert (error.code, error.message, error.stream) == (code, "why", 2)
    assert (name_of(0x22), name_of(0x2F)) == ("REJECTED", "0x0000002F")


def test_what_an_error_sends() -> None:
    assert code_for(ApplicationError(0x25, "own"), LIMITS) == (0x25, "own")
    assert code_for(ApplicationError(0x301, "far"), LIMITS) == (0x21, "far")
    assert code_for(ApplicationError(0x22, "not mine to say"), LIMITS) == (0x21, "not mine to say")
    assert code_for(Rejected("no"), LIMITS) == (0x22, "no")
    assert code_for(Canceled("stop"), LIMITS) == (0x23, "stop")
    assert code_for(Invalid("bad"), LIMITS) == (0x24, "bad")
    assert code_for(ValueError("secret"), LIMITS) == (0x21, "application error")


def test_the_text_of_an_error() -> None:
    """R-49, D-11: written to the data without NUL; read from there, else from metadata, without a NUL at the end."""
    assert code_for(Rejected("a\0b"), LIMITS) == (0x22, "ab")
    assert text_of(frames.ErrorFrame(stream=2, code=0x21, metadata=b"m", data=b"d\0")) == b"d"
    assert text_of(frames.ErrorFrame(stream=2, code=0x22, metadata=b"m\0\0")) == b"m\0"
    assert text_of(frames.ErrorFrame(stream=2, code=0x22)) == b""


def test_the_numbers_of_later_texts() -> None:
    for code in Code:
        assert on_wire(code, False) == code == of_wire(code, False)
        assert of_wire(on_wire(code, True), True) == code
    assert [on_wire(code, True) for code in (0x11, 0x21, 0x22, 0x23, 0x24)] == [0x101, 0x201, 0x202, 0x203, 0x204]
    assert codes.LAST_SETUP_CODE == 0x0F
