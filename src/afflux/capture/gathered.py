"""Hold what the rows of one batch of packets are made of, apart from the connections, which later batches change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from afflux.capture.connections import Key
from afflux.capture.frames import Frames
from afflux.capture.order import Late
from afflux.capture.packets import Ints, Packets
from afflux.capture.segments import Segments, place_of
from afflux.capture.skipping import Place
from afflux.capture.talk import rising
from afflux.capture.undecoded import Watched
from afflux.capture.whole import Brief

__all__ = ["Gathered", "by_side", "file_of"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gathered:
    """What ``Analysis.gather`` returns of a batch, and ``Analysis.follow`` makes rows of."""

    frames: Frames
    packets: Packets
    "The packets, without their bytes."
    segments: Segments | None
    "Their segments, without the bytes."
    flow: Ints
    "The pair of ends of each segment, as an index of ``keys``."
    keys: list[Key]
    file: str
    "The file of the packets."
    earlier: Sequence[str]
    "The files of the first packets, which had to wait."
    last: int
    "The time of the last packet, in nanoseconds."
    ended: list[Watched | Brief]
    "The connections that have ended."
    late: list[Late]
    "The first packets of connections that are not in the order of time."
    doubted: npt.NDArray[np.bool_] | None
    "Whether the packets between each pair of ends are not in the order of time; None if all are."
    final: bool
    "The capture has ended before: the batch has no packets of its own."

    def file_of(self, packet: int) -> str:
        """Return the file of a packet; that of the batch for none."""
        return file_of(packet, self.earlier, self.file)

    def place_of(self, packet: int) -> Place:
        """Return where a packet is, and where its data begins; -1 stands for none."""
        return place_of(packet, self.packets, self.segments)

    def numbers(self) -> Ints:
        """Return for each frame the number of its packet in the file, from 1; 0 for none."""
        packets, frames = self.packets, self.frames
        counted = packets.number + np.arange(len(packets)) if packets.numbers is None else packets.numbers
        found = np.zeros_like(frames.packet)
        known = frames.packet >= 0
        found[known] = counted[frames.packet[known]] + 1
        return found

    def positions(self) -> Ints:
        """Return for each frame where the data of its packet begins in the file; -1 for none."""
        places = np.full(len(self.packets) + 1, -1, np.int64)  # the last one is that of the packet -1
        if self.segments is not None:
            places[self.segments.index] = self.segments.position
        found: Ints = places[self.frames.packet]
        return found


def file_of(packet: int, earlier: Sequence[str], file: str) -> str:
    """Return the file of a packet of a batch: the first ones are of ``earlier``, the others and none of ``file``."""
    return earlier[packet] if 0 <= packet < len(earlier) else file


def by_side(frames: Frames, held: Ints) -> Ints:
    """Return for each frame, in three rows, how long the server and the client of its connection had been held back,
    and what is missing of it (see ``ledger_columns.MISSED``)."""
    if not len(held):
        return np.zeros((3, len(frames)), np.int64)
    found = np.ascontiguousarray(held.T).take(frames.packet, axis=1, mode="clip")
    if len(frames) and frames.packet.min() < 0:
        found[:, frames.packet < 0] = 0
    falling = ~np.array([rising(conversation) for conversation in frames.conversations], np.bool_).take(frames.conn)
    if falling.any():
        found[:2] = np.where(falling, found[1::-1], found[:2])
        found[2] = np.where(falling, found[2] & 1 | found[2] >> 1 & 2 | found[2] << 1 & 4, found[2])
    return found
