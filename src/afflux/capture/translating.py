"""Turn frames into the table of numbers that the kernels of the ledger read: what each frame means, and for whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from afflux.capture import frame_kernels as kernel
from afflux.capture import ledger_columns as names
from afflux.capture.frames import Frames, Kinds
from afflux.capture.kernels import SHARED, Boundaries, Room
from afflux.capture.packets import Ints
from afflux.core.dissector import OVER_LIMIT
from afflux.core.meanings import Act, Meaning
from afflux.filters.routes import route_in
from afflux.protocols.registry import PROTOCOLS

if TYPE_CHECKING:
    from afflux.capture.ledger import Follower

__all__ = ["Translator"]

_MOST_TYPES: Final = 4_096
"Types of frames that are told apart: unknown types come from outside."
_MOST_CACHED: Final = 4_096
_NONE: Final = Meaning("?")
_SHORT: Final = 10
"Bits of flags whose meaning is looked up at once: those of all protocols but ReactiveSocket."
_PLACES: Final[Ints] = np.array(
    [
        names.TIME, names.SIDE, names.CONNS, names.TYPE, names.LETTER, names.NEW_KIND, names.SIZE, names.ITEM_COUNT,
        names.ACTS, names.NEW_ROUTE, names.MILLIS, names.STREAM_ID, names.NUMBER, names.CODES, names.AT,
    ],
    np.int64,
)  # fmt: skip
"Where the kernel writes; see ``frame_kernels.meanings``."
_NOTHING: Final[Ints] = np.empty((3, 0), np.int64)
_FLAGS: Final = 3
"The most flags of a frame that have a meaning."


class Translator:
    """Translates the frames of one capture.

    Args:
        most: routes that are told apart; further ones count as none.
        boundaries: has the kernel, if it is compiled.
    """

    def __init__(self, most: int, boundaries: Boundaries = SHARED) -> None:
        self._most = most
        self._boundaries = boundaries
        self.types: list[tuple[str, str | None]] = []
        "The types of frames that occur: protocol and name."
        self._type_numbers: dict[tuple[str, str | None], int] = {}
        self.routes: list[str] = []
        "The routes that occur."
        self._route_numbers: dict[str, int] = {}
        self._cache: dict[tuple[str, bytes], int] = {}
        self._kinds = _KindColumns(self, Kinds())
        self._room = Room()

    def table(self, frames: Frames, followers: Sequence[Follower], held: Ints | None) -> Ints:
        """Return a row for each frame, with the columns that ledger_kernels.py names. ``held``: see ``Ledger.take``.
        The table is valid until the next call."""
        if self._kinds.kinds is not frames.kinds or self._kinds.size != len(frames.kinds):
            self._kinds = _KindColumns(self, frames.kinds)
        size = len(frames) * names.FRAME_WIDTH
        table = self._room.numbers(size).reshape((len(frames), names.FRAME_WIDTH), order="F")
        function = self._boundaries.compiled(kernel.meanings)
        if function is None or int(frames.flags.max(initial=0)) >> _SHORT:
            self._by_column(frames, followers, held, table)
            special = opens = True
        else:
            special, opens = self._by_frame(function, frames, followers, held, table)
        for row, (rule, _) in frames.errors.items():
            lost = names.A_LOST if rule in ("lost", OVER_LIMIT) else names.A_SKIP
            table[row, names.ACTS] = lost if frames.length[row] >= 0 else names.A_OVER
        if special:
            self._fields(frames, followers, table)
        if opens:
            self._routes(frames, followers, table)
        return table

    def _by_frame(
        self, function: Callable[..., tuple[bool, bool]], frames: Frames, followers: Sequence[Follower],
        held: Ints | None, table: Ints,
    ) -> tuple[bool, bool]:  # fmt: skip
        """Fill the table with the kernel; return what that returns."""
        known = self._kinds
        conns = np.array([one.number for one in followers], np.int64)
        numbers = (frames.stream, frames.n, frames.code, frames.offset)
        return function(
            frames.time, frames.client, frames.conn, frames.kind, frames.flags, numbers, frames.data_len,
            frames.metadata_len, _NOTHING if held is None else held, conns, known.columns, known.by_flags, _SHORT,
            _PLACES, known.special, int(Act.OPEN), table.T,
        )  # fmt: skip

    def _by_column(self, frames: Frames, followers: Sequence[Follower], held: Ints | None, table: Ints) -> None:
        """Fill the table with numpy."""
        known, kind = self._kinds, frames.kind.astype(np.intp)
        size = np.maximum(frames.data_len, 0) + np.maximum(frames.metadata_len, 0)
        acts = known.acts_of(kind, frames.flags)
        conns = np.array([one.number for one in followers], np.int64)
        table[:, names.TIME] = frames.time
        table[:, names.SIDE] = frames.client
        for column, source, rows in (
            (names.CONNS, conns, frames.conn),
            (names.TYPE, known.types, kind),
            (names.LETTER, known.letters, kind),
            (names.NEW_KIND, known.opens, kind),
        ):
            source.take(rows, out=table[:, column], mode="clip")  # the other modes would use a buffer
        table[:, names.STREAM_ID] = frames.stream
        table[:, names.NUMBER] = frames.n
        table[:, names.ITEM_COUNT] = np.where(known.octets[kind] & (size == 0), 0, 1) if known.octets.any() else 1
        table[:, names.SIZE] = size
        table[:, names.CODES] = frames.code
        table[:, names.AT] = frames.offset
        table[:, names.NEW_ROUTE] = -1
        table[:, names.MILLIS] = 0
        table[:, names.HELD :] = 0 if held is None else held.T
        table[:, names.ACTS] = acts

    def type_of(self, protocol: str, name: str | None) -> int:
        """Return the number of a type of frame."""
        key = (protocol, name)
        if key not in self._type_numbers and len(self.types) >= _MOST_TYPES:
            key = (protocol, None)
        number = self._type_numbers.setdefault(key, len(self.types))
        if number == len(self.types):
            self.types.append(key)
        return number

    def _fields(self, frames: Frames, followers: Sequence[Follower], table: Ints) -> None:
        """Read the numbers that are no columns, and the setup."""
        known = self._kinds
        rows = np.flatnonzero((known.numbered | known.first)[frames.kind])
        if frames.errors:
            rows = rows[~np.isin(rows, list(frames.errors))]
        for row in rows[known.numbered[frames.kind[rows]]].tolist():
            meaning, fields = known.meanings[frames.kind[row]], frames.fields.get(row, {})
            if meaning.amount:
                value = fields.get(meaning.amount)
                table[row, names.NUMBER] = -1 if value is None else value
            if meaning.count:
                table[row, names.ITEM_COUNT] = fields.get(meaning.count, 1)
            if meaning.time:
                table[row, names.MILLIS] = fields.get(meaning.time, 0)
        rows = rows[known.first[frames.kind[rows]]]
        table[rows[frames.data_len[rows] <= 0], names.ACTS] &= ~names.A_ITEM
        for row, conn in zip(rows.tolist(), frames.conn[rows].tolist(), strict=True):
            if not followers[conn].setup:
                followers[conn].setup = frames.fields.get(row, {})

    def _routes(self, frames: Frames, followers: Sequence[Follower], table: Ints) -> None:
        """Find the routes of the frames that open streams."""
        acts, named = table[:, names.ACTS], frames.metadata_len > 0
        named[np.fromiter(frames.fields, np.int64, len(frames.fields))] = True
        opening = np.flatnonzero((acts > 0) & (acts & int(Act.OPEN) != 0) & named)
        if not len(opening):
            return
        payloads = frames.payloads
        block = payloads.block if payloads is not None else b""
        starts = payloads.metadata[opening] if payloads is not None else np.full(len(opening), -1, np.int64)
        sizes, conns = frames.metadata_len[opening], frames.conn[opening]
        mimes = [str(follower.setup.get("metadata_mime")) for follower in followers]
        found: list[int] = []
        columns = (opening, conns, starts, sizes)
        for row, conn, start, size in zip(*(column.tolist() for column in columns), strict=True):
            metadata = block[start : start + size] if start >= 0 and size >= 0 else None
            cached = self._cache.get((mimes[conn], metadata)) if metadata else None
            found.append(self._route(followers[conn], metadata, frames.fields, row) if cached is None else cached)
        table[opening, names.NEW_ROUTE] = found

    def _route(self, follower: Follower, metadata: bytes | None, fields: dict[int, dict[str, Any]], row: int) -> int:
        """Return the number of a route; -1 for none."""
        route = route_in(follower.meanings, metadata, fields.get(row, {}), follower.setup)
        if route is None or (route not in self._route_numbers and len(self.routes) >= self._most):
            return -1
        number = self._route_numbers.setdefault(route, len(self.routes))
        if number == len(self.routes):
            self.routes.append(route)
        if metadata:
            if len(self._cache) >= _MOST_CACHED:
                self._cache.clear()
            self._cache[str(follower.setup.get("metadata_mime")), metadata] = number
        return number


class _KindColumns:
    """What the types of frames mean, as columns by their number in ``kinds``."""

    def __init__(self, translator: Translator, kinds: Kinds) -> None:
        self.kinds = kinds
        self.size = size = len(kinds)
        self.meanings = [_NONE] * size
        self.types = np.zeros(size, np.int64)
        self.acts = np.zeros(size, np.int64)
        self.letters = np.zeros(size, np.int64)
        self.opens = np.zeros(size, np.int64)
        self.numbered: npt.NDArray[np.bool_] = np.zeros(size, np.bool_)
        self.first: npt.NDArray[np.bool_] = np.zeros(size, np.bool_)
        self.octets: npt.NDArray[np.bool_] = np.zeros(size, np.bool_)
        self.bits = [np.zeros(size, np.int64) for _ in range(_FLAGS)]
        self.more = [np.zeros(size, np.int64) for _ in range(_FLAGS)]
        for number, kind in enumerate(kinds.rows):
            entry = PROTOCOLS[kind.protocol]
            meaning = entry.meanings.frames.get(kind.name or "", _NONE) if entry.meanings else _NONE
            self.meanings[number] = meaning
            self.types[number] = translator.type_of(kind.protocol, kind.name)
            self.acts[number], self.letters[number], self.opens[number] = (
                meaning.acts,
                ord(meaning.letter),
                meaning.kind,
            )
            self.numbered[number] = bool(meaning.amount or meaning.count or meaning.time)
            self.first[number] = bool(meaning.acts & Act.FIRST)
            self.octets[number] = bool(entry.meanings and entry.meanings.octets)
            for at, (letter, more) in enumerate(meaning.flags.items()):
                self.bits[at][number], self.more[at][number] = kind.bit(letter), more
        kinds_of, flags = np.divmod(np.arange(size << _SHORT), 1 << _SHORT)
        self.by_flags = self._slowly(kinds_of, flags)
        self.columns: Ints = np.array([self.types, self.letters, self.opens, self.octets], np.int64)
        self.special = self.numbered | self.first

    def acts_of(self, kind: npt.NDArray[np.intp], flags: npt.NDArray[np.int32]) -> Ints:
        """Return what frames of these types with these flags do."""
        if len(flags) and int(flags.max()) >> _SHORT:
            return self._slowly(kind, flags)
        found: Ints = self.by_flags[(kind << _SHORT) | flags]
        return found

    def _slowly(self, kind: npt.NDArray[Any], flags: npt.NDArray[Any]) -> Ints:
        acts: Ints = self.acts[kind]
        for bits, more in zip(self.bits, self.more, strict=True):
            acts = acts | np.where(flags & bits[kind], more[kind], 0)
        return acts
