"""Pack items into blocks, the unit that a journal stores, and unpack them.

The body of a block, little endian::

    length u32 for each item
    length + 1 u32 for each item's metadata, 0 without metadata         only if any item has metadata
    the metadata, concatenated                                          only if any item has metadata
    the data, concatenated

The checksum is CRC-32 over first offset, count, time, bytes of metadata (0xFFFFFFFF: no such part) and body.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise

from afflux.core.payload import Payload, PayloadLike, payload_of

__all__ = [
    "BLOCK_OVERHEAD",
    "ITEM_OVERHEAD",
    "Block",
    "Pending",
    "block_header",
    "charge_of",
    "checksum",
    "columns",
    "needs_check",
    "sizes",
]

ITEM_OVERHEAD = 8
"Bytes charged for an item in addition to its own: its two lengths."
BLOCK_OVERHEAD = 64
"Bytes charged for a block in addition to its items."

_HEADER = struct.Struct("<QIqI")
_NO_METADATA = 0xFFFFFFFF
_U32 = 4
_SWAP = sys.byteorder == "big"


def checksum(first: int, count: int, time_us: int, metadata_bytes: int | None, body: bytes) -> int:
    """Return the CRC-32 of a block."""
    return zlib.crc32(body, zlib.crc32(block_header(first, count, time_us, metadata_bytes)))


def block_header(first: int, count: int, time_us: int, metadata_bytes: int | None) -> bytes:
    """Return what the checksum of a block contains before its body. Raises struct.error for a number out of range."""
    return _HEADER.pack(first, count, time_us, _NO_METADATA if metadata_bytes is None else metadata_bytes)


def charge_of(count: int, body_bytes: int, metadata_bytes: int | None) -> int:
    """Return the bytes that count for ``journal_bytes``, of a block of ``count`` items."""
    in_body = _U32 if metadata_bytes is None else 2 * _U32
    return body_bytes + (ITEM_OVERHEAD - in_body) * count + BLOCK_OVERHEAD


class Block:
    """Stored items with consecutive offsets and one time: all of a stored block, or a part of one. Immutable."""

    __slots__ = ("_crc", "_high", "_low", "body", "first", "metadata_bytes", "stored", "time_us")

    first: int
    "The offset of the first item."
    time_us: int
    "Time of the first item, in microseconds since 1970 (UTC)."
    stored: int
    "The number of items of the whole stored block."
    metadata_bytes: int | None
    "Bytes of metadata in ``body``; None if no item has metadata."
    body: bytes
    "The whole stored block, as described above."

    def __init__(
        self,
        first: int,
        stored: int,
        time_us: int,
        metadata_bytes: int | None,
        body: bytes,
        crc: int | None = None,
        *,
        low: int = 0,
        high: int | None = None,
    ) -> None:
        self.first = first
        self.time_us = time_us
        self.stored = stored
        self.metadata_bytes = metadata_bytes
        self.body = body
        self._crc = crc
        self._low = low
        self._high = stored if high is None else high

    def __len__(self) -> int:
        """The number of items."""
        return self._high - self._low

    @property
    def size(self) -> int:
        """Bytes of the whole stored block, also if it was cut."""
        return len(self.body)

    @property
    def charge(self) -> int:
        """The bytes that count for ``journal_bytes``, of the whole stored block."""
        return charge_of(self.stored, len(self.body), self.metadata_bytes)

    @property
    def crc(self) -> int:
        """The checksum of the whole stored block."""
        if self._crc is None:
            self._crc = self._checksum()
        return self._crc

    def is_intact(self) -> bool:
        """Return whether the checksum that was stored with the block is that of its bytes."""
        return self.crc == self._checksum()

    def _checksum(self) -> int:
        return checksum(self.first - self._low, self.stored, self.time_us, self.metadata_bytes, self.body)

    @property
    def end(self) -> int:
        """The offset after the last item."""
        return self.first + len(self)

    def cut(self, first: int, end: int) -> Block:
        """Return a block of those items whose offsets are from ``first`` to before ``end``."""
        low = self._low + max(0, first - self.first)
        high = self._high - max(0, self.end - end)
        return Block(
            self.first + low - self._low, self.stored, self.time_us, self.metadata_bytes, self.body, self._crc,
            low=low, high=max(low, high),
        )  # fmt: skip

    def lengths(self) -> array[int]:
        """Return the bytes of the data of each item."""
        return _u32s(self.body, _U32 * self._low, self._high - self._low)

    def data(self) -> list[bytes]:
        """Return the data of each item."""
        body = self.body
        lengths = _u32s(body, 0, self.stored)
        start = self._head_bytes + sum(lengths[: self._low])
        return [body[a:b] for a, b in pairwise(accumulate(lengths[self._low : self._high], initial=start))]

    def metadata(self) -> list[bytes | None] | None:
        """Return the metadata of each item; None if no item of the stored block has metadata."""
        if self.metadata_bytes is None:
            return None
        body = self.body
        found: list[bytes | None] = []
        position = 2 * _U32 * self.stored
        for marked in _u32s(body, _U32 * self.stored, self.stored):
            end = position + max(0, marked - 1)
            found.append(body[position:end] if marked else None)
            position = end
        return found[self._low : self._high]

    def payloads(self) -> list[Payload]:
        """Return each item as a payload."""
        metadata = self.metadata()
        if metadata is None:
            return [Payload(data) for data in self.data()]
        return [Payload(data, own) for data, own in zip(self.data(), metadata, strict=True)]

    @property
    def _head_bytes(self) -> int:
        if self.metadata_bytes is None:
            return _U32 * self.stored
        return 2 * _U32 * self.stored + self.metadata_bytes


class Pending:
    """A block that is being filled."""

    __slots__ = ("_data", "_lengths", "_metadata", "first", "size", "time_us")

    def __init__(self, first: int, time_us: int) -> None:
        self.first = first
        self.time_us = time_us
        self.size = 0
        self._data: list[bytes] = []
        self._lengths = array("I")
        self._metadata: list[bytes | None] | None = None

    def __len__(self) -> int:
        return len(self._lengths)

    def extend(self, data: Sequence[bytes], metadata: Sequence[bytes | None] | None, size: int) -> None:
        """Add items; ``size`` is the sum of their :func:`sizes`."""
        if metadata is not None and self._metadata is None:
            self._metadata = [None] * len(self._lengths)
        if self._metadata is not None:
            self._metadata.extend(metadata if metadata is not None else [None] * len(data))
        self._lengths.extend(map(len, data))
        self._data.extend(data)
        self.size += size

    def pack(self) -> Block:
        """Return the block with its checksum."""
        parts = [_u32_bytes(self._lengths)]
        metadata_bytes = None
        if self._metadata is not None:
            own = [b"" if value is None else value for value in self._metadata]
            parts.append(_u32_bytes(array("I", [0 if value is None else len(value) + 1 for value in self._metadata])))
            parts.extend(own)
            metadata_bytes = sum(map(len, own))
        parts.extend(self._data)
        return Block(self.first, len(self._lengths), self.time_us, metadata_bytes, b"".join(parts))


def columns(items: Sequence[PayloadLike]) -> tuple[Sequence[bytes], list[bytes | None] | None]:
    """Return data and metadata of ``items`` in two lists; None for the second if no item has metadata."""
    if set(map(type, items)) <= {bytes}:
        return items, None  # type: ignore[return-value] # mypy does not follow the check above
    payloads = [payload_of(item) for item in items]
    metadata = [payload.metadata for payload in payloads]
    return [payload.data for payload in payloads], None if metadata.count(None) == len(metadata) else metadata


def sizes(data: Sequence[bytes], metadata: Sequence[bytes | None] | None) -> list[int]:
    """Return the bytes charged for each item."""
    if metadata is None:
        return [len(value) + ITEM_OVERHEAD for value in data]
    return [len(value) + len(own or b"") + ITEM_OVERHEAD for value, own in zip(data, metadata, strict=True)]


def needs_check(block: Block, start: int, stop: int, unchecked: int) -> bool:
    """Return whether a backend has to check a block that it reads; ``Backend.read_blocks`` has the arguments."""
    return block.size > unchecked or block.first < start or block.end > stop


def _u32s(body: bytes, start: int, count: int) -> array[int]:
    values = array("I")
    values.frombytes(body[start : start + _U32 * count])
    if _SWAP:
        values.byteswap()
    return values


def _u32_bytes(values: array[int]) -> bytes:
    if _SWAP:
        values = array("I", values)
        values.byteswap()
    return values.tobytes()
