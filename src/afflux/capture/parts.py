"""Index one part of a capture file: what a task needs to know of each TCP segment, sorted by flow.

A flow is a pair of ends: all connections between them. A part is two Arrow files: ``segments``, with one row for each
segment, and ``flows``, the directory, with the rows of each flow. Bytes of the capture are not copied, except fragments
of IP datagrams: they are returned, because only all parts together can complete them (indexing.py).
"""

from __future__ import annotations

import pickle
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

from afflux.capture.connections import Key, ends_of, keys_of
from afflux.capture.errors import Problem
from afflux.capture.network import TCP, V4, Fragment, Network
from afflux.capture.packets import NO_TIME, Ints, Packets
from afflux.capture.pcapng import Section
from afflux.capture.segments import Segments, segments
from afflux.capture.skipping import NOT_TCP, Place
from afflux.capture.spans import Span
from afflux.core.errors import MissingExtra
from afflux.core.limits import Limits

__all__ = ["COLUMNS", "KEYS", "RISING", "WIDE", "Part", "PartFile", "Rows", "build_part", "load", "pieces_in"]

COLUMNS: Final = {
    "time": np.int64,
    "packet": np.uint32,
    "at": np.uint32,
    "size": np.uint32,
    "cut": np.uint32,
    "seq": np.uint32,
    "ack": np.uint32,
    "flags": np.uint16,
    "window": np.uint16,
    "scale": np.int16,
    "mss": np.int32,
}
"""The columns of ``segments``: ``packet`` is counted from the first one of the part and ``at`` from its first byte;
``flags`` are those of TCP, with ``RISING``."""
WIDE: Final = COLUMNS | {"packet": np.int64, "at": np.int64}
"The columns of segments that were fragments: ``packet`` is counted from the first one of the file."
RISING: Final = 0x8000
"The bit of ``flags`` for the direction from the low end to the high one."
KEYS: Final = ("low_high", "low_low", "low_port", "high_high", "high_low", "high_port")
"The ends of a flow in ``flows``: both halves of the address, and the port."


@dataclass(frozen=True, slots=True)
class PartFile:
    """A file of an index: its name in the directory of the index, its bytes, and their CRC-32."""

    name: str
    size: int
    crc: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A fragment of an IP datagram, and the packet that it is: its number in the part, and its time."""

    packet: int
    time: int
    fragment: Fragment


@dataclass(slots=True)
class Part:
    """What is known of a part after it was read."""

    start: int
    "Where its first record begins, in bytes of the file."
    end: int
    "Where the first record after it begins."
    packets: int
    section: Section | None
    "The state at ``end`` (see ``Pcapng.section``)."
    problem: Problem | None
    first_time: int
    "When its first packet was captured; ``NO_TIME`` for none."
    last_time: int
    skipped: dict[str, int]
    "Packets that are not TCP, by reason."
    first_skipped: dict[str, Place]
    "The first of each, with its number in the part."
    files: list[PartFile]
    "``segments`` and ``flows``; none if there are no segments."
    pieces: str = ""
    "The file with the fragments (``pieces_in``); empty for none."


class Rows:
    """Collects the segments of a part, flow by flow."""

    def __init__(self, kinds: Mapping[str, Any] = COLUMNS) -> None:
        self._kinds = kinds
        self._numbers: dict[Key, int] = {}
        self._flows: list[Ints] = []
        self._columns: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in kinds}

    def add(self, found: Segments, time: Ints, packet: Ints, at: Ints) -> None:
        """Add segments; ``time``, ``packet`` and ``at`` are those columns, and the others are in ``found``."""
        if not len(found):
            return
        flow, keys = keys_of(found)
        numbers = [self._numbers.setdefault(key, len(self._numbers)) for key in keys]
        self._flows.append(np.array(numbers, np.int64)[flow])
        values = {"time": time, "packet": packet, "at": at, "size": found.size, "cut": found.cut, "seq": found.seq}
        values |= {"ack": found.ack, "flags": found.flags | found.rising * RISING}
        values |= {"window": found.window, "scale": found.scale, "mss": found.mss}
        for name, column in values.items():
            self._columns[name].append(column.astype(self._kinds[name]))

    def store(self, directory: Path, name: str) -> list[PartFile]:
        """Write the two files; return them. Returns nothing if there are no segments."""
        if not self._flows:
            return []
        flow = np.concatenate(self._flows)
        order = np.argsort(flow, kind="stable")
        columns = {each: np.concatenate(pieces)[order] for each, pieces in self._columns.items()}
        counts = np.bincount(flow)
        starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
        keys = np.array([sum(ends_of(key), ()) for key in self._numbers], np.uint64).T
        directory_of = dict(zip(KEYS, keys, strict=True)) | {
            "start": starts,
            "count": counts,
            "bytes": np.add.reduceat(columns["size"].astype(np.int64), starts),
            "time": columns["time"][starts],
        }
        return [store(directory, f"{name}.segments", columns), store(directory, f"{name}.flows", directory_of)]


def build_part(
    file: int,
    header: bytes,
    start: int,
    stop: int,
    size: int,
    section: Section | None,
    limits: Limits,
    directory: Path,
    name: str,
) -> Part:
    """Read a part of a capture file and write its index. The first arguments are those of ``Span``.

    Raises:
        OSError: the capture cannot be read, or the index not be written.
    """
    rows, times = Rows(), list[int]()
    span = Span(file, header, start, stop, size, section, limits)
    with closing(_Aside(directory / f"{name}.pieces")) as aside:
        network = Network(limits, aside.take)
        for packets in span.packets():
            aside.packets = packets
            times = [*times[:1], int(packets.time[0]), int(packets.time[-1])]
            found = segments(packets, network)
            rows.add(found, packets.time[found.index], packets.number + found.index, packets.offset + found.at - start)
    return Part(
        start=start,
        end=span.end,
        packets=span.count,
        section=span.section,
        problem=span.problem,
        first_time=times[0] if times else NO_TIME,
        last_time=times[-1] if times else NO_TIME,
        skipped=dict(network.skipped + aside.skipped),
        first_skipped=network.skipped.first,
        files=rows.store(directory, name),
        pieces=aside.name,
    )


class _Aside:
    """Writes fragments into a file, which is made when the first one comes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self.packets: Packets | None = None
        "The current batch."
        self.skipped = Counter[str]()

    @property
    def name(self) -> str:
        return "" if self._file is None else self._path.name

    def take(self, fragment: Fragment) -> None:
        """Write a fragment, unless its datagram is an IPv4 one of another protocol."""
        if self.packets is None or (fragment.key[0] == V4 and fragment.protocol != TCP):
            self.skipped[NOT_TCP] += 1
            return
        if self._file is None:
            self._file = self._path.open("wb")
        number, time = self.packets.number + fragment.packet, int(self.packets.time[fragment.packet])
        pickle.dump(Piece(number, time, fragment), self._file)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def pieces_in(path: Path) -> Iterator[Piece]:
    """Yield the fragments that a part has put aside."""
    with path.open("rb") as file:
        while file.peek(1):
            yield pickle.load(file)


def store(directory: Path, name: str, columns: dict[str, npt.NDArray[Any]]) -> PartFile:
    """Write columns into an Arrow file, ``NAME.arrow``. Raises OSError."""
    pa = _arrow()
    arrays = [
        pa.Array.from_buffers(pa.from_numpy_dtype(column.dtype), len(column), [None, pa.py_buffer(column)])
        for column in map(np.ascontiguousarray, columns.values())
    ]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(columns))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data = sink.getvalue()
    (directory / f"{name}.arrow").write_bytes(data)
    return PartFile(f"{name}.arrow", data.size, zlib.crc32(data))


def load(path: Path, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """Return columns of an Arrow file; they are views of the file. Raises OSError."""
    pa = _arrow()
    with pa.memory_map(str(path)) as mapped:
        batch = pa.ipc.open_file(mapped).get_batch(0)
    return {name: batch.column(name).to_numpy() for name in names}


def _arrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise MissingExtra("an index of captures", "spark") from None
    return pyarrow
