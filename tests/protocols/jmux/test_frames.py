"""Messages: the published vectors both ways, first bytes, bounds, garbage, records and log lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afflux.core.frame import Malformed
from afflux.core.limits import Limits
from afflux.protocols.jmux import frames
from afflux.protocols.jmux.errors import detail_of, encoded
from afflux.protocols.jmux.frames import FRAMES, Data, IncrementRation, JmuxFrame
from tests.strategies.frames import frames_of

from .playbook import data, more


@given(st.one_of([frames_of(kind) for kind in FRAMES.values()]))
def test_any_message_survives_the_wire(message: JmuxFrame) -> None:
    raw = message.encode()
    assert frames.decode(raw) == message
    assert frames.size_at(raw) == len(raw)
    for cut in range(len(raw)):
        assert (frames.size_at(raw[:cut]) is None) is (cut < 4)
        with pytest.raises(Malformed, match="cut short"):
            frames.decode(raw[:cut])


VALID = {0x00, 0x02, 0x04, 0x06, 0x08, 0x20, 0x22, 0x30, 0x40, *range(0x10, 0x20, 2), *range(0x80, 0xA0, 2)}


@pytest.mark.parametrize("first", range(256))
def test_R_9_first_bytes(first: int) -> None:
    """R-9, D-4, FR-22: 33 of them begin a message, odd ones never."""
    if first in VALID:
        assert frames.decode(bytes([first, 0, 0, 0])).encode() == bytes([first, 0, 0, 0])
        assert frames.kind_of(first) is type(frames.decode(bytes([first, 0, 0, 0])))
    else:
        with pytest.raises(Malformed, match=f"no message begins with 0x{first:02X}"):
            frames.decode(bytes([first, 0, 0, 0]))
        assert frames.kind_of(first) is None


@pytest.mark.parametrize(
    "raw", ["0001 0000", "0280 0000", "04ff 0000", "0601 0000", "0801 0000", "3000 0001", "4000 0100"]
)
def test_R_10_reserved_bytes(raw: str) -> None:
    """R-10, FR-23."""
    with pytest.raises(Malformed, match="reserved") as caught:
        frames.decode(bytes.fromhex(raw))
    assert caught.value.rule == "R-10"


def test_headers_that_are_none() -> None:
    """R-3."""
    for raw in (b"jmux\1\0\1\0", b"Jmux\1\0\1", b"Jmux\1\0\1\0\0"):
        with pytest.raises(Malformed, match="begin with Jmux"):
            frames.decode_header(raw, client=True)
    assert frames.decode_header(b"Jmux\1\0\0\1", client=True).NAME == "ClientConnectionHeader"
    assert frames.decode_header(b"Jmux\1\0\0\1", client=False).NAME == "ServerConnectionHeader"


@given(st.integers(0, 0x7FFFFFFF))
def test_increments_add_up(size: int) -> None:
    """D-10, D-14: the smallest shift that does, exactly, in as many messages as it takes."""
    raw = frames.increments(5, size)
    said = [frames.decode(raw[at : at + 4]) for at in range(0, len(raw), 4)]
    assert all(isinstance(one, IncrementRation) and one.session == 5 and one.size for one in said)
    assert sum(one.size for one in said) == size  # type: ignore[attr-defined] # they are
    assert (len(said) == 1 and said[0].shift == 0) or not 0 < size <= 0xFFFF  # type: ignore[attr-defined]


def test_the_shift_is_three_bits() -> None:
    """D-13, D-14."""
    assert [more(1, shift=shift).encode()[0] for shift in range(8)] == list(range(0x10, 0x20, 2))
    assert more(0xFFFF, shift=7).size == 0xFFFF << 14


def test_the_short_way_is_the_same() -> None:
    for flags in range(0, 0x20, 2):
        message = frames.decode(frames.data_head(flags, 7, 2) + b"hi")
        assert isinstance(message, Data)
        assert (message.session, message.data) == (7, b"hi")
        assert message.encode()[0] == 0x80 | flags


# -- details --------------------------------------------------------------------------------------------------


def test_R_15_details_are_cut_at_a_character() -> None:
    """R-15, D-5."""
    assert encoded("ab", 10) == b"ab"
    assert encoded("äöü", 5) == "äö".encode()
    assert len(encoded("x" * 100_000, 1 << 20)) == 65_535
    assert encoded("x\ud800", 10) == b"x?"


def test_JA_11_details_that_are_not_text() -> None:
    limits = Limits.tiny()
    assert detail_of(b"\xff\xfeok", limits) == "\ufffd\ufffdok"
    most = limits.error_text_bytes[1]
    assert detail_of(b"x" * 65_535, limits) == "x" * most
    assert detail_of(b"x" * (most - 1) + "ä".encode(), limits) == "x" * (most - 1)


# -- records --------------------------------------------------------------------------------------------------


def test_records() -> None:
    row = frames.record(data(b"hi", id=3, open=True), payload="text")
    assert (row["protocol"], row["type"], row["stream"], row["data"]) == ("jmux", "Data", 3, "hi")
    assert frames.record(b"\x04\x00\x00\x07")["n"] == 7


@pytest.mark.parametrize(("raw", "name"), [(b"", None), (b"\x80", "Data"), (b"\x81\0\0\0", "0x81")])
def test_records_of_what_is_none(raw: bytes, name: str | None) -> None:
    row = frames.record(raw)
    assert row["error"]
    assert row["type"] == name


@given(st.binary(max_size=40))
def test_garbage_is_a_message_or_malformed(raw: bytes) -> None:
    row = frames.record(raw)
    assert row.get("error") or frames.decode(raw)


def test_one_message_among_others() -> None:
    raw = data(b"hi").encode()
    assert frames.decode(raw + b"more", 0, len(raw)) == data(b"hi")
