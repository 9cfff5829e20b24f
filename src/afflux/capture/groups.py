"""Divide the flows of indexed captures into groups, and read the segments of a group from the captures.

A group has whole flows, of about the same number of bytes, that begin at about the same time. A flow may be larger than
a group should be; it is read in batches, like all others, so that memory does not depend on its size.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from afflux.capture.errors import CaptureError
from afflux.capture.indexing import FileIndex, IndexedPart
from afflux.capture.packets import PAD, Ints, Packets
from afflux.capture.parts import COLUMNS, KEYS, RISING, load
from afflux.capture.segments import Segments
from afflux.capture.spans import read_at

__all__ = ["GROUP_BYTES", "Batch", "Group", "Wanted", "groups_of"]

GROUP_BYTES: Final = 0x400_0000
"Bytes of the segments of a group, unless another number of groups is wanted."
_MOST: Final = 10_000
"Groups, unless more are wanted."
_ROW_BYTES: Final = 64
"Bytes that a segment without data counts as."
_BATCH_BYTES: Final = 0x40_0000
_BATCH_ROWS: Final = 0x8000
_NEAR: Final = 0x1000
"Unwanted bytes between wanted ones that are read too, in bytes."
_BLOB: Final = 1 << 62
"Positions from here on are in the file with the segments that were fragments."

Columns = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Batch:
    """Segments of a group that follow each other."""

    file: str
    "The capture."
    packets: Packets
    "Their packets. The captured bytes are those of the segments."
    segments: Segments


@dataclass(frozen=True, slots=True)
class Wanted:
    """The flows of a group in one part of an index."""

    file: int
    "The capture, as an index of ``Group.files``."
    part: IndexedPart
    late: bool
    "The part has segments that were fragments; it comes before the other parts of its file."
    rows: Ints
    "The rows of the flows in the directory of the part."


@dataclass(frozen=True, slots=True)
class Group:
    """Some flows. Sent to a task."""

    files: list[FileIndex]
    "The captures, without their parts."
    wanted: list[Wanted]
    "In the order of the capture."
    bytes: int
    "Bytes of the segments, about."

    def batches(self) -> Iterator[Batch]:
        """Yield the segments in the order of the capture.

        Raises:
            CaptureError: a capture has become shorter than it was when it was indexed.
            OSError: a capture or an index cannot be read.
        """
        for number, wanted in groupby(self.wanted, lambda one: one.file):
            index = self.files[number]
            late: Columns | None = None
            for one in wanted:
                if one.late:
                    late = _segments(index, one.part, one.rows, _BLOB)
                    continue
                found = _segments(index, one.part, one.rows, one.part.start)
                found["packet"] += one.part.number
                if late is not None:
                    before = late["packet"] < one.part.number + one.part.packets
                    found = _merged(found, {name: column[before] for name, column in late.items()})
                    late = {name: column[~before] for name, column in late.items()}
                yield from _batches(index, found)
            if late is not None and len(late["packet"]):
                yield from _batches(index, late)


def groups_of(indexes: Sequence[FileIndex], count: int | None = None) -> list[Group]:
    """Return the groups of the flows of some captures, which are in the order of their packets.

    Args:
        indexes: the captures.
        count: the number of groups; by default it depends on ``GROUP_BYTES``. There may be fewer or a few more.

    Raises:
        OSError: an index cannot be read.
    """
    parts = [(number, part) for number, index in enumerate(indexes) for part in _parts(index)]
    if not parts:
        return []
    flows = [
        load(Path(indexes[number].directory) / part.flows, (*KEYS, "count", "bytes", "time")) for number, part in parts
    ]
    sizes = [len(one["count"]) for one in flows]
    part_of = np.repeat(np.arange(len(parts)), sizes)
    row_of = np.concatenate([np.arange(size) for size in sizes])
    keys = np.stack([np.concatenate([one[name].astype(np.uint64) for one in flows]) for name in KEYS], axis=1)
    _, flow = np.unique(np.ascontiguousarray(keys).view("V48").ravel(), return_inverse=True)
    weights = np.concatenate([one["bytes"] + one["count"] * _ROW_BYTES for one in flows])
    group_of, total = _divided(flow, weights, np.concatenate([one["time"] for one in flows]), count)
    order = np.lexsort((row_of, part_of, group_of))
    breaks = np.flatnonzero(np.diff(group_of[order]) | np.diff(part_of[order])) + 1
    slim = [replace(index, parts=[], skipped={}, first_skipped={}) for index in indexes]
    found: dict[int, Group] = {}
    for entries in np.split(order, breaks):
        group_number, part_number = int(group_of[entries[0]]), int(part_of[entries[0]])
        group = found.setdefault(group_number, Group(slim, [], int(total[group_number])))
        number, part = parts[part_number]
        group.wanted.append(Wanted(number, part, part is indexes[number].fragments, row_of[entries]))
    return list(found.values())


def _parts(index: FileIndex) -> list[IndexedPart]:
    return [index.fragments, *index.parts] if index.fragments is not None else index.parts


def _divided(flow: Ints, weights: Ints, time: Ints, count: int | None) -> tuple[Ints, Ints]:
    """Return the group of each entry, and the bytes of each group."""
    flows = int(flow.max()) + 1
    sums = np.bincount(flow, weights, flows).astype(np.int64)
    first = np.full(flows, np.iinfo(np.int64).max)
    np.minimum.at(first, flow, time)
    wanted = count or min(max(1, int(sums.sum()) // GROUP_BYTES), _MOST)
    order = np.argsort(first, kind="stable")
    before = np.cumsum(sums[order]) - sums[order]
    number = np.empty(flows, np.int64)
    number[order] = before * wanted // max(1, int(sums.sum()))
    _, number = np.unique(number, return_inverse=True)
    return number[flow], np.bincount(number, sums).astype(np.int64)


def _segments(index: FileIndex, part: IndexedPart, rows: Ints, base: int) -> Columns:
    """Return the segments of some flows in a part, in the order of the capture, with their ends."""
    directory = Path(index.directory)
    flows = load(directory / part.flows, (*KEYS, "start", "count"))
    starts, counts = flows["start"][rows], flows["count"][rows]
    shifts = np.cumsum(counts) - counts
    places = np.arange(int(counts.sum())) + np.repeat(starts - shifts, counts)
    columns = load(directory / part.segments, tuple(COLUMNS))
    packet = columns["packet"][places].astype(np.int64)
    order = np.argsort(packet, kind="stable")
    found: Columns = {name: column[places[order]] for name, column in columns.items()}
    found |= {name: np.repeat(flows[name][rows], counts)[order] for name in KEYS}
    found["packet"], found["at"] = packet[order], found["at"].astype(np.int64) + base
    return found


def _merged(found: Columns, late: Columns) -> Columns:
    """Return both in the order of the capture."""
    if not len(late["packet"]):
        return found
    both = {name: np.concatenate((column, late[name])) for name, column in found.items()}
    order = np.argsort(both["packet"], kind="stable")
    return {name: column[order] for name, column in both.items()}


def _batches(index: FileIndex, found: Columns) -> Iterator[Batch]:
    """Yield segments of one file, with their data."""
    files = {False: os.open(index.path, os.O_RDONLY)}
    try:
        if index.fragments is not None:
            files[True] = os.open(index.blob, os.O_RDONLY)
        ends = np.cumsum(found["size"], dtype=np.int64)
        start = 0
        while start < len(ends):
            before = int(ends[start - 1]) if start else 0
            stop = int(np.searchsorted(ends, before + _BATCH_BYTES, side="right"))
            stop = min(max(stop, start + 1), start + _BATCH_ROWS)
            yield _batch(index, files, {name: column[start:stop] for name, column in found.items()})
            start = stop
    finally:
        for file in files.values():
            os.close(file)


def _batch(index: FileIndex, files: dict[bool, int], rows: Columns) -> Batch:
    size = rows["size"].astype(np.int64)
    block, at = _data(index, files, rows["at"], size)
    low, high = (
        (rows[f"{end}_high"], rows[f"{end}_low"], rows[f"{end}_port"].astype(np.int64)) for end in ("low", "high")
    )
    count = np.arange(len(size))
    time, number = rows["time"], rows["packet"]
    zero = np.zeros(len(size), np.int64)
    flags = rows["flags"].astype(np.int64)
    packets = Packets(
        block=block, offset=0, number=0, time=time, interface=zero, linktype=zero, start=at, captured=size,
        original=size + rows["cut"], numbers=number,
    )  # fmt: skip
    segments = Segments(
        block=block, index=count, low=low, high=high, rising=flags & RISING != 0, seq=rows["seq"].astype(np.int64),
        ack=rows["ack"].astype(np.int64), flags=flags & ~RISING, at=at,
        position=np.where(rows["at"] < _BLOB, rows["at"], -1), size=size, cut=rows["cut"].astype(np.int64),
        **{name: rows[name].astype(np.int64) for name in ("window", "scale", "mss")},
    )  # fmt: skip
    return Batch(index.path, packets, segments)


def _data(index: FileIndex, files: dict[bool, int], at: Ints, size: Ints) -> tuple[bytes, Ints]:
    """Return the bytes at some positions in one block, and where each is there."""
    used = np.flatnonzero(size)
    if not len(used):
        return PAD, np.zeros(len(at), np.int64)
    starts, stops = at[used], at[used] + size[used]
    breaks = np.flatnonzero((starts[1:] - stops[:-1] > _NEAR) | (starts[1:] < stops[:-1])) + 1
    first, last = np.concatenate(([0], breaks)), np.append(breaks, len(used)) - 1
    begin, length = starts[first], stops[last] - starts[first]
    pieces = [_piece(index, files, *place) for place in zip(begin.tolist(), length.tolist(), strict=True)]
    shift = np.cumsum(length) - length - begin
    where = np.zeros(len(at), np.int64)
    where[used] = starts + np.repeat(shift, last - first + 1)
    return b"".join((*pieces, PAD)), where


def _piece(index: FileIndex, files: dict[bool, int], begin: int, length: int) -> bytes:
    late = begin >= _BLOB
    data = read_at(files[late], length, begin - _BLOB if late else begin)
    if len(data) < length:
        raise CaptureError(f"{index.path} had {index.size} bytes when it was indexed, and has become shorter")
    return data
