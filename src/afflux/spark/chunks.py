"""Hold items of a range between reading.py, which checks them, and arrow.py, which makes batches of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from afflux.core.events import Block
from afflux.core.payload import Payload
from afflux.journal.blocks import Block as Stored

__all__ = ["Chunk"]


@dataclass(slots=True, kw_only=True)
class Chunk:
    """Items with consecutive offsets and one time: a block of the wire, or payloads."""

    first: int
    "The offset of the first item."
    time_us: int
    "When they were stored, in microseconds since 1970 (UTC)."
    block: Block | Stored | None = None
    "The items as they are stored; or as spans of a buffer, without metadata."
    payloads: list[Payload] = field(default_factory=list)
    "The items if there is no block; the cursor's entry is removed from their metadata."

    def __len__(self) -> int:
        if self.block is None:
            return len(self.payloads)
        return len(self.block) if isinstance(self.block, Stored) else len(self.block.starts)

    def metadata(self) -> list[bytes | None]:
        """Return the metadata of each item."""
        if self.block is None:
            return [payload.metadata for payload in self.payloads]
        found = self.block.metadata() if isinstance(self.block, Stored) else None
        return [None] * len(self) if found is None else found
