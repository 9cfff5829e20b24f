"""Defer the conversion of frames to Arrow, so that the thread that writes them does it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from afflux.capture.frames import COLUMNS, Frames

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Deferred"]

_ROW_BYTES: Final = 8 * len(COLUMNS) + 16
"Bytes of a frame in columns, at most; with the number of its packet and its position."


class Deferred:
    """Rows of the table ``frames`` that are yet to be made.

    Args:
        count: the rows.
        nbytes: bytes that are kept for them, about.
        make: makes them; another thread may call it, once.
    """

    __slots__ = ("_count", "make", "nbytes")

    def __init__(self, count: int, nbytes: int, make: Callable[[], pa.RecordBatch]) -> None:
        self._count = count
        self.nbytes = nbytes
        self.make = make

    def __len__(self) -> int:
        return self._count

    @classmethod
    def of(cls, frames: Frames, make: Callable[[], pa.RecordBatch], *, payload: bool) -> Deferred:
        """Return the rows of frames, which must not change any more. ``payload``: their payloads are kept as well."""
        kept = len(frames.payloads.block) if payload and frames.payloads is not None else 0
        return cls(len(frames), _ROW_BYTES * len(frames) + kept, make)

    @classmethod
    def made(cls, batch: pa.RecordBatch) -> Deferred:
        """Return rows that have been made."""
        return cls(len(batch), batch.nbytes, lambda: batch)

    @classmethod
    def joined(cls, parts: Sequence[Deferred], join: Callable[[list[Any]], Any]) -> Deferred:
        """Return the rows of all parts, which ``join`` makes one batch."""
        size = sum(part.nbytes for part in parts)
        return cls(sum(map(len, parts)), size, lambda: join([part.make() for part in parts]))
