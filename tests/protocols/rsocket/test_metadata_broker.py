"""Broker frames: the vectors both ways, every field, what is read loosely and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afflux.core.errors import Violation
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket.metadata import compose, entries
from afflux.protocols.rsocket.metadata.broker import (
    BROKER_MIME,
    BROKER_MIMES,
    KEY_NAMES,
    Address,
    BrokerInfo,
    RouteJoin,
    RouteRemove,
    RouteSetup,
    decode_broker,
)

ID, OTHER = bytes(range(16)), bytes(range(16, 32))
HEAD = bytes.fromhex("00000001")
ADDRESS = HEAD + bytes.fromhex("1480") + ID
SETUP = HEAD + bytes.fromhex("0400") + ID + b"\x03svc"

keys = st.sampled_from(sorted(KEY_NAMES.values())) | st.text(st.characters(codec="ascii"), min_size=1, max_size=0x7F)
tags = st.lists(st.tuples(keys.filter(lambda key: not key.startswith(("0x", "io.rsocket."))), st.text(max_size=31)))
ids = st.binary(min_size=16, max_size=16)
times = st.integers(0, (1 << 64) - 1)
frames = st.one_of(
    st.builds(RouteSetup, ids, st.text(max_size=63), tags),
    st.builds(RouteJoin, ids, ids, times, st.text(max_size=63), tags),
    st.builds(RouteRemove, ids, ids, times),
    st.builds(BrokerInfo, ids, times, tags),
    st.builds(
        Address,
        tags.filter(bool),
        method=st.sampled_from(["unicast", "multicast", "shard"]),
        origin=ids,
        wrapped=st.binary(),
        encrypted=st.booleans(),
    ),
)


def refused(frame: Any, rule: str) -> None:
    with pytest.raises(Violation) as caught:
        frame.encode()
    assert (caught.value.rule, caught.value.code) == (rule, Code.INVALID)


def unreadable(data: bytes, rule: str) -> None:
    with pytest.raises(Violation) as caught:
        decode_broker(data)
    assert (caught.value.rule, caught.value.code) == (rule, Code.INVALID)


@pytest.mark.parametrize(
    "frame",
    [
        RouteSetup(ID, "svc", {"k": "v"}),
        RouteJoin(ID, OTHER, 0x0102, "svc", {"k": "v"}),
        RouteRemove(ID, OTHER, 1),
        BrokerInfo(ID, 1, {"k": "v"}),
        Address({"k": "v"}, origin=ID, wrapped=b"w", encrypted=True),
    ],
    ids=lambda frame: type(frame).__name__,
)
def test_each_frame_is_read(frame: Any) -> None:
    assert decode_broker(frame.encode()) == frame


@given(frames)
def test_what_is_written_is_read(frame: Any) -> None:
    assert type(frame).decode(frame.encode()) == frame
    assert list(entries(compose([frame]))) == [(BROKER_MIME, frame.encode())]


@given(st.binary(max_size=64), st.booleans())
def test_garbage_is_a_frame_or_a_violation(garbage: bytes, listed: bool) -> None:
    for data in (garbage, ADDRESS + garbage, SETUP + garbage):
        try:
            decode_broker(data, address_metadata=listed)
        except Violation as violation:
            assert violation.code == Code.INVALID


def test_the_layout_of_each_frame() -> None:
    join = RouteJoin(ID, OTHER, 0x0102, "s", {"Zone": "a"})
    assert join.encode() == HEAD + b"\x08\x00" + ID + OTHER + bytes(6) + b"\x01\x02" + b"\x01s" + b"\x87\x01a"
    assert RouteRemove(ID, OTHER, 1).encode() == HEAD + b"\x0c\x00" + ID + OTHER + bytes(7) + b"\x01"
    assert BrokerInfo(ID, 1, {"k": ""}).encode() == HEAD + b"\x10\x00" + ID + bytes(7) + b"\x01" + b"\x01k\x00"
    assert Address({"k": "v", "l": "w"}, method="multicast", origin=ID, encrypted=True).encode() == (
        HEAD + b"\x15\x40" + ID + b"\x01k\x81v" + b"\x01l\x01w"
    )
    assert Address(method="shard").encode() == HEAD + b"\x14\x20" + bytes(16)


def test_the_table_of_keys_is_the_published_one() -> None:
    some = {0x01: "ServiceName", 0x0A: "UserName", 0x0F: "Version", 0x15: "Country", 0x1A: "TimeZone", 0x1E: "LBMethod"}
    assert {id: KEY_NAMES[id] for id in some} == some
    assert sorted(KEY_NAMES) == [*range(0x01, 0x16), *range(0x1A, 0x1F)]


@pytest.mark.parametrize("flags", [0x0C0, 0x0A0, 0x060, 0x0E0])
def test_R_60_more_than_one_way_to_choose_is_refused(flags: int) -> None:
    unreadable(HEAD + (5 << 10 | flags).to_bytes(2, "big") + ID, "R-60")


def test_an_address_without_a_way_to_choose_is_for_one() -> None:
    assert Address.decode(HEAD + b"\x14\x00" + ID).method == "unicast"


def test_R_69_what_is_wrapped_stays_as_it_is() -> None:
    address = Address({"ServiceName": "svc"}, wrapped=b"\x00\xff")
    assert Address.decode(address.encode()).wrapped == b"\x00\xff"


def test_D_9_metadata_before_the_tags_is_an_option() -> None:
    address = Address({"k": "v"}, metadata={"LBMethod": "x"}, wrapped=b"w")
    data = address.encode()
    assert data == HEAD + b"\x14\x80" + bytes(16) + b"\x9e\x01x" + b"\x01k\x01v" + b"w"
    assert Address.decode(data, address_metadata=True) == address
    assert Address.decode(data).tags == (("LBMethod", "x"),)
    assert Address.decode(Address(metadata={}).encode(), address_metadata=True).metadata == ()


def test_D_9_a_key_at_the_end_has_no_value() -> None:
    assert decode_broker(SETUP + b"\x81\x81a\x01k").tags == (("ServiceName", "a"), ("k", None))  # type: ignore[union-attr]
    refused(RouteSetup(ID, "svc", [("k", None)]), "D-9")


def test_I_6_prefixes_of_keys_are_equal() -> None:
    for prefix in ("io.rsocket.routing.", "io.rsocket.broker.", ""):
        assert Address({f"{prefix}ServiceName": "svc"}).tags == (("ServiceName", "svc"),)
    key = b"io.rsocket.routing.Zone"
    assert Address.decode(ADDRESS + bytes((len(key),)) + key + b"\x01a").tags == (("Zone", "a"),)
    assert Address({"io.rsocket.routing.Own": "a"}) == Address({"io.rsocket.broker.Own": "a"})
    assert Address({"io.rsocket.routing.": "a"}).tags == (("io.rsocket.routing.", "a"),)


def test_I_6_older_names_of_the_type_are_known() -> None:
    assert BROKER_MIMES == (BROKER_MIME, "message/x.rsocket.routing.frame.v0", "message/x.rsocket.forwarding")


def test_I_9_lengths_of_keys_and_values() -> None:
    longest = Address({"k" * 127: "v" * 127})
    assert Address.decode(longest.encode()) == longest
    refused(Address({"k" * 128: "v"}), "I-9")
    refused(Address({"": "v"}), "I-9")
    refused(Address({"k": "é" * 64}), "I-9")
    unreadable(ADDRESS + b"\x00\x01v", "I-9")


def test_I_9_a_list_that_ends_early_ends_there() -> None:
    assert decode_broker(SETUP + b"\x81\x81a").tags == (("ServiceName", "a"),)  # type: ignore[union-attr]


def test_I_10_extension_keys_are_read_and_not_written() -> None:
    for data, key in ((b"\xfc\x12\x34", "0x7C:0x1234"), (b"\xff\x00\x01", "0x7F:0x0001"), (b"\xa0", "0x20")):
        address = Address.decode(ADDRESS + data + b"\x01v")
        assert address.tags == ((key, "v"),)
        refused(address, "I-10")
    unreadable(ADDRESS + b"\xfc\x12", "2.6")


def test_what_can_not_be_written() -> None:
    refused(RouteSetup(b"short", "svc"), "2.6")
    refused(RouteSetup(ID, "s" * 256), "2.6")
    refused(RouteSetup(ID, "\ud800"), "2.6")
    refused(RouteRemove(ID, ID, 1 << 64), "2.6")
    refused(BrokerInfo(ID, -1), "2.6")
    refused(Address(method="all"), "2.6")  # type: ignore[arg-type]
    refused(Address(wrapped=b"w"), "2.6")
    refused(Address({"k": "v"}, metadata={}), "2.6")


def test_what_can_not_be_read() -> None:
    for data in (b"", HEAD, HEAD + b"\x04", SETUP[:-1], ADDRESS[:-1], ADDRESS + b"\x02k", ADDRESS + b"\x01k\x02v"):
        unreadable(data, "2.6")
    unreadable(b"\x00\x01" + SETUP[2:], "2.6")
    unreadable(HEAD + b"\x18\x00" + ID, "2.6")
    unreadable(SETUP[:-1] + b"\xff", "2.6")


def test_another_minor_version_and_unassigned_flags_are_read() -> None:
    assert decode_broker(b"\x00\x00\x00\x09\x06\x00" + SETUP[6:]) == RouteSetup(ID, "svc")


@pytest.mark.parametrize("kind", [RouteSetup, RouteJoin, RouteRemove, BrokerInfo, Address])
def test_another_frame_is_named(kind: Any) -> None:
    other = RouteRemove(ID, ID, 1) if kind is not RouteRemove else RouteSetup(ID, "svc")
    with pytest.raises(Violation, match=f"not {kind.__name__}"):
        kind.decode(other.encode())


@pytest.mark.parametrize("tags", ["weather", b"weather"])
def test_tags_are_names_with_values(tags: Any) -> None:
    with pytest.raises(TypeError, match="tags are names with values"):
        RouteSetup(ID, "svc", tags)
