"""What metadata holds: well-known MIME types, composite metadata and routing tags.

Metadata is a request's business, so what is malformed raises a Violation with the code INVALID, which fails that
request and not the connection (D-7). Where metadata travels belongs to ``frames.py``; afflux's own entry to
``cursor.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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
    "compose",
    "decode_mime",
    "encode_mime",
    "encode_tags",
    "entries",
    "mime_name",
    "route_of",
    "tags",
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

_WELL_KNOWN = 0x80
"The top bit of a compact type: the rest is an id, not a length."
_RESERVED = {f"0x{id:02X}": id for id in range(0x80) if id not in MIME_NAMES}
_NAMES = [MIME_NAMES.get(id, f"0x{id:02X}") for id in range(0x80)]

# Compact MIME types.


def mime_name(id: int) -> str:
    """The name of an id from 0 to 0x7F. A reserved one is called ``0x2B``, which ``encode_mime`` understands."""
    return _NAMES[id]


def encode_mime(mime: str) -> bytes:
    """A compact MIME type: one byte when it is well known, else length - 1 and 1 to 128 ASCII characters (D-1)."""
    id = MIME_IDS.get(mime)
    if id is None:
        id = _RESERVED.get(mime)
    if id is not None:
        return bytes((_WELL_KNOWN | id,))
    if not mime.isascii() or not 1 <= len(mime) <= 0x80:
        raise _invalid(f"a MIME type has 1 to 128 ASCII characters, not {mime[:130]!r}", "D-1")
    return bytes((len(mime) - 1,)) + mime.encode("ascii")


def decode_mime(buffer: bytes, at: int = 0) -> tuple[int | None, str, int]:
    """The compact MIME type at ``at``: its id (None when it came as text), its name, and where it ends."""
    if at >= len(buffer):
        raise _invalid("a MIME type is missing", "R-55")
    first = buffer[at]
    if first & _WELL_KNOWN:
        return first & 0x7F, _NAMES[first & 0x7F], at + 1
    end = at + first + 2
    if end > len(buffer):
        raise _invalid(f"a MIME type of {first + 1} bytes where {len(buffer) - at - 1} are left", "R-55")
    try:
        return None, str(buffer[at + 1 : end], "ascii"), end
    except UnicodeDecodeError:
        raise _invalid("a MIME type is not ASCII", "D-1") from None


# Composite metadata.


def entries(metadata: bytes, limit: int = 1024) -> Iterator[tuple[str, bytes]]:
    """The entries of composite metadata, in order, as (MIME type, value); duplicates stay (R-54).

    ``limit`` is ``Limits.composite_entries``. Raises Violation at the entry that is malformed or too many, when
    those before it have been given (R-55).
    """
    at = count = 0
    while at < len(metadata):
        count += 1
        if count > limit:
            raise _invalid("too-many-entries", "composite_entries")
        _, mime, at = decode_mime(metadata, at)
        start = at + 3
        end = start + int.from_bytes(metadata[at:start], "big")
        if end > len(metadata) or start > len(metadata):
            raise _invalid(f"metadata entry {count} ({mime}) is longer than what is left", "R-55")
        yield mime, metadata[start:end]
        at = end


def compose(entries: Iterable[tuple[str, bytes]] = (), *, route: str | None = None) -> bytes:
    """Composite metadata of ``entries``, (MIME type, value) each, after one for ``route`` when there is one.

    Raises Violation for a MIME type or a route that does not fit, and for values above 16,777,215 bytes.
    """
    parts: list[bytes] = []
    if route is not None:
        parts += _entry(ROUTING_MIME, encode_tags((route,)))
    for mime, value in entries:
        parts += _entry(mime, value)
    return b"".join(parts)


def _entry(mime: str, value: bytes) -> tuple[bytes, bytes, bytes]:
    if len(value) > 0xFFFFFF:
        raise _invalid(f"a metadata entry of {len(value)} bytes: at most {0xFFFFFF} fit", "R-3")
    return encode_mime(mime), len(value).to_bytes(3, "big"), value


# Routing.


def encode_tags(tags: Iterable[str]) -> bytes:
    """Routing metadata. Raises Violation for a tag of more than 255 bytes of UTF-8 (R-56)."""
    parts = bytearray()
    for tag in tags:
        try:
            data = tag.encode()
        except UnicodeEncodeError:
            raise _invalid("a routing tag is not Unicode text", "R-56") from None
        if len(data) > 0xFF:
            raise _invalid(f"a routing tag of {len(data)} bytes: at most 255 fit", "R-56")
        parts.append(len(data))
        parts += data
    return bytes(parts)


def tags(metadata: bytes) -> Iterator[str]:
    """The tags of routing metadata, of 0 to 255 bytes each (R-56). Raises Violation at one that is malformed."""
    at = 0
    while at < len(metadata):
        end = at + 1 + metadata[at]
        if end > len(metadata):
            raise _invalid(f"a routing tag of {metadata[at]} bytes where {len(metadata) - at - 1} are left", "R-56")
        try:
            yield str(metadata[at + 1 : end], "utf-8")
        except UnicodeDecodeError:
            raise _invalid("a routing tag is not UTF-8", "R-56") from None
        at = end


def route_of(metadata: bytes | None, metadata_mime: str = COMPOSITE_MIME, limit: int = 1024) -> str | None:
    """The route of a request: the first routing tag, or None when there is none.

    ``metadata_mime`` is the connection's metadata type: composite metadata is searched for its first routing entry,
    routing metadata is read as it is, and any other type has no route. What follows the route is not looked at.
    Raises Violation (INVALID) when what stands before it is malformed.
    """
    if not metadata:
        return None
    if metadata_mime == COMPOSITE_MIME:
        for mime, value in entries(metadata, limit):
            if mime == ROUTING_MIME:
                return next(tags(value), None)
        return None
    return next(tags(metadata), None) if metadata_mime == ROUTING_MIME else None


def _invalid(reason: str, rule: str) -> Violation:
    return Violation(reason, rule=rule, code=Code.INVALID)
