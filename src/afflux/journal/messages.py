"""Encode the blocks of a journal as messages of a JetStream stream, and decode them.

The body of a message is that of a block (blocks.py). The header ``Afflux-Block`` has the rest as ``name=value``::

    v=1 epoch=1a2b first=0 count=500 time=1764000000000000 metadata=- crc=89abcdef total=70064 sealed=0
    limit=1073741824 writer=9f3a number=17

``total`` is the charge of all blocks up to this one since the stream was created, so that the first and the last
message give the size of the journal. ``metadata`` is ``-`` if no item has metadata. ``limit`` is the writer's
``journal_bytes``, by which a reader sees that it is full. ``writer`` and ``number`` identify the message: each
writer has a random number and counts its messages. The header ``Afflux-Note`` has the note (contract.py) in base64.

A message with ``count=0`` is a *marker*: it stores a note, seals the journal, or remains after all blocks were trimmed.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from afflux.journal.blocks import Block, charge_of
from afflux.journal.contract import BlockInfo

__all__ = ["MOST_NOTE_BYTES", "Entry", "Malformed"]

MOST_NOTE_BYTES = 0x10000
"The largest note, in bytes."

_BLOCK = "Afflux-Block"
_NOTE = "Afflux-Note"
_VERSION = "1"


class Malformed(ValueError):
    """A message is not one of a journal, or it is damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A message of the stream: a block or a marker."""

    sequence: int = 0
    "Its number in the stream; 0 before it is stored."
    epoch: int
    first: int
    "The offset of its first item; for a marker the head."
    count: int
    "The number of items."
    time_us: int
    metadata_bytes: int | None = None
    crc: int
    total: int
    "The charge of all blocks up to this one, trimmed or not."
    sealed: bool = False
    limit: int = 0
    "The ``journal_bytes`` of the writer; 0 if it is not known."
    writer: int
    number: int
    note: bytes = b""
    body: bytes = b""
    body_bytes: int
    "The bytes of the body, which may not have been read."

    @property
    def end(self) -> int:
        """The offset after its last item."""
        return self.first + self.count

    @property
    def charge(self) -> int:
        """Its share of ``Heads.size``."""
        return charge_of(self.count, self.body_bytes, self.metadata_bytes) if self.count else 0

    @property
    def id(self) -> str:
        """The message id, by which the server recognizes a repetition."""
        return f"{self.writer:x}.{self.number}"

    @property
    def info(self) -> BlockInfo:
        """The block without its items."""
        return BlockInfo(self.first, self.end, self.time_us, self.charge)

    def block(self) -> Block:
        """Return the block; its checksum is not checked."""
        return Block(self.first, self.count, self.time_us, self.metadata_bytes, self.body, self.crc)

    def headers(self) -> dict[str, str]:
        """Return the headers of the message."""
        metadata = "-" if self.metadata_bytes is None else self.metadata_bytes
        words = (
            f"v={_VERSION} epoch={self.epoch:x} first={self.first} count={self.count} time={self.time_us} "
            f"metadata={metadata} crc={self.crc:08x} total={self.total} sealed={int(self.sealed)} "
            f"limit={self.limit} "
            f"writer={self.writer:x} number={self.number}"
        )
        return {_BLOCK: words} | ({_NOTE: b64encode(self.note).decode()} if self.note else {})

    @classmethod
    def parse(cls, sequence: int, headers: Mapping[str, str], body: bytes, body_bytes: int | None = None) -> Self:
        """Return the entry in a message.

        Args:
            sequence: the number of the message.
            headers: its headers.
            body: its body; empty if it was not read.
            body_bytes: the bytes of a body that was not read.

        Raises:
            Malformed: it has other headers.
        """
        try:
            words = dict(word.split("=", 1) for word in headers[_BLOCK].split(" "))
            version = words["v"]
            if version != _VERSION:
                raise Malformed(f"its version is {version}, this afflux reads {_VERSION}; update afflux")
            first, count = int(words["first"]), int(words["count"])
            if first < 0 or count < 0:
                raise Malformed("its offsets are negative")
            return cls(
                sequence=sequence,
                epoch=int(words["epoch"], 16),
                first=first,
                count=count,
                time_us=int(words["time"]),
                metadata_bytes=None if words["metadata"] == "-" else int(words["metadata"]),
                crc=int(words["crc"], 16),
                total=int(words["total"]),
                sealed=words["sealed"] == "1",
                limit=int(words["limit"]),
                writer=int(words["writer"], 16),
                number=int(words["number"]),
                note=b64decode(headers.get(_NOTE, ""), validate=True),
                body=body,
                body_bytes=len(body) if body_bytes is None else body_bytes,
            )
        except Malformed:
            raise
        except (KeyError, ValueError):
            raise Malformed(f"it has no valid header {_BLOCK} of a journal") from None
