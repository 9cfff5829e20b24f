"""Convert the arguments of a verb to a payload with metadata, and compose and read metadata.

Shared by the asyncio and the blocking API. ``protocols.rsocket.metadata`` encodes the entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from afflux.calls.arguments import text_of_route, wrong
from afflux.core.errors import AddressError, Invalid, LocalProtocolError, Unsupported, Violation
from afflux.core.limits import Limits
from afflux.core.payload import Payload, PayloadLike, payload_of
from afflux.core.terms import Terms
from afflux.transports.address import Address
from afflux.transports.pages import ask_for_large_pages

if TYPE_CHECKING:
    from afflux.core.engine import ByteSessions, Engine
    from afflux.protocols.rsocket.metadata import CompactLen, Entries, Entry, EntryLike

__all__ = [
    "CHANNEL_NAME",
    "COMPOSITE",
    "Cursor",
    "Metadata",
    "SetupLike",
    "byte_sessions_of",
    "call_payload",
    "compose",
    "entries",
    "entries_of",
    "metadata_mime_of",
    "payload_for",
    "pushed",
    "reply",
    "route_in",
    "terms_of",
]

Metadata: TypeAlias = "bytes | bytearray | memoryview | Entry | Sequence[EntryLike] | None"
"""Metadata as an argument: encoded bytes, or the entries of composite metadata: one entry, such as
``afflux.Bearer("…")``, or several, which may also be pairs (MIME type, bytes)."""

SetupLike: TypeAlias = "PayloadLike | Entry | Sequence[EntryLike]"
"The payload of a setup as an argument: data, data and metadata, or entries, which become metadata without data."

_TIMES: Final = ("keepalive", "lifetime")
_BYTES = (bytes, bytearray, memoryview)
COMPOSITE: Final = "message/x.rsocket.composite-metadata.v0"
"The MIME type of composite metadata."
CHANNEL_NAME: Final = "application/x.afflux.channel-name"
"Stands for metadata that is the name of a channel, in protocols with session types: the route is that name."


class Cursor(Protocol):
    """A cursor entry (see protocols.rsocket.cursor)."""

    def encode(self) -> bytes:
        """Return the entry's bytes."""


def metadata_mime_of(engine: Engine) -> str | None:
    """Return the MIME type of all metadata of an engine's connection, from its SETUP; None stands for composite
    metadata."""
    if engine.typed_sessions is not None:
        return CHANNEL_NAME
    return None if engine.setup is None else engine.setup.metadata_mime


def call_payload(
    data: PayloadLike,
    metadata: Metadata = None,
    route: str | None = None,
    cursor: Cursor | None = None,
    metadata_mime: str | None = None,
) -> Payload:
    """Return the request payload of a verb.

    ``metadata`` that is bytes is sent unchanged if it is alone. With ``route`` or ``cursor``, or made of entries, the
    metadata is composite: the route first, then the cursor, then the entries; bytes become an entry of type
    application/octet-stream.

    ``metadata_mime`` is the connection's metadata type; composite if None. Metadata of another type is one entry
    without a header, for example a route if the type is routing metadata.

    Raises:
        TypeError: ``metadata`` is given both in ``data`` and as an argument, or is not metadata.
        LocalProtocolError: the route or an entry cannot be encoded, or not in metadata of that type.
    """
    payload = payload_of(data)
    if metadata is None and route is None and cursor is None:
        return payload
    if payload.metadata is not None:
        raise TypeError("the payload already has metadata; pass plain data with route=, cursor= and metadata=")
    if route is not None:
        text_of_route(route)
    if cursor is not None and not hasattr(cursor, "encode"):
        raise wrong("cursor=", cursor, "an entry of afflux.journal, such as Read(first=500)")
    if route is None and cursor is None and isinstance(metadata, _BYTES):
        return Payload(payload.data, bytes(metadata))
    if metadata_mime is not None and metadata_mime != COMPOSITE:
        return Payload(payload.data, _alone(metadata, route, cursor, metadata_mime))
    if metadata is None and cursor is None:
        return Payload(payload.data, _route_only(route or ""))
    return Payload(payload.data, _composed(metadata, route, cursor))


def byte_sessions_of(engine: Engine) -> ByteSessions:
    """The byte sessions of a connection.

    Raises:
        Unsupported: its protocol has none.
    """
    if engine.byte_sessions is None:
        raise Unsupported("this protocol has no sessions of bytes")
    return engine.byte_sessions


def payload_for(
    engine: Engine, data: PayloadLike, metadata: Metadata, route: str | None, cursor: Cursor | None
) -> Payload:
    """Return the request payload for an engine's connection. Raises as ``call_payload`` does."""
    if metadata is None and route is None and cursor is None:
        return Payload(data) if type(data) is bytes else payload_of(data)
    mime = metadata_mime_of(engine)
    if type(data) is bytes and metadata is None and cursor is None and mime in (None, COMPOSITE):
        return Payload(data, _route_only(route if type(route) is str else text_of_route(route)))  # the usual call
    return call_payload(data, metadata, route, cursor, mime)


def compose(
    entries: Metadata | Iterable[EntryLike] = (), route: str | None = None, *, compact_len: CompactLen = "minus-one"
) -> bytes:
    """Encode entries as composite metadata, for a :class:`Payload` or ``connect(setup=…)``; a ``route`` comes first.

    Args:
        entries: one entry or several, such as ``afflux.Bearer("…")`` or pairs (MIME type, bytes).
        route: the route, if any.
        compact_len: "plain" for rsocket-swift peers, which encode the lengths of names differently.

    Raises:
        LocalProtocolError: an entry cannot be encoded: a MIME type above 128 characters, a value above 16 MiB.
        TypeError: an argument is not an entry.
    """
    return _encoded(entries_of(entries), route, compact_len)


def entries(
    payload: Payload | bytes | None,
    metadata_mime: str | None = None,
    *,
    limit: int = 1024,
    compact_len: CompactLen = "minus-one",
) -> Entries:
    """Read metadata, for example ``afflux.entries(payload).credentials``. Decoding is lazy.

    Args:
        payload: a payload, or metadata alone, such as that of a SETUP.
        metadata_mime: the connection's metadata type, ``peer.setup.metadata_mime`` at a server; composite if None.
        limit: the most entries, ``peer.limits.composite_entries``.
        compact_len: "plain" for rsocket-swift peers, which encode the lengths of names differently.
    """
    from afflux.protocols.rsocket.metadata import COMPOSITE_MIME, Entries

    metadata = payload.metadata if isinstance(payload, Payload) else payload
    return Entries(metadata, metadata_mime=metadata_mime or COMPOSITE_MIME, limit=limit, compact_len=compact_len)


def reply(data: PayloadLike, mime: str, metadata: Metadata = None) -> Payload:
    """Return an answer, or an item, with the MIME type of its data: needed if ``entries(request).accepts(mime)`` is
    False, or if the request accepts several types.

    Args:
        data: the data, as bytes of that type.
        mime: its MIME type.
        metadata: further entries.

    Raises:
        LocalProtocolError: the MIME type or an entry cannot be encoded.
        TypeError: ``data`` already has metadata.
    """
    payload = payload_of(data)
    if payload.metadata is not None:
        raise TypeError("the payload already has metadata; pass plain data and reply(metadata=…)")
    if metadata is None:
        return Payload(payload.data, _mime_only(mime))
    from afflux.protocols.rsocket.metadata import MimeType

    return Payload(payload.data, _encoded([MimeType(mime), *entries_of(metadata)], None))


def route_in(payload: Payload, metadata_mime: str | None = None) -> str | None:
    """Return the route in a request's metadata; None if it has no route. ``metadata_mime`` is the connection's metadata
    type; composite if None.

    Raises:
        Invalid: the metadata cannot be read.
    """
    metadata = payload.metadata
    if not metadata:
        return None
    mime = metadata_mime or COMPOSITE
    return _route(metadata, mime) if len(metadata) <= 256 else _read_route(metadata, mime)


@lru_cache(maxsize=1024)
def _route(metadata: bytes, metadata_mime: str) -> str | None:
    return _read_route(metadata, metadata_mime)


def _read_route(metadata: bytes, metadata_mime: str) -> str | None:
    if metadata_mime == CHANNEL_NAME:
        return metadata.decode()  # the engine has checked it
    from afflux.protocols.rsocket import metadata as format

    try:
        return format.route_of(metadata, metadata_mime)
    except Violation as violation:
        raise Invalid(f"the metadata cannot be read: {violation.reason}", rule=violation.rule) from None


@lru_cache(maxsize=1024)
def _route_only(route: str) -> bytes:
    return _encoded((), route)


@lru_cache(maxsize=1024)
def _mime_only(mime: str) -> bytes:
    from afflux.protocols.rsocket.metadata import MimeType

    return _encoded((MimeType(mime),), None)


def _alone(metadata: Metadata, route: str | None, cursor: Cursor | None, metadata_mime: str) -> bytes:
    """Return metadata of a type that is not composite: the value of one entry of that type."""
    if metadata_mime == CHANNEL_NAME and route is not None and metadata is None and cursor is None:
        return route.encode()
    from afflux.protocols.rsocket.metadata import Route, pair_of

    wanted = {
        "a route": route,
        "a cursor": cursor,
        "separate bytes": metadata if isinstance(metadata, _BYTES) else None,
    }
    found = () if isinstance(metadata, _BYTES) else entries_of(metadata)
    try:
        pairs = [pair_of(entry) for entry in ([Route(str(route))] if route is not None else []) + list(found)]
    except Violation as violation:
        raise LocalProtocolError(violation.reason, rule=violation.rule) from None
    if cursor is None and wanted["separate bytes"] is None and [mime for mime, _ in pairs] == [metadata_mime]:
        return pairs[0][1]
    names = [name for name, value in wanted.items() if value is not None]
    names += [f"an entry of type {mime}" for mime, _ in pairs[route is not None :]]
    text = f"all metadata of this connection is {metadata_mime}, which cannot contain {' and '.join(names)}"
    raise LocalProtocolError(f"{text}: connect with composite metadata", rule="RSocket 2.5")


def _composed(metadata: Metadata, route: str | None, cursor: Cursor | None) -> bytes:
    found = entries_of(metadata)
    if cursor is not None:
        from afflux.protocols.rsocket.cursor import CURSOR_MIME

        found = [(CURSOR_MIME, cursor.encode()), *found]
    return _encoded(found, route)


def entries_of(metadata: Any) -> Sequence[EntryLike]:
    """Return the entries of an argument ``metadata=``; bytes become an entry of type application/octet-stream.

    Raises:
        TypeError: it is not metadata.
    """
    if metadata is None:
        return ()
    if isinstance(metadata, _BYTES):
        from afflux.protocols.rsocket.metadata import OCTET_STREAM

        return ((OCTET_STREAM, bytes(metadata)),)
    if hasattr(metadata, "MIME") or (isinstance(metadata, tuple) and metadata and isinstance(metadata[0], str)):
        return (metadata,)
    if isinstance(metadata, (str, Mapping)) or not isinstance(metadata, Iterable):
        raise TypeError(f"metadata must be bytes, an entry or several entries, not {type(metadata).__name__}")
    return tuple(metadata)


def pushed(metadata: object) -> bytes:
    """Return the metadata of a push as bytes.

    Raises:
        TypeError: it is something else, such as text.
    """
    if not isinstance(metadata, _BYTES):
        hint = f": write {metadata[:32]!r}.encode()" if isinstance(metadata, str) else ""
        raise TypeError(f"push sends metadata, which must be bytes, not {type(metadata).__name__}{hint}")
    return bytes(metadata)


def _encoded(found: Iterable[EntryLike], route: str | None, compact_len: CompactLen = "minus-one") -> bytes:
    from afflux.protocols.rsocket import metadata as format

    try:
        return format.compose(found, route=route, compact_len=compact_len)
    except Violation as violation:
        raise LocalProtocolError(violation.reason, rule=violation.rule) from None


def terms_of(
    address: Address,
    limits: Limits,
    setup: SetupLike | None,
    metadata_mime: str | None,
    data_mime: str | None,
    keepalive: float | None,
    lifetime: float | None,
    mtu: int | None,
) -> Terms:
    """Return a client's terms from its arguments and its address.

    Raises:
        TypeError: ``setup`` is not a payload or entries.
        LocalProtocolError: an entry of ``setup`` cannot be encoded, or is not of the connection's metadata type.
        AddressError: the lifetime ends before the next keepalive, so that a silent connection would be lost.
    """
    wanted: dict[str, Any] = {
        "keepalive": limits.keepalive_s if keepalive is None else keepalive,
        "lifetime": limits.lifetime_s if lifetime is None else lifetime,
        "mtu": mtu,
        **address.terms,
    }
    chosen = keepalive is not None or lifetime is not None or not address.terms.keys().isdisjoint(_TIMES)
    if chosen and 0 < wanted["lifetime"] <= wanted["keepalive"]:
        every, most = wanted["keepalive"], wanted["lifetime"]
        raise AddressError(
            f"keepalive={every:g} is not below lifetime={most:g}: a connection without requests would be lost after "
            f"{most:g} s, before its first keepalive"
        )
    payload = None if setup is None else _setup_payload(setup, metadata_mime)
    return Terms(place=ask_for_large_pages, payload=payload, metadata_mime=metadata_mime, data_mime=data_mime, **wanted)


def _setup_payload(setup: Any, metadata_mime: str | None) -> Payload:
    if isinstance(setup, (Payload, str, *_BYTES)):
        return payload_of(setup)
    from afflux.protocols.rsocket.metadata import COMPOSITE_MIME, pair_of

    found = entries_of(setup)
    if metadata_mime in (None, COMPOSITE_MIME):
        return Payload(b"", _encoded(found, None))
    try:
        pairs = [pair_of(entry) for entry in found]
    except Violation as violation:
        raise LocalProtocolError(violation.reason, rule=violation.rule) from None
    if [mime for mime, _ in pairs] != [metadata_mime]:
        text = f"all metadata of this connection is {metadata_mime}, so the setup needs one entry of that type"
        raise LocalProtocolError(text, rule="RSocket 2.5")
    return Payload(b"", pairs[0][1])
