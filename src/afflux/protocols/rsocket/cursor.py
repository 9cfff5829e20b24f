"""Read and write the cursor: the metadata entry that makes a stream replayable.

A resume position is lost with its connection. A cursor is not: it names items of a stream by *offset*, counted
from 0 by the side that stores them, within an *epoch*, which changes when that store was lost or created again.
It travels as one entry of composite metadata with the MIME type ``message/x.afflux.cursor.v0``, so any RSocket
client can speak it. docs/cursor.md is the same text with examples, for other languages.

Every number is big endian. The first four bytes are the same in each kind::

    kind u8 | flags u8 | shard u16 | ...

    0x01 READ         epoch u64 | first u64 | limit u64 | unused u64                 36 bytes
    0x02 HEAD         epoch u64 | after u64 | wait_ms u32 | unused u64               32 bytes
    0x03 STATE        epoch u64 | first u64 | head u64 | time_us i64                 36 bytes
    0x04 POSITION     epoch u64 | offset u64 | time_us i64                           28 bytes
    0x05 ACKNOWLEDGE  epoch u64 | offset u64 | owner u64 | name, UTF-8               29 to 92 bytes

READ, HEAD and ACKNOWLEDGE are sent in the metadata of a REQUEST_STREAM, STATE and POSITION in that of the answered
items. The unused bytes are sent as zeros and ignored by the receiver.

Rules. A peer that breaks one gets INVALID (0x204):

- C-1  An entry has exactly the length of its kind.
- C-2  The kind is one of the five.
- C-3  Flag bits without a meaning are zero. READ has BLOCKS (0x01), STATE has SEALED (0x01) and FULL (0x02), POSITION
       has EMPTY_METADATA (0x01) or BLOCK (0x02).
- C-4  Epochs, offsets, owners, limits and ``first + limit`` stay below 2^63; a shard fits 16 bits, ``wait_ms`` 32.
- C-5  STATE, POSITION and ACKNOWLEDGE name an epoch that is not zero. Zero in READ and HEAD means any epoch.
- C-6  STATE: ``first`` is not above ``head``.
- C-7  ACKNOWLEDGE: the name is 1 to 64 bytes of printable UTF-8 text, and ``owner`` is not zero.
- C-8  A request has at most one cursor entry: READ, HEAD or ACKNOWLEDGE. An item has at most one, which comes first.
- C-9  The lengths and the checksum of a block are those of its bytes, and it has at least one item.

A READ with BLOCKS permits the server to send stored blocks whole: the data of an item whose POSITION has BLOCK is many
items. A block is little endian, because readers use its lengths as they are::

    count u32 | metadata_bytes u32 | checksum u32 | lengths | metadata lengths | metadata | data

The lengths are ``count`` u32. Without metadata, ``metadata_bytes`` is 0xFFFFFFFF and the two parts after the lengths
are missing; otherwise a metadata length is a u32, one more than the bytes, and 0 for an item without metadata. The
checksum is CRC-32 over the offset u64, ``count``, the time i64, ``metadata_bytes``, and what follows the checksum. A
server may send any items without a block. A peer that does not know the flag refuses it (C-3): it is asked again
without.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar

from afflux.core.errors import LocalProtocolError, Violation
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket.metadata import compose, entries

__all__ = [
    "CURSOR_MIME",
    "EPOCH_CHANGED",
    "JOURNAL_FAILED",
    "OFFSET_AHEAD",
    "OFFSET_GONE",
    "READER_CONFLICT",
    "UNKNOWN_SHARD",
    "Acknowledge",
    "Cursor",
    "Head",
    "Position",
    "Read",
    "Request",
    "State",
    "decode_cursor",
    "encode_entry",
    "is_positioned",
    "split_position",
    "split_request",
    "state_of",
    "with_position",
]

CURSOR_MIME = "message/x.afflux.cursor.v0"
"The MIME type of the entry. Another layout gets another type."

EPOCH_CHANGED = 0xA01
"Error code: the stream's epoch is not the one asked for, so its offsets mean other items."
OFFSET_GONE = 0xA02
"Error code: the first offset asked for was trimmed."
OFFSET_AHEAD = 0xA03
"Error code: the offset asked for or acknowledged is above the head."
UNKNOWN_SHARD = 0xA04
"Error code: the stream has no such shard."
JOURNAL_FAILED = 0xA05
"Error code: what stores the items is damaged, or could not be written."
READER_CONFLICT = 0xA06
"Error code: another reader acknowledges the stream; the text contains both names."

_TOP = 1 << 63
_NAME_BYTES = 64
_SEALED = 0x01
_FULL = 0x02
_EMPTY_METADATA = 0x01
_BLOCKS = 0x01
_BLOCK = 0x02

_READ = struct.Struct(">BBHQQQ8x")
_HEAD = struct.Struct(">BBHQQI8x")
_STATE = struct.Struct(">BBHQQQq")
_POSITION = struct.Struct(">BBHQQq")
_ACKNOWLEDGE = struct.Struct(">BBHQQQ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A request for items from an offset on. Raises LocalProtocolError when a rule above forbids it."""

    MIME: ClassVar[str] = CURSOR_MIME

    KIND: ClassVar[int] = 0x01
    shard: int = 0
    "Which part of a stream that is stored in parts; 0 when it isn't."
    epoch: int = 0
    "The epoch that ``first`` belongs to; 0 for whatever it is now."
    first: int = 0
    "The first offset wanted."
    limit: int = 0
    "How many items at most; 0 to follow the stream for as long as it lives."
    blocks: bool = False
    "Whether stored blocks may be sent whole. Credit counts a block once, ``limit`` counts its items."

    def __post_init__(self) -> None:
        _check(self.shard, epoch=self.epoch, first=self.first, limit=self.limit)
        if self.first + self.limit >= _TOP:
            raise LocalProtocolError(f"first {self.first} + limit {self.limit} is not below 2^63", rule="C-4")

    def encode(self) -> bytes:
        """The entry's 36 bytes."""
        return _READ.pack(self.KIND, self.blocks * _BLOCKS, self.shard, self.epoch, self.first, self.limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A long poll for the head: answered when it is above ``after``, sealed, or after ``wait_ms``."""

    MIME: ClassVar[str] = CURSOR_MIME

    KIND: ClassVar[int] = 0x02
    shard: int = 0
    "As in :class:`Read`."
    epoch: int = 0
    "The epoch that ``after`` belongs to; 0 for whatever it is now."
    after: int = 0
    "The last head that the requester received."
    wait_ms: int = 0
    "How long to wait for another one, in milliseconds; 0 for an immediate answer."

    def __post_init__(self) -> None:
        _check(self.shard, epoch=self.epoch, after=self.after)
        if not 0 <= self.wait_ms < 1 << 32:
            raise LocalProtocolError(f"wait_ms {self.wait_ms} does not fit 32 bits", rule="C-4")

    def encode(self) -> bytes:
        """The entry's 32 bytes."""
        return _HEAD.pack(self.KIND, 0, self.shard, self.epoch, self.after, self.wait_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledge:
    """Permission to trim, by the one reader that may give it. The first one registers its name and owner durably."""

    MIME: ClassVar[str] = CURSOR_MIME

    KIND: ClassVar[int] = 0x05
    shard: int = 0
    "As in :class:`Read`."
    epoch: int
    "The epoch that ``offset`` belongs to."
    offset: int = 0
    "Offsets below are not needed again and may be trimmed; 0 to register only."
    owner: int
    "Identifies what stores the reader's position, so that another one of the same name is refused: a random number."
    name: str
    "The reader's name."

    def __post_init__(self) -> None:
        _check(self.shard, epoch=self.epoch, offset=self.offset, owner=self.owner)
        if not self.epoch:
            raise LocalProtocolError("the epoch is zero", rule="C-5")
        if not self.owner:
            raise LocalProtocolError("the owner is zero", rule="C-7")
        if not self.name.isprintable() or not 1 <= len(self.name.encode("utf-8", "replace")) <= _NAME_BYTES:
            text = f"a reader's name has 1 to {_NAME_BYTES} bytes of printable UTF-8 text, unlike {self.name!r}"
            raise LocalProtocolError(text, rule="C-7")

    def encode(self) -> bytes:
        """The entry: 28 bytes and the name."""
        return _ACKNOWLEDGE.pack(self.KIND, 0, self.shard, self.epoch, self.offset, self.owner) + self.name.encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The answer to :class:`Head` and :class:`Acknowledge`: which offsets can be read now."""

    MIME: ClassVar[str] = CURSOR_MIME

    KIND: ClassVar[int] = 0x03
    shard: int = 0
    "The shard asked for."
    epoch: int
    "The epoch of the two offsets."
    first: int
    "The first offset that is still there."
    head: int
    "The next offset to be written: all below are durable. ``first == head`` means that nothing is there."
    time_us: int
    "When the last item was stored, microseconds since 1970 (UTC); 0 when there never was one."
    sealed: bool = False
    "True when no item will ever follow."
    full: bool = False
    "True while the producer waits, because the store has no room."

    def __post_init__(self) -> None:
        _check(self.shard, epoch=self.epoch, first=self.first, head=self.head)
        _check_stored(self.epoch, self.time_us)
        if self.first > self.head:
            raise LocalProtocolError(f"first {self.first} is above head {self.head}", rule="C-6")

    def encode(self) -> bytes:
        """The entry's 36 bytes."""
        flags = self.sealed * _SEALED | self.full * _FULL
        return _STATE.pack(self.KIND, flags, self.shard, self.epoch, self.first, self.head, self.time_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The offset of an item in an answer to :class:`Read`.

    Items after it without a position count up by one and share the time. The first item of an answer has a position,
    and each item at which the offset jumps or the time changes.
    """

    MIME: ClassVar[str] = CURSOR_MIME

    KIND: ClassVar[int] = 0x04
    shard: int = 0
    "The shard asked for."
    epoch: int
    "The epoch of the offset."
    offset: int
    "The item's offset."
    time_us: int
    "When the item was stored, microseconds since 1970 (UTC)."
    empty_metadata: bool = False
    "True when the item's own metadata is empty; else no bytes after this entry mean that it has none."
    block: bool = False
    "True when the item's data is a block, and ``offset`` that of its first item."

    def __post_init__(self) -> None:
        _check(self.shard, epoch=self.epoch, offset=self.offset)
        _check_stored(self.epoch, self.time_us)
        if self.block and self.empty_metadata:
            raise LocalProtocolError("a block has no metadata of its own that could be empty", rule="C-3")

    def encode(self) -> bytes:
        """The entry's 28 bytes."""
        flags = self.empty_metadata * _EMPTY_METADATA | self.block * _BLOCK
        return _POSITION.pack(self.KIND, flags, self.shard, self.epoch, self.offset, self.time_us)


Request = Read | Head | Acknowledge
"The value of a cursor entry in a request."
Cursor = Request | State | Position
"The value of a cursor entry."

_LAYOUTS = {
    Read.KIND: ("READ", _READ, _BLOCKS),
    Head.KIND: ("HEAD", _HEAD, 0x00),
    State.KIND: ("STATE", _STATE, _SEALED | _FULL),
    Position.KIND: ("POSITION", _POSITION, _EMPTY_METADATA | _BLOCK),
    Acknowledge.KIND: ("ACKNOWLEDGE", _ACKNOWLEDGE, 0x00),
}


def decode_cursor(data: bytes) -> Cursor:
    """The value of one cursor entry.

    Raises:
        Violation: ``data`` breaks one of the rules C-1 to C-7; its code is INVALID.
    """
    if not data:
        raise _violation("a cursor entry is empty", "C-1")
    if data[0] not in _LAYOUTS:
        raise _violation(f"cursor kind 0x{data[0]:02X} is unknown", "C-2")
    name, layout, flags_known = _LAYOUTS[data[0]]
    least, most = (29, 28 + _NAME_BYTES) if layout is _ACKNOWLEDGE else (layout.size, layout.size)
    if not least <= len(data) <= most:
        allowed = f"{least} to {most}" if least < most else f"{most}"
        raise _violation(f"a {name} cursor is {allowed} bytes long, not {len(data)}", "C-1")
    _, flags, shard, *numbers = layout.unpack_from(data)
    if flags & ~flags_known:
        raise _violation(f"a {name} cursor has unknown flags 0x{flags & ~flags_known:02X}", "C-3")
    try:
        return _build(data[0], flags, shard, numbers, data[layout.size :])
    except LocalProtocolError as error:
        raise _violation(f"a {name} cursor is wrong: {error.message}", error.rule or "C-4") from None


def encode_entry(cursor: Cursor) -> bytes:
    """Composite metadata whose only entry is ``cursor``; entries may be added before or after it."""
    return compose([(CURSOR_MIME, cursor.encode())])


def split_request(metadata: bytes | None, limit: int = 1024) -> tuple[Request | None, bytes | None]:
    """The cursor of a request, and the request's composite metadata without it (None when nothing is left).

    ``limit`` is ``Limits.composite_entries``.

    Raises:
        Violation: there is a cursor and it breaks a rule, or what stands around it is not composite metadata.
    """
    if metadata is None or _ENTRY_START not in metadata:
        return None, metadata
    cursor: Request | None = None
    others: list[tuple[str, bytes]] = []
    for mime, value in entries(metadata, limit):
        if mime != CURSOR_MIME:
            others.append((mime, value))
            continue
        found = decode_cursor(value)
        if cursor is not None or isinstance(found, (State, Position)):
            raise _violation("a request has one cursor: READ, HEAD or ACKNOWLEDGE", "C-8")
        cursor = found
    if cursor is None:
        return None, metadata
    return cursor, compose(others) if others else None


def with_position(position: Position, own: bytes | None) -> bytes:
    """The metadata of an item at ``position`` whose own metadata is ``own``.

    ``position.empty_metadata`` has to be true exactly when ``own`` is ``b""``.
    """
    return encode_entry(position) + (own or b"")


def split_position(metadata: bytes | None) -> tuple[Position | None, bytes | None]:
    """The position of an item of an answer to READ, and its own metadata.

    None for the position means: one above the item before, at the same time.

    Raises:
        Violation: the entry breaks a rule.
    """
    value, rest = _split_first(metadata)
    if value is None:
        return None, metadata
    position = decode_cursor(value)
    if not isinstance(position, Position):
        raise _violation("an item's cursor is a POSITION", "C-8")
    if rest:
        return position, rest
    return position, b"" if position.empty_metadata else None


def is_positioned(metadata: bytes | None) -> bool:
    """Whether metadata starts with a cursor entry, as an item's own may: it has to be sent with a position."""
    return metadata is not None and metadata.startswith(_ENTRY_START)


def state_of(metadata: bytes | None) -> State:
    """The state in the metadata of the answer to HEAD or ACKNOWLEDGE.

    Raises:
        Violation: the entry is missing or breaks a rule.
    """
    value, _ = _split_first(metadata)
    state = None if value is None else decode_cursor(value)
    if not isinstance(state, State):
        raise _violation("the answer has no STATE", "C-8")
    return state


_ENTRY_START = bytes((len(CURSOR_MIME) - 1,)) + CURSOR_MIME.encode("ascii")


def _split_first(metadata: bytes | None) -> tuple[bytes | None, bytes]:
    """The value of a cursor entry that metadata starts with, and what follows: only the entry must be whole."""
    if metadata is None or not is_positioned(metadata):
        return None, b""
    start = len(_ENTRY_START) + 3
    end = start + int.from_bytes(metadata[start - 3 : start], "big")
    if len(metadata) < max(start, end):
        raise _violation("a cursor entry is cut off", "C-1")
    return metadata[start:end], metadata[end:]


def _build(kind: int, flags: int, shard: int, n: list[int], name: bytes) -> Cursor:
    if kind == Read.KIND:
        return Read(shard=shard, epoch=n[0], first=n[1], limit=n[2], blocks=bool(flags & _BLOCKS))
    if kind == Head.KIND:
        return Head(shard=shard, epoch=n[0], after=n[1], wait_ms=n[2])
    if kind == Acknowledge.KIND:
        return Acknowledge(shard=shard, epoch=n[0], offset=n[1], owner=n[2], name=_text(name))
    if kind == State.KIND:
        sealed, full = bool(flags & _SEALED), bool(flags & _FULL)
        return State(shard=shard, epoch=n[0], first=n[1], head=n[2], time_us=n[3], sealed=sealed, full=full)
    empty, block = bool(flags & _EMPTY_METADATA), bool(flags & _BLOCK)
    return Position(shard=shard, epoch=n[0], offset=n[1], time_us=n[2], empty_metadata=empty, block=block)


def _text(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise LocalProtocolError(f"the reader's name {name!r} is not UTF-8", rule="C-7") from None


def _check(shard: int, **numbers: int) -> None:
    if not 0 <= shard < 1 << 16:
        raise LocalProtocolError(f"shard {shard} does not fit 16 bits", rule="C-4")
    for name, value in numbers.items():
        if not 0 <= value < _TOP:
            raise LocalProtocolError(f"{name} {value} is not in 0 to 2^63 - 1", rule="C-4")


def _check_stored(epoch: int, time_us: int) -> None:
    if not epoch:
        raise LocalProtocolError("the epoch is zero", rule="C-5")
    if not -_TOP <= time_us < _TOP:
        raise LocalProtocolError(f"time_us {time_us} does not fit 64 bits", rule="C-4")


def _violation(reason: str, rule: str) -> Violation:
    return Violation(reason, rule=rule, code=Code.INVALID)
