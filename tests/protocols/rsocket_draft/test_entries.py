"""Extension entries: chains, lengths that lie, the payloads of the four extensions at the four points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from afflux.core.errors import Violation
from afflux.core.frame import Malformed
from afflux.protocols.rsocket_draft import payloads
from afflux.protocols.rsocket_draft.entries import (
    BROKER,
    KEEPALIVE,
    LEASE,
    MOST_ENTRIES,
    RESUME,
    Entry,
    Point,
    chain_bytes,
    chain_size,
    used_at,
)
from afflux.protocols.rsocket_draft.frames import ExtChain, PayloadFrame, Setup, SetupOk, decode
from afflux.protocols.rsocket_draft.payloads import Permits, Position, Session, Times

SETUP = bytes.fromhex("0000000006008686" + "00020000")
OK = bytes.fromhex("000000003e00")
EXT = bytes.fromhex("00000000fc80")
STREAM = bytes.fromhex("000000012a20")
FRAMES = {Point.SETUP: SETUP, Point.SETUP_OK: OK, Point.EXT: EXT, Point.STREAM: STREAM}


def read(point: Point, chain: bytes, rest: bytes = b"") -> tuple[Entry, ...]:
    return decode(FRAMES[point] + chain + rest).extensions  # type: ignore[union-attr]


def test_R_12_every_entry_but_the_last_has_F() -> None:
    entries = (Entry("a", b"1", True), Entry(9, b"", True, flags=3), Entry(RESUME))
    chain = chain_bytes(entries)
    assert chain == bytes.fromhex("0061c0000001" + "31" + "89c3000000" + "8100")
    assert chain_size(entries) == len(chain)
    assert read(Point.STREAM, chain, b"data") == entries
    assert chain_bytes([]) == b""


@pytest.mark.parametrize(
    ("point", "chain", "entry", "rest"),
    [
        (Point.SETUP, "8000" + "000001f4000009c4", Entry(KEEPALIVE, bytes.fromhex("000001f4000009c4")), b"x"),
        (Point.SETUP, "8120" + "0002abcd", Entry(RESUME, b"\0\2\xab\xcd", ack=True), b"x"),
        (Point.SETUP, "8108" + "0001ab" + "000000", Entry(RESUME, b"\0\1\xab\0\0\0", flags=8), b"x"),
        (
            Point.SETUP,
            "8108" + "0000" + "f00001" + "11" * 12,
            Entry(RESUME, b"\0\0\xf0\0\1" + b"\x11" * 12, flags=8),
            b"",
        ),
        (Point.SETUP_OK, "8000", Entry(KEEPALIVE), b"x"),
        (Point.SETUP_OK, "8100", Entry(RESUME), b"x"),
        (Point.SETUP_OK, "8108" + "000000", Entry(RESUME, b"\0\0\0", flags=8), b"x"),
        (Point.SETUP_OK, "8200" + "80", Entry(LEASE, b"\x80"), b"x"),
        (Point.SETUP_OK, "8200" + "014142", Entry(LEASE, b"\x01AB"), b"x"),
        (Point.SETUP_OK, "8300", Entry(BROKER), b"x"),
        (Point.SETUP_OK, "056272" + "6f6b6572" + "00", Entry("broker"), b"x"),
        (Point.EXT, "8100" + "000001" + "22" * 12, Entry(RESUME, b"\0\0\1" + b"\x22" * 12), b""),
        (Point.EXT, "8200" + "0000000100000002", Entry(LEASE, bytes.fromhex("0000000100000002")), b""),
        (Point.STREAM, "8108", Entry(RESUME, flags=8), b"x"),
        (Point.STREAM, "8118", Entry(RESUME, flags=8), b"x"),
    ],
)
def test_R_13_payloads_without_a_length_end_by_themselves(point: Point, chain: str, entry: Entry, rest: bytes) -> None:
    """R-20: the reserved bit 0x10 is ignored."""
    assert read(point, bytes.fromhex(chain), rest) == (entry,)
    with pytest.raises(Malformed):
        for size in reversed(range(len(chain) // 2)):
            read(point, bytes.fromhex(chain)[:size])


@pytest.mark.parametrize(
    ("point", "id"),
    [
        (Point.SETUP, LEASE),
        (Point.SETUP, BROKER),
        (Point.EXT, KEEPALIVE),
        (Point.EXT, BROKER),
        (Point.STREAM, BROKER),
    ],
)
def test_R_14_D_6_an_open_payload_needs_a_length(point: Point, id: int) -> None:
    with pytest.raises(Malformed, match="needs a length") as caught:
        read(point, bytes((0x80 | id, 0)), b"whatever")
    assert (caught.value.rule, caught.value.code) == ("R-14", 0x101)
    assert read(point, bytes((0x80 | id, 0x40, 0, 0, 2)) + b"ok") == (Entry(id, b"ok", True),)


@pytest.mark.parametrize("point", list(Point))
@pytest.mark.parametrize("size", [1, 0xFF, 0xFFFF, 0xFFFFFF])
def test_a_length_that_lies_is_malformed_and_nothing_is_allocated(point: Point, size: int) -> None:
    chain = bytes((0x8B, 0x40)) + size.to_bytes(3, "big")
    with pytest.raises(Malformed, match=f"an entry of {size} bytes where 0 are left"):
        read(point, chain)


@pytest.mark.parametrize(
    ("point", "chain"),
    [
        (Point.SETUP, "8100" + "ffff"),
        (Point.SETUP, "8108" + "ffff" + "00"),
        (Point.SETUP, "8108" + "0000" + "0fffff"),
        (Point.SETUP_OK, "8108" + "0fffff"),
        (Point.EXT, "8100" + "0fffff" + "00" * 24),
        (Point.SETUP_OK, "8200" + "7f41"),
        (Point.SETUP, "7f"),
        (Point.SETUP, "8b"),
        (Point.SETUP, "8b4000"),
        (Point.SETUP, "8bc0000000"),
        (Point.STREAM, ""),
    ],
)
def test_counts_that_lie_and_chains_that_end_early(point: Point, chain: str) -> None:
    with pytest.raises(Malformed) as caught:
        read(point, bytes.fromhex(chain))
    assert caught.value.code == 0x101


def test_D_17_a_chain_is_short() -> None:
    entries = (Entry("x", b"", True),) * MOST_ENTRIES
    assert read(Point.STREAM, chain_bytes(entries)) == entries
    with pytest.raises(Violation) as caught:
        PayloadFrame(stream=1, extensions=(*entries, Entry("x", b"", True)))
    assert caught.value.rule == "D-17"
    long = b"\x80\x80" * 100_000 + b"\x80\0"
    with pytest.raises(Malformed, match="more than 64 entries"):
        read(Point.SETUP_OK, long)


@pytest.mark.parametrize(
    ("entry", "rule"),
    [
        (Entry(128), "R-11"),
        (Entry(-1), "R-11"),
        (Entry("x", flags=16), "R-20"),
        (Entry("x", flags=-1), "R-20"),
        (Entry("x", bytes(1 << 24), True), "R-13"),
    ],
)
def test_this_side_keeps_the_bounds_of_an_entry(entry: Entry, rule: str) -> None:
    with pytest.raises(Violation) as caught:
        chain_bytes([entry])
    assert caught.value.rule == rule


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: cast("Entry", "trace"), "an extension entry is an Entry, not str|Entry object expected"),
        (lambda: Entry("x", cast("bytes", "text")), "an entry is bytes .* not str and int|bytes object expected"),
        (lambda: Entry("x", flags=cast("int", b"1")), "not bytes and bytes|int object expected"),
    ],
    ids=["entry", "payload", "flags"],
)
def test_entries_of_other_types(make: Callable[[], Entry], told: str) -> None:
    """The compiled class checks the types itself."""
    with pytest.raises(TypeError, match=told):
        chain_bytes([make()])


def test_entries_hide_their_payloads() -> None:
    shown = repr(Entry(RESUME, b"secret", True, True, 8))
    assert shown == "Entry('resume', (6 bytes), ignorable, ack, flags=0x8)"
    assert repr(Entry("own")) == "Entry('own', (0 bytes))"
    assert repr(Entry(9)) == "Entry(9, (0 bytes))"
    assert "secret" not in repr(Setup(extensions=(Entry(RESUME, b"\0\6secret"),)))
    assert hash(Entry("own")) == hash(Entry("own")) != hash(Entry("other"))


def test_a_name_is_its_number() -> None:
    assert [Entry(name).number for name in ("keepalive", "resume", "lease", "broker", "own", 7)] == [
        0,
        1,
        2,
        3,
        "own",
        7,
    ]
    assert used_at(KEEPALIVE, Point.EXT)
    assert not used_at(KEEPALIVE, Point.STREAM)
    assert not used_at("own", Point.SETUP)


# -- the payloads ---------------------------------------------------------------------------------------------


def test_R_26_keepalive_on_setup() -> None:
    entry = payloads.keepalive_entry(Times(500, 2500), ack=True)
    assert payloads.times_of(entry) == (500, 2500)
    assert payloads.times_of(Entry(KEEPALIVE, b"\x80\0\0\1\x80\0\0\2")) == (1, 2)
    for times in (Times(0, 1), Times(1, 0), Times(1 << 31, 1)):
        with pytest.raises(Violation) as caught:
            payloads.keepalive_entry(times)
        assert caught.value.rule == "R-26"


def test_the_session_on_setup() -> None:
    for session in (Session(b"tok", None), Session(b"", ()), Session(b"t", (Position(1, 1 << 63), Position(3, 0)))):
        assert payloads.session_of(payloads.resume_entry(session)) == session
    with pytest.raises(Violation):
        payloads.resume_entry(Session(bytes(0x10000), None))


def test_R_43_D_12_position_lists() -> None:
    listed = (Position(1, 0), Position(0x7FFFFFFF, (1 << 64) - 1))
    assert payloads.positions_of(payloads.list_entry(listed)) == listed
    assert payloads.positions_of(Entry(RESUME, b"\xf0\0\1\x80\0\0\1" + bytes(8))) == (Position(1, 0),)
    with pytest.raises(Violation) as caught:
        payloads.list_entry([Position(1, 1)] * (payloads.MOST_POSITIONS + 1))
    assert caught.value.rule == "D-12"


def test_leases() -> None:
    entry = payloads.lease_entry([payloads.CONCURRENCY, "Own"])
    assert payloads.strategies_of(entry) == (1, "Own")
    assert payloads.strategies_of(payloads.lease_entry(["Frames Count", "Requests Count"])) == (2, 0)
    assert payloads.strategy_of(payloads.lease_entry(["Concurrency Limit"])) == 1
    assert payloads.permits_of(payloads.grant_entry(Permits(0, 0))) == (0, 0)
    for permits in (Permits(-1, 0), Permits(0, 1 << 31)):
        with pytest.raises(Violation) as caught:
            payloads.grant_entry(permits)
        assert caught.value.rule == "R-33"


@pytest.mark.parametrize(
    ("read", "payload", "flags"),
    [
        (payloads.times_of, b"1234567", 0),
        (payloads.times_of, b"123456789", 0),
        (payloads.session_of, b"", 0),
        (payloads.session_of, b"\0", 8),
        (payloads.session_of, b"\0\1", 0),
        (payloads.session_of, b"\0\1ab", 0),
        (payloads.session_of, b"\0\1a", 8),
        (payloads.session_of, b"\0\1a\0\0\1", 8),
        (payloads.positions_of, b"\0\0", 0),
        (payloads.positions_of, b"\0\0\0x", 0),
        (payloads.positions_of, b"\0\0\1" + bytes(11), 0),
        (payloads.positions_of, b"\x0f\xff\xff", 0),
        (payloads.strategies_of, b"\x80\x05x", 0),
        (payloads.strategies_of, b"\0\xff", 0),
        (payloads.strategy_of, b"", 0),
        (payloads.strategy_of, b"\x80\x81", 0),
        (payloads.permits_of, b"1234", 0),
    ],
)
def test_R_16_a_length_that_differs_from_the_content_is_malformed(read: Any, payload: bytes, flags: int) -> None:
    with pytest.raises(Malformed) as caught:
        read(Entry(0, payload, True, False, flags))
    assert (caught.value.rule, caught.value.code) == ("R-16", 0x101)


def test_R_45_R_46_D_13_where_frames_of_a_broker_stand() -> None:
    for point, types in ((Point.SETUP, {1}), (Point.EXT, {2, 3, 4}), (Point.STREAM, {5}), (Point.SETUP_OK, set())):
        for kind in range(7):
            entry = payloads.address_entry(b"\0\0\0\1" + (kind << 10).to_bytes(2, "big") + b"rest")
            assert payloads.broker_fits(entry, point) is (kind in types)
            assert payloads.broker_type(entry.payload) == kind
    assert payloads.broker_fits(Entry(BROKER), Point.SETUP_OK)
    assert not payloads.broker_fits(Entry(BROKER, b"short", True), Point.SETUP)


def test_every_point_has_its_frame() -> None:
    assert [kind.POINT for kind in (Setup, SetupOk, ExtChain, PayloadFrame)] == list(Point)
