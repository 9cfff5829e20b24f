"""Read the metadata of a request: its route, credentials and other entries, each decoded at its first use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from afflux.core.errors import Invalid, Violation
from afflux.protocols.rsocket.metadata.authentication import Authentication, decode_credentials
from afflux.protocols.rsocket.metadata.composite import entries
from afflux.protocols.rsocket.metadata.mime import (
    ACCEPT_MIME,
    AUTHENTICATION_MIME,
    COMPOSITE_MIME,
    MIME_TYPE_MIME,
    ROUTING_MIME,
    TRACING_MIME,
    CompactLen,
)
from afflux.protocols.rsocket.metadata.routing import tags
from afflux.protocols.rsocket.metadata.tracing import TRACE_CONTEXT_MIME, TraceContext, Zipkin
from afflux.protocols.rsocket.metadata.types import Accept, MimeType

__all__ = ["Entries", "route_of"]

_Value = TypeVar("_Value")


class Entries:
    """The entries of one payload's metadata, decoded as far as they are used.

    Iteration yields (MIME type, bytes) in order, duplicates included (R-54). The other members find the first entry of
    a type and decode it; they return None if it is missing. So a malformed entry raises only when it, or an entry after
    a broken one, is used (R-55).

    Metadata of another type than composite is one entry of that type.

    Args:
        metadata: of a payload or a SETUP; None for none.
        metadata_mime: the connection's metadata type.
        limit: the most entries, ``Limits.composite_entries``.
        compact_len: "plain" to read what rsocket-swift writes.

    Every member raises:
        Invalid: the metadata cannot be read: raised in a handler, it answers INVALID (D-7).
    """

    __slots__ = ("_compact_len", "_fault", "_found", "_rest")

    def __init__(
        self,
        metadata: bytes | None,
        *,
        metadata_mime: str = COMPOSITE_MIME,
        limit: int = 1024,
        compact_len: CompactLen = "minus-one",
    ) -> None:
        self._compact_len: CompactLen = compact_len
        self._fault: Violation | None = None
        self._found: list[tuple[str, bytes]] = []
        self._rest: Iterator[tuple[str, bytes]] = iter(())
        if metadata is not None and metadata_mime == COMPOSITE_MIME:
            self._rest = entries(metadata, limit, compact_len)
        elif metadata is not None:
            self._found.append((metadata_mime, metadata))

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        at = 0
        while at < len(self._found) or self._advance():
            yield self._found[at]
            at += 1

    def get(self, mime: str) -> bytes | None:
        """The bytes of the first entry of a type."""
        return next((value for name, value in self if name == mime), None)

    def all(self, mime: str) -> list[bytes]:
        """The bytes of every entry of a type, in order."""
        return [value for name, value in self if name == mime]

    @property
    def route(self) -> str | None:
        """The first routing tag; later tags are ignored."""
        return self._first(ROUTING_MIME, lambda value: next(tags(value), None))

    @property
    def tags(self) -> tuple[str, ...]:
        """The routing tags, the route included."""
        return self._first(ROUTING_MIME, lambda value: tuple(tags(value))) or ()

    @property
    def credentials(self) -> Authentication | None:
        """The credentials of the request, unchecked: see ``afflux.auth``."""
        return self._first(AUTHENTICATION_MIME, lambda value: decode_credentials(value, self._compact_len))

    @property
    def mime_type(self) -> str | None:
        """The MIME type of this payload's data; None where it is the connection's."""
        found = self._first(MIME_TYPE_MIME, lambda value: MimeType.decode(value, self._compact_len))
        return None if found is None else found.mime

    @property
    def accept(self) -> tuple[str, ...]:
        """The MIME types that the requester accepts, the preferred one first, of all entries together.

        Empty without such an entry: then the requester expects the connection's type. Ignored in answers (R-57).
        """
        found = [self._decoded(value, lambda v: Accept.decode(v, self._compact_len)) for value in self.all(ACCEPT_MIME)]
        return tuple(mime for accept in found for mime in accept.mimes)

    def accepts(self, mime: str) -> bool:
        """Whether ``accept`` names a MIME type (upper and lower case are the same), or names none at all.

        If it does not, an answer must carry its MIME type: use ``afflux.reply`` (R-57).
        """
        accept = self.accept
        return not accept or mime.lower() in (name.lower() for name in accept)

    @property
    def zipkin(self) -> Zipkin | None:
        """The Zipkin span that the request belongs to."""
        return self._first(TRACING_MIME, Zipkin.decode)

    @property
    def trace(self) -> TraceContext | None:
        """The W3C trace that the request belongs to; None also where it cannot be read, as W3C wants it."""
        value = self.get(TRACE_CONTEXT_MIME)
        try:
            return None if value is None else TraceContext.decode(value)
        except Violation:
            return None

    def __repr__(self) -> str:
        names = ", ".join(repr(mime) for mime, _ in self._found)
        return f"<Entries read so far: {names or 'none'}>"

    def _first(self, mime: str, decode: Callable[[bytes], _Value]) -> _Value | None:
        value = self.get(mime)
        return None if value is None else self._decoded(value, decode)

    def _decoded(self, value: bytes, decode: Callable[[bytes], _Value]) -> _Value:
        try:
            return decode(value)
        except Violation as violation:
            raise _unreadable(violation) from None

    def _advance(self) -> bool:
        """Read one more entry; False at the end."""
        if self._fault is None:
            try:
                self._found.append(next(self._rest))
            except StopIteration:
                return False
            except Violation as violation:
                self._fault = violation
            else:
                return True
        raise _unreadable(self._fault)


def route_of(metadata: bytes | None, metadata_mime: str = COMPOSITE_MIME, limit: int = 1024) -> str | None:
    """The route of a request: the first routing tag, or None.

    ``metadata_mime`` is the connection's metadata type: composite metadata is searched for its first routing entry,
    routing metadata is the route itself, and any other type has no route. Bytes after the route are ignored.
    Raises Violation (INVALID) when the bytes before it are malformed.
    """
    if not metadata:
        return None
    if metadata_mime == COMPOSITE_MIME:
        for mime, value in entries(metadata, limit):
            if mime == ROUTING_MIME:
                return next(tags(value), None)
        return None
    return next(tags(metadata), None) if metadata_mime == ROUTING_MIME else None


def _unreadable(violation: Violation) -> Invalid:
    return Invalid(f"the metadata cannot be read: {violation.reason}", rule=violation.rule)
