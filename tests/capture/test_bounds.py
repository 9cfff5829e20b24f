"""What a capture may cost: memory that does not follow its size, time that does."""

from __future__ import annotations

import io
import random
import struct
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator

import pytest

from afflux.capture import Capture, Decoder
from afflux.protocols.registry import recognizable
from afflux.protocols.rsocket import frames as wire
from tests.capture.test_decoding import ANSWER, ASK, SETUP, Decoded, message, prefixed
from tests.capture.writing import SYN, Packet, Talk, ethernet, ipv4, pcap

MEGABYTE = 1_000_000


class Pieces(io.RawIOBase):
    """A file that is made as it is read."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""
        self.size = 0

    def read(self, size: int = -1) -> bytes:
        self._rest = self._rest or next(self._pieces, b"")
        data, self._rest = self._rest[:size], self._rest[size:]
        self.size += len(data)
        return data


def peak_of(pieces: Iterator[bytes]) -> tuple[int, int, Decoder]:
    """The most memory that decoding a file takes, the file's size, and its decoder."""
    file = Pieces(pieces)
    tracemalloc.start()
    decoder = Decoder(Capture(file), recognizable())
    for _ in decoder:
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak, file.size, decoder


def syns(count: int) -> Iterator[bytes]:
    """Connections that are never used."""
    yield pcap([], link=1)
    frame = bytearray(Talk().packet(True, -1, flags=SYN).data)
    for start in range(0, count, 1_000):
        piece = bytearray()
        for number in range(start, start + 1_000):
            struct.pack_into(">I", frame, 26, number)
            piece += struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame
        yield bytes(piece)


def items(size: int) -> Iterator[bytes]:
    """One connection with items of a kilobyte."""
    talk = Talk()
    run = prefixed(wire.PayloadFrame(stream=1, next=True, data=bytes(1_000)).encode()) * 100
    yield pcap(talk.open() + talk.send(True, prefixed(SETUP)))
    for _ in range(0, size, len(run)):
        yield pcap(talk.send(False, run))[24:]
        talk.sent[False][:] = b""
        talk.initial = (talk.initial[0], (talk.initial[1] + len(run)) % 2**32)


@pytest.mark.slow
def test_unused_connections_take_little_memory() -> None:
    """Above 65,536 the oldest are dropped: 120,000 take hardly more than 70,000 (PC-10)."""
    few, many = (peak_of(syns(count))[0] for count in (70_000, 120_000))
    assert many < 1.3 * few < 64 * MEGABYTE


@pytest.mark.slow
def test_memory_does_not_follow_the_size_of_the_file() -> None:
    """PC-23."""
    small, size, _ = peak_of(items(2 * MEGABYTE))
    large, larger, decoder = peak_of(items(20 * MEGABYTE))
    assert larger > 9 * size
    assert large < 1.2 * small < 32 * MEGABYTE
    assert decoder.tally == {"rsocket": 1}


def test_compressed_messages_are_inflated_one_at_a_time() -> None:
    """PC-18."""
    item = wire.PayloadFrame(stream=1, next=True, data=bytes(4_000_000)).encode()
    packer = zlib.compressobj(wbits=-15)
    packed = packer.compress(item) + packer.flush(zlib.Z_FULL_FLUSH)
    talk = Talk()
    extra = b"Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover\r\n"
    packets = talk.open() + talk.send(True, ASK % extra) + talk.send(False, ANSWER % extra)
    packets += talk.send(True, message(SETUP, masked=True)) + talk.send(False, message(packed[:-4], first=0xC2) * 50)
    peak, size, decoder = peak_of(iter([pcap(packets)]))
    assert decoder.tally == {"rsocket in WebSocket": 1}
    assert size < MEGABYTE and peak < 30 * MEGABYTE


def seconds(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def pings(count: int) -> list[Packet]:
    """A WebSocket whose client sends control frames one by one, and no message."""
    talk = Talk()
    packets = talk.open() + talk.send(True, ASK % b"") + talk.send(False, ANSWER % b"")
    for _ in range(count):
        packets += talk.send(True, message(b"", masked=True, first=0x89))[:1]
    return packets


def crumbs(count: int) -> list[Packet]:
    """A request that arrives byte by byte and never ends."""
    talk = Talk()
    return talk.open() + talk.send(True, b"GET /" + b"x" * count, 1)


def holes(count: int) -> list[Packet]:
    """Every second byte, from the last to the first."""
    talk = Talk()
    return talk.open() + [talk.packet(True, 2 * n + 1, b"x") for n in reversed(range(count))]


def shreds(count: int) -> list[Packet]:
    """The smallest fragments of datagrams, in random order."""
    noise = random.Random(1)
    made = []
    for number in range(count // 500):
        places = list(range(500))
        noise.shuffle(places)
        made += [
            Packet(ethernet(ipv4("10.0.0.1", "10.0.0.2", bytes(8), identification=number, fragment=0x2000 | n)))
            for n in places
        ]
    return made


@pytest.mark.slow
@pytest.mark.parametrize("attack", [pings, crumbs, holes, shreds])
def test_time_is_linear_in_hostile_input(attack: Callable[[int], list[Packet]]) -> None:
    """Four times the packets take about four times the time; squares would take sixteen."""
    small, large = (attack(count) for count in (2_000, 8_000))
    few = min(seconds(lambda: Decoded(small)) for _ in range(3))
    many = min(seconds(lambda: Decoded(large)) for _ in range(2))
    assert many < 9 * few
