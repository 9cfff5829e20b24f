"""Read the fields of many frames at once, as the declarations of the frames define them.

The frames of one type are rows; each field is read for all rows together. A row that cannot be read so is left to the
protocol's dissector: it is malformed, or it has a field of a kind that only the protocol knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from afflux.capture import field_kernels as kernel
from afflux.capture.kernels import SHARED, Boundaries
from afflux.capture.packets import Fields, Ints
from afflux.core.dissect import RECORD_KEYS
from afflux.core.fields import Fixed, Flag, Flagged, Rest, Sized, TypeWord, UInt, Varying
from afflux.core.frame import Field, Frame

__all__ = ["PAYLOADS", "READABLE", "Columns", "Layout"]

NONE: Final = -1
NUMBERS: Final = ("stream", "n", "code")
"The columns that are fields of a frame."
PAYLOADS: Final = ("metadata", "data")
"The fields of which the size is a column."
READABLE: Final = 128
"Bytes after the last frame that must be readable: no run of fixed fields is longer."

Flags = npt.NDArray[np.bool_]
_NOTHING: Final[tuple[Ints, dict[str, list[int]]]] = (np.empty(0, np.int64), {})
"The own fields of a type without any."


@dataclass(slots=True)
class Columns:
    """The fields of some frames."""

    code: Ints
    "The type on the wire."
    word: Ints
    "The word of the type and the flags."
    numbers: dict[str, Ints]
    "``stream``, ``n`` and ``code``."
    at: dict[str, Ints]
    "Where metadata and data begin."
    sizes: dict[str, Ints]
    "Bytes of metadata and data; NONE for none."
    read: Flags
    "Whether the frame was read. What the columns have of the others is of no meaning."
    own: dict[int, tuple[Ints, dict[str, list[int]]]] = field(default_factory=dict)
    "For each type with own fields: its rows, and the values by name."


@dataclass(frozen=True, slots=True)
class _Run:
    """Adjacent fields of fixed size."""

    size: int
    "Their bytes."
    values: tuple[tuple[Field, UInt, int], ...]
    "The fields with a value, and where each is in the run."


class Layout:
    """The layout of all frames of a protocol.

    Args:
        frames: the declarations.
    """

    def __init__(self, frames: Sequence[type[Frame]]) -> None:
        self.at, self.kind = _word(frames[0])
        self.frames: dict[int, list[type[Frame]]] = {}
        "The declarations by type on the wire."
        for frame in frames:
            self.frames.setdefault(frame.TYPE, []).append(frame)
        self.own: dict[int, bool] = {}
        "Whether a type has fields that are no columns."
        self._plans: dict[int, list[_Run | Field]] = {}
        for code, declared in self.frames.items():
            plan = _plan(declared[0]) if len(declared) == 1 and _word(declared[0]) == (self.at, self.kind) else None
            if plan is not None:
                self._plans[code] = plan
                names = {one.kind.column or one.name for one in declared[0].FIELDS}
                self.own[code] = not names <= {*NUMBERS, *PAYLOADS}
        self._begins, self._steps, self._plain = self._program()

    def _program(self) -> tuple[Ints, Ints, Ints]:
        """Return the program of field_kernels.py that reads the types without fields that are no columns: the first
        steps, the steps, and how simple frames are read."""
        begins: Ints = np.full(max(self._plans, default=-1) + 2, -1, np.int64)
        plain: Ints = np.full((len(begins) - 1, kernel.PLAIN), -1, np.int64)
        steps: list[tuple[int, ...]] = []
        for code, plan in sorted(self._plans.items()):
            if not self.own[code]:
                begins[code] = len(steps)
                steps += [step for part in plan for step in _steps(part)]
                plain[code] = _plain(steps[begins[code] :])
        begins[-1] = len(steps)
        table: Ints = np.zeros((len(steps), kernel.STEP), np.int64)
        for row, step in enumerate(steps):
            table[row, : len(step)] = step
        return begins, table, plain

    def read(self, block: bytes, at: Ints, sizes: Ints, boundaries: Boundaries = SHARED) -> Columns:
        """Read frames.

        Args:
            block: the bytes of the frames, with ``READABLE`` more after the last one.
            at: where each frame begins.
            sizes: the bytes of each frame.
            boundaries: has the kernel, if it is compiled.
        """
        function = boundaries.compiled(kernel.read)
        return self._by_field(block, at, sizes) if function is None else self._by_frame(function, block, at, sizes)

    def _by_frame(self, function: Callable[..., None], block: bytes, at: Ints, sizes: Ints) -> Columns:
        """Read one frame after the other, but for the types with fields that are no columns."""
        count, types = len(at), len(self._begins) - 1
        seen: Ints = np.zeros(types, np.int64)
        codes, words = np.empty((2, count), np.int64)
        numbers = np.empty((len(NUMBERS), count), np.int64)
        starts, lengths = np.empty((2, len(PAYLOADS), count), np.int64)
        found = Columns(
            code=codes,
            word=words,
            numbers=dict(zip(NUMBERS, numbers, strict=True)),
            at=dict(zip(PAYLOADS, starts, strict=True)),
            sizes=dict(zip(PAYLOADS, lengths, strict=True)),
            read=np.empty(count, np.bool_),
        )
        function(
            np.frombuffer(block, np.uint8), at, sizes, self.at, self.kind.size, self.kind.shift, self._begins,
            self._steps, self._plain, codes, words, numbers, starts, lengths, found.read, seen,
        )  # fmt: skip
        fields = Fields(block)
        for number in np.flatnonzero(seen).tolist():
            if number not in self._plans:
                continue
            if self.own[number]:
                rows = np.flatnonzero(codes == number)
                _Reading(found, fields, rows, at[rows], at[rows] + sizes[rows], words[rows]).read(self._plans[number])
            else:
                found.own[number] = _NOTHING
        return found

    def _by_field(self, block: bytes, at: Ints, sizes: Ints) -> Columns:
        """Read one field of all frames after the other."""
        fields, count = Fields(block), len(at)
        word = (fields.u16 if self.kind.bits == 16 else fields.u32)(at + self.at)
        code = word >> self.kind.shift
        none = np.full(count, NONE, np.int64)
        found = Columns(
            code=code,
            word=word,
            numbers={name: none.copy() for name in NUMBERS},
            at={name: none.copy() for name in PAYLOADS},
            sizes={name: none.copy() for name in PAYLOADS},
            read=np.zeros(count, np.bool_),
        )
        here = np.bincount(code[sizes >= self.at + self.kind.size], minlength=1)
        for number in np.flatnonzero(here).tolist():
            if number in self._plans:
                rows = np.flatnonzero(code == number)
                _Reading(found, fields, rows, at[rows], at[rows] + sizes[rows], word[rows]).read(self._plans[number])
        return found


class _Reading:
    """Reads the frames of one type."""

    def __init__(self, found: Columns, fields: Fields, rows: Ints, at: Ints, stop: Ints, word: Ints) -> None:
        self.found = found
        self.fields = fields
        self.rows = rows
        self.at = at
        self.start = at
        self.stop = stop
        self.word = word
        self.good = np.ones(len(rows), np.bool_)
        self.own: dict[str, list[int]] = {}

    def read(self, plan: list[_Run | Field]) -> None:
        """Read all fields. Bytes after the last one are left to the dissector."""
        for step in plan:
            if isinstance(step, _Run):
                self._run(step)
            elif isinstance(step.kind, Sized):
                self._sized(step, step.kind)
            elif isinstance(step.kind, Flagged):
                self._flagged(step, step.kind)
            elif isinstance(step.kind, Rest):
                self._place(step, slice(None), self.at, self.stop - self.at)
                self.at = self.stop
            elif isinstance(step.kind, Varying) and step.kind.flag is not None:
                self._require(self.word & step.kind.flag.bit == 0)
        self._require(self.at == self.stop)
        self.found.read[self.rows] = self.good
        self.found.own[int(self.found.code[self.rows[0]])] = (self.rows, self.own)

    def _require(self, good: Flags) -> None:
        """Leave out rows. Their position is where a frame begins, so that reading on does no harm."""
        if not good.all():
            self.good &= good
            self.at = np.where(self.good, self.at, self.start)

    def _run(self, run: _Run) -> None:
        self._require(self.stop - self.at >= run.size)
        for declared, kind, offset in run.values:
            values = _number(self.fields, self.at + offset, kind.bits)
            name = kind.column or declared.name
            if name in NUMBERS:
                self.found.numbers[name][self.rows] = values
            else:
                self.own[name] = values.tolist() if kind.bits < 64 else values.view(np.uint64).tolist()
        self.at = self.at + run.size

    def _sized(self, declared: Field, kind: Sized) -> None:
        """Read the length of metadata or data, where its flag is set."""
        rows = slice(None) if kind.flag is None else np.flatnonzero(self.word & kind.flag.bit)
        if not isinstance(rows, slice) and not len(rows):
            return
        width, at, stop = kind.bits // 8, self.at[rows], self.stop[rows]
        at = at + width
        size = _number(self.fields, np.where(at <= stop, at, stop) - width, min(kind.bits, 31 if width == 4 else 24))
        size -= width if kind.inclusive else 0
        good = np.ones(len(self.rows), np.bool_)
        good[rows] = (at <= stop) & (size >= 0) & (size <= stop - at)
        self._place(declared, rows, at, size)
        moved = self.at.copy()
        moved[rows] = at + size
        self.at = moved
        self._require(good)

    def _flagged(self, declared: Field, kind: Flagged) -> None:
        """Read a number where its flag is set."""
        rows = np.flatnonzero(self.word & kind.flag.bit)
        if not len(rows):
            return
        good = np.ones(len(self.rows), np.bool_)
        good[rows] = self.at[rows] + 4 <= self.stop[rows]
        self._require(good)
        self.found.numbers[kind.column or declared.name][self.rows[rows]] = _number(self.fields, self.at[rows], 31)
        moved = self.at.copy()
        moved[rows] += 4
        self.at = moved
        self._require(good)

    def _place(self, declared: Field, rows: slice | Ints, at: Ints, size: Ints) -> None:
        name = declared.kind.column or declared.name
        self.found.at[name][self.rows[rows]] = at
        self.found.sizes[name][self.rows[rows]] = size


def _number(fields: Fields, at: Ints, bits: int) -> Ints:
    """Read a number of ``bits`` at each position; 31 and 63 bits follow a reserved one."""
    if bits == 8:
        return fields.u8(at)
    if bits == 16:
        return fields.u16(at)
    if bits == 24:
        return fields.u8(at) << 16 | fields.u16(at + 1)
    if bits in (31, 32):
        values = fields.u32(at)
        return values & 0x7FFF_FFFF if bits == 31 else values
    wide = fields.u64(at)
    return (wide & np.uint64((1 << 63) - 1) if bits == 63 else wide).view(np.int64)


def _word(frame: type[Frame]) -> tuple[int, TypeWord]:
    """Return where the word of the type is, and its kind."""
    at = 0
    for declared in frame.LAYOUT:
        if isinstance(declared.kind, TypeWord):
            return at, declared.kind
        at += declared.kind.size if isinstance(declared.kind, Fixed) else 0
    raise TypeError(f"{frame.__name__} has no type")


def _plan(frame: type[Frame]) -> list[_Run | Field] | None:
    """Return the steps that read a frame: runs of fixed fields, and fields of varying size. None if a kind of field is
    read by the protocol only."""
    plan: list[_Run | Field] = []
    size, values = 0, list[tuple[Field, UInt, int]]()
    for declared in frame.LAYOUT:
        kind, name = declared.kind, declared.kind.column or declared.name
        if isinstance(kind, Flag):
            continue
        if isinstance(kind, Fixed):
            if isinstance(kind, UInt):
                if name in RECORD_KEYS and (name not in NUMBERS or kind.bits == 64):
                    return None
                values.append((declared, kind, size))
            size += kind.size
            continue
        if not _readable(kind, name):
            return None
        if size:
            plan.append(_Run(size, tuple(values)))
            size, values = 0, []
        plan.append(declared)
    return [*plan, _Run(size, tuple(values))] if size else plan


def _steps(part: _Run | Field) -> list[tuple[int, ...]]:
    """Return the steps of field_kernels.py that read a part of a frame."""
    if isinstance(part, _Run):
        values = [
            (kernel.NUMBER, NUMBERS.index(kind.column or declared.name), at, kind.bits)
            for declared, kind, at in part.values
        ]
        return [(kernel.NEED, part.size), *values, (kernel.PASS, part.size)]
    kind, name = part.kind, part.kind.column or part.name
    if isinstance(kind, Sized):
        width, flag = kind.bits // 8, 0 if kind.flag is None else kind.flag.bit
        mask = (1 << min(kind.bits, 31)) - 1
        return [(kernel.SIZED, PAYLOADS.index(name), flag, width, mask, width if kind.inclusive else 0)]
    if isinstance(kind, Flagged):
        return [(kernel.FLAGGED, NUMBERS.index(name), kind.flag.bit)]
    if isinstance(kind, Rest):
        return [(kernel.REST, PAYLOADS.index(name))]
    flag = kind.flag.bit if isinstance(kind, Varying) and kind.flag is not None else 0
    return [(kernel.ABSENT, flag)]


def _plain(steps: list[tuple[int, ...]]) -> tuple[int, ...]:
    """Return how the simple frames of a type are read, given its steps; see ``plain`` of ``field_kernels.read``. Simple
    are frames of one run, and the rest of the frame after it."""
    none = (-1,) * kernel.PLAIN
    if [step[0] for step in steps[:3]] != [kernel.NEED, kernel.NUMBER, kernel.PASS] or steps[1][3] != 31:
        return none
    mask, rest = 0, -1
    for what, *more in steps[3:]:
        if (what == kernel.SIZED and more[1]) or what == kernel.FLAGGED:
            mask |= more[1]
        elif what == kernel.ABSENT:
            mask |= more[0]
        elif what == kernel.REST:
            rest = more[0]
        else:
            return none
    return mask, steps[2][1], steps[1][2], steps[1][1], rest


def _readable(kind: Any, name: str) -> bool:
    """Return whether a field of varying size can be read: metadata, data, or one that is absent without its flag."""
    if isinstance(kind, Sized):
        return name in PAYLOADS and not kind.text
    if isinstance(kind, Rest):
        return name in PAYLOADS
    if isinstance(kind, Flagged):
        return name in NUMBERS
    return isinstance(kind, Varying) and kind.flag is not None
