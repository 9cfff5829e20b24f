"""The cursor entry: round trips, every truncation, every rule, and the examples of docs/cursor.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afflux.core.errors import LocalProtocolError, Violation
from afflux.protocols.rsocket import cursor as module
from afflux.protocols.rsocket.cursor import (
    CURSOR_MIME,
    Acknowledge,
    Cursor,
    Head,
    Position,
    Read,
    State,
    decode_cursor,
    encode_entry,
    is_positioned,
    split_position,
    split_request,
    state_of,
    with_position,
)
from afflux.protocols.rsocket.metadata import compose, entries

DOCS = Path(__file__).parents[3] / "docs" / "cursor.md"
TOP = (1 << 63) - 1

shards = st.integers(0, 0xFFFF)
offsets = st.integers(0, TOP)
epochs = st.integers(1, TOP)
times = st.integers(-TOP - 1, TOP)


@st.composite
def reads(draw: st.DrawFn) -> Read:
    first = draw(offsets)
    return Read(
        shard=draw(shards),
        epoch=draw(offsets),
        first=first,
        limit=draw(st.integers(0, TOP - first)),
        blocks=draw(st.booleans()),
    )


@st.composite
def states(draw: st.DrawFn) -> State:
    first, head = sorted((draw(offsets), draw(offsets)))
    return State(
        shard=draw(shards),
        epoch=draw(epochs),
        first=first,
        head=head,
        time_us=draw(times),
        sealed=draw(st.booleans()),
        full=draw(st.booleans()),
    )


heads = st.builds(Head, shard=shards, epoch=offsets, after=offsets, wait_ms=st.integers(0, 0xFFFFFFFF))
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=64).filter(
    lambda name: name.isprintable() and len(name.encode()) <= 64
)
acknowledgements = st.builds(Acknowledge, shard=shards, epoch=epochs, offset=offsets, owner=epochs, name=names)
positions = st.builds(
    lambda flag, **parts: Position(**parts, **({} if flag is None else {flag: True})),
    st.sampled_from([None, "empty_metadata", "block"]), shard=shards, epoch=epochs, offset=offsets, time_us=times,
)  # fmt: skip
cursors = st.one_of(reads(), heads, states(), positions, acknowledgements)


EXAMPLES = [
    Read(shard=1, epoch=2, first=3, limit=4),
    Head(shard=1, epoch=2, after=3, wait_ms=4),
    State(shard=1, epoch=2, first=3, head=4, time_us=-5, sealed=True),
    State(shard=1, epoch=2, first=3, head=4, time_us=-5, full=True),
    Position(shard=1, epoch=2, offset=3, time_us=4, empty_metadata=True),
    Read(shard=1, epoch=2, first=3, limit=4, blocks=True),
    Position(shard=1, epoch=2, offset=3, time_us=4, block=True),
]


@pytest.mark.parametrize("cursor", EXAMPLES, ids=lambda cursor: type(cursor).__name__)
def test_an_entry_is_decoded_and_every_truncation_is_refused(cursor: Cursor) -> None:
    data = cursor.encode()
    assert decode_cursor(data) == cursor
    for cut in [data[:size] for size in range(len(data))] + [data + b"."]:
        with pytest.raises(Violation) as caught:
            decode_cursor(cut)
        assert (caught.value.rule, caught.value.code) == ("C-1", 0x204)


@given(cursors)
def test_what_is_encoded_is_decoded(cursor: Cursor) -> None:
    assert decode_cursor(cursor.encode()) == cursor


def test_an_acknowledgement_ends_with_a_name_of_1_to_64_bytes() -> None:
    longest = Acknowledge(epoch=1, owner=1, name="ü" * 32)
    data = longest.encode()
    assert len(data) == 28 + 64
    assert decode_cursor(data) == longest
    assert decode_cursor(data[:30]) == Acknowledge(epoch=1, owner=1, name="ü")
    for cut in [data[:size] for size in range(29)] + [data + b"."]:
        with pytest.raises(Violation) as caught:
            decode_cursor(cut)
        assert (caught.value.rule, caught.value.code) == ("C-1", 0x204)


@pytest.mark.parametrize("cursor", EXAMPLES[:2], ids=lambda cursor: type(cursor).__name__)
def test_the_unused_bytes_are_ignored(cursor: Cursor) -> None:
    data = cursor.encode()
    assert data.endswith(bytes(8))
    assert decode_cursor(data[:-8] + b"\xff" * 8) == cursor


@given(st.one_of(reads(), heads, states(), positions), st.binary(min_size=1, max_size=3))
def test_an_entry_has_exactly_its_length(cursor: Cursor, more: bytes) -> None:
    data = cursor.encode()
    for cut in [data[:size] for size in range(len(data))] + [data + more]:
        with pytest.raises(Violation) as caught:
            decode_cursor(cut)
        assert (caught.value.rule, caught.value.code) == ("C-1", 0x204)


@given(st.binary(max_size=40))
def test_garbage_is_a_cursor_or_a_violation(data: bytes) -> None:
    try:
        cursor = decode_cursor(data)
    except Violation as violation:
        assert violation.code == 0x204
    else:
        unused = 8 if isinstance(cursor, (Read, Head)) else 0
        assert cursor.encode() == data[: len(data) - unused] + bytes(unused)


@pytest.mark.parametrize("kind", [0x00, 0x06, 0xFF])
def test_an_unknown_kind(kind: int) -> None:
    with pytest.raises(Violation, match=f"0x{kind:02X}") as caught:
        decode_cursor(bytes((kind,)) + bytes(35))
    assert caught.value.rule == "C-2"


@pytest.mark.parametrize(
    ("cursor", "flag"),
    [
        (Read(), 0x02),
        (Head(), 0x80),
        (State(epoch=1, first=0, head=0, time_us=0), 0x04),
        (Acknowledge(epoch=1, owner=1, name="a"), 0x01),
        (Position(epoch=1, offset=0, time_us=0), 0x03),
    ],
)
def test_an_unknown_flag(cursor: Cursor, flag: int) -> None:
    data = bytearray(cursor.encode())
    data[1] = flag
    with pytest.raises(Violation) as caught:
        decode_cursor(bytes(data))
    assert caught.value.rule == "C-3"


@pytest.mark.parametrize(
    ("make", "values", "rule"),
    [
        (Read, {"shard": 0x10000}, "C-4"),
        (Read, {"shard": -1}, "C-4"),
        (Read, {"epoch": 1 << 63}, "C-4"),
        (Read, {"first": -1}, "C-4"),
        (Read, {"limit": 1 << 63}, "C-4"),
        (Read, {"first": TOP, "limit": 1}, "C-4"),
        (Head, {"after": 1 << 63}, "C-4"),
        (Head, {"wait_ms": 1 << 32}, "C-4"),
        (Head, {"wait_ms": -1}, "C-4"),
        (Acknowledge, {"epoch": 0, "owner": 1, "name": "a"}, "C-5"),
        (Acknowledge, {"epoch": 1, "owner": 1 << 63, "name": "a"}, "C-4"),
        (Acknowledge, {"epoch": 1, "owner": 1, "name": "a", "offset": -1}, "C-4"),
        (Acknowledge, {"epoch": 1, "owner": 0, "name": "a"}, "C-7"),
        (Acknowledge, {"epoch": 1, "owner": 1, "name": ""}, "C-7"),
        (Acknowledge, {"epoch": 1, "owner": 1, "name": "ü" * 33}, "C-7"),
        (Acknowledge, {"epoch": 1, "owner": 1, "name": "a\n"}, "C-7"),
        (Acknowledge, {"epoch": 1, "owner": 1, "name": "\ud800"}, "C-7"),
        (State, {"epoch": 0, "first": 0, "head": 0, "time_us": 0}, "C-5"),
        (State, {"epoch": 1, "first": 1, "head": 0, "time_us": 0}, "C-6"),
        (State, {"epoch": 1, "first": 0, "head": 0, "time_us": 1 << 63}, "C-4"),
        (Position, {"epoch": 0, "offset": 0, "time_us": 0}, "C-5"),
        (Position, {"epoch": 1, "offset": 1 << 63, "time_us": 0}, "C-4"),
        (Position, {"epoch": 1, "offset": 0, "time_us": -(1 << 63) - 1}, "C-4"),
    ],
)
def test_what_the_rules_forbid_can_not_be_made(make: Any, values: dict[str, int], rule: str) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        make(**values)
    assert caught.value.rule == rule


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        ("01 00 0000 8000000000000000 0000000000000000 0000000000000000 0000000000000000", "C-4"),
        ("05 00 0000 0000000000000001 0000000000000004 0000000000000000 61", "C-7"),
        ("05 00 0000 0000000000000001 0000000000000004 0000000000000001 ff", "C-7"),
        ("05 00 0000 0000000000000000 0000000000000004 0000000000000001 61", "C-5"),
        ("03 00 0000 0000000000000000 0000000000000000 0000000000000000 0000000000000000", "C-5"),
        ("03 00 0000 0000000000000001 0000000000000002 0000000000000001 0000000000000000", "C-6"),
        ("04 00 0000 0000000000000001 ffffffffffffffff 0000000000000000", "C-4"),
    ],
)
def test_what_the_rules_forbid_is_refused(data: str, rule: str) -> None:
    with pytest.raises(Violation, match="cursor is wrong") as caught:
        decode_cursor(bytes.fromhex(data))
    assert (caught.value.rule, caught.value.code) == (rule, 0x204)


ROUTE = ("message/x.rsocket.routing.v0", b"\x05ticks")


def test_a_request_is_split_into_cursor_and_the_rest() -> None:
    read = Read(first=3)
    assert split_request(None) == (None, None)
    assert split_request(b"") == (None, b"")
    assert split_request(b"not composite at all") == (None, b"not composite at all")
    assert split_request(encode_entry(read)) == (read, None)
    acknowledge = Acknowledge(epoch=1, owner=2, name="a")
    assert split_request(encode_entry(acknowledge)) == (acknowledge, None)
    other = compose([ROUTE, ("text/plain", b"x")])
    assert split_request(other) == (None, other)
    assert split_request(compose([ROUTE]) + encode_entry(read) + compose([("text/plain", b"x")])) == (read, other)
    mentioned = compose([("text/plain", bytes((25,)) + CURSOR_MIME.encode())])
    assert split_request(mentioned) == (None, mentioned)


@pytest.mark.parametrize(
    "metadata",
    [
        encode_entry(Read()) + encode_entry(Head()),
        encode_entry(Read()) + encode_entry(Read()),
        encode_entry(Position(epoch=1, offset=0, time_us=0)),
        encode_entry(State(epoch=1, first=0, head=0, time_us=0)),
    ],
)
def test_a_request_has_one_cursor_that_asks(metadata: bytes) -> None:
    with pytest.raises(Violation) as caught:
        split_request(metadata)
    assert caught.value.rule == "C-8"


def test_a_request_that_is_cut_is_refused() -> None:
    metadata = encode_entry(Read())
    for size in range(27, len(metadata)):
        with pytest.raises(Violation) as caught:
            split_request(metadata[:size])
        assert caught.value.code == 0x204


@pytest.mark.parametrize("own", [None, b"", b"own"])
def test_metadata_of_an_item_follows_its_position(own: bytes | None) -> None:
    sent = Position(shard=1, epoch=2, offset=3, time_us=4, empty_metadata=own == b"")
    metadata = with_position(sent, own)
    assert metadata == encode_entry(sent) + (own or b"")
    assert split_position(metadata) == (sent, own)


@given(positions, st.none() | st.binary(max_size=50))
def test_an_item_keeps_its_own_metadata(position: Position, own: bytes | None) -> None:
    sent = Position(
        shard=position.shard,
        epoch=position.epoch,
        offset=position.offset,
        time_us=position.time_us,
        empty_metadata=own == b"",
    )
    metadata = with_position(sent, own)
    assert is_positioned(metadata)
    assert split_position(metadata) == (sent, own)
    assert list(entries(metadata[: len(encode_entry(sent))])) == [(CURSOR_MIME, sent.encode())]


@pytest.mark.parametrize("metadata", [None, b"", b"own", compose([ROUTE])])
def test_an_item_without_a_position(metadata: bytes | None) -> None:
    assert not is_positioned(metadata)
    assert split_position(metadata) == (None, metadata)


def test_an_item_with_another_cursor_is_refused() -> None:
    with pytest.raises(Violation) as caught:
        split_position(encode_entry(Read()))
    assert caught.value.rule == "C-8"
    metadata = encode_entry(Position(epoch=1, offset=0, time_us=0))
    for size in range(27, len(metadata)):
        with pytest.raises(Violation) as caught:
            split_position(metadata[:size])
        assert caught.value.rule == "C-1"


def test_the_answer_to_head_holds_a_state() -> None:
    state = State(epoch=1, first=0, head=4, time_us=9, sealed=True)
    assert state_of(encode_entry(state)) == state
    for metadata in (None, b"", compose([ROUTE]), encode_entry(Read())):
        with pytest.raises(Violation) as caught:
            state_of(metadata)
        assert caught.value.rule == "C-8"


def examples() -> list[tuple[str, str, str]]:
    return re.findall(r"```(hex|hex-entry) (.+)\n([0-9a-f\s]+)```", DOCS.read_text(encoding="utf-8"))


def test_the_page_has_an_example_of_each_kind() -> None:
    assert {code.split("(")[0] for _, code, _ in examples()} == {"Read", "Head", "State", "Position", "Acknowledge"}
    assert "hex-entry" in {kind for kind, _, _ in examples()}


@pytest.mark.parametrize(("kind", "code", "text"), examples())
def test_the_examples_of_the_page(kind: str, code: str, text: str) -> None:
    cursor: Cursor = eval(code, {each.__name__: each for each in (Read, Head, State, Position, Acknowledge)})
    data = bytes.fromhex(text)
    if kind == "hex-entry":
        assert encode_entry(cursor) == data
        [(mime, data)] = entries(data)
        assert mime == CURSOR_MIME
    assert cursor.encode() == data
    assert decode_cursor(data) == cursor


def test_the_rules_and_codes_of_the_page_are_those_of_the_module() -> None:
    page = DOCS.read_text(encoding="utf-8")
    rules = re.findall(r"^- (C-\d)", module.__doc__ or "", re.MULTILINE)
    assert re.findall(r"^\| <a id=\"c-\d\"></a>(C-\d) ", page, re.MULTILINE) == rules
    for name, code in re.findall(r"^\| ([A-Z_]+) \| 0x(A[0-9]+) ", page, re.MULTILINE):
        assert getattr(module, name) == int(code, 16)
