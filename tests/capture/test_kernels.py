"""What the compiled kernels read is what numpy reads without them."""

from __future__ import annotations

import io
import random
import sys
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afflux.capture import connections, frame_kernels
from afflux.capture.header_kernels import pairs
from afflux.capture.kernels import SHARED, Boundaries
from afflux.capture.layouts import READABLE, Layout
from afflux.capture.network import Network
from afflux.capture.reading import Capture
from afflux.capture.schemas import TABLES
from afflux.capture.tables import analyze
from afflux.protocols.registry import named
from afflux.protocols.rsocket.frames import Setup
from tests.capture.test_frames import DECLARED, encoded
from tests.capture.writing import CLIENT, SERVER, SERVER6, Packet, Talk, ethernet, fragments, ipv4, pcap, pcapng, tcp
from tests.examples import share

PLAIN = Boundaries(patience=1 << 60)
FAST = Boundaries(patience=0)
COMPILED = Boundaries.compiled
SEGMENTS = sys.modules["afflux.capture.segments"]


@pytest.fixture(autouse=True, scope="module")
def compiled() -> None:
    FAST.find(b"", np.array([0]), np.array([0]), width=3, own=0, mask=0xFFFFFF, largest=0)


@pytest.mark.parametrize("protocol", sorted(DECLARED))
@given(st.integers(0, 1 << 60))
@settings(deadline=None, max_examples=share(1))
def test_the_fields_of_frames(protocol: str, seed: int) -> None:
    """All types with all flags, malformed frames, frames of no type."""
    noise = random.Random(seed)
    frames = [encoded(protocol, noise) for _ in range(40)]
    dissector = named(protocol).dissector
    assert dissector is not None
    layout = Layout(dissector(True, "none").declared)
    sizes = np.array([len(frame) for frame in frames])
    block, at = b"".join(frames) + bytes(READABLE), np.cumsum(sizes) - sizes
    plain, fast = (layout.read(block, at, sizes, one) for one in (PLAIN, FAST))
    assert fast.read.tolist() == plain.read.tolist() and list(fast.own) == list(plain.own)
    assert (fast.word.tolist(), fast.code.tolist()) == (plain.word.tolist(), plain.code.tolist())
    read = plain.read
    for name in ("numbers", "at", "sizes"):
        one, other = getattr(plain, name), getattr(fast, name)
        assert {key: column[read].tolist() for key, column in one.items()} == {
            key: column[read].tolist() for key, column in other.items()
        }
    for code, (rows, values) in plain.own.items():
        if layout.own[code]:
            assert (fast.own[code][0].tolist(), fast.own[code][1]) == (rows.tolist(), values)


def odd(noise: random.Random) -> Packet:
    """A packet that is no plain one, or seems to be none."""
    data = noise.randbytes(noise.randrange(200))
    segment = tcp(CLIENT, SERVER, noise.getrandbits(32), data, noise.randrange(512), options=noise.randbytes(4))
    match noise.randrange(7):
        case 0:
            return Packet(ethernet(fragments(segment, 64)[0]) if len(data) > 80 else b"")
        case 1:
            return Packet(ethernet(segment, ((0x8100, 5),)))
        case 2:
            return Packet(ethernet(ipv4(CLIENT[0], SERVER[0], data, protocol=noise.choice([6, 17]))))
        case 3:
            return Packet(ethernet(segment)).cut(noise.randrange(90))
        case 4:
            return Packet(ethernet(segment[:2] + b"\0\0" + segment[4:]))
        case 5:
            return Packet(ethernet(segment) + bytes(noise.randrange(9)))
        case _:
            frame = bytearray(ethernet(segment))
            frame[noise.randrange(12, 54)] ^= 1 << noise.randrange(8)
            return Packet(bytes(frame))


def found(file: bytes, boundaries: Boundaries) -> tuple[list[tuple[str, Any]], dict[str, int]]:
    """The columns of all segments, and what was skipped."""
    capture = Capture(io.BytesIO(file), chunk=4_096)
    network = Network(capture.limits)
    columns: list[tuple[str, Any]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SEGMENTS, "SHARED", boundaries)
        for packets in capture:
            made = SEGMENTS.segments(packets, network)
            for one in fields(made):
                value = getattr(made, one.name)
                halves = value if isinstance(value, tuple) else (value,)
                columns += [(one.name, half if isinstance(half, bytes) else half.tolist()) for half in halves]
                columns += [(one.name, half.dtype) for half in halves if not isinstance(half, bytes)]
    return columns, dict(network.skipped)


@given(st.integers(0, 1 << 60), st.sampled_from([0, 0, 1, 9]), st.booleans())
@settings(deadline=None, max_examples=share(0.6))
def test_the_headers_of_packets(seed: int, count: int, other: bool) -> None:
    """Plain ones alone, and with others between them."""
    noise = random.Random(seed)
    ends = [(f"10.{noise.randrange(256)}.0.{number}", noise.getrandbits(16)) for number in range(2)]
    packets = Talk(*ends, initial=(5, 2**32 - 90)).whole(noise.randbytes(500), noise.randbytes(900), 100)
    packets += [packets[0].cut(noise.randrange(54, 60)), packets[5].cut(noise.randrange(54, 90))]
    for _ in range(count):
        packets.insert(noise.randrange(len(packets)), odd(noise))
    file = pcapng(packets) if other else pcap(packets)
    assert found(file, FAST) == found(file, PLAIN)


def test_a_plain_batch_is_read_by_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison above is of two different ways."""
    monkeypatch.setattr(Network, "datagrams", None)
    assert found(pcap(Talk().whole(b"question", b"answer")), FAST)[1] == {}


@given(st.binary(max_size=300), st.lists(st.integers(1, 40), min_size=1, max_size=9), st.data())
@settings(deadline=None, max_examples=share(0.3))
def test_pieces_of_a_block(block: bytes, sizes: list[int], data: st.DataObject) -> None:
    """Some of them are not there."""
    block += bytes(40)
    starts = [data.draw(st.one_of(st.just(-1), st.integers(0, len(block) - size))) for size in sizes]
    wanted = [(start, size) for start, size in zip(starts, sizes, strict=True) if start >= 0]
    whole = b"".join(block[start : start + size] for start, size in wanted)
    at, size = np.array(starts), np.array(sizes)
    places = np.cumsum(np.where(at >= 0, size, 0)) - np.where(at >= 0, size, 0)
    for boundaries in (PLAIN, FAST):
        assert bytes(boundaries.pieces(block, at, size, places, len(whole))) == whole


@given(st.integers(0, 1 << 60), st.booleans())
@settings(deadline=None, max_examples=share(0.3))
def test_the_pairs_of_ends(seed: int, six: bool) -> None:
    """IPv4 alone, and with IPv6; in long and in short runs."""
    noise = random.Random(seed)
    ends = [(f"10.0.{noise.randrange(3)}.1", 40_000 + noise.randrange(4)) for _ in range(9)]
    ends += [(f"2001:db8::{n}", 40_000) for n in range(3)] if six else []
    packets = [
        Packet(ethernet(tcp(end, SERVER6 if ":" in end[0] else noise.choice([SERVER, ("10.0.1.1", 40_001)]), 1)))
        for end in noise.choices(ends, k=60)
        for _ in range(noise.choice([1, 1, 5]))
    ]
    capture = Capture(io.BytesIO(pcap(packets)))
    (batch,) = capture
    segments = SEGMENTS.segments(batch, Network(capture.limits))
    made = []
    for boundaries in (PLAIN, FAST):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(connections, "SHARED", boundaries)
            numbers, keys = connections.keys_of(segments)
            made.append((numbers.tolist(), keys))
    assert made[0] == made[1] and len(made[0][1]) == len(set(made[0][1]))


def test_pairs_that_collide_are_given_up() -> None:
    """Ports that differ by what the other one makes up for: all are looked up in one slot."""
    count = 200
    sender = np.arange(count)
    same = np.zeros(count, np.uint64)
    room = [np.empty(count, np.int64) for _ in range(2)]
    for receiver, found in ((sender, count), (257 * sender[::-1], -1)):
        low, high = (same, same, sender), (same, same, receiver)
        assert pairs(low, high, *room, np.full(512, -1, np.int64)) == found


@given(st.integers(0, 1 << 60))
@settings(deadline=None, max_examples=share(0.1))
def test_the_tables_of_a_capture(seed: int) -> None:
    """Frames of all types on connections that last for several batches, in both orders of the ends."""
    noise = random.Random(seed)
    ends = [(SERVER[0], 40_000 + number) for number in range(3)]
    talks = [Talk(CLIENT, end) if noise.randrange(2) else Talk(end, CLIENT) for end in ends]
    packets = [packet for talk in talks for packet in (*talk.open(), *talk.send(True, Setup().encode(prefixed=True)))]
    for number in range(60):
        frames = [encoded("rsocket", noise) for _ in range(noise.randrange(9))]
        data = b"".join(len(frame).to_bytes(3, "big") + frame for frame in frames)
        packets += talks[number % 3].send(bool(noise.randrange(2)), data)
    file, tables = pcap(packets), dict[str, list[Any]]()
    for name, found in (("plain", PLAIN), ("fast", FAST)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(SHARED), "compiled", lambda self, function, found=found: COMPILED(found, function))
            made = analyze(io.BytesIO(file), tables=TABLES, chunk=4_096)
            tables[name] = [(table, rows.to_pylist()) for table, rows in made]
    assert tables["fast"] == tables["plain"] and any(table == "frames" for table, _ in tables["fast"])


@given(st.integers(0, 1 << 60))
@settings(deadline=None, max_examples=share(0.1))
def test_how_long_both_ends_were_held_back(seed: int) -> None:
    """What is known of the lower and the higher end becomes what is known of the server and the client."""
    noise = np.random.default_rng(seed)
    held, falling = noise.integers(0, 8, (20, 3)), noise.integers(0, 2, 5).astype(bool)
    packets, conns = noise.integers(-1, 20, 40), noise.integers(0, 5, 40)
    wanted = []
    for packet, conn in zip(packets.tolist(), conns.tolist(), strict=True):
        low, high, missed = held[packet].tolist() if packet >= 0 else (0, 0, 0)
        of_low, of_high = missed & 4, missed & 2
        swapped = (high, low, (missed & 1) | (2 if of_low else 0) | (4 if of_high else 0))
        wanted.append(swapped if falling[conn] else (low, high, missed))
    function = FAST.compiled(frame_kernels.sides)
    assert function is not None
    function(held, packets, conns, falling, out := np.empty((3, 40), np.int64))
    assert [tuple(row) for row in out.T.tolist()] == wanted
