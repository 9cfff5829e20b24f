"""Convert frames for peers with another numbering or other lengths (section 6 of the specification).

Engines work with frames as the specification has them. A dialect converts what leaves (``outward``) and what arrives
(``decode``), so only connections with a dialect pay for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from afflux.core.dialect import Switches, Words
from afflux.core.errors import Violation
from afflux.core.frame import changed
from afflux.protocols.rsocket.frames import FLAG_METADATA
from afflux.protocols.rsocket_draft import entries as chains
from afflux.protocols.rsocket_draft import frames
from afflux.protocols.rsocket_draft.compact import CompactType, compact_bytes, read_compact
from afflux.protocols.rsocket_draft.entries import LEASE, MOST_ENTRIES, Entry, Point
from afflux.protocols.rsocket_draft.frames import DATA_MIME, EXTENSIONS, FLAG_CHAIN, METADATA_MIME

__all__ = ["PLAIN_DIALECT", "Dialect"]

_PREFIX: Final = 3
_HEADER: Final = 6
_FREE_CODES: Final = range(0x0F, 0x3F)
_FIXED: Final = {
    frames.Setup: 4,
    frames.SetupOk: 0,
    frames.RequestResponse: 0,
    frames.RequestFnf: 0,
    frames.RequestStream: 4,
    frames.RequestChannel: 4,
    frames.RequestN: 4,
    frames.Cancel: 0,
    frames.PayloadFrame: 0,
    frames.ExtChain: 0,
}
"Bytes of fixed fields before the chain, by frame; those of SETUP follow its MIME types."


@dataclass(slots=True)
class _Parts:
    """A frame in its parts."""

    kind: Any
    header: bytes
    word: int
    mimes: list[CompactType]
    fixed: bytes
    entries: tuple[Entry, ...]
    rest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect(Switches):
    """The differences of a peer from the specification. Both ends need the same dialect."""

    WORDS: ClassVar[Words] = {
        "always-length": ("always_length", True),
        "one-based": ("one_based", True),
        "plain-lengths": ("plain_lengths", True),
    }

    always_length: bool = False
    "Every entry has a length, not only one with I (I-1)."
    one_based: bool = False
    "Well-known extensions and lease strategies are numbered from 1 (I-2)."
    plain_lengths: bool = False
    "The length of a compact text is itself, not one less (I-5)."
    setup_ok_code: int = frames.SetupOk.TYPE
    "The type of SETUP_OK (I-6)."

    def with_code(self, code: int) -> Dialect:
        """Return the dialect with another type of SETUP_OK.

        Raises:
            ValueError: the type is not one of the free ones.
        """
        if code not in _FREE_CODES:
            raise ValueError(f"expected a free frame type, 0x0F to 0x3E, not 0x{code:02X}")
        return replace(self, setup_ok_code=code)

    # -- frames -----------------------------------------------------------------------------------------------

    def decode(self, buffer: bytes, start: int, end: int) -> Any:
        """Decode a frame as this peer encodes it. Raises like ``frames.decode``."""
        if end - start < _HEADER:
            return frames.decode(buffer, start, end)
        if (swapped := self._swapped(buffer[start + 4] >> 2)) != buffer[start + 4] >> 2:
            word = bytes((swapped << 2 | buffer[start + 4] & 3,))
            buffer, start, end = buffer[start : start + 4] + word + buffer[start + 5 : end], 0, end - start
        kind = _kind_of(buffer, start)
        if kind is None:
            return frames.decode(buffer, start, end)
        parts = self._read(kind, buffer, start, end, local=False)
        if kind is frames.ExtChain:
            if parts.word & FLAG_METADATA or parts.rest:
                raise kind.malformed("EXT with a chain has nothing after it", buffer, start, end, "R-9")
            return frames.ExtChain(stream=int.from_bytes(parts.header, "big") & 0x7FFFFFFF, extensions=parts.entries)
        found, parts.entries = parts.entries, ()
        parts.word &= ~EXTENSIONS
        return changed(frames.decode(PLAIN_DIALECT._bytes(parts)), extensions=found)

    def outward(self, block: bytes) -> bytes:
        """Encode whole frames, each after its length, as this peer reads them."""
        converted: list[bytes] = []
        at = 0
        while at < len(block):
            start = at + _PREFIX
            at = start + int.from_bytes(block[at:start], "big")
            kind = _kind_of(block, start)
            frame = block[start:at]
            if kind is not None:
                parts = PLAIN_DIALECT._read(kind, block, start, at, local=True)
                frame = self._bytes(parts)
            swapped = self._swapped(frame[4] >> 2) << 2 | frame[4] & 3
            converted += (len(frame).to_bytes(_PREFIX, "big"), frame[:4], bytes((swapped,)), frame[5:])
        return b"".join(converted)

    def _swapped(self, type: int) -> int:
        """Exchange the types of SETUP_OK here and there."""
        pair = {frames.SetupOk.TYPE: self.setup_ok_code, self.setup_ok_code: frames.SetupOk.TYPE}
        return pair.get(type, type)

    # -- parts ------------------------------------------------------------------------------------------------

    def _read(self, kind: Any, buffer: bytes, start: int, end: int, *, local: bool) -> _Parts:
        """Split a frame of this dialect. ``local``: this side encoded it."""
        word = buffer[start + 4] << 8 | buffer[start + 5]
        at, mimes = start + _HEADER, list[CompactType]()
        if kind is frames.Setup:
            for name in ("data_mime", "metadata_mime"):
                mime, at = self._compact(kind, name, buffer, at, start, end)
                mimes.append(mime)
        fixed, at = buffer[at : at + _FIXED[kind]], at + _FIXED[kind]
        if at > end:
            raise kind.malformed(f"{kind.NAME} ends within its fixed fields", buffer, start, end)
        entries: tuple[Entry, ...] = ()
        if word & (FLAG_CHAIN if kind is frames.ExtChain else EXTENSIONS):
            entries, at = self._chain(kind, buffer, at, start, end, local=local)
        if kind is frames.PayloadFrame:
            for flag in (DATA_MIME, METADATA_MIME):
                if word & flag:
                    mime, at = self._compact(kind, "a MIME type", buffer, at, start, end)
                    mimes.append(mime)
        return _Parts(kind, buffer[start : start + 4], word, mimes, fixed, entries, buffer[at:end])

    def _bytes(self, parts: _Parts) -> bytes:
        """Join the parts of a frame, in this dialect."""
        mimes = b"".join(map(self._compact_bytes, parts.mimes))
        chain = self._chain_bytes(parts.entries, parts.kind.POINT)
        body = mimes + parts.fixed + chain if parts.kind is frames.Setup else parts.fixed + chain + mimes
        return parts.header + parts.word.to_bytes(2, "big") + body + parts.rest

    def _compact(self, kind: Any, what: str, buffer: bytes, at: int, start: int, end: int) -> tuple[CompactType, int]:
        """Read a compact type of this dialect at ``at``."""
        if self.plain_lengths and at < end and not buffer[at] & 0x80:
            if not buffer[at]:
                raise kind.malformed(f"{kind.NAME}: {what} is empty", buffer, start, end)
            stop = at + 1 + buffer[at]
            octets = bytes((buffer[at] - 1,)) + buffer[at + 1 : min(stop, end)]
            return read_compact(kind, what, octets, 0, 0, len(octets))[0], stop
        return read_compact(kind, what, buffer, at, start, end)

    def _compact_bytes(self, value: CompactType) -> bytes:
        octets = compact_bytes(value)
        if self.plain_lengths and isinstance(value, str):
            return bytes((octets[0] + 1,)) + octets[1:]
        return octets

    # -- chains -----------------------------------------------------------------------------------------------

    def _chain(
        self, kind: Any, buffer: bytes, at: int, start: int, end: int, *, local: bool
    ) -> tuple[tuple[Entry, ...], int]:
        """Read the chain at ``at``; return its entries, and where it ends."""
        found: list[Entry] = []
        flags = chains.FOLLOWS
        while flags & chains.FOLLOWS:
            if len(found) == MOST_ENTRIES:
                raise kind.malformed(f"{kind.NAME}: more than {MOST_ENTRIES} entries", buffer, start, end)
            id, at = self._compact(kind, "an extension", buffer, at, start, end)
            id = self._shifted(id, -1)
            if at >= end:
                raise kind.malformed(f"{kind.NAME} ends within an extension entry", buffer, start, end)
            flags, at = buffer[at], at + 1
            if flags & chains.IGNORABLE or self.always_length:
                size, at = int.from_bytes(buffer[at : at + 3], "big"), at + 3
            else:
                size = self._own_size(kind, id, flags, buffer, at, start, end, local=local)
            if at + size > end:
                raise kind.malformed(f"{kind.NAME} ends within an extension entry", buffer, start, end)
            payload, at = buffer[at : at + size], at + size
            if Entry(id).number == LEASE and kind.POINT in (Point.SETUP, Point.SETUP_OK):
                payload = self._strategies(kind, payload)
            ignorable, ack = flags & chains.IGNORABLE != 0, flags & chains.ACKNOWLEDGE != 0
            if kind is frames.SetupOk and not (ignorable or chains.used_at(Entry(id).number, Point.SETUP_OK)):
                raise kind.not_understood(f"SETUP_OK: the extension {id!r} is not supported", buffer, start, end)
            found.append(Entry(id, payload, ignorable, ack, flags & 0x0F))
        return tuple(found), at

    def _own_size(
        self, kind: Any, id: CompactType, flags: int, buffer: bytes, at: int, start: int, end: int, *, local: bool
    ) -> int:
        """Return the size of a payload without a length. What this side sends of an unknown extension is empty."""
        if Entry(id).number == LEASE and kind.POINT is Point.SETUP_OK:
            return self._compact(kind, "a lease strategy", buffer, at, start, end)[1] - at
        try:
            return chains.own_size(kind, id, flags, buffer, at, start, end)
        except Violation:
            if not local:
                raise
            return 0

    def _strategies(self, kind: Any, payload: bytes) -> bytes:
        """Convert lease strategies of this dialect to the specification's."""
        converted, at = b"", 0
        while at < len(payload):
            strategy, at = self._compact(kind, "a lease strategy", payload, at, 0, len(payload))
            converted += compact_bytes(self._shifted(strategy, -1))
        return converted

    def _chain_bytes(self, entries: tuple[Entry, ...], point: Point) -> bytes:
        parts: list[bytes] = []
        for index, entry in enumerate(entries):
            payload = entry.payload
            if entry.number == LEASE and point in (Point.SETUP, Point.SETUP_OK):
                strategies, at = b"", 0
                while at < len(payload):
                    strategy, at = read_compact(frames.Setup, "a lease strategy", payload, at, 0, len(payload))
                    strategies += self._compact_bytes(self._shifted(strategy, 1))
                payload = strategies
            flags = chains.IGNORABLE * entry.ignorable | chains.ACKNOWLEDGE * entry.ack | entry.flags
            flags |= chains.FOLLOWS if index + 1 < len(entries) else 0
            length = len(payload).to_bytes(3, "big") if entry.ignorable or self.always_length else b""
            parts += (self._compact_bytes(self._shifted(entry.id, 1)), bytes((flags,)), length, payload)
        return b"".join(parts)

    def _shifted(self, value: CompactType, by: int) -> CompactType:
        """Convert a number; 0x7F is 0 there, so that every number has one."""
        return (value + by) % 0x80 if self.one_based and isinstance(value, int) else value


PLAIN_DIALECT: Final = Dialect()
"The specification's own."


def _kind_of(buffer: bytes, start: int) -> Any:
    """Return the class of a frame that has a chain or MIME types of its own; None for any other."""
    type = buffer[start + 4] >> 2
    if type == frames.Ext.TYPE:
        return frames.ExtChain if buffer[start + 5] & FLAG_CHAIN else None
    kind = frames.FRAMES.get(type)
    return kind if kind in _FIXED else None
