"""Write blocks as single items of an answer to READ, and read them; the layout is in protocols/rsocket/cursor.py.

The reader compares the checksum that was stored with a block, so the server does not do it for whole blocks. A reader
that finds another one requests the items instead: the server checks those, and reports a damaged journal.
"""

from __future__ import annotations

import struct

from afflux.core.errors import Violation
from afflux.journal.blocks import Block, Pending, sizes
from afflux.protocols.rsocket.codes import Code

__all__ = ["MOST_WIRE_BYTES", "Damaged", "pack", "unpack"]

MOST_WIRE_BYTES = 0x100000
"A larger block is sent as items: readers need not have room for a payload of many items."

_HEADER = struct.Struct("<III")
_NO_METADATA = 0xFFFFFFFF
_U32 = 4


class Damaged(Violation):
    """A block has not the checksum that was stored with it."""


def pack(block: Block) -> bytes:
    """Return the data of an item with all items of ``block``, which may be a part of a stored one."""
    if len(block) < block.stored:
        data, metadata = block.data(), block.metadata()
        part = Pending(block.first, block.time_us)
        part.extend(data, metadata, sum(sizes(data, metadata)))
        block = part.pack()
    marked = _NO_METADATA if block.metadata_bytes is None else block.metadata_bytes
    return _HEADER.pack(block.stored, marked, block.crc) + block.body


def unpack(data: bytes, first: int, time_us: int) -> Block:
    """Return the block in the data of an item.

    Args:
        data: the item's data.
        first: the offset of its position.
        time_us: the time of its position.

    Raises:
        Damaged: the checksum is wrong (C-9).
        Violation: the lengths are wrong, or it has no items (C-9).
    """
    if len(data) < _HEADER.size:
        raise _violation(f"a block has a header of {_HEADER.size} bytes, not {len(data)}")
    count, marked, crc = _HEADER.unpack_from(data)
    body = data[_HEADER.size :]
    metadata_bytes = None if marked == _NO_METADATA else marked
    lengths = _U32 * count * (1 if metadata_bytes is None else 2)
    if not count or lengths + (metadata_bytes or 0) > len(body):
        raise _violation(f"a block of {len(body)} bytes cannot have {count} items")
    block = Block(first, count, time_us, metadata_bytes, body)
    if block.crc != crc:
        text = f"the checksum of the block at offset {first} is {block.crc:08x}, not {crc:08x}"
        raise Damaged(text, rule="C-9", code=Code.INVALID)
    if lengths + (metadata_bytes or 0) + sum(block.lengths()) != len(body):
        raise _violation(f"the lengths of the block at offset {first} do not add up to its {len(body)} bytes")
    return block


def _violation(reason: str) -> Violation:
    return Violation(reason, rule="C-9", code=Code.INVALID)
