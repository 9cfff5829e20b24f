"""Recognize the bytes before the content of payloads by what is fixed in them, and parse them when they are accessed.

Theory of operation. A sender that gives each payload entries of its own repeats their ids, flags and lengths: only the
payloads of the entries differ. A ``Shape`` has the fixed bytes and their places. Other bytes of the same shape are
valid without being parsed. Shapes are made from frames that were decoded and understood as a whole (extending.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

from afflux.protocols.rsocket_draft.entries import BROKER, Entry, chain_size, read_chain
from afflux.protocols.rsocket_draft.frames import PayloadFrame
from afflux.protocols.rsocket_draft.payload import Own, encoded_of

__all__ = ["Prelude", "Shape", "Unpack"]

Unpack = Callable[[bytes, int], tuple[Any, ...]]
"Extracts the fixed bytes at a position."


class Shape:
    """The fixed bytes of a *prelude*: the entries and MIME types of a payload (R-5, R-6).

    Args:
        raw: one prelude.
        flags: the flags of its frame that say what it contains.
        entries: its entries.
        own: what the application gets of it.
    """

    __slots__ = ("_canonical", "_kept", "_mimes", "flags", "heads", "is_plain", "size", "unpack")

    def __init__(self, raw: bytes, flags: int, entries: Sequence[Entry], own: Own) -> None:
        self.flags = flags
        self.size = len(raw)
        self.is_plain = not own[0] and own[1] is None and own[2] is None
        "The application gets a plain payload: all entries were skipped."
        self.unpack: Unpack | None = None
        "Extracts the fixed bytes; None if only the same bytes are of this shape."
        self.heads: tuple[Any, ...] = ()
        "The fixed bytes."
        self._kept = [index for index, entry in enumerate(entries) if any(entry is one for one in own[0])]
        self._mimes = own[1:]
        self._canonical: bool | None = None
        if entries and all(entry.ignorable and not _is_known(entry) for entry in entries):
            sizes = [(chain_size((entry,)) - len(entry.payload), len(entry.payload)) for entry in entries]
            places = "".join(f"{head}s{payload}x" for head, payload in sizes)
            self.unpack = Struct(f"{places}{len(raw) - sum(map(sum, sizes))}s").unpack_from
            self.heads = self.unpack(raw, 0)

    def own_of(self, raw: bytes) -> Own:
        """Return the entries that are understood, and the MIME types, of a prelude of this shape, which has entries."""
        entries, _ = read_chain(PayloadFrame, raw, 0, 0, len(raw))
        return (tuple([entries[index] for index in self._kept]), *self._mimes)

    def is_canonical(self, raw: bytes, own: Own) -> bool:
        """Whether this side would send the same bytes; not if it skips or writes some differently."""
        if self._canonical is None:
            self._canonical = encoded_of(own) == (self.flags, raw)
        return self._canonical


class Prelude:
    """The prelude of one received payload, or of several with equal bytes; see payload.Source."""

    __slots__ = ("_encoded", "_own", "raw", "shape")

    def __init__(self, shape: Shape, raw: bytes, own: Own | None = None) -> None:
        self.shape = shape
        self.raw = raw
        self._own = own
        self._encoded: tuple[int, bytes] | None = None

    @property
    def own(self) -> Own:
        """The entries that are understood, and the MIME types."""
        if self._own is None:
            self._own = self.shape.own_of(self.raw)
        return self._own

    @property
    def encoded(self) -> tuple[int, bytes]:
        """The flags and the bytes that send the same entries and MIME types."""
        if self._encoded is None:
            canonical = self.shape.is_canonical(self.raw, self.own)
            self._encoded = (self.shape.flags, self.raw) if canonical else encoded_of(self.own)
        return self._encoded


def _is_known(entry: Entry) -> bool:
    """Whether an entry's payload decides whether it is valid."""
    return isinstance(entry.number, int) and entry.number <= BROKER
