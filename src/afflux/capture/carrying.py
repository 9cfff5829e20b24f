"""Keep the segments of a batch that can be judged only with those that follow, and put them before the next batch."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from afflux.capture.packets import PAD, Ints, Packets
from afflux.capture.segments import Segments

__all__ = ["Carried", "segments_at"]

_COLUMNS = ("interface", "linktype", "start", "captured", "original")
"What packets have besides their time and their number; not known of carried ones."


class Carried:
    """Segments, each with its packet."""

    def __init__(self) -> None:
        self._segments: Segments | None = None
        self._time: Ints = np.empty(0, np.int64)
        self._numbers: Ints = np.empty(0, np.int64)
        self.files: list[str] = []
        "The file of each packet."

    def keep(self, packets: Packets, found: Segments, chosen: Ints, files: list[str], file: str) -> None:
        """Keep some segments of a batch. ``files`` are those of its first packets, ``file`` that of the others."""
        places = found.index[chosen]
        pieces = [found.block[at : at + size] for at, size in zip(found.at[chosen], found.size[chosen], strict=True)]
        part = segments_at(found, chosen)
        self._segments = replace(
            part,
            block=b"".join(pieces),
            index=np.arange(len(chosen)),
            at=np.cumsum(part.size) - part.size,
        )
        self._time, self._numbers = packets.time[places], _numbers(packets)[places]
        self.files = [files[place] if place < len(files) else file for place in places.tolist()]

    def joined(self, packets: Packets, found: Segments) -> tuple[Packets, Segments, list[str]]:
        """Return the batch with the kept segments before it, and the files of their packets. Nothing is kept then."""
        kept, files = self._segments, self.files
        if kept is None:
            return packets, found, []
        self._segments, self.files = None, []
        count, zero = len(kept), np.zeros(len(kept), np.int64)
        columns: dict[str, Any] = {name: np.concatenate((zero, getattr(packets, name))) for name in _COLUMNS}
        columns |= {"time": np.concatenate((self._time, packets.time)), "number": 0}
        whole = replace(packets, **columns, numbers=np.concatenate((self._numbers, _numbers(packets))))
        moved = replace(found, index=found.index + count, at=found.at + len(kept.block))
        return whole, _joined(kept, moved), files

    def last(self) -> tuple[Packets, Segments, list[str]] | None:
        """Return what is kept as a batch, and keep nothing; None if nothing is kept."""
        if self._segments is None:
            return None
        none = np.empty(0, np.int64)
        nothing = Packets(PAD, 0, 0, none, none, none, none, none, none)
        return self.joined(nothing, replace(segments_at(self._segments, none), block=PAD))


def segments_at(found: Segments, chosen: Any) -> Segments:
    """Return some segments."""
    taken: dict[str, Any] = {}
    for field in fields(found):
        value = getattr(found, field.name)
        if isinstance(value, tuple):
            taken[field.name] = tuple(column[chosen] for column in value)
        elif not isinstance(value, bytes):
            taken[field.name] = value[chosen]
    return replace(found, **taken)


def _joined(one: Segments, other: Segments) -> Segments:
    """Return segments, and others after them whose data follows."""
    made: dict[str, Any] = {"block": one.block + other.block}
    for field in fields(one):
        first, second = getattr(one, field.name), getattr(other, field.name)
        if isinstance(first, tuple):
            made[field.name] = tuple(map(np.concatenate, zip(first, second, strict=True)))
        elif not isinstance(first, bytes):
            made[field.name] = np.concatenate((first, second))
    return Segments(**made)


def _numbers(packets: Packets) -> Ints:
    return packets.number + np.arange(len(packets)) if packets.numbers is None else packets.numbers
