"""Read and write the staging entry: the metadata with which a batch of rows is staged, and then committed once.

A writer such as a Spark query sends the partitions of a batch as attempts. The receiver stores them invisibly, and a
COMMIT makes one attempt of each partition visible, all together. Batches of a query are numbered, so that a batch that
is sent again after a crash is recognized. The entry has the MIME type ``message/x.afflux.staging.v0`` in composite
metadata. docs/staging.md is the same text with examples, for other languages.

Every number is big endian::

    kind u8 | flags u8 | unused u16 | ...

    0x01 STAGE      query 16 | batch u64 | run 16 | partition u32 | attempt u64       56 bytes
    0x02 STAGED     rows u64                                                          12 bytes
    0x03 COMMIT     query 16 | batch u64 | run 16 | n × (partition u32 | attempt u64 | rows u64)    44 + 20 n bytes
    0x04 COMMITTED  rows u64                                                          12 bytes
    0x05 ABORT      query 16 | batch u64 | run 16                                     44 bytes
    0x06 KEY        query 16 | batch u64 | partition u32 | sequence u64               40 bytes

STAGE is sent in the metadata of a REQUEST_CHANNEL, COMMIT and ABORT in that of a REQUEST_RESPONSE, STAGED and COMMITTED
in that of the answers. KEY is sent with each row to a peer that does not stage. The unused bytes are sent as zeros and
ignored by the receiver.

Rules. A peer that breaks one gets INVALID (0x204):

- SK-1  An entry has exactly the length of its kind.
- SK-2  The kind is one of the six.
- SK-3  Flag bits without a meaning are zero. STAGED and COMMITTED have DUPLICATE (0x01).
- SK-4  Batches, rows and sequences stay below 2^63, partitions below 2^31; an attempt fits 64 bits.
- SK-5  A query, a run and an attempt are not zero.
- SK-6  COMMIT: partitions ascend, and each has at least one row. Without partitions the batch is empty.
- SK-7  A request has at most one staging entry: STAGE opens a channel, COMMIT or ABORT a request. Answers to STAGE and
  COMMIT have STAGED and COMMITTED.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from afflux.core.errors import LocalProtocolError, Violation
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket.metadata import compose, entries

__all__ = [
    "NOT_STAGED",
    "RUN_SUPERSEDED",
    "SCHEMA_MISMATCH",
    "SINK_FAILED",
    "STAGING_MIME",
    "Abort",
    "Commit",
    "Committed",
    "Key",
    "Part",
    "Stage",
    "Staged",
    "Staging",
    "decode_staging",
    "encode_staging",
    "staging_of",
]

STAGING_MIME = "message/x.afflux.staging.v0"
"The MIME type of the entry. Another layout gets another type."

RUN_SUPERSEDED = 0xB01
"Error code: another run of the query has begun since, so this run may neither stage nor commit."
NOT_STAGED = 0xB02
"Error code: COMMIT names an attempt that is not staged, or was staged with another number of rows."
SCHEMA_MISMATCH = 0xB03
"Error code: the columns of the rows are not those of the rows before."
SINK_FAILED = 0xB04
"Error code: the rows could not be stored."

_TOP = 1 << 63
_DUPLICATE = 0x01
_STAGE = struct.Struct(">BB2x16sQ16sIQ")
_STAGED = struct.Struct(">BB2xQ")
_COMMIT = struct.Struct(">BB2x16sQ16s")
_PART = struct.Struct(">IQQ")
_COMMITTED = struct.Struct(">BB2xQ")
_ABORT = struct.Struct(">BB2x16sQ16s")
_KEY = struct.Struct(">BB2x16sQIQ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A request to stage rows, which follow as items. Raises LocalProtocolError when a rule above forbids it."""

    MIME: ClassVar[str] = STAGING_MIME

    KIND: ClassVar[int] = 0x01
    query: bytes
    "What sends numbered batches: 16 bytes, such as the id of a streaming query. It survives restarts."
    batch: int
    "The number of the batch; batches of a query are committed in ascending order."
    run: bytes
    "The execution of the query: 16 bytes, other ones after each restart."
    partition: int
    "Which part of the batch follows."
    attempt: int
    "A random number that no other attempt to send this part has."

    def __post_init__(self) -> None:
        _check_batch(self.query, self.batch, self.run)
        _check_part(self.partition, self.attempt)

    def encode(self) -> bytes:
        """The entry's 56 bytes."""
        return _STAGE.pack(self.KIND, 0, self.query, self.batch, self.run, self.partition, self.attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """The answer to :class:`Stage`, at the end of the rows: they are durable and invisible."""

    MIME: ClassVar[str] = STAGING_MIME

    KIND: ClassVar[int] = 0x02
    rows: int
    "The number of rows received."
    duplicate: bool = False
    "True when the batch is committed already: no row was stored, and none needs to be sent."

    def __post_init__(self) -> None:
        _check(rows=self.rows)

    def encode(self) -> bytes:
        """The entry's 12 bytes."""
        return _STAGED.pack(self.KIND, self.duplicate * _DUPLICATE, self.rows)


class Part(NamedTuple):
    """The attempt that a :class:`Commit` chooses for a partition."""

    partition: int
    attempt: int
    rows: int
    "The number of rows staged, which the receiver compares."


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A request to make a batch visible: exactly these attempts, all or none."""

    MIME: ClassVar[str] = STAGING_MIME

    KIND: ClassVar[int] = 0x03
    query: bytes
    "As in :class:`Stage`."
    batch: int
    "As in :class:`Stage`."
    run: bytes
    "As in :class:`Stage`."
    parts: Sequence[Part] = ()
    "One attempt of each partition that has rows, in ascending order of partitions."

    def __post_init__(self) -> None:
        _check_batch(self.query, self.batch, self.run)
        before = -1
        for partition, attempt, rows in self.parts:
            _check_part(partition, attempt)
            _check(rows=rows)
            if partition <= before or not rows:
                raise LocalProtocolError(
                    f"partition {partition} with {rows} rows after {before}: partitions ascend and have rows",
                    rule="SK-6",
                )
            before = partition

    def encode(self) -> bytes:
        """The entry: 44 bytes, and 20 for each partition."""
        head = _COMMIT.pack(self.KIND, 0, self.query, self.batch, self.run)
        return head + b"".join(_PART.pack(*part) for part in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The answer to :class:`Commit`: the rows are visible and durable."""

    MIME: ClassVar[str] = STAGING_MIME

    KIND: ClassVar[int] = 0x04
    rows: int
    "The number of rows that this commit made visible; 0 for a duplicate."
    duplicate: bool = False
    "True when the batch, or a later one of the query, was committed before."

    def __post_init__(self) -> None:
        _check(rows=self.rows)

    def encode(self) -> bytes:
        """The entry's 12 bytes."""
        return _COMMITTED.pack(self.KIND, self.duplicate * _DUPLICATE, self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort:
    """A request to drop what a run has staged for a batch. A committed batch stays. The answer is empty."""

    MIME: ClassVar[str] = STAGING_MIME

    KIND: ClassVar[int] = 0x05
    query: bytes
    "As in :class:`Stage`."
    batch: int
    "As in :class:`Stage`."
    run: bytes
    "As in :class:`Stage`."

    def __post_init__(self) -> None:
        _check_batch(self.query, self.batch, self.run)

    def encode(self) -> bytes:
        """The entry's 44 bytes."""
        return _ABORT.pack(self.KIND, 0, self.query, self.batch, self.run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """The key of one row, the same when the row is sent again: a peer that remembers keys can drop duplicates."""

    MIME: ClassVar[str] = STAGING_MIME

    KIND: ClassVar[int] = 0x06
    query: bytes
    "As in :class:`Stage`."
    batch: int
    "As in :class:`Stage`."
    partition: int
    "The partition of the row."
    sequence: int
    "The number of the row in its partition, from 0."

    def __post_init__(self) -> None:
        _check_id("query", self.query)
        _check(batch=self.batch, sequence=self.sequence)
        _check_part(self.partition, 1)

    def encode(self) -> bytes:
        """The entry's 40 bytes."""
        return _KEY.pack(self.KIND, 0, self.query, self.batch, self.partition, self.sequence)


Staging = Stage | Staged | Commit | Committed | Abort | Key
"The value of a staging entry."

_LAYOUTS = {
    Stage.KIND: ("STAGE", _STAGE, 0x00),
    Staged.KIND: ("STAGED", _STAGED, _DUPLICATE),
    Commit.KIND: ("COMMIT", _COMMIT, 0x00),
    Committed.KIND: ("COMMITTED", _COMMITTED, _DUPLICATE),
    Abort.KIND: ("ABORT", _ABORT, 0x00),
    Key.KIND: ("KEY", _KEY, 0x00),
}


def decode_staging(data: bytes) -> Staging:
    """The value of one staging entry.

    Raises:
        Violation: ``data`` breaks one of the rules SK-1 to SK-6; its code is INVALID.
    """
    if not data:
        raise _violation("a staging entry is empty", "SK-1")
    if data[0] not in _LAYOUTS:
        raise _violation(f"staging kind 0x{data[0]:02X} is unknown", "SK-2")
    name, layout, flags_known = _LAYOUTS[data[0]]
    more = len(data) - layout.size
    if more and (more < 0 or layout is not _COMMIT or more % _PART.size):
        allowed = f"{layout.size} + {_PART.size} n" if layout is _COMMIT else f"{layout.size}"
        raise _violation(f"a {name} entry is {allowed} bytes long, not {len(data)}", "SK-1")
    _, flags, *values = layout.unpack_from(data)
    if flags & ~flags_known:
        raise _violation(f"a {name} entry has unknown flags 0x{flags & ~flags_known:02X}", "SK-3")
    try:
        return _build(data[0], bool(flags), values, data[layout.size :])
    except LocalProtocolError as error:
        raise _violation(f"a {name} entry is wrong: {error.message}", error.rule or "SK-4") from None


def encode_staging(staging: Staging) -> bytes:
    """Composite metadata whose only entry is ``staging``; entries may be added before or after it."""
    return compose([(STAGING_MIME, staging.encode())])


def staging_of(metadata: bytes | None, limit: int = 1024) -> Staging | None:
    """The staging entry of composite metadata; None without one. ``limit`` is ``Limits.composite_entries``.

    Raises:
        Violation: there is an entry and it breaks a rule, or the metadata is not composite.
    """
    found: Staging | None = None
    for mime, value in entries(metadata or b"", limit):
        if mime == STAGING_MIME:
            if found is not None:
                raise _violation("there are two staging entries", "SK-7")
            found = decode_staging(value)
    return found


def _build(kind: int, duplicate: bool, v: list[int | bytes], rest: bytes) -> Staging:
    match kind, v:
        case Stage.KIND, [bytes(query), int(batch), bytes(run), int(partition), int(attempt)]:
            return Stage(query=query, batch=batch, run=run, partition=partition, attempt=attempt)
        case Commit.KIND, [bytes(query), int(batch), bytes(run)]:
            parts = tuple(Part(*part) for part in _PART.iter_unpack(rest))
            return Commit(query=query, batch=batch, run=run, parts=parts)
        case Abort.KIND, [bytes(query), int(batch), bytes(run)]:
            return Abort(query=query, batch=batch, run=run)
        case Key.KIND, [bytes(query), int(batch), int(partition), int(sequence)]:
            return Key(query=query, batch=batch, partition=partition, sequence=sequence)
    (rows,) = v
    made = Staged if kind == Staged.KIND else Committed
    return made(rows=int(rows), duplicate=duplicate)


def _check_batch(query: bytes, batch: int, run: bytes) -> None:
    _check_id("query", query)
    _check_id("run", run)
    _check(batch=batch)


def _check_id(name: str, value: bytes) -> None:
    if len(value) != 16 or not any(value):
        raise LocalProtocolError(f"a {name} is 16 bytes that are not all zero, unlike {value.hex()!r}", rule="SK-5")


def _check_part(partition: int, attempt: int) -> None:
    if not 0 <= partition < 1 << 31:
        raise LocalProtocolError(f"partition {partition} is not in 0 to 2^31 - 1", rule="SK-4")
    if not 0 <= attempt < 1 << 64:
        raise LocalProtocolError(f"attempt {attempt} does not fit 64 bits", rule="SK-4")
    if not attempt:
        raise LocalProtocolError("the attempt is zero", rule="SK-5")


def _check(**numbers: int) -> None:
    for name, value in numbers.items():
        if not 0 <= value < _TOP:
            raise LocalProtocolError(f"{name} {value} is not in 0 to 2^63 - 1", rule="SK-4")


def _violation(reason: str, rule: str) -> Violation:
    return Violation(reason, rule=rule, code=Code.INVALID)
