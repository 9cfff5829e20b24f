"""Find where the connections that cannot be decoded begin, and make their rows of the table ``frames``.

The bytes of such a connection are not delivered (``Consumer.idle``). So the first packet with data of each direction is
looked for in the segments of each batch, and the number of bytes is that of window.py. A direction without data has no
row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from afflux.capture.connections import Connection, Key
from afflux.capture.conversation import Conversation
from afflux.capture.flows import Flows
from afflux.capture.frames import NONE, NUMBERS, Frames, Kind, Kinds, Payloads
from afflux.capture.packets import PAD, Ints
from afflux.capture.segments import Segments
from afflux.capture.settings import UNDECODED, Settings
from afflux.capture.skipping import UNKNOWN, Place
from afflux.capture.talk import rising
from afflux.capture.whole import Brief

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Site", "Undecoded", "Watched"]

_BYTES: Final = Kind("", None)
"The kind of rows that are no frames."


class Site(NamedTuple):
    """A packet with data."""

    file: str
    place: Place


class Watched(Conversation):
    """A conversation that tells when it has ended.

    Args:
        connection: see ``Conversation``, like ``settings``.
        log: takes it when both directions have ended.
        file: the file with its first packet with data.
        packet: that packet, an index in its batch; -1 for none.
    """

    __slots__ = ("_ended", "_log", "begins", "file", "since")

    def __init__(
        self, connection: Connection, settings: Settings, log: list[Watched | Brief], file: str, packet: int
    ) -> None:
        super().__init__(connection, settings)
        self.file = file
        self.begins: list[Site | None] = [None, None]
        "The first packets with data, by ``rising``, as far as ``Undecoded`` has found them."
        self.since = packet
        "Where they are looked for in the next batch."
        self._ended = 0
        self._log = log

    @property
    def is_over(self) -> bool:
        """Whether both directions have ended."""
        return self._ended == 3

    def end(self, rising: bool, packet: int) -> None:
        """See Consumer."""
        super().end(rising, packet)
        ended = self._ended | 1 << rising
        if ended != self._ended:
            self._ended = ended
            if ended == 3:
                self._log.append(self)


class Undecoded:
    """The connections of one capture that may be undecodable."""

    def __init__(self) -> None:
        self._sought: dict[Key, list[Watched]] = {}

    def watch(self, found: Watched) -> None:
        """Look for the first packets of a new connection."""
        self._sought.setdefault(found.connection.key, []).append(found)

    def seek(self, flows: Flows, file_of: Callable[[int], str]) -> None:
        """Look at the segments of a batch. ``file_of`` returns the file of a packet of it."""
        found = flows.segments
        numbers = [number for number, key in enumerate(flows.keys) if key in self._sought] if self._sought else []
        if found is None or not numbers:
            return
        carrying = _Carrying(found, flows.flow)
        for number in numbers:
            for one in self._sought[flows.keys[number]]:
                for way in (False, True):
                    if one.begins[way] is None and not (one.settled and one.content not in UNDECODED):
                        packet = carrying.first(2 * number + way, one.since)
                        one.begins[way] = Site(file_of(packet), flows.place_of(packet)) if packet >= 0 else None
                one.since = 0
            self._keep(flows.keys[number])

    def _keep(self, key: Key) -> None:
        """Forget the connections between two ends of which nothing is looked for any more."""
        left = [
            one for one in self._sought[key]
            if None in one.begins and not one.is_over and not (one.settled and one.content not in UNDECODED)
        ]  # fmt: skip
        if left:
            self._sought[key] = left
        else:
            del self._sought[key]

    def ended(self, one: Watched) -> None:
        """A connection has ended."""
        if one.connection.key in self._sought:
            self._keep(one.connection.key)

    @staticmethod
    def rows(ended: Sequence[tuple[Watched, tuple[int, int]]], *, payload: bool, dictionaries: bool) -> pa.RecordBatch:
        """Return the rows of connections that have ended, each with the bytes of both directions, the falling one
        first. ``payload``, ``dictionaries``: see ``Frames.arrow``."""
        found = [
            (number, one, way, one.begins[way] or Site(one.file, UNKNOWN), octets[way])
            for number, (one, octets) in enumerate(ended)
            for way in (False, True)
            if octets[way]
        ]
        none = np.full(len(found), NONE, np.int64)
        sites = [site for _, _, _, site, _ in found]
        columns: dict[str, Any] = dict.fromkeys(NUMBERS, none)
        columns |= {"offset": np.zeros(len(found), np.int64), "length": _ints(size for *_, size in found)}
        kinds, zero = Kinds(), np.zeros(len(found), np.int32)
        kinds.rows.append(_BYTES)
        frames = Frames(
            conversations=[one for one, _ in ended],
            kinds=kinds,
            packet=np.arange(len(found)),
            time=_ints(site.place.time for site in sites),
            conn=_ints(number for number, *_ in found),
            client=np.array([way is rising(one) for _, one, way, _, _ in found], np.bool_),
            kind=zero,
            flags=zero,
            errors={row: (UNDECODED[one.content][0], one.text) for row, (_, one, *_) in enumerate(found)},
            payloads=Payloads(PAD, none, none) if payload else None,
            **columns,
        )
        return frames.arrow(
            earlier=[site.file for site in sites],
            numbers=_ints(site.place.packet + 1 for site in sites),
            positions=_ints(site.place.offset for site in sites),
            payload=payload,
            dictionaries=dictionaries,
        )


class _Carrying:
    """The segments of a batch that have data, sorted by direction."""

    def __init__(self, found: Segments, flow: Ints) -> None:
        rows = np.flatnonzero(found.size + found.cut > 0)
        half = (flow * 2 + found.rising)[rows]
        order = np.argsort(half, kind="stable")
        self._half, self._packet = half[order], found.index[rows[order]]

    def first(self, half: int, since: int) -> int:
        """Return the first packet of a direction, not before ``since``; -1 for none."""
        start, stop = np.searchsorted(self._half, [half, half + 1]).tolist()
        at = start + int(np.searchsorted(self._packet[start:stop], since))
        return int(self._packet[at]) if at < stop else -1


def _ints(values: Any) -> Ints:
    return np.array(list(values), np.int64)
