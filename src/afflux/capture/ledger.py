"""Keep the streams of all connections of a capture, and find how they ended, where they stalled, and what was wrong.

Frames are handed over batch by batch, as columns (frames.py). What they mean is declared by their protocols
(core.meanings); translating.py turns that into numbers, and ledger_kernels.py applies them. The memory is bounded: by
``capture_streams`` for streams, and by ``capture_flows`` for connections.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from afflux.capture import ledger_columns as names
from afflux.capture import ledger_kernels as kernels
from afflux.capture import slots
from afflux.capture.compiling import build, is_built
from afflux.capture.frames import Frames
from afflux.capture.packets import Ints
from afflux.capture.talk import Talk
from afflux.capture.translating import Translator
from afflux.core.limits import Limits
from afflux.core.meanings import Act, Broken, Meanings

__all__ = ["Closing", "Ending", "Findings", "Follower", "Ledger", "Wrong"]

_ROUND: Final = 8_192
"Frames that are applied together: this bounds their results."
FEW: Final = 8_192
"Frames that are applied without a compiled kernel: to get it takes seconds if it is not in numba's cache."
_FIRST_CONNECTIONS: Final = 64


class Wrong(NamedTuple):
    """A frame that broke a rule."""

    frame: int
    "Its row in the batch."
    case: Broken
    kind: int
    "The kind of its stream, -1 for none."
    first: int
    second: int
    "Numbers that explain the case."


@dataclass(slots=True, eq=False)
class Follower:
    """What is known about one connection."""

    number: int
    "Its row in the state; it is free again after the end."
    meanings: Meanings
    setup: dict[str, Any] = field(default_factory=dict)
    "The fields of its first frame."


class Closing(NamedTuple):
    """A connection that ends."""

    talk: Talk
    time: int
    "When, in nanoseconds."
    held: tuple[int, int]
    "How long the server and the client could not send in all, in nanoseconds."


class Ending(NamedTuple):
    """How a connection with frames has ended."""

    frames: int
    streams: int
    wrong: int
    announced: int
    "The side that announced it first: 0 the server, 1 the client; -1 for none."
    setup: dict[str, Any]


@dataclass(slots=True, eq=False)
class Findings:
    """What some frames have brought: rows of numbers, with the columns that slots.py and ledger_kernels.py name."""

    ended: Ints
    letters: npt.NDArray[np.uint8]
    credit: Ints
    stalls: Ints
    wrong: list[Wrong]
    frames: Ints
    "The frames of the batch, translated; empty if none were applied."

    @staticmethod
    def joined(parts: list[Findings]) -> Findings:
        """Return the findings of all parts, one or more, to which no frames belong."""
        if len(parts) == 1:
            return parts[0]
        columns = [(one.ended, one.letters, one.credit, one.stalls) for one in parts]
        ended, letters, credit, stalls = (np.concatenate(column) for column in zip(*columns, strict=True))
        return Findings(ended, letters, credit, stalls, [wrong for one in parts for wrong in one.wrong], _room(0, 0))


class Ledger:
    """The streams of one capture.

    Args:
        limits: see ``capture_streams``.
        stall: how long nothing flows in a stall, in nanoseconds.
    """

    def __init__(self, limits: Limits, stall: int) -> None:
        self._stall = stall
        self._applied = 0
        self._state = slots.table(limits.capture_streams)
        self._conns: Ints = np.zeros((_FIRST_CONNECTIONS, names.CONN_WIDTH), np.int64)
        self._results = _results(_ROUND)
        self._free = list(range(_FIRST_CONNECTIONS))
        self._first: dict[int, Ints] = {}
        self._meanings: list[Meanings] = []  # those of ``_first``, so that their ids stay theirs
        self._followers: dict[Talk, Follower] = {}
        self.names = [""] * _FIRST_CONNECTIONS
        "The ids of the connections, by number."
        self.translator = Translator(limits.capture_streams)

    def take(self, frames: Frames, held: Ints | None = None) -> Findings:
        """Apply the frames of a batch; return what they bring.

        Args:
            frames: the frames; those of a connection that has ended are not followed by others.
            held: three rows with an element for each frame: how long the server and the client of its connection could
                not send until then, in nanoseconds, and what is missing of it (see ``MISSED``).
        """
        followers = self._follow(frames.conversations)
        table = self.translator.table(frames, followers, held)
        parts: list[tuple[Any, ...]] = []
        cases: list[Wrong] = []
        for start in range(0, len(frames), _ROUND):
            stop = min(start + _ROUND, len(frames))
            size = stop - start
            counts = np.zeros(4, np.int64)
            ended, letters, credit, stalls, wrong = self._results
            self._applied += size
            few = self._applied < FEW and not is_built(kernels.apply)
            # numba takes an array with one row for one whose rows follow each other, and refuses it
            apply = kernels.apply if few or len(table) == 1 else build(kernels.apply)
            apply(
                *self._state, self._conns, table, start, stop, ended, letters, credit, stalls, wrong, counts,
                self._stall,
            )  # fmt: skip
            e, c, s, w = counts.tolist()
            cases += [Wrong(row[0], Broken(row[1]), row[2], row[3], row[4]) for row in wrong[:w].tolist()]
            parts.append((ended[:e].copy(), letters[:e].copy(), credit[:c].copy(), stalls[:s].copy()))
        if not parts:
            return _nothing()
        ended, letters, credit, stalls = (np.concatenate(part) for part in zip(*parts, strict=True))
        return Findings(ended, letters, credit, stalls, cases, table)

    def close(self, closing: Sequence[Closing], *, whole: bool) -> tuple[list[Findings], list[Ending | None]]:
        """End connections, and their streams. Return what that brings, and how each has ended, None for one without
        frames. ``whole``: the capture has the ends of the connections."""
        known = [self._followers.pop(one.talk, None) for one in closing]
        rows = [
            (follower.number, one.time, *one.held)
            for follower, one in zip(known, closing, strict=True)
            if follower is not None
        ]
        table = np.array(rows, np.int64).reshape(-1, 4)
        state = self._conns[table[:, 0]]
        found = self._closed(table, state[:, slots.COUNT].tolist(), names.CONNECTION if whole else names.OPEN)
        counts = iter(state[:, [names.FRAMES, names.STREAMS, names.WRONG, names.ANNOUNCED]].tolist())
        endings = [None if one is None else _ending(next(counts), one.setup) for one in known]
        self._free += table[:, 0].tolist()
        return found, endings

    def _closed(self, table: Ints, streams: list[int], how: int) -> list[Findings]:
        """End the streams of connections, so many at a time that there is room for what that brings."""
        found: list[Findings] = []
        start, nothing = 0, _room(0, names.CREDIT_WIDTH)
        while start < len(table):
            stop, size = start + 1, streams[start]
            while stop < len(table) and size + streams[stop] <= _ROUND:
                size += streams[stop]
                stop += 1
            ended, letters, _, stalls, _ = self._results if size <= _ROUND else _results(size)
            counts = np.zeros(4, np.int64)
            few = size < FEW and self._applied < FEW and not is_built(kernels.close)
            closes = kernels.close if few else build(kernels.close)
            closes(*self._state, self._conns, table[start:stop], how, ended, letters, stalls, counts, self._stall)
            e, _, s, _ = counts.tolist()
            if e or s:
                found.append(Findings(ended[:e].copy(), letters[:e].copy(), nothing, stalls[:s].copy(), [], nothing))
            start = stop
        return found

    def _follow(self, talks: Sequence[Talk]) -> list[Follower]:
        """Return what is known about connections with frames."""
        known = self._followers
        if new := [talk for talk in talks if talk not in known]:
            self._begin(new)
        return [known[talk] for talk in talks]

    def _begin(self, talks: Sequence[Talk]) -> None:
        """Note connections with frames."""
        while len(self._free) < len(talks):
            size = len(self._conns)
            self._conns = np.concatenate((self._conns, np.zeros_like(self._conns)))
            self._free += range(size, 2 * size)
            self.names += [""] * size
        numbers, self._free[-len(talks) :] = self._free[-len(talks) :], []
        alike: dict[int, tuple[Meanings, list[int]]] = {}
        for talk, number in zip(talks, numbers, strict=True):
            protocol = talk.protocol
            meanings = protocol.meanings if protocol is not None and protocol.meanings is not None else _UNKNOWN
            self._followers[talk] = Follower(number, meanings)
            self.names[number] = talk.id
            alike.setdefault(id(meanings), (meanings, []))[1].append(number)
        for meanings, some in alike.values():
            self._conns[some] = self._first_state(meanings)
        self._conns[numbers, names.WHOLE : names.WHOLE + 2] = [talk.synced for talk in talks]

    def _first_state(self, meanings: Meanings) -> Ints:
        """Return the state of a connection at its beginning; it depends on its protocol."""
        state = self._first.get(id(meanings))
        if state is None:
            state = self._first[id(meanings)] = np.zeros(names.CONN_WIDTH, np.int64)
            self._meanings.append(meanings)
            state[slots.HEAD] = state[slots.TAIL] = -1
            state[names.RULES] = sum(1 << case for case in meanings.rules)
            state[names.TRAITS] = _traits(meanings)
            state[names.WITHOUT : names.WITHOUT + 2] = state[names.WAITED : names.WAITED + 2] = -1
            state[names.LAST_ITEM : names.LAST_ITEM + 2] = -1
            state[names.LOST : names.LOST + 2] = names.NEVER
        return state


_UNKNOWN: Final = Meanings({}, {}, credit=False)


def _traits(meanings: Meanings) -> int:
    """Return what the kernels know about a protocol."""
    first = [meaning.acts for meaning in meanings.frames.values() if meaning.acts & Act.FIRST]
    bits = {
        names.IDS: meanings.odd is not None,
        names.ODD: bool(meanings.odd),
        names.ORDERED: meanings.ordered,
        names.OWN: meanings.own_ids,
        names.ONE: meanings.one,
        names.CREDIT: meanings.credit,
        names.OCTETS: meanings.octets,
        names.FREE_ITEM: meanings.free,
        names.TOGETHER: meanings.together,
        names.SERVER_FIRST: any(not acts & Act.CLIENT for acts in first),
    }
    return sum(bit for bit, present in bits.items() if present)


def _ending(counts: list[int], setup: dict[str, Any]) -> Ending:
    frames, streams, wrong, announced = counts
    return Ending(frames, streams, wrong, announced - 1, setup)


def _room(rows: int, width: int) -> Ints:
    return np.empty((rows, width), np.int64)


def _results(frames: int) -> tuple[Ints, npt.NDArray[np.uint8], Ints, Ints, Ints]:
    """Return room for what so many frames can bring; see ``ledger_kernels.apply``."""
    letters: npt.NDArray[np.uint8] = np.zeros((2 * frames, slots.HISTORY), np.uint8)
    credit, stalls = _room(4 * frames, names.CREDIT_WIDTH), _room(4 * frames, names.STALL_WIDTH)
    return _room(2 * frames, slots.WIDTH), letters, credit, stalls, _room(5 * frames, names.WRONG_WIDTH)


def _nothing() -> Findings:
    letters: npt.NDArray[np.uint8] = np.zeros((0, slots.HISTORY), np.uint8)
    credit, stalls = _room(0, names.CREDIT_WIDTH), _room(0, names.STALL_WIDTH)
    return Findings(_room(0, slots.WIDTH), letters, credit, stalls, [], credit)
