"""Read and write the MIME types of one stream's data and of its answers (R-57). See mime.py for names and ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Self

from afflux.core.errors import LocalProtocolError, Violation
from afflux.protocols.rsocket.metadata.mime import ACCEPT_MIME, MIME_TYPE_MIME, CompactLen, decode_mime, encode_mime

__all__ = ["Accept", "MimeType"]


@dataclass(frozen=True, slots=True)
class MimeType:
    """The MIME type of the data of this payload and of its stream.

    Raises:
        LocalProtocolError: the name is not 1 to 128 ASCII characters.
    """

    MIME: ClassVar[str] = MIME_TYPE_MIME
    COMPACT: ClassVar[bool] = True
    mime: str
    "The data's MIME type; ``MIME`` is the entry's own."

    def __post_init__(self) -> None:
        _check((self.mime,))

    def encode(self, compact_len: CompactLen = "minus-one") -> bytes:
        """The entry's bytes."""
        return encode_mime(self.mime, compact_len)

    @classmethod
    def decode(cls, data: bytes, compact_len: CompactLen = "minus-one") -> Self:
        """The value of an entry; bytes after the type are ignored. Raises Violation when it is malformed."""
        return cls(decode_mime(data, 0, compact_len)[1])


@dataclass(frozen=True, slots=True, init=False)
class Accept:
    """The MIME types that answers may have, the preferred one first: ``Accept(["application/cbor",
    "application/json"])``.

    It belongs in requests. In an answer it is ignored (R-57).

    Raises:
        LocalProtocolError: a name is not 1 to 128 ASCII characters.
        TypeError: one name instead of several.
    """

    MIME: ClassVar[str] = ACCEPT_MIME
    COMPACT: ClassVar[bool] = True
    mimes: tuple[str, ...]
    "The MIME types, in order."

    def __init__(self, mimes: Iterable[str]) -> None:
        if isinstance(mimes, str):
            raise TypeError(f"Accept takes several MIME types: Accept([{mimes[:130]!r}])")
        object.__setattr__(self, "mimes", tuple(mimes))
        _check(self.mimes)

    def encode(self, compact_len: CompactLen = "minus-one") -> bytes:
        """The entry's bytes."""
        return b"".join(encode_mime(mime, compact_len) for mime in self.mimes)

    @classmethod
    def decode(cls, data: bytes, compact_len: CompactLen = "minus-one") -> Self:
        """The value of an entry. Raises Violation when it is malformed."""
        return cls(_each(data, compact_len))


def _each(data: bytes, compact_len: CompactLen) -> Iterator[str]:
    at = 0
    while at < len(data):
        _, mime, at = decode_mime(data, at, compact_len)
        yield mime


def _check(mimes: Iterable[str]) -> None:
    try:
        for mime in mimes:
            encode_mime(mime)
    except Violation as violation:
        raise LocalProtocolError(violation.reason, rule=violation.rule) from None
