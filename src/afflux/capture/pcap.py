"""Find the packets of a pcap file: both byte orders, micro- and nanoseconds.

A record is found through the length of the one before, so a wrong length ends the file.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

import numpy as np

from afflux.capture.errors import CaptureError, Damaged
from afflux.capture.kernels import SHARED
from afflux.capture.packets import Ints, Packets
from afflux.core.limits import Limits, oversize

__all__ = ["MAGIC", "Pcap"]

MAGIC: Final = {
    bytes.fromhex("a1b2c3d4"): (">", 1_000),
    bytes.fromhex("d4c3b2a1"): ("<", 1_000),
    bytes.fromhex("a1b23c4d"): (">", 1),
    bytes.fromhex("4d3cb2a1"): ("<", 1),
}
"First bytes of a file: its byte order, and the nanoseconds of a unit of its times."
HEADER: Final = 24
RECORD: Final = 16


class Pcap:
    """The format of one pcap file.

    Args:
        header: the first 24 bytes.
        limits: see ``capture_record_bytes``.

    Raises:
        CaptureError: the version is unsupported or the header is cut off.
    """

    def __init__(self, header: bytes, limits: Limits) -> None:
        if len(header) < HEADER:
            raise CaptureError(f"a pcap file begins with {HEADER} bytes, and this one has {len(header)}")
        self.order, self.unit = MAGIC[header[:4]]  # the byte order, and the nanoseconds of a unit of its times
        major, minor, _, _, snaplen, link = Struct(self.order + "HHiIII").unpack_from(header, 4)
        if major != 2:
            raise CaptureError(f"pcap version {major}.{minor} is unsupported; supported: 2.4")
        self._linktype = link & 0xFFFF
        self._limits = limits
        most = limits.capture_record_bytes
        self._most = min(snaplen, most) if snaplen else most
        self.swapped = minor < 3  # before 2.3 the two lengths of a record were in the other order

    @property
    def section(self) -> None:
        """Nothing: all records of a file are read in the same way (see ``Pcapng.section``)."""

    def record_size(self, head: bytes) -> int:
        """Return the size of the record that begins with these 16 bytes."""
        return RECORD + int(Struct(self.order + "I").unpack_from(head, 12 if self.swapped else 8)[0])

    def cut(
        self, block: bytes, at: int, end: int, offset: int, number: int
    ) -> tuple[Packets | None, int, Damaged | None]:
        """Find the whole records in ``block[at:end]``; return their packets, where the rest begins, and what is wrong
        with the rest. Returns None for no packets. ``offset`` is where the block begins in the file."""
        start, at, damaged = self._walk(block, at, end, offset)
        if not len(start):
            return None, at, damaged
        fields = np.ndarray((len(block) - RECORD,), f"({RECORD // 4},){self.order}u4", block, 0, (1,))
        seconds, fraction, captured, original = np.ascontiguousarray(fields[start].T, np.int64)
        packets = Packets(
            block=block,
            offset=offset,
            number=number,
            time=seconds * 1_000_000_000 + fraction * self.unit,
            interface=np.zeros(len(start), np.int64),
            linktype=np.full(len(start), self._linktype, np.int64),
            start=start + RECORD,
            captured=original if self.swapped else captured,
            original=captured if self.swapped else original,
        )
        return packets, at, damaged

    def _walk(self, block: bytes, at: int, end: int, offset: int) -> tuple[Ints, int, Damaged | None]:
        """Return where the whole records begin, where the rest begins, and what is wrong with it."""
        found = SHARED.records(block, at, end, big=self.order == ">", swapped=self.swapped, most=self._most)
        if found is None:
            starts, at, wrong = self._listed(block, at, end)
            found = np.array(starts, np.int64), at, wrong
        start, at, wrong = found
        if not wrong:
            return start, at, None
        captured, original = Struct(self.order + "II").unpack_from(block, at + 8)
        return start, at, self._wrong(offset + at, *((original, captured) if self.swapped else (captured, original)))

    def _listed(self, block: bytes, at: int, end: int) -> tuple[list[int], int, bool]:
        """Find records; see ``kernels.records``."""
        starts: list[int] = []
        append, lengths, most = starts.append, Struct(self.order + "II").unpack_from, self._most
        while end - at >= RECORD:
            captured, original = lengths(block, at + 8)
            if self.swapped:
                captured, original = original, captured
            if captured > most or captured > original:
                return starts, at, True
            stop = at + RECORD + captured
            if stop > end:
                break
            append(at)
            at = stop
        return starts, at, False

    def _wrong(self, offset: int, captured: int, original: int) -> Damaged:
        if captured > self._limits.capture_record_bytes:
            text = oversize(self._limits, "capture_record_bytes", captured)
            text += "; the file is damaged, or another one begins here (mergecap joins captures)"
        elif captured > original:
            text = f"{captured} bytes were captured of a packet of {original}"
        else:
            text = f"{captured} bytes were captured, and the file's snap length is {self._most}"
        return Damaged("bad-record", offset, text)
