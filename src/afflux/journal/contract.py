"""Declare what a journal needs of the storage behind it.

:class:`Journal` collects items into blocks, bounds them and trims by retention; a :class:`Backend` stores blocks. There
are two backends in this package, an SQLite database (database.py) and a JetStream stream (jetstream.py);
``tests/journal/contract.py`` is the suite that each has to pass, crashes included.

Rules for a backend:

1. A block is stored as a whole, and ``append`` stores its blocks in order. When it returns, they survive a crash of the
   process. After an error or a crash, the first ones may be stored. ``heads`` never promises more than is stored, and
   after an error it shows which ones are.
2. Offsets are contiguous from ``heads.first`` to ``heads.head``. An offset with its epoch never names two items.
3. Everything read is checked: the checksum of each block, and that none is missing. A block of which a crash stored a
   part is not there. Damaged data is refused, never repaired by dropping items.
4. One writer: a second one is refused when it opens, or at the latest when it appends, and changes nothing.
5. When the storage is full, ``append`` raises JournalNoSpace and may be called again with the other blocks; reading and
   ``trim`` work, and trimming makes room. JournalLocked may be repeated as well; after any other error of a writing
   method the caller writes no more until it has opened the backend again.
6. The caller calls one writing method at a time. ``read_blocks``, ``index`` and ``heads`` may be used from any thread,
   also while another thread writes or trims.
7. Where other processes may trim or register a reader, ``refresh`` finds that. Blocks, note and seal are the writer's.
8. The note is bytes of the caller that are stored durably, such as the place of a relay in its remote stream. A note
   that was stored before an item is there whenever the item is.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Protocol

from afflux.journal.blocks import Block

__all__ = ["Backend", "BlockInfo", "Heads", "Reader"]


@dataclass(frozen=True, slots=True)
class Reader:
    """The one reader whose acknowledgements trim a journal."""

    name: str
    "The name that its operator chose."
    owner: int
    "A random number, 1 to 2^63 - 1, that the reader stores with its position: two readers of one name differ in it."


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """The state of a journal's storage."""

    epoch: int
    "Changes when the storage is recreated; never 0."
    key: bytes
    "Identifies the stream."
    sealed: bool = False
    "True if no item will follow."
    first: int = 0
    "The lowest stored offset; ``head`` if nothing is stored."
    head: int = 0
    "The offset after the last stored item."
    size: int = 0
    "The sum of ``Block.charge`` of all stored blocks."
    time_us: int = 0
    "The time of the last block, in microseconds since 1970 (UTC); 0 before the first."
    reader: Reader | None = None
    "The registered reader."
    note: bytes = b""
    "What ``remember`` has stored last."


@dataclass(frozen=True, slots=True)
class BlockInfo:
    """A stored block without its items."""

    first: int
    "The offset of its first item."
    end: int
    "The offset after its last item."
    time_us: int
    "The time of its first item."
    charge: int
    "Its share of ``Heads.size``, in bytes."


class Backend(Protocol):
    """Durable storage for one journal. Every method raises JournalError if the storage fails."""

    @property
    def name(self) -> str:
        """The name of the journal in errors and logs."""
        ...

    @property
    def heads(self) -> Heads:
        """The state after the last completed change."""
        ...

    @property
    def most_bytes(self) -> int:
        """The largest block that can be stored, in bytes of its body."""
        ...

    def append(self, blocks: Sequence[Block]) -> None:
        """Store whole blocks, of which the first begins at ``heads.head``.

        Raises:
            JournalNoSpace: the storage is full.
            JournalTaken: another writer has appended.
        """
        ...

    def read_blocks(self, start: int, stop: int, unchecked: int = 0) -> Generator[Block, None, None]:
        """Yield the whole blocks that contain the offsets from ``start`` to before ``stop``, which are stored.

        Args:
            start: the first offset.
            stop: the offset after the last one.
            unchecked: the most bytes of a block whose checksum need not be compared, because its reader does; a block
                that is not wholly in the range is always checked.

        Raises:
            JournalDamaged: a block is missing or its checksum is wrong.
        """
        ...

    def index(self) -> Generator[BlockInfo, None, None]:
        """Yield all stored blocks, the oldest first."""
        ...

    def trim(self, offset: int) -> None:
        """Delete the blocks before ``offset``, which is the first offset of a block, or the head."""
        ...

    def register(self, reader: Reader | None) -> None:
        """Store the reader; None for no reader."""
        ...

    def remember(self, note: bytes) -> None:
        """Replace the note. Raises as ``append`` does."""
        ...

    def seal(self) -> None:
        """Record that no item will follow."""
        ...

    def refresh(self) -> None:
        """Update ``heads`` with what other processes have changed."""
        ...

    def close(self) -> None:
        """Release everything. No-op if it is closed."""
        ...

    def remove(self) -> None:
        """Close, and delete the journal. The next one in its place has another epoch."""
        ...
