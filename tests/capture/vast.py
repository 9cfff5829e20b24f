"""Decode a capture of any size that is made as it is read, and print what that took: ``python -m tests.capture.vast
KIND COUNT``.

``syns`` are connections that are never used, ``items`` the bytes of one connection. A process of its own has a peak of
memory of its own. Contains no tests.
"""

from __future__ import annotations

import io
import json
import struct
import sys
import time
from collections.abc import Iterator

import numpy as np

from afflux.capture import Capture, Decoder
from afflux.protocols.registry import recognizable
from afflux.protocols.rsocket import frames as wire
from tests.capture.test_decoding import SETUP, prefixed
from tests.capture.writing import SYN, Talk, pcap

_RECORD = 16
_SEQ = _RECORD + 14 + 20 + 4
"Where a record of Ethernet and IPv4 has its sequence number."
_SOURCE = _RECORD + 14 + 12
_AT_ONCE = 10_000
_ITEM = 16_000
_ITEMS = 4


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


def syns(count: int) -> Iterator[bytes]:
    """The first packets of ``count`` connections."""
    yield pcap([], link=1)
    frame = Talk().packet(True, -1, flags=SYN).data
    record = np.frombuffer(struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame, np.uint8)
    for start in range(0, count, _AT_ONCE):
        rows = np.tile(record, (min(_AT_ONCE, count - start), 1))
        numbers = np.arange(start, start + len(rows), dtype=">u4")
        rows[:, _SOURCE : _SOURCE + 4] = numbers.view(np.uint8).reshape(-1, 4)
        yield rows.tobytes()


def items(size: int) -> Iterator[bytes]:
    """A stream of about ``size`` bytes, in segments of 64,000 bytes with four items each."""
    talk = Talk()
    item = wire.PayloadFrame(stream=1, next=True, data=bytes(_ITEM - 9)).encode()
    yield pcap(talk.open() + talk.send(True, prefixed(SETUP)))
    first = talk.packet(False, 0, prefixed(item) * _ITEMS)
    row = np.frombuffer(pcap([first])[24:], np.uint8).copy()
    (seq,) = struct.unpack_from(">I", row, _SEQ)
    step = len(prefixed(item)) * _ITEMS
    for number in range(size // len(row)):
        struct.pack_into(">I", row, _SEQ, (seq + number * step) % 2**32)
        yield row.tobytes()


def main(kind: str, count: int) -> None:
    """Decode, and print the most memory in bytes, the seconds of CPU, the bytes, the records and the connections."""
    file = Pieces({"syns": syns, "items": items}[kind](count))
    begun = time.process_time()
    decoder = Decoder(Capture(file), recognizable())
    records = sum(1 for _ in decoder)
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))
    found = {"peak": peak, "seconds": time.process_time() - begun, "bytes": file.size, "records": records}
    print(json.dumps(found | {"dropped": decoder.flows.dropped, "tally": decoder.tally}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
