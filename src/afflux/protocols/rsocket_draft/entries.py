"""Read and write chains of extension entries (2.3), without regard to what a connection has negotiated.

An entry without a length can be read only if its extension is well known: its payload then ends by itself (2.5).
Negotiation, and the meaning of payloads, are elsewhere: payloads.py and negotiation.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from afflux.core.errors import Violation
from afflux.core.frame import Malformed
from afflux.protocols.rsocket_draft.compact import CompactType, compact_bytes, read_compact

__all__ = [
    "BROKER",
    "KEEPALIVE",
    "LEASE",
    "MOST_ENTRIES",
    "NAMES",
    "OWN_SIZE",
    "RESUME",
    "Ending",
    "Entry",
    "NotUnderstood",
    "Point",
    "chain_bytes",
    "chain_size",
    "own_size",
    "read_chain",
    "used_at",
]

KEEPALIVE: Final = 0x00
RESUME: Final = 0x01
LEASE: Final = 0x02
BROKER: Final = 0x03
NAMES: Final = ("keepalive", "resume", "lease", "broker")
"The well-known extensions by number; the same names as text are equivalent (2.3)."
_NUMBERS: Final[dict[CompactType, int]] = {name: number for number, name in enumerate(NAMES)}

FOLLOWS: Final = 0x80
IGNORABLE: Final = 0x40
ACKNOWLEDGE: Final = 0x20
MARK: Final = 0x08
"The flag whose meaning depends on the extension and the point (2.5)."
_DEPENDENT: Final = 0x0F
MOST_ENTRIES: Final = 64
"Entries of one chain; a longer chain is malformed (D-17)."
_LIST_ENTRY: Final = 12


class Point(IntEnum):
    """The four places where a frame may have a chain."""

    SETUP = 0
    SETUP_OK = 1
    EXT = 2
    STREAM = 3


class NotUnderstood(Malformed):
    """An unknown extension that may not be ignored (R-18)."""


@dataclass(slots=True, unsafe_hash=True, repr=False)
class Entry:
    """One extension entry. Treat it as a value."""

    id: CompactType
    "The extension: its well-known number, or its name."
    payload: bytes = b""
    "The extension's own bytes."
    ignorable: bool = False
    "A receiver that does not understand it skips it (I); its payload has a length only then (R-13)."
    ack: bool = False
    "The sender wants an acknowledgement (A). On SETUP only."
    flags: int = 0
    "The four dependent flags, 0 to 0x0F."

    @property
    def number(self) -> CompactType:
        """The well-known number, also of an extension that was sent by its name; the name of any other."""
        return _NUMBERS.get(self.id, self.id)

    @property
    def marked(self) -> bool:
        """Whether the dependent flag 0x08 is set."""
        return self.flags & MARK != 0

    @property
    def name(self) -> CompactType:
        """The name, also of an extension that was sent by its well-known number; any other number as it is."""
        return NAMES[self.id] if isinstance(self.id, int) and self.id < len(NAMES) else self.id

    def __repr__(self) -> str:
        words = [
            f"{self.name!r}",
            f"({len(self.payload)} bytes)",
        ]  # a payload may contain a token or credentials (AU-05)
        words += [word for word in ("ignorable", "ack") if getattr(self, word)]
        return f"Entry({', '.join(words)}{f', flags=0x{self.flags:X}' if self.flags else ''})"


def chain_bytes(entries: Iterable[Entry]) -> bytes:
    """Encode a chain; each entry but the last has F (R-12).

    Raises:
        TypeError: an entry is of another class, or its payload is not bytes.
        Violation: an id or a flag is out of range, a payload is too long, or there are too many entries.
    """
    parts: list[bytes] = []
    heads: list[int] = []
    for entry in entries:
        _check_types(entry)
        if not 0 <= entry.flags <= _DEPENDENT:
            raise Violation(f"the flags of an entry are 0 to 15, not {entry.flags}", rule="R-20")
        flags = FOLLOWS | IGNORABLE * bool(entry.ignorable) | ACKNOWLEDGE * bool(entry.ack) | entry.flags
        size = len(entry.payload)
        if size > 0xFFFFFF:
            raise Violation(f"the payload of an entry has {size} bytes: at most {0xFFFFFF} fit", rule="R-13")
        heads.append(len(parts))
        length = size.to_bytes(3, "big") if entry.ignorable else b""
        parts += (compact_bytes(entry.id, "an extension"), bytes((flags,)), length, entry.payload)
    if len(heads) > MOST_ENTRIES:
        raise Violation(f"a chain of {len(heads)} entries: at most {MOST_ENTRIES} fit", rule="D-17")
    if heads:
        last = heads[-1] + 1
        parts[last] = bytes((parts[last][0] & ~FOLLOWS,))
    return b"".join(parts)


def _check_types(entry: Any) -> None:
    if not isinstance(entry, Entry):
        raise TypeError(f"an extension entry is an Entry, not {type(entry).__name__}")
    parts: tuple[Any, Any] = entry.payload, entry.flags
    if not isinstance(parts[0], bytes) or not isinstance(parts[1], int):
        payload, flags = (type(part).__name__ for part in parts)
        raise TypeError(f"the payload of an entry is bytes and its flags are a number, not {payload} and {flags}")


def chain_size(entries: Iterable[Entry]) -> int:
    """Return the size of an encoded chain."""
    size = 0
    for entry in entries:
        size += (1 if isinstance(entry.id, int) else 1 + len(entry.id)) + 1 + len(entry.payload)
        size += 3 if entry.ignorable else 0
    return size


def read_chain(frame: Any, buffer: bytes, at: int, start: int, end: int) -> tuple[tuple[Entry, ...], int]:
    """Return the entries of the chain at ``at``, and where it ends. ``frame`` is the class of the frame at
    ``buffer[start:end]``; its ``POINT`` decides how entries without a length end.

    Raises:
        NotUnderstood: an entry without a length is of an unknown extension; nothing after it can be read.
        Malformed: the bytes end within the chain, or there are too many entries.
    """
    entries: list[Entry] = []
    flags = FOLLOWS
    while flags & FOLLOWS:
        if len(entries) == MOST_ENTRIES:
            raise frame.malformed(f"{frame.NAME}: more than {MOST_ENTRIES} entries", buffer, start, end)
        id, at = read_compact(frame, "an extension", buffer, at, start, end)
        if at >= end:
            raise frame.malformed(f"{frame.NAME} ends within an extension entry", buffer, start, end)
        flags = buffer[at]
        at += 1
        if flags & IGNORABLE:
            at += 3
            if at > end:
                raise frame.malformed(f"{frame.NAME} ends within the length of an entry", buffer, start, end)
            size = buffer[at - 3] << 16 | buffer[at - 2] << 8 | buffer[at - 1]
        else:
            size = own_size(frame, id, flags, buffer, at, start, end)
        stop = at + size
        if stop > end:
            reason = f"{frame.NAME}: an entry of {size} bytes where {end - at} are left"
            raise frame.malformed(reason, buffer, start, end)
        ignorable, ack = flags & IGNORABLE != 0, flags & ACKNOWLEDGE != 0
        entries.append(Entry(id, buffer[at:stop], ignorable, ack, flags & _DEPENDENT))
        at = stop
    return tuple(entries), at


class Ending(IntEnum):
    """How a payload without a length ends if its size varies; below 0, where no size is."""

    OPEN = -1
    "It has no end of its own."
    LIST = -2
    "After a list of positions."
    TOKEN = -3
    "After a token."
    TOKEN_AND_LIST = -4
    "After a token and a list of positions."
    COMPACT = -5
    "After a compact type."


OWN_SIZE: Final[dict[tuple[Point, CompactType], tuple[int, int]]] = {
    (Point.SETUP, KEEPALIVE): (8, 8),
    (Point.SETUP, RESUME): (Ending.TOKEN, Ending.TOKEN_AND_LIST),
    (Point.SETUP, LEASE): (Ending.OPEN, Ending.OPEN),
    (Point.SETUP, BROKER): (Ending.OPEN, Ending.OPEN),
    (Point.SETUP_OK, KEEPALIVE): (0, 0),
    (Point.SETUP_OK, RESUME): (0, Ending.LIST),
    (Point.SETUP_OK, LEASE): (Ending.COMPACT, Ending.COMPACT),
    (Point.SETUP_OK, BROKER): (0, 0),
    (Point.EXT, KEEPALIVE): (Ending.OPEN, Ending.OPEN),
    (Point.EXT, RESUME): (Ending.LIST, Ending.LIST),
    (Point.EXT, LEASE): (8, 8),
    (Point.EXT, BROKER): (Ending.OPEN, Ending.OPEN),
    (Point.STREAM, RESUME): (0, 0),
    (Point.STREAM, BROKER): (Ending.OPEN, Ending.OPEN),
}
"How the payload of an extension ends at each point, or its size in bytes: without flag 0x08 and with it (2.5)."


def used_at(number: CompactType, point: Point) -> bool:
    """Whether an extension is well known and has a payload at a point."""
    return (point, number) in OWN_SIZE


def own_size(frame: Any, id: CompactType, flags: int, buffer: bytes, at: int, start: int, end: int) -> int:
    """Return the size of a payload without a length, from its content (R-13, R-14, D-6). It may exceed the frame."""
    number = _NUMBERS.get(id, id)
    kinds = OWN_SIZE.get((frame.POINT, number))
    if kinds is None:
        reason = f"{frame.NAME}: the extension {id!r} is not supported, and may not be ignored"
        raise frame.not_understood(reason, buffer, start, end)
    kind = kinds[flags & MARK != 0]
    if kind == Ending.OPEN:
        raise frame.malformed(
            f"{frame.NAME}: the payload of extension {id!r} needs a length", buffer, start, end, "R-14"
        )
    if kind == Ending.COMPACT:
        return read_compact(frame, "a lease strategy", buffer, at, start, end)[1] - at
    if kind == Ending.LIST:
        return _list_size(buffer, at, end)
    if kind >= 0:
        return kind
    token = 2 + int.from_bytes(buffer[at : min(at + 2, end)], "big")
    return token if kind == Ending.TOKEN else token + _list_size(buffer, at + token, end)


def _list_size(buffer: bytes, at: int, end: int) -> int:
    """Return the size of the position list at ``at`` (2.4), which may exceed the frame."""
    count = int.from_bytes(buffer[at : min(at + 3, end)], "big") & 0xFFFFF if at < end else 0
    return 3 + _LIST_ENTRY * count
