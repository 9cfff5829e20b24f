"""What a capture may cost: memory that does not follow its size, time that does."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from afflux.capture import Capture, Decoder
from afflux.core.limits import Limits
from afflux.protocols.registry import recognizable
from afflux.protocols.rsocket import frames as wire
from tests.capture.test_decoding import ANSWER, ASK, SETUP, Decoded, message
from tests.capture.vast import Pieces
from tests.capture.writing import Packet, Talk, ethernet, ipv4, pcap

MEGABYTE = 1_000_000
EXHAUSTIVE = bool(os.environ.get("AFFLUX_EXHAUSTIVE"))


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


def vast(kind: str, count: int) -> Any:
    """What it takes to decode a capture, in a process of its own."""
    words = [sys.executable, "-m", "tests.capture.vast", kind, str(count)]
    ran = subprocess.run(words, check=True, capture_output=True, text=True)
    return json.loads(ran.stdout)


@pytest.mark.slow
@pytest.mark.repetitive
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from /proc")
@pytest.mark.long
def test_unused_connections_take_little_memory_and_time() -> None:
    """Above 65,536 the oldest are dropped (PC-10): ten millions of them if AFFLUX_EXHAUSTIVE is set."""
    count = 10_000_000 if EXHAUSTIVE else 250_000
    base, few, many = (vast("syns", each) for each in (1_000, 70_000, count))
    assert many["tally"] == {"no data": count} and many["dropped"] == count - 65_536
    assert many["peak"] < 1.3 * few["peak"] and many["peak"] - base["peak"] < 64 << 20
    assert many["seconds"] / count < 2.5 * few["seconds"] / 70_000


@pytest.mark.slow
@pytest.mark.repetitive
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from /proc")
def test_memory_does_not_follow_the_size_of_the_file() -> None:
    """PC-23: 10 GB if AFFLUX_EXHAUSTIVE is set, at 20 MB/s at least."""
    size = 10_000 * MEGABYTE if EXHAUSTIVE else 200 * MEGABYTE
    small, large = (vast("items", each) for each in (2 * MEGABYTE, size))
    assert large["bytes"] > 0.99 * size and large["records"] > size // 17_000 and large["tally"] == {"rsocket": 1}
    assert large["peak"] < 1.2 * small["peak"] and large["peak"] - small["peak"] < 32 << 20
    assert large["bytes"] / large["seconds"] > 20 * MEGABYTE


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


@pytest.mark.parametrize("beginning", [b"GET /", b"\x16\x03\x01\xff\xff"])
def test_first_bytes_of_many_connections_are_bounded_together(beginning: bytes) -> None:
    """PC-11, PC-22. Each connection may have 64 KiB that do not decide yet; all of them ``capture_bytes``."""
    limits = Limits.server(
        capture_bytes=1 << 20, capture_flow_bytes=1 << 18, frame_bytes=1 << 18, payload_bytes=1 << 17
    )
    talks = [Talk(("10.0.0.1", 1_000 + number)) for number in range(240)]
    packets = [one for talk in talks for one in [*talk.open(), *talk.send(True, beginning + bytes(40_000))]]
    whole = pcap(packets)
    file = Pieces(whole[at : at + 0x1_0000] for at in range(0, len(whole), 0x1_0000))
    tracemalloc.start()
    decoder = Decoder(Capture(file, limits=limits, chunk=0x1_0000), recognizable())
    assert list(decoder) == []
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(decoder.tally.values()) == 240
    assert file.size > 9 * MEGABYTE and peak < 6 * MEGABYTE


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
