"""Read the packets of one part of a capture file: the records that begin between two offsets.

A record is found through the one before it, so a reader in the middle of a file guesses where one begins
(``first_record``). A guess may be wrong, for example where packets contain captures: whoever uses it compares it with
the end of the part before (indexing.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import numpy as np

from afflux.capture import pcap, pcapng
from afflux.capture.errors import CaptureError, Damaged, Problem
from afflux.capture.names import Names
from afflux.capture.packets import PAD, Ints, Packets
from afflux.capture.pcap import Pcap
from afflux.capture.pcapng import Pcapng, Section
from afflux.capture.secrets import Secrets
from afflux.capture.source import no_capture
from afflux.core.limits import Limits

__all__ = ["Span", "first_record", "format_of", "read_at"]

_CHUNK: Final = 0x20_0000
_WINDOW: Final = 0x4_0000
"Bytes that are searched at once."
_CHAIN: Final = 8
"Records in a row that a guess must find."
_DECADE: Final = 10 * 366 * 86_400
_LARGEST: Final = 0x10_0000
"The largest packet that a guess accepts, in bytes."
_HEAD: Final = 16


def read_at(file: int, size: int, offset: int) -> bytes:
    """Return ``size`` bytes of an open file; fewer only at its end. Raises OSError."""
    found = os.pread(file, size, offset)
    if len(found) == size or not found:
        return found
    pieces = [found]
    missing = size - len(found)
    while missing and (data := os.pread(file, missing, offset + size - missing)):
        pieces.append(data)
        missing -= len(data)
    return b"".join(pieces)


def format_of(header: bytes, limits: Limits) -> Pcap | Pcapng:
    """Return the format of a file with these first 24 bytes.

    Raises:
        CaptureError: it is not an uncompressed capture, or its version is unsupported.
    """
    if header[:4] in pcap.MAGIC:
        return Pcap(header, limits)
    if header[:4] == pcapng.MAGIC:
        return Pcapng(header, limits, Secrets(limits), Names(limits))
    raise CaptureError(no_capture(header))


class Span:
    """The packets whose records begin in a part of a file. Iterate over ``packets`` once; then ``end``, ``problem``,
    ``count`` and ``section`` are known.

    Args:
        file: the open file, which is read with ``pread``.
        header: its first 24 bytes.
        start: where the first record begins.
        stop: where the next part begins: no record that begins there or later is read.
        size: the bytes of the file that are read at all.
        section: the state at ``start`` (see ``Pcapng.section``); None for the beginning of the file.
        limits: the bounds of a capture.
    """

    def __init__(
        self, file: int, header: bytes, start: int, stop: int, size: int, section: Section | None, limits: Limits
    ) -> None:
        self._file = file
        self._stop = stop
        self._size = size
        self._limits = limits
        self._format = format_of(header, limits)
        if section is not None and isinstance(self._format, Pcapng):
            self._format.resume(section)
        self.end = start
        "Where the first record after the part begins, or where reading has ended."
        self.count = 0
        "Packets read."
        self.problem: Problem | None = None
        "Why reading ended early."

    @property
    def section(self) -> Section | None:
        """The state at ``end``."""
        return self._format.section

    def packets(self) -> Iterator[Packets]:
        """Yield the packets in batches, numbered from 0."""
        try:
            while self.end < self._stop:
                yield from self._cut(self._next())
        except Damaged as damaged:
            self.problem = Problem(damaged.word, damaged.offset, damaged.text)

    def _next(self) -> bytes:
        """Return the bytes of the next records: those up to the end of the part, or one record that crosses it."""
        head = read_at(self._file, _HEAD, self.end)
        first = self._format.record_size(head) if len(head) == _HEAD else 0
        most = max(_CHUNK, self._limits.capture_record_bytes + 64)
        size = max(_HEAD, min(_CHUNK, self._stop - self.end), min(first, most))
        return read_at(self._file, min(size, self._size - self.end), self.end)

    def _cut(self, data: bytes) -> Iterator[Packets]:
        block, at, end, offset = data + PAD, 0, len(data), self.end
        while True:
            packets, stop, damaged = self._format.cut(block, at, end, offset, self.count)
            self.end = offset + stop
            if packets is not None:
                self.count += len(packets)
                yield packets
            if damaged is not None:
                raise damaged
            if isinstance(self._format, Pcapng) and self._format.skip:
                self.end, self._format.skip = self.end + self._format.skip, 0
                if self.end > self._size:
                    self.end = self._size
                    raise Damaged("truncated", self._size, "the last block is cut off")
                return
            if stop == at:
                break
            at = stop
        if self.end == offset:
            raise Damaged("truncated", offset, "the last record is cut off")


def first_record(
    file: int, header: bytes, start: int, stop: int, size: int, section: Section | None, limits: Limits
) -> int | None:
    """Guess where the first record at or after ``start`` begins; None if there seems to be none before ``stop``. The
    arguments are those of ``Span``; ``section`` is what the part is assumed to begin with."""
    shape = format_of(header, limits)
    if isinstance(shape, Pcapng) and section is not None:
        shape.resume(section)
    time = _seconds(file, shape) if isinstance(shape, Pcap) else 0
    at = start
    while at < stop:
        data = read_at(file, min(_WINDOW + 64, size - at), at)
        usable = min(_WINDOW, stop - at)
        found = _records(data, shape, time) if isinstance(shape, Pcap) else _blocks(data, shape, at)
        for place in found[found < usable].tolist():
            if _chains(file, shape, at + place, size, time, limits):
                return at + int(place)
        at += usable
    return None


def _seconds(file: int, shape: Pcap) -> int:
    head = read_at(file, _HEAD, pcap.HEADER)
    return int.from_bytes(head[:4], "little" if shape.order == "<" else "big")


def _views(data: bytes, order: str, step: int) -> Ints:
    """Return the 32-bit number at each position that is a multiple of ``step``; those after the end are 0."""
    padded = data + bytes(64)
    count = (len(data) + step - 1) // step
    return np.ndarray((count + 32 // step,), order + "u4", padded, 0, (step,)).astype(np.int64)


def _records(data: bytes, shape: Pcap, time: int) -> Ints:
    """Return where a record of a pcap file could begin."""
    words = _views(data, shape.order, 1)
    count = max(0, len(data) - _HEAD)
    seconds, fraction, captured, original = (words[shift : shift + count] for shift in (0, 4, 8, 12))
    likely = (np.abs(seconds - time) < _DECADE) & (fraction < 1_000_000_000 // shape.unit)
    if shape.swapped:
        captured, original = original, captured
    return np.flatnonzero(likely & (captured <= original) & (original <= _LARGEST))


def _blocks(data: bytes, shape: Pcapng, at: int) -> Ints:
    """Return where a block with a packet could begin: blocks are aligned to 32 bits."""
    skipped = -at % 4
    words = _views(data[skipped:], shape.section.order, 4)
    count = max(0, len(data) - skipped - 32) // 4
    kind, size = words[:count], words[1 : count + 1]
    likely = (kind == 6) & (size >= 32) & (size % 4 == 0) & (size <= _LARGEST)
    return np.flatnonzero(likely & (words[5 : count + 5] <= size - 32)) * 4 + skipped


def _chains(file: int, shape: Pcap | Pcapng, at: int, size: int, time: int, limits: Limits) -> bool:
    """Whether several records follow one another from a position, or all up to the end of the file."""
    for _ in range(_CHAIN):
        if at == size:
            return True
        head = read_at(file, min(32, size - at), at)
        if len(head) < _HEAD:
            return False
        length = shape.record_size(head)
        if length > limits.capture_record_bytes or not _plausible(file, shape, head, at, length, size, time):
            return False
        at += length
    return True


def _plausible(file: int, shape: Pcap | Pcapng, head: bytes, at: int, length: int, size: int, time: int) -> bool:
    if isinstance(shape, Pcap):
        return at + length <= size and len(_records(head[:_HEAD] + b"\0", shape, time)) == 1
    if length < 12 or length % 4 or at + length > size:
        return False
    return read_at(file, 4, at + length - 4) == head[4:8]
