"""Read and write compact types: a well-known MIME type as one byte, any other as text (2.5).

Authentication types are written the same way; their table belongs to ``authentication.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from afflux.core.errors import Violation
from afflux.protocols.rsocket.codes import Code

__all__ = [
    "ACCEPT_MIME",
    "AUTHENTICATION_MIME",
    "COMPOSITE_MIME",
    "MIME_IDS",
    "MIME_NAMES",
    "MIME_TYPE_MIME",
    "OCTET_STREAM",
    "ROUTING_MIME",
    "TRACING_MIME",
    "CompactLen",
    "decode_compact",
    "decode_mime",
    "encode_compact",
    "encode_mime",
    "invalid",
    "mime_name",
    "names_of",
]

# 2.5: well-known MIME types, consecutive from 0x00.
_GROUPS = (
    (
        "application",
        "avro cbor graphql gzip javascript json octet-stream pdf vnd.apache.thrift.binary vnd.google.protobuf xml zip",
    ),
    ("audio", "aac mp3 mp4 mpeg3 mpeg ogg opus vorbis"),
    ("image", "bmp gif heic-sequence heic heif-sequence heif jpeg png tiff"),
    ("multipart", "mixed"),
    ("text", "css csv html plain xml"),
    ("video", "H264 H265 VP8"),
    ("application", "x-hessian x-java-object cloudevents+json x-capnp x-flatbuffers"),
)
_EXTENSIONS = (
    "supported-lease-strategies",
    "mime-type",
    "accept-mime-types",
    "authentication",
    "tracing-zipkin",
    "routing",
    "composite-metadata",
)
_FIRST_EXTENSION = 0x79

MIME_NAMES: dict[int, str] = {
    **dict(enumerate(f"{group}/{name}" for group, names in _GROUPS for name in names.split())),
    **{_FIRST_EXTENSION + i: f"message/x.rsocket.{name}.v0" for i, name in enumerate(_EXTENSIONS)},
}
"Well-known MIME types by id."
MIME_IDS: dict[str, int] = {name: id for id, name in MIME_NAMES.items()}
"Their ids by name."

OCTET_STREAM = MIME_NAMES[0x06]
MIME_TYPE_MIME = MIME_NAMES[0x7A]
ACCEPT_MIME = MIME_NAMES[0x7B]
AUTHENTICATION_MIME = MIME_NAMES[0x7C]
TRACING_MIME = MIME_NAMES[0x7D]
ROUTING_MIME = MIME_NAMES[0x7E]
COMPOSITE_MIME = MIME_NAMES[0x7F]

CompactLen = Literal["minus-one", "plain"]
"""How the length of a compact type's text is written. "minus-one" is the specification (D-1), "plain" the length as
it is, as rsocket-swift writes it (I-3)."""

_WELL_KNOWN = 0x80
"The top bit of a compact type: the rest is an id, not a length."


def names_of(known: Mapping[int, str]) -> tuple[str, ...]:
    """The names of all 128 ids; the name of a reserved one is its number, such as ``0x2B``."""
    return tuple(known.get(id, f"0x{id:02X}") for id in range(0x80))


_NAMES = names_of(MIME_NAMES)
_IDS = {name: id for id, name in enumerate(_NAMES)}


def mime_name(id: int) -> str:
    """The name of an id from 0 to 0x7F. The name of a reserved one is its number, such as ``0x2B``, which
    ``encode_mime`` accepts."""
    return _NAMES[id]


def encode_mime(mime: str, compact_len: CompactLen = "minus-one") -> bytes:
    """A compact MIME type: one byte when it is well known, else its length and 1 to 128 ASCII characters (D-1).

    Raises Violation for a name that does not fit; with ``compact_len="plain"`` 127 characters do.
    """
    return encode_compact(mime, _IDS, "a MIME type", compact_len)


def decode_mime(buffer: bytes, at: int = 0, compact_len: CompactLen = "minus-one") -> tuple[int | None, str, int]:
    """The compact MIME type at ``at``: its id (None for text), its name, and where it ends."""
    return decode_compact(buffer, at, _NAMES, "a MIME type", compact_len)


def encode_compact(name: str, ids: Mapping[str, int], what: str, compact_len: CompactLen = "minus-one") -> bytes:
    """A compact type of any table: ``ids`` has the id of each name. ``what`` names it in errors."""
    id = ids.get(name)
    if id is not None:
        return bytes((_WELL_KNOWN | id,))
    less = 0 if compact_len == "plain" else 1
    most = 0x7F + less
    if not name.isascii() or not 1 <= len(name) <= most:
        raise invalid(f"{what} has 1 to {most} ASCII characters, not {name[:130]!r}", "D-1")
    return bytes((len(name) - less,)) + name.encode("ascii")


def decode_compact(
    buffer: bytes, at: int, names: Sequence[str], what: str, compact_len: CompactLen = "minus-one"
) -> tuple[int | None, str, int]:
    """The compact type at ``at``: its id (None for text), its name, and where it ends.

    Raises Violation when it is cut short or not ASCII.
    """
    if at >= len(buffer):
        raise invalid(f"{what} is missing", "R-55")
    first = buffer[at]
    if first & _WELL_KNOWN:
        return first & 0x7F, names[first & 0x7F], at + 1
    size = first if compact_len == "plain" else first + 1
    end = at + 1 + size
    if end > len(buffer):
        raise invalid(f"{what} of {size} bytes where {len(buffer) - at - 1} are left", "R-55")
    if not size:
        raise invalid(f"{what} is empty", "D-1")
    try:
        return None, str(buffer[at + 1 : end], "ascii"), end
    except UnicodeDecodeError:
        raise invalid(f"{what} is not ASCII", "D-1") from None


def invalid(reason: str, rule: str) -> Violation:
    """The Violation for malformed metadata: it fails the request with INVALID, not the connection (D-7)."""
    return Violation(reason, rule=rule, code=Code.INVALID)
