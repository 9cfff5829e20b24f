"""Read and write routing metadata: the tags of a request, of which the first is its route (R-56)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Self

from afflux.core.errors import LocalProtocolError, Violation
from afflux.protocols.rsocket.metadata.mime import ROUTING_MIME, invalid

__all__ = ["Route", "encode_tags", "tags"]


@dataclass(frozen=True, slots=True, init=False)
class Route:
    """Routing tags: ``Route("flights")``. Most servers read only the first (I-8).

    Raises:
        LocalProtocolError: a tag has more than 255 bytes of UTF-8.
    """

    MIME: ClassVar[str] = ROUTING_MIME
    tags: tuple[str, ...]
    "The tags in order; an empty tuple is legal and means no route."

    def __init__(self, *tags: str) -> None:
        object.__setattr__(self, "tags", tags)
        try:
            self.encode()
        except Violation as violation:
            raise LocalProtocolError(violation.reason, rule=violation.rule) from None

    def encode(self) -> bytes:
        """The entry's bytes."""
        return encode_tags(self.tags)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The value of an entry. Raises Violation when it is malformed."""
        return cls(*tags(data))

    def __repr__(self) -> str:
        return f"Route({', '.join(map(repr, self.tags))})"


def encode_tags(tags: Iterable[str]) -> bytes:
    """Routing metadata. Raises Violation for a tag of more than 255 bytes of UTF-8 (R-56)."""
    parts = bytearray()
    for tag in tags:
        try:
            data = tag.encode()
        except UnicodeEncodeError:
            raise invalid("a routing tag is not Unicode text", "R-56") from None
        if len(data) > 0xFF:
            raise invalid(f"a routing tag of {len(data)} bytes: at most 255 fit", "R-56")
        parts.append(len(data))
        parts += data
    return bytes(parts)


def tags(metadata: bytes) -> Iterator[str]:
    """The tags of routing metadata, of 0 to 255 bytes each (R-56). Raises Violation at one that is malformed."""
    at = 0
    while at < len(metadata):
        end = at + 1 + metadata[at]
        if end > len(metadata):
            raise invalid(f"a routing tag of {metadata[at]} bytes where {len(metadata) - at - 1} are left", "R-56")
        try:
            yield str(metadata[at + 1 : end], "utf-8")
        except UnicodeDecodeError:
            raise invalid("a routing tag is not UTF-8", "R-56") from None
        at = end
