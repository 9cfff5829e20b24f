"""Capture files: every format, and what is wrong with some."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import struct
import sys
import tracemalloc
import zlib
from collections.abc import Callable

import numpy as np
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afflux.capture import Capture, CaptureError, is_capture
from afflux.capture import pcap as pcap_format
from afflux.capture.kernels import Boundaries
from afflux.capture.network import V4
from afflux.core.limits import Limits
from tests.capture import writing
from tests.capture.reading import Row, rows
from tests.capture.writing import Packet, block, enhanced, interface, obsolete, option, pcap, pcapng, section, simple

PACKETS = [Packet(bytes([n]) * (20 + 7 * n), writing.START + n * 1_000) for n in range(40)]
TINY = Limits.tiny()


def expected(packets: list[Packet], unit: int = 1_000) -> list[Row]:
    return [Row(one.time // unit * unit, 0, one.linktype, one.whole, one.data) for one in packets]


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("nano", [False, True])
@pytest.mark.parametrize("chunk", [1, 100, 0x8_0000])
def test_pcap_of_both_byte_orders_and_units(order: str, nano: bool, chunk: int) -> None:
    """PC-01."""
    packets = [Packet(one.data, one.time + 7, len(one.data) + 5) for one in PACKETS]
    file = pcap(packets, order=order, nano=nano)
    assert is_capture(file[:4])
    assert rows(file, chunk=chunk) == (expected(packets, 1 if nano else 1_000), None)


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("minor", [2, 4])
@pytest.mark.parametrize("seed", range(4))
def test_compiled_kernels_find_the_same_records(
    order: str, minor: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba", reason='compiled kernels need the extra "fast"')
    noise, file = random.Random(seed), bytearray(pcap(PACKETS, order=order))
    struct.pack_into(order + "H", file, 6, minor)
    if seed:
        file[noise.randrange(24, len(file))] ^= 1 << noise.randrange(8)
        del file[noise.randrange(len(file) // 2, len(file)) :]
    found = []
    plain, kernels = Boundaries(), Boundaries(0)
    kernels.find(b"", *[np.zeros(0, np.int64)] * 2, width=3, own=0, mask=0xFF_FFFF, largest=1)
    for finder in (plain, kernels):
        assert (finder.records(b"", 0, 0, big=False, swapped=False, most=1) is None) is (finder is plain)
        monkeypatch.setattr(pcap_format, "SHARED", finder)
        found += [rows(bytes(file), chunk=chunk) for chunk in (50, 0x8_0000)]
    assert found == [found[0]] * 4
    assert seed or len(found[0][0]) == len(PACKETS)


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("chunk", [1, 100, 0x8_0000])
def test_pcapng_of_both_byte_orders(order: str, chunk: int) -> None:
    file = pcapng(PACKETS, order=order)
    assert is_capture(file[:4])
    assert rows(file, chunk=chunk) == (expected(PACKETS), None)


def test_sections_of_different_byte_orders_number_their_interfaces_anew() -> None:
    one, two, three = PACKETS[:3]
    file = section("<") + interface(1) + enhanced(one) + section(">") + interface(101, order=">")
    file += interface(113, order=">") + enhanced(two, 1, order=">") + enhanced(three, 0, order=">")
    found, problem = rows(file)
    assert [(row.interface, row.linktype, row.data) for row in found] == [
        (0, 1, one.data),
        (1, 113, two.data),
        (0, 101, three.data),
    ]
    assert problem is None


@pytest.mark.parametrize("order", "<>")
def test_blocks_of_every_type(order: str) -> None:
    """Obsolete and simple packets, names, secrets, statistics and a custom block of 600 KB, which is skipped."""
    one, two, three, four = PACKETS[:4]
    secret = b"CLIENT_RANDOM " + b"ab" * 32 + b" " + b"cd" * 48
    others = [block(10, struct.pack(order + "II", 0x544C534B, len(secret)) + secret, order)]
    names = option(1, bytes((10, 0, 0, 1)) + b"a.example\0b.example\0", order) + option(9, b"?", order)
    names += option(2, bytes(15) + b"\1" + b"six\x1b.example", order) + option(1, bytes((10, 0, 0, 1)) + b"c\0", order)
    others.append(block(4, names + option(0, b"", order), order))
    others += [block(5, bytes(8), order), block(0xBAD, bytes(600_000), order)]
    file = section(order) + interface(order=order) + obsolete(one, order=order) + b"".join(others)
    file += simple(two, order=order) + enhanced(three, order=order) + obsolete(four, order=order)
    for chunk in (64, 0x8_0000):
        found, problem = rows(file, chunk=chunk)
        assert problem is None
        assert [row.data for row in found] == [one.data, two.data, three.data, four.data]
        assert [row.time for row in found] == [
            one.time // 1000 * 1000,
            -1,
            three.time // 1000 * 1000,
            four.time // 1000 * 1000,
        ]
    capture = Capture(io.BytesIO(file))
    assert sum(map(len, capture)) == 4
    assert capture.secrets.find(b"\xab" * 32) == {"CLIENT_RANDOM": b"\xcd" * 48}
    assert (len(capture.secrets), len(capture.names)) == (1, 2)
    ends = [(V4, 0x0A000001, 80), (0, 1, 443), (V4, 0x0A000002, 80)]
    assert list(map(capture.names.text, ends)) == ["10.0.0.1:80 (a.example)", "[::1]:443 (six?.example)", "10.0.0.2:80"]


@pytest.mark.parametrize(
    ("resolution", "offset", "ticks", "time"),
    [
        (None, 0, 1_700_000_000_123_456, 1_700_000_000_123_456_000),
        (9, 0, 1_700_000_000_123_456_789, 1_700_000_000_123_456_789),
        (3, 0, 1_700_000_000_123, 1_700_000_000_123_000_000),
        (0, 5, 1_700_000_000, 1_700_000_005_000_000_000),
        (12, 0, 1_700_000_000_123_456, 1_700_000_000_123),
        (6, -3_600, 1_700_000_000_000_000, 1_699_996_400_000_000_000),
        (0x80 | 10, 0, 1_700_000_000 << 10 | 512, 1_700_000_000_500_000_000),
        (0x80 | 32, 0, 1_700_000_000 << 32 | 1 << 31, 1_700_000_000_500_000_000),
        (0x80 | 40, 0, 1_000 << 40 | 3 << 38, 1_000_750_000_000),
        (127, 0, 5, 0),
        (0, 0, 2**64 - 1, 9_000_000_000_000_000_000),
        (9, 0, 2**64 - 1, 2**63 - 1),
        (0, -(2**63), 5, 0),
    ],
)
def test_the_clock_of_an_interface(resolution: int | None, offset: int, ticks: int, time: int) -> None:
    file = section() + interface(resolution=resolution, offset=offset) + enhanced(PACKETS[0], ticks=ticks)
    found, problem = rows(file)
    assert problem is None
    assert found[0].time == time


def zstd(data: bytes) -> bytes:
    return bytes(pyarrow.Codec("zstd").compress(data, asbytes=True))


COMPRESSIONS = [gzip.compress, zstd, lzma.compress, bz2.compress]


@pytest.mark.parametrize("one", COMPRESSIONS)
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("chunk", [50, 0x8_0000])
def test_compressed_files(one: Callable[[bytes], bytes], parts: int, chunk: int) -> None:
    """Also in two streams, one after the other."""
    whole = pcap(PACKETS)
    file = one(whole) if parts == 1 else one(whole[:99]) + one(whole[99:])
    assert is_capture(file[:10])
    capture = Capture(io.BytesIO(file), chunk=chunk)
    data = [batch.block[at : at + n] for batch in capture for at, n in zip(batch.start, batch.captured, strict=True)]
    assert data == [one.data for one in PACKETS]
    assert capture.problem is None


class Pipe(io.RawIOBase):
    """A pipe that delivers one byte at a time."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def read(self, size: int = -1) -> bytes:
        return self._data.read(min(size, 1))


@pytest.mark.parametrize("compress", COMPRESSIONS[:1] + COMPRESSIONS[2:])
def test_a_pipe_may_deliver_single_bytes(compress: Callable[[bytes], bytes]) -> None:
    capture = Capture(Pipe(compress(pcap(PACKETS))))
    assert sum(map(len, capture)) == len(PACKETS)
    assert capture.problem is None


def test_streams_of_xz_may_be_padded() -> None:
    """With any number of zeros, also more than are read at once."""
    whole = pcap(PACKETS)
    file = lzma.compress(whole[:99]) + bytes(0x4_0000) + lzma.compress(whole[99:]) + bytes(8)
    assert rows(file) == rows(whole)


def test_memory_of_xz_is_bounded() -> None:
    """PC-17: the header of a stream asks for it."""
    for size, wrong in ((64, False), (256, True)):
        filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": size << 20}]
        file = lzma.compress(pcap(PACKETS), filters=filters)
        if wrong:
            with pytest.raises(CaptureError, match="the compressed data cannot be read: Memory usage limit exceeded"):
                Capture(io.BytesIO(file))
        else:
            assert len(rows(file)[0]) == len(PACKETS)


@pytest.mark.parametrize(
    ("module", "compress", "name"), [("lzma", lzma.compress, "xz"), ("bz2", bz2.compress, "bzip2")]
)
def test_a_python_without_a_decompressor(
    module: str, compress: Callable[[bytes], bytes], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(CaptureError, match=f"compressed with {name}, .*: decompress it with {name} -d"):
        Capture(io.BytesIO(compress(pcap(PACKETS))))


# -- what is wrong with a file -----------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [pcap, pcapng])
def test_cut_at_every_byte(make: Callable[[list[Packet]], bytes]) -> None:
    """Every whole packet is read; the rest is reported as truncated (PC-02)."""
    packets = PACKETS[:3]
    file = make(packets)
    ends = [len(make(packets[:n])) for n in range(4)]
    if make is pcapng:
        ends = [len(file) - sum(len(enhanced(one)) for one in packets[n:]) for n in range(4)]
    for size in range(len(file)):
        whole = sum(size >= end for end in ends[1:])
        try:
            found, problem = rows(file[:size])
        except CaptureError:
            assert size < 24
            continue
        assert found == expected(packets)[:whole]
        if size in ends or (make is pcapng and size == len(section())):
            assert problem is None
        else:
            assert problem is not None and problem.word == "truncated" and problem.offset <= size


@pytest.mark.parametrize(
    "start",
    [b"", b"\0" * 100, b"GET / HTTP/1.1\r\n\r\n" * 9, b"\x1f\x8b" + bytes(100), b"\x0a\x0d\x0d\x0a" + bytes(60)],
)
def test_another_file_is_refused(start: bytes) -> None:
    """PC-01."""
    with pytest.raises(CaptureError):
        Capture(io.BytesIO(start))


@pytest.mark.parametrize(
    ("start", "remedy"),
    [
        (b"\x04\x22\x4d\x18", "; it is compressed with lz4: decompress it with lz4 -d"),
        (b"\x1f\x9d\x90\xd4", "; it is compressed with compress: decompress it with gzip -d"),
        (b"PK\x03\x04", "; it is a zip archive: unpack it first"),
        (b"7z\xbc\xaf\x27\x1c", "; it is a 7z archive: unpack it first"),
        (b"GET ", ""),
    ],
)
def test_a_container_that_is_not_read_is_named(start: bytes, remedy: str) -> None:
    """PC-01: the message has the first bytes, and what to do."""
    with pytest.raises(CaptureError) as refused:
        Capture(io.BytesIO(start + bytes(60)))
    text = f"not a pcap or pcapng file: its first bytes are {start[:4].hex(' ')}"
    assert refused.value.message == text + remedy


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(CaptureError, match=r"pcap version 9\.4"):
        Capture(io.BytesIO(pcap([])[:4] + b"\x09" + pcap([])[5:]))


@pytest.mark.parametrize("captured", [2**32 - 1, 2**31, 300_000, 262_145])
def test_a_length_above_the_limit_stops_and_nothing_is_allocated(captured: int) -> None:
    """PC-03."""
    head = pcap(PACKETS[:1])
    file = head + struct.pack("<IIII", 0, 0, captured, 2**32 - 1) + bytes(1_000)
    tracemalloc.start()
    found, problem = rows(file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == expected(PACKETS[:1])
    assert problem is not None
    assert (problem.word, problem.offset) == ("bad-record", len(head))
    assert "capture_record_bytes=262144" in str(problem)
    assert peak < 4_000_000


@pytest.mark.parametrize(("size", "wrong"), [(99, False), (100, False), (101, True)])
def test_capture_record_bytes(size: int, wrong: bool) -> None:
    limits = TINY.replace(capture_record_bytes=100)
    for file in (pcap([Packet(bytes(size))]), section() + interface() + enhanced(Packet(bytes(size)))):
        found, problem = rows(file, limits)
        assert (problem is not None, len(found)) == (wrong, not wrong)


def test_lengths_that_contradict_each_other() -> None:
    """More captured than the packet had, or than the snap length allows (PC-03)."""
    longer = pcap(PACKETS[:1]) + struct.pack("<IIII", 0, 0, 50, 49) + bytes(50)
    above = pcap([Packet(bytes(60)), Packet(bytes(61))], snaplen=60)
    for file in (longer, above):
        found, problem = rows(file)
        assert len(found) == 1 and problem is not None and problem.word == "bad-record"


@pytest.mark.parametrize(
    "wrong",
    [
        struct.pack("<III", 6, 10, 10),
        struct.pack("<III", 6, 0, 0),
        struct.pack("<II", 6, 2**32 - 4) + bytes(400),
        struct.pack("<II", 1, 12) + struct.pack("<I", 12),
        enhanced(PACKETS[0], 1),
        enhanced(PACKETS[0])[:-4] + bytes(4),
        struct.pack("<IIIIIII", 6, 36, 0, 0, 0, 40, 40) + bytes(4) + struct.pack("<I", 36),
        struct.pack("<III", 0x0A0D0D0A, 28, 0x12345678) + bytes(16),
    ],
    ids=["short", "zero", "huge", "small interface", "no interface", "other end", "past the end", "byte order"],
)
def test_a_wrong_block_stops(wrong: bytes) -> None:
    """PC-01, PC-03."""
    good = section() + interface() + enhanced(PACKETS[0])
    found, problem = rows(good + wrong + enhanced(PACKETS[1]))
    assert found == expected(PACKETS[:1])
    assert problem is not None and (problem.word, problem.offset) == ("bad-record", len(good))


@pytest.mark.parametrize(("count", "wrong"), [(1_023, False), (1_024, False), (1_025, True), (1_000_000, True)])
def test_capture_interfaces(count: int, wrong: bool) -> None:
    """PC-05."""
    found, problem = rows(section() + interface() * count + enhanced(PACKETS[0], count - 1))
    assert (problem is not None, len(found)) == (wrong, not wrong)
    if problem is not None:
        assert "capture_interfaces=1024" in str(problem)


@pytest.mark.parametrize(("count", "stored"), [(63, 63), (64, 64), (65, 64), (20_000, 64)])
def test_capture_names(count: int, stored: int) -> None:
    """PC-05: the first names are stored, however many blocks bring them."""
    limits = Limits(capture_names=64)
    records = [option(1, struct.pack(">I", n) + b"n%d.example\0" % n) for n in range(count)]
    half = count // 2
    blocks = [block(4, b"".join(some) + option(0, b"")) for some in (records[:half], records[half:])]
    capture = Capture(io.BytesIO(section() + interface() + b"".join(blocks) + enhanced(PACKETS[0])), limits=limits)
    assert sum(map(len, capture)) == 1 and capture.problem is None
    assert len(capture.names) == stored
    assert capture.names.text((V4, stored - 1, 80)).endswith(f"(n{stored - 1}.example)")


def test_options_are_passed_over() -> None:
    """PC-05: sixty thousand in each block take no memory of their own, and hide nothing."""
    options = option(2988, b"x" * 4) * 20_000 + option(0, b"")
    one = block(1, struct.pack("<HHI", 1, 0, 0x4_0000) + options)
    assert len(one) > 160_000
    data = PACKETS[0].data
    head = struct.pack("<IIIII", 0, 0, 0, len(data), len(data))
    packet = block(6, head + data + bytes(-len(data) % 4) + options)
    tracemalloc.start()
    found, problem = rows(section() + one + packet * 3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (len(found), problem) == (3, None)
    assert {row.data for row in found} == {data} and peak < 8_000_000


def test_a_bomb_stops() -> None:
    """PC-17."""
    packets = [Packet(bytes(200_000), n) for n in range(200)]
    for compress in COMPRESSIONS:
        bomb = compress(pcap(packets))
        found, problem = rows(bomb)
        assert 0 < len(found) < 200 and problem is not None and problem.word == "bomb"
        assert len(rows(bomb, Limits.trusted())[0]) == 200


@pytest.mark.parametrize("compress", COMPRESSIONS)
def test_compressed_data_that_is_cut_off(compress: Callable[[bytes], bytes]) -> None:
    noise = random.Random(1)
    whole = compress(pcap([Packet(noise.randbytes(1_000), n) for n in range(3_000)]))
    found, problem = rows(whole[: len(whole) * 2 // 3])
    assert problem is not None and problem.word == "truncated"
    assert problem.text == "the compressed data cannot be read: it ends early"
    assert 1_700 < len(found) < 2_100  # bzip2 has blocks of 900,000 bytes


def test_all_that_precedes_the_damage_of_a_small_compressed_file() -> None:
    file = gzip.compress(pcap([Packet(random.Random(n).randbytes(100), n) for n in range(100)]))
    for size in (len(file) // 2, len(file) - 20):
        start = zlib.decompressobj(wbits=31).decompress(file[:size])
        found, problem = rows(file[:size])
        assert found == rows(start)[0] and len(found) > 40
        assert problem is not None and problem.word == "truncated"


def test_a_record_that_is_too_large_says_what_may_be_wrong() -> None:
    """Two files one after the other: the header of the second is no record."""
    _, problem = rows(pcap(PACKETS) + pcap(PACKETS))
    assert problem is not None and "exceed capture_record_bytes=262144" in str(problem)
    assert "or another one begins here (mergecap joins captures)" in str(problem)
    assert str(problem).count("bad-record") == 1


def test_a_file_that_grows() -> None:
    """What is there is read; a later reader reads on."""
    file = pcap(PACKETS)
    for size in (len(file) // 3, len(file) // 2, len(file)):
        found, problem = rows(file[:size])
        assert found == expected(PACKETS)[: len(found)]
        assert (problem is None) == (size == len(file))


def test_memory_does_not_grow_with_the_file() -> None:
    one = pcap([Packet(bytes(1_400))])[24:]

    class Endless(io.RawIOBase):
        left = 40_000

        def read(self, size: int = -1) -> bytes:
            count = min(self.left, size // len(one))
            self.left -= count
            return one * count

    tracemalloc.start()
    source = Endless()
    head = io.BytesIO(pcap([], link=1))

    class Both(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            return head.read(size) or source.read(size)

    capture = Capture(Both())
    assert sum(map(len, capture)) == 40_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6_000_000


@given(st.binary(max_size=300), st.sampled_from([pcap(PACKETS[:2]), pcapng(PACKETS[:2])]), st.integers(24, 120))
def test_garbage_never_raises(noise: bytes, file: bytes, at: int) -> None:
    found, problem = rows(file[:at] + noise)
    assert all(len(row.data) <= row.original for row in found)
    assert problem is None or problem.offset <= at + len(noise)
