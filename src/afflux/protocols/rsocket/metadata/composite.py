"""Read and write composite metadata: a sequence of entries, each with a MIME type.

Reading returns bytes; an entry is decoded when it is requested, so that a malformed entry does no harm until then.
Writing takes typed values of this package or of an application, and pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar, Protocol

from afflux.protocols.rsocket.metadata.mime import (
    ROUTING_MIME,
    CompactLen,
    decode_mime,
    encode_mime,
    invalid,
)
from afflux.protocols.rsocket.metadata.routing import encode_tags

__all__ = ["Entry", "EntryLike", "compose", "entries", "pair_of"]


class Entry(Protocol):
    """A typed entry, which has a MIME type and encodes itself. Applications may define their own."""

    MIME: ClassVar[str]

    def encode(self) -> bytes:
        """The entry's bytes. May raise Violation."""


EntryLike = Entry | tuple[str, bytes]
"An entry as an argument: a typed one, or (MIME type, bytes)."


def entries(metadata: bytes, limit: int = 1024, compact_len: CompactLen = "minus-one") -> Iterator[tuple[str, bytes]]:
    """The entries of composite metadata, in order, as (MIME type, value); duplicates stay (R-54).

    ``limit`` is ``Limits.composite_entries``. Raises Violation at the entry that is malformed or too many, after
    the entries before it were returned (R-55).
    """
    at = count = 0
    while at < len(metadata):
        count += 1
        if count > limit:
            raise invalid("too-many-entries", "composite_entries")
        _, mime, at = decode_mime(metadata, at, compact_len)
        start = at + 3
        end = start + int.from_bytes(metadata[at:start], "big")
        if end > len(metadata) or start > len(metadata):
            raise invalid(f"metadata entry {count} ({mime}) is longer than what is left", "R-55")
        yield mime, metadata[start:end]
        at = end


def compose(
    entries: Iterable[EntryLike] = (), *, route: str | None = None, compact_len: CompactLen = "minus-one"
) -> bytes:
    """Composite metadata of ``entries``, after one for ``route`` when there is one.

    Raises Violation for a MIME type or a route that does not fit, and for values above 16,777,215 bytes; TypeError for
    a value that is not an entry.
    """
    parts: list[bytes] = []
    if route is not None:
        parts += _written(ROUTING_MIME, encode_tags((route,)), compact_len)
    for entry in entries:
        parts += _written(*pair_of(entry, compact_len), compact_len)
    return b"".join(parts)


def pair_of(entry: EntryLike, compact_len: CompactLen = "minus-one") -> tuple[str, bytes]:
    """An entry as (MIME type, bytes).

    Raises:
        TypeError: it is not an entry.
    """
    if isinstance(entry, tuple):
        if len(entry) == 2 and isinstance(entry[0], str) and isinstance(entry[1], (bytes, bytearray, memoryview)):
            return entry[0], bytes(entry[1])
        raise TypeError("a metadata entry as a pair is (MIME type, bytes)")
    if not hasattr(entry, "MIME") or not hasattr(entry, "encode"):
        kind = type(entry).__name__
        raise TypeError(f"a metadata entry is one of afflux's, such as Bearer, or (MIME type, bytes), not {kind}")
    if compact_len == "plain" and getattr(entry, "COMPACT", False):
        return entry.MIME, entry.encode(compact_len)  # type: ignore[call-arg] # those that have compact types inside
    return entry.MIME, entry.encode()


def _written(mime: str, value: bytes, compact_len: CompactLen) -> tuple[bytes, bytes, bytes]:
    if len(value) > 0xFFFFFF:
        raise invalid(f"a metadata entry of {len(value)} bytes: at most {0xFFFFFF} fit", "2.5")
    return encode_mime(mime, compact_len), len(value).to_bytes(3, "big"), value
