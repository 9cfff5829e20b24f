"""Messages: the published vectors both ways, every truncation, bounds, garbage, records and log lines."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from afflux.core.dissect import line, record
from afflux.core.errors import Violation
from afflux.core.limits import Limits
from afflux.protocols.rsio import frames
from afflux.protocols.rsio.frames import FRAMES, Message
from afflux.protocols.rsio.inbound import Inbound, Reading
from afflux.protocols.rsio.kinds import Element, Elements, Ids, Octets, Text, Varint, WireKind, varint

from .playbook import Reader, answer, item, packed, request

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).resolve().parents[2] / "vectors" / "reactive-streams-io.json").read_text()
)
IDS = [vector["id"] for vector in VECTORS]


def reader(vector: dict[str, Any]) -> Reader:
    made = Reader()
    made.sizes[vector["decoded"].get("subscriber", 0)] = vector["decoded"].get("element_size", 0)
    return made


def test_R_1_R_2_a_message_is_its_type_and_its_fields() -> None:
    """D-1, D-2: the types of section 2.2; no tags, and every field is there, also one that is 0."""
    assert request(5).encode() == bytes.fromhex("040105")
    asked = frames.Subscribe(publisher="p", subscriber=1, initial_demand=0)
    assert asked.encode() == asked.encode(prefixed=True) == bytes.fromhex("03 0170 01 00")
    assert asked.encoded_size == 5
    assert list(FRAMES) == list(range(1, 15))


@pytest.mark.parametrize("vector", VECTORS, ids=IDS)
def test_a_vector_may_be_cut_at_every_byte(vector: dict[str, Any]) -> None:
    """R-8."""
    data = bytes.fromhex(vector["hex"])
    whole = reader(vector).read(data)
    for cut in range(len(data) + 1):
        cut_up = reader(vector)
        assert cut_up.read(data[:cut]) + cut_up.read(data[cut:]) == whole


def values(kind: WireKind) -> st.SearchStrategy[Any]:
    """What a field of this kind may be constructed with."""
    if isinstance(kind, Varint):
        numbers = st.integers(kind.at_least, kind.at_most)
        return numbers | st.sampled_from([kind.at_least, kind.at_most]) | st.integers(kind.at_least, 300)
    if isinstance(kind, Text):
        return st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
    if isinstance(kind, Ids):
        return st.lists(st.integers(0, 2**64 - 1), max_size=5).map(tuple)
    assert isinstance(kind, Octets | Element)
    return st.binary(max_size=300)


def messages_of(kind: type[Message]) -> st.SearchStrategy[Message]:
    """Any message of one class that this side may construct."""
    if kind is frames.OnNextPacked:
        elements = st.integers(1, 9).flatmap(lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1))
        return st.builds(lambda some: packed(*some, id=len(some[0])), elements)
    return st.builds(kind, **{name: values(field) for name, field in kind.KINDS})


PLAIN = [messages_of(kind) for kind in FRAMES.values() if kind not in (frames.OnNext, frames.Subscribed)]
SIZED = st.builds(lambda data: item(data, id=2**20), st.binary(max_size=300))
"An id that has no size; those of onNextPacked are their sizes."


@given(st.lists(st.one_of([*PLAIN, SIZED]), max_size=6), st.lists(st.integers(0, 2000), max_size=6))
def test_any_messages_survive_the_wire(said: list[Message], cuts: list[int]) -> None:
    data = b"".join(message.encode() for message in said)
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    made = Reader()
    made.sizes.update({size: size for size in range(1, 10)})
    heard: list[Message] = []
    for start, stop in pairwise(edges):
        heard += made.read(data[start:stop])
    assert heard == said
    assert [hash(message) for message in heard] == [hash(message) for message in said]


@given(st.integers(0, 2**64 - 1))
def test_numbers_are_written_short(value: int) -> None:
    """R-3, D-3: the shortest encoding."""
    data = varint(value)
    assert len(data) == max(1, -(-value.bit_length() // 7))
    assert sum((octet & 0x7F) << 7 * place for place, octet in enumerate(data)) == value


@pytest.mark.parametrize("length", range(1, 11))
def test_numbers_may_be_written_long(length: int) -> None:
    """R-3, FR-25: up to ten bytes are accepted, types included."""
    long = bytes([0x85] + [0x80] * (length - 2) + [0x00]) if length > 1 else b"\x05"
    assert Reader().read(long + b"\x07") == [frames.Cancel(subscriber=7)]
    assert Reader().read(b"\x05" + long) == [frames.Cancel(subscriber=5)]


@pytest.mark.parametrize("bad", ["80" * 10, "ff" * 9 + "02", "ff" * 9 + "7f", "80" * 10 + "00"])
def test_numbers_above_64_bits(bad: str) -> None:
    """R-4, FR-25: no later than byte 10."""
    made = Reader()
    data = b"\x05" + bytes.fromhex(bad)
    assert made.read(data[:10]) == []
    with pytest.raises(Violation, match="bad-varint") as caught:
        made.read(data[10:11])
    assert caught.value.rule == "R-4"
    assert Reader().read(b"\x05" + b"\xff" * 9 + b"\x01") == [frames.Cancel(subscriber=2**64 - 1)]


def refused(data: bytes, limits: Limits | None = None, sizes: dict[int, int] | None = None) -> str:
    """The rule of the violation."""
    made = Reader(limits or Limits.tiny())
    made.sizes.update(sizes or {})
    with pytest.raises(Violation) as caught:
        made.read(data)
    return f"{caught.value.rule}: {caught.value.reason}"


@pytest.mark.parametrize("head", [b"\x03", b"\x07\x01", b"\x09\x01", b"\x0b", b"\x0c\x01\x01", b"\x0d\x01\x01"])
def test_lengths_are_bounded_before_anything_is_stored(head: bytes) -> None:
    """R-7, D-4, FR-26."""
    most = Limits.tiny().payload_bytes
    for size in (most + 1, 2**63):
        assert refused(head + varint(size)) == f"R-7: payload-too-large: {size} bytes exceed payload_bytes={most}"
    made = Reader(Limits.tiny())
    assert made.read(head + varint(most)) == []
    made.read(bytes(most))


def test_extensions_are_counted_first() -> None:
    """R-7: just below, at, and above the limit."""
    most = Limits.tiny().extension_ids
    for count in (most - 1, most):
        data = frames.ClientHello(extensions=tuple(range(count))).encode()
        assert Reader(Limits.tiny()).read(data) == [frames.ClientHello(extensions=tuple(range(count)))]
    assert refused(b"\x01\x00" + varint(most + 1)) == "R-7: too-many-extensions"


def test_a_name_is_stored_up_to_a_byte_too_many() -> None:
    """SI-31: the rest of it is passed over, and the next fields are read."""
    most = Limits.tiny().publisher_bytes
    for size in (most - 1, most, most + 1, most + 500):
        for cut in (0, 1, 300, most + 4):
            made = Reader(Limits.tiny())
            data = frames.Subscribe(publisher="x" * size, subscriber=3, initial_demand=9).encode()
            (message,) = made.read(data[:cut]) + made.read(data[cut : cut + 200]) + made.read(data[cut + 200 :])
            assert (message.subscriber, message.initial_demand) == (3, 9)
            assert message.publisher == "x" * min(size, most + 1)


def test_texts_are_cut_and_repaired() -> None:
    """R-6: what is no UTF-8 becomes U+FFFD; a name keeps it for the engine to see."""
    (message,) = Reader().read(b"\x0b\x03a\xffb")
    assert message.reason == "a\ufffdb"
    (message,) = Reader().read(b"\x03\x03a\xffb\x01\x00")
    assert message.publisher == "a\udcffb"
    assert message.encode() == b"\x03\x03a\xffb\x01\x00"
    most = Limits.tiny().error_text_bytes[1]
    text = "x" * (most - 1) + "ü!"
    (first, second) = Reader(Limits.tiny()).read(frames.OnError(subscriber=1, error=text).encode() + b"\x08\x01")
    assert first.error == "x" * (most - 1)
    assert second == frames.OnComplete(subscriber=1)


def test_elements_of_a_fixed_size_have_no_length() -> None:
    """R-38."""
    made = Reader()
    data = answer(1, 3).encode() + item(b"abc", size=3).encode() + packed(b"def", b"ghi").encode()
    assert data.endswith(b"\x07\x01abc\x0a\x01\x02defghi")
    assert made.read(data)[1:] == [item(b"abc", size=3), packed(b"def", b"ghi")]


def test_elements_of_no_size_cannot_be_packed() -> None:
    """R-39: nor read, of an id that is not known."""
    for sizes in ({}, {1: 0}):
        assert refused(b"\x0a\x01\x00", sizes=sizes).startswith("R-39")


@pytest.mark.parametrize("size", [1 << 40, 1 << 64])
def test_what_is_too_large_is_passed_over(size: int) -> None:
    """FC-23: the product is compared before it is used, and nothing is stored."""
    made = Reader(Limits.tiny())
    made.sizes[1] = size
    (message,) = made.read(b"\x07\x01")[0:1] or made.read(b"x")
    assert (message.element, message.element_size) == (None, size)
    for _ in range(5):
        assert made.read(bytes(1000)) == []
    made = Reader(Limits.tiny())
    made.sizes[1] = Limits.tiny().payload_bytes // 2
    (message,) = made.read(b"\x0a\x01\x03" + b"x")
    assert (message.elements, message.count) == (None, 3)
    rest = made.sizes[1] * 3 - 1
    assert made.read(bytes(rest) + b"\x08\x01") == [frames.OnComplete(subscriber=1)]


@pytest.mark.parametrize("code", [0, 15, 16, 127, 128, 2**64 - 1])
def test_unknown_types_end_the_reading(code: int) -> None:
    """R-17: without lengths nobody knows where the next message begins."""
    assert refused(varint(code)).startswith("R-17")


def test_bounds_of_what_this_side_sends() -> None:
    """R-26: a zero is read for the engine to judge, and never written."""
    for bad in (
        lambda: frames.Request(subscriber=1, demand=0),
        lambda: frames.Request(subscriber=1, demand=2**63),
        lambda: frames.Subscribe(publisher="p", subscriber=1, initial_demand=2**63),
        lambda: frames.Cancel(subscriber=2**64),
        lambda: frames.ClientHello(extensions=(-1,)),
    ):
        with pytest.raises(Violation):
            bad()
    assert request(0).encode() == b"\x04\x01\x00"


@given(st.binary(max_size=200), st.dictionaries(st.integers(0, 200), st.integers(0, 9)))
def test_garbage_is_read_or_refused(data: bytes, sizes: dict[int, int]) -> None:
    made = Reader(Limits.tiny())
    made.sizes.update(sizes)
    try:
        heard = made.read(data)
    except Violation as violation:
        assert violation.rule in ("R-4", "R-7", "R-17", "R-39")
    else:
        assert all(message.encode() for message in heard if getattr(message, "elements", b"") is not None)


def test_records_and_lines() -> None:
    row = record(frames.Subscribe(publisher="ticks", subscriber=5, initial_demand=7))
    assert (row["protocol"], row["type"], row["stream"], row["n"]) == ("rsio", "subscribe", 5, 7)
    assert row["fields"] == {"publisher": "ticks"}
    assert line(row) == "rsio stream=5 subscribe n=7 publisher=ticks"
    row = record(item(b"hi"), payload="text")
    assert (row["data_len"], row["data"]) == (2, "hi")
    assert record(packed(b"ab", b"cd"))["data_len"] == 4
    assert repr(frames.OnComplete(subscriber=3)) == "onComplete(subscriber=3)".replace("on", "On", 1)


def test_kinds_have_names_for_tables() -> None:
    names = {(field.kind.arrow, field.kind.python) for kind in FRAMES.values() for field in kind.FIELDS}
    assert names == {("uint64", "int"), ("string", "str"), ("binary", "bytes"), ("binary", "tuple[int, ...]")}
    assert {kind.TYPE for kind in FRAMES.values()} == set(range(1, 15))


def test_a_kind_is_both_ways() -> None:
    bare = WireKind()
    with pytest.raises(NotImplementedError):
        bare.read(None, {})  # type: ignore[arg-type] # it is not looked at
    with pytest.raises(NotImplementedError):
        bare.write(0, None)
    assert bare.judge(0) == ""
    assert Elements().write(b"x", None) == b"x"


def test_reading_ends_with_the_connection() -> None:
    made = Inbound(Limits.tiny(), lambda id: 0, lambda cursor: 0, lambda message: made.close())
    made.reading = Reading.ALL
    made.receive(b"\x05\x01\x05\x02\x05", 0.0)
    assert made.pending == 0
    made.receive(b"\x05\x01", 0.0)
    assert made.pending == 0
