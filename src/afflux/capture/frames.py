"""Hold the frames of a capture as columns: numpy arrays with one element for each frame, no object for a frame.

A frame is in the place of the packet that completed it. What few frames have, such as errors and the fields that only
their type has, is in dictionaries by row. Columns are made of frame records here; columns.py needs no records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from afflux.capture.packets import NO_TIME, Ints
from afflux.capture.settings import Found
from afflux.capture.talk import Talk
from afflux.capture.times import timestamp
from afflux.core.dissect import RECORD_KEYS
from afflux.core.dissector import Record
from afflux.core.entry import ProtocolEntry
from afflux.core.frame import Frame

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["COLUMNS", "NONE", "NUMBERS", "Frames", "Kind", "Kinds", "Payloads", "protocol_of"]

NONE: Final = -1
"Stands for a missing number in a column."
NUMBERS: Final = ("stream", "n", "metadata_len", "data_len", "code", "offset", "length")
"The columns that are numbers of the record, with the same names."
COLUMNS: Final = ("packet", "time", "conn", "client", "kind", "flags", *NUMBERS)
"The columns that every frame has."
_SPARSE: Final = ("errors", "fields", "large")
_LARGEST: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of frame of one protocol."""

    protocol: str
    "The protocol's name; empty for bytes that could not be decoded."
    name: str | None
    "The type as records show it, a number if it is unknown; None if the bytes do not show a type."
    flags: tuple[tuple[str, int], ...] = ()
    "The declared flags: letter and bit, highest bit first."

    def bit(self, letter: str) -> int:
        """Return the bit of a flag; 0 if the type has no such flag."""
        return next((bit for own, bit in self.flags if own == letter), 0)

    def letters(self, bits: int) -> list[str]:
        """Return the letters of the declared flags that are set in ``bits``."""
        return [letter for letter, bit in self.flags if bit & bits]


class Kinds:
    """The types of frames that occur, in the order in which they did. Its rows do not change, it only grows."""

    def __init__(self) -> None:
        self.rows: list[Kind] = []
        self._numbers: dict[tuple[str, str | None], int] = {}
        self._declared: dict[str, dict[str, dict[str, int]]] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> Kind:
        return self.rows[number]

    def of(self, entry: ProtocolEntry, name: str | None) -> int:
        """Return the number of a type, which is added if it is new."""
        number = self._numbers.get((entry.name, name))
        if number is None:
            number = self._numbers[entry.name, name] = len(self.rows)
            flags = self._flags(entry).get(name or "", {})
            self.rows.append(Kind(entry.name, name, tuple(sorted(flags.items(), key=lambda one: -one[1]))))
        return number

    def _flags(self, entry: ProtocolEntry) -> dict[str, dict[str, int]]:
        """Return the bits of the declared flags by name of the type; types of one name share them."""
        if entry.name not in self._declared:
            found = self._declared[entry.name] = {}
            declared: Sequence[type[Frame]] = entry.dissector(True, "none").declared if entry.dissector else ()
            for frame in declared:
                found.setdefault(frame.NAME, {}).update({flag.letter: flag.bit for flag, _ in frame.FLAGS})
        return self._declared[entry.name]


@dataclass(frozen=True, slots=True, eq=False)
class Payloads:
    """Where the metadata and the data of frames are; their sizes are columns of the frames."""

    block: bytes
    "The bytes that the positions refer to."
    metadata: Ints
    "Where the metadata begins; NONE for none."
    data: Ints
    "Where the data begins; NONE for none."

    def with_more(self, other: Payloads) -> Payloads:
        """Return the payloads of these frames and of others after them."""
        shift = len(self.block)
        metadata, data = (np.where(at == NONE, NONE, at + shift) for at in (other.metadata, other.data))
        block = self.block + other.block
        return Payloads(block, np.concatenate((self.metadata, metadata)), np.concatenate((self.data, data)))


@dataclass(frozen=True, slots=True, eq=False)
class Frames:
    """Some consecutive frames of a capture, in the order of the packets that completed them."""

    conversations: list[Talk]
    "The connections of these frames."
    kinds: Kinds
    "The types of frames."
    packet: Ints
    "The packet that completed the frame, an index in its batch; -1 after the last batch."
    time: Ints
    "When that was, in nanoseconds since 1970; ``NO_TIME`` if unknown."
    conn: Ints
    "The connection, an index of ``conversations``."
    client: npt.NDArray[np.bool_]
    "Whether the client sent the frame."
    kind: npt.NDArray[np.int32]
    "The type, an index of ``kinds``."
    flags: npt.NDArray[np.int32]
    "The declared flags that are set."
    stream: Ints
    "The stream; NONE for none, as in the columns that follow."
    n: Ints
    "The number of items granted."
    metadata_len: Ints
    "Bytes of metadata."
    data_len: Ints
    "Bytes of data."
    code: Ints
    "The error code."
    offset: Ints
    "The position of the frame in its direction."
    length: Ints
    "Bytes of the frame, without a length prefix."
    errors: dict[int, tuple[str, str]] = field(default_factory=dict)
    "Rule and reason of the frames that are wrong, by row."
    fields: dict[int, dict[str, Any]] = field(default_factory=dict)
    "The other declared fields, by row; frames without any are left out."
    large: dict[int, dict[str, int]] = field(default_factory=dict)
    "Numbers of 64 bits, by row and column; the column has the largest number that it can have."
    payloads: Payloads | None = None
    "Metadata and data, if they are wanted."

    def __len__(self) -> int:
        return len(self.packet)

    @classmethod
    def from_records(cls, found: Sequence[Found], time: Ints, kinds: Kinds, *, payload: bool = False) -> Frames:
        """Return the frames of records.

        Args:
            found: the records, each with its packet and its conversation, which has a protocol.
            time: when the packets of the batch were captured. The last one stands for those after it.
            kinds: the types, which this adds to.
            payload: keep metadata and data. The records have been made with ``payload="bytes"``.
        """
        ordered = sorted(found, key=lambda one: one[0] if one[0] >= 0 else _LARGEST)
        return cls.made_of(ordered, time, kinds, payload=payload)

    @classmethod
    def made_of(cls, found: Sequence[Found], time: Ints, kinds: Kinds, *, payload: bool) -> Frames:
        """Return the frames of records in the order given; see ``from_records``."""
        numbers: dict[Talk, int] = {}
        conn = [numbers.setdefault(conversation, len(numbers)) for _, conversation, _ in found]
        records = [made for _, _, made in found]
        kind = [kinds.of(protocol_of(conversation), made["type"]) for _, conversation, made in found]
        bits = [sum(map(kinds[number].bit, made["flags"])) for number, made in zip(kind, records, strict=True)]
        errors = {row: made["error"] for row, made in enumerate(records) if made["error"]}
        packet = np.array([one[0] for one in found], np.int64)
        large: dict[int, dict[str, int]] = {}
        return cls(
            conversations=list(numbers),
            kinds=kinds,
            packet=packet,
            time=time[packet] if len(time) else np.full(len(found), NO_TIME, np.int64),
            conn=np.array(conn, np.int64),
            client=np.array([made["dir"] == ">" for made in records], np.bool_),
            kind=np.array(kind, np.int32),
            flags=np.array(bits, np.int32),
            **{name: _numbers(records, name, large) for name in NUMBERS},
            errors={row: (error["rule"], error["reason"]) for row, error in errors.items()},
            fields={row: one["fields"] for row, one in enumerate(records) if one["fields"]},
            large=large,
            payloads=_payloads(records) if payload else None,
        )

    def taken(self, order: Ints) -> Frames:
        """Return the frames in another order: row ``order[i]`` is the row ``i``."""
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        changed: dict[str, Any] = {name: getattr(self, name)[order] for name in COLUMNS}
        for name in _SPARSE:
            changed[name] = {int(places[row]): value for row, value in getattr(self, name).items()}
        if self.payloads is not None:
            found = self.payloads
            changed["payloads"] = Payloads(found.block, found.metadata[order], found.data[order])
        return replace(self, **changed)

    def repeated(self, rows: Ints, **columns: Any) -> Frames:
        """Return the frames in some rows, which may repeat. ``columns`` take the place of theirs."""
        numbers = rows.tolist()
        changed: dict[str, Any] = {name: getattr(self, name)[rows] for name in COLUMNS}
        for name in _SPARSE:
            found = getattr(self, name)
            changed[name] = {place: found[row] for place, row in enumerate(numbers) if row in found} if found else {}
        if self.payloads is not None:
            found = self.payloads
            changed["payloads"] = Payloads(found.block, found.metadata[rows], found.data[rows])
        return replace(self, **changed | columns)

    def put(self, rows: Ints, other: Frames) -> Frames:
        """Return the frames with other ones in some rows. The connections and the kinds are those of this one's."""
        numbers = {conversation: number for number, conversation in enumerate(self.conversations)}
        conn = np.array([numbers[conversation] for conversation in other.conversations], np.int64)[other.conn]
        for name in COLUMNS:
            getattr(self, name)[rows] = conn if name == "conn" else getattr(other, name)
        places = rows.tolist()
        for name in _SPARSE:
            getattr(self, name).update({places[row]: value for row, value in getattr(other, name).items()})
        if self.payloads is None or other.payloads is None:
            return self
        payloads = self.payloads.with_more(other.payloads)
        for name in ("metadata", "data"):
            column = getattr(payloads, name)
            column[rows] = column[len(self) :]
        return replace(
            self, payloads=Payloads(payloads.block, payloads.metadata[: len(self)], payloads.data[: len(self)])
        )

    @staticmethod
    def joined(parts: Sequence[Frames]) -> Frames:
        """Return the frames of all parts, one or more, of one table of kinds."""
        whole = parts[0]
        for part in parts[1:]:
            numbers = {conversation: number for number, conversation in enumerate(whole.conversations)}
            moved = [numbers.setdefault(conversation, len(numbers)) for conversation in part.conversations]
            conn = np.array(moved, np.int64)[part.conn] if moved else part.conn
            changed: dict[str, Any] = {
                name: np.concatenate((getattr(whole, name), conn if name == "conn" else getattr(part, name)))
                for name in COLUMNS
            }
            for name in _SPARSE:
                shifted = {len(whole) + row: value for row, value in getattr(part, name).items()}
                changed[name] = getattr(whole, name) | shifted
            if whole.payloads is not None and part.payloads is not None:
                changed["payloads"] = whole.payloads.with_more(part.payloads)
            whole = replace(whole, conversations=list(numbers), **changed)
        return whole

    def arrow(
        self, *, file: str | None = None, earlier: Sequence[str] = (), numbers: Ints | None = None,
        positions: Ints | None = None, payload: bool = False, dictionaries: bool = False,
    ) -> pa.RecordBatch:  # fmt: skip
        """Return the frames as rows of the table ``frames`` (schemas.py). A number of 64 bits is shown as the largest
        that the column can have.

        Args:
            file: the name of the capture.
            earlier: the names of the captures with the first packets, if those are others.
            numbers: for each frame the number of its packet in the file, counted from 1; 0 for none.
            positions: for each frame where the data of its packet begins in the file, in bytes; -1 if that is unknown.
            payload: with the columns ``metadata`` and ``data``, which must have been kept.
            dictionaries: columns of few different words are dictionary arrays.

        Raises:
            MissingExtra: pyarrow is not installed.
        """
        from afflux.capture.arrow import batch

        return batch(
            self, file=file, earlier=earlier, numbers=numbers, positions=positions, payload=payload,
            dictionaries=dictionaries,
        )  # fmt: skip

    def records(self) -> Iterator[Record]:
        """Yield the frame records (core.dissect): what the decoder of captures yields, with metadata and data as bytes
        if they are wanted."""
        ids = [conversation.id for conversation in self.conversations]
        columns = (self.time, self.conn, self.client, self.kind, self.flags, *(getattr(self, name) for name in NUMBERS))
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for row, (time, conn, client, number, bits, *values) in enumerate(rows):
            made = dict.fromkeys(RECORD_KEYS)
            kind = self.kinds[number]
            numbers = (None if value == NONE else value for value in values)
            made |= {"ts": timestamp(time), "conn": ids[conn], "dir": ">" if client else "<", "protocol": kind.protocol}
            made |= {"type": kind.name, "flags": kind.letters(bits), "fields": self.fields.get(row, {})}
            made |= dict(zip(NUMBERS, numbers, strict=True)) | self.large.get(row, {})
            if row in self.errors:
                made["error"] = dict(zip(("rule", "reason"), self.errors[row], strict=True))
            yield made | self._payload(row)

    def _payload(self, row: int) -> Record:
        if self.payloads is None:
            return {}
        found: Record = {}
        for name, starts, sizes in (
            ("metadata", self.payloads.metadata, self.metadata_len),
            ("data", self.payloads.data, self.data_len),
        ):
            at = int(starts[row])
            found[name] = None if at == NONE else self.payloads.block[at : at + int(sizes[row])]
        return found


def protocol_of(conversation: Talk) -> ProtocolEntry:
    """Return the protocol of a conversation that has frames."""
    if conversation.protocol is None:
        raise ValueError("a conversation with frames has a protocol")
    return conversation.protocol


def _numbers(records: list[Record], name: str, large: dict[int, dict[str, int]]) -> Ints:
    """Return a column. Numbers that are too large for it are noted."""
    values = [NONE if made[name] is None else made[name] for made in records]
    for row, value in enumerate(values):
        if value > _LARGEST:
            large.setdefault(row, {})[name] = value
            values[row] = _LARGEST
    return np.array(values, np.int64)


def _payloads(records: list[Record]) -> Payloads:
    block = bytearray()
    found: dict[str, list[int]] = {"metadata": [], "data": []}
    for made in records:
        for name, starts in found.items():
            octets = made[name]
            starts.append(NONE if octets is None else len(block))
            block += octets or b""
    return Payloads(bytes(block), *(np.array(starts, np.int64) for starts in found.values()))
