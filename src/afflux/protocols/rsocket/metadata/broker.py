"""Read and write the frames of a broker: routes that clients offer, and the addresses of requests (2.6). See
``routes.py`` for which route a request reaches.

Writers obey every rule; readers accept looser frames as long as their meaning is clear. A key has one name, in
whichever form it arrives: ``ServiceName`` stands for id 0x01, ``io.rsocket.broker.ServiceName`` and
``io.rsocket.routing.ServiceName`` (I-6). The name of an unnamed id is its number, such as ``0x20``; such keys are
read and not written (I-10).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Self, TypeVar

from afflux.protocols.rsocket.metadata.mime import invalid

__all__ = [
    "BROKER_MIME",
    "BROKER_MIMES",
    "KEY_NAMES",
    "Address",
    "BrokerFrame",
    "BrokerInfo",
    "RouteJoin",
    "RouteRemove",
    "RouteSetup",
    "Tags",
    "TagsLike",
    "decode_broker",
]

BROKER_MIME = "message/x.rsocket.broker.frame.v0"
"The MIME type that is written."
BROKER_MIMES = (BROKER_MIME, "message/x.rsocket.routing.frame.v0", "message/x.rsocket.forwarding")
"The MIME types that are read: the name has changed twice (I-6)."

KEY_NAMES: dict[int, str] = {
    **dict(
        enumerate(
            [
                "ServiceName",
                "RouteId",
                "InstanceName",
                "ClusterName",
                "Provider",
                "Region",
                "Zone",
                "Device",
                "OS",
                "UserName",
                "UserId",
                "MajorVersion",
                "MinorVersion",
                "PatchVersion",
                "Version",
                "Environment",
                "TestCell",
                "DNS",
                "IPv4",
                "IPv6",
                "Country",
            ],
            0x01,
        )
    ),
    **dict(enumerate(["TimeZone", "ShardKey", "ShardMethod", "StickyRouteKey", "LBMethod"], 0x1A)),
}
"Well-known keys by id."
_KEY_IDS = {name: id for id, name in KEY_NAMES.items()}
_PREFIX = re.compile(r"io\.rsocket\.(?:routing|broker)\.(?=.)", re.DOTALL)
_BY_NUMBER = re.compile(r"0x[0-9A-F]{2}(?::0x[0-9A-F]{4})?")
_EXTENDED = (0x7C, 0x7F)
"Ids that are followed by a 16-bit key (I-10)."

_MAJOR, _MINOR = 0, 1
_MULTICAST, _UNICAST, _SHARD, _ENCRYPTED = 0x040, 0x080, 0x020, 0x100
_METHODS: dict[int, Method] = {_UNICAST: "unicast", _MULTICAST: "multicast", _SHARD: "shard"}
_FLAGS = {name: flag for flag, name in _METHODS.items()}

Method = Literal["unicast", "multicast", "shard"]
"Which of the matching routes a request reaches: one, all, or the one that a tag's value selects."
Tags = tuple[tuple[str, str | None], ...]
"Keys with values, in order. None is read where a key ends the frame (D-9)."
TagsLike = Mapping[str, str] | Iterable[tuple[str, str | None]]
"Tags as an argument."

_Frame = TypeVar("_Frame")


@dataclass(frozen=True, slots=True, init=False)
class RouteSetup:
    """The service that a client offers: an entry of its SETUP."""

    MIME: ClassVar[str] = BROKER_MIME
    TYPE: ClassVar[int] = 1
    route_id: bytes
    "16 bytes that no other connection has; the same again when it connects again."
    name: str
    "The service, 0 to 255 bytes of UTF-8."
    tags: Tags
    "Its other properties."

    def __init__(self, route_id: bytes, name: str, tags: TagsLike = ()) -> None:
        _set(self, route_id=route_id, name=name, tags=_tags_of(tags))

    def encode(self) -> bytes:
        """The entry's bytes. Raises Violation for a value that cannot be written."""
        return _header(self.TYPE) + _id(self.route_id) + _name(self.name) + _encode_tags(self.tags)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The value of an entry. Raises Violation when it is malformed or another frame."""
        return _expect(cls, decode_broker(data))


@dataclass(frozen=True, slots=True, init=False)
class RouteJoin:
    """A route that one broker announces to another."""

    MIME: ClassVar[str] = BROKER_MIME
    TYPE: ClassVar[int] = 2
    broker_id: bytes
    "16 bytes: where the route is connected."
    route_id: bytes
    timestamp: int
    "Milliseconds since 1970: the newer one counts (R-62)."
    name: str
    tags: Tags

    def __init__(self, broker_id: bytes, route_id: bytes, timestamp: int, name: str, tags: TagsLike = ()) -> None:
        _set(self, broker_id=broker_id, route_id=route_id, timestamp=timestamp, name=name, tags=_tags_of(tags))

    def encode(self) -> bytes:
        """The entry's bytes. Raises Violation for a value that cannot be written."""
        ids = _id(self.broker_id) + _id(self.route_id)
        return _header(self.TYPE) + ids + _time(self.timestamp) + _name(self.name) + _encode_tags(self.tags)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The value of an entry. Raises Violation when it is malformed or another frame."""
        return _expect(cls, decode_broker(data))


@dataclass(frozen=True, slots=True)
class RouteRemove:
    """The removal of a route that one broker announces to another."""

    MIME: ClassVar[str] = BROKER_MIME
    TYPE: ClassVar[int] = 3
    broker_id: bytes
    route_id: bytes
    timestamp: int
    "Milliseconds since 1970."

    def encode(self) -> bytes:
        """The entry's bytes. Raises Violation for a value that cannot be written."""
        return _header(self.TYPE) + _id(self.broker_id) + _id(self.route_id) + _time(self.timestamp)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The value of an entry. Raises Violation when it is malformed or another frame."""
        return _expect(cls, decode_broker(data))


@dataclass(frozen=True, slots=True, init=False)
class BrokerInfo:
    """A broker's announcement of itself to another."""

    MIME: ClassVar[str] = BROKER_MIME
    TYPE: ClassVar[int] = 4
    broker_id: bytes
    timestamp: int
    "Milliseconds since 1970."
    tags: Tags

    def __init__(self, broker_id: bytes, timestamp: int, tags: TagsLike = ()) -> None:
        _set(self, broker_id=broker_id, timestamp=timestamp, tags=_tags_of(tags))

    def encode(self) -> bytes:
        """The entry's bytes. Raises Violation for a value that cannot be written."""
        return _header(self.TYPE) + _id(self.broker_id) + _time(self.timestamp) + _encode_tags(self.tags)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The value of an entry. Raises Violation when it is malformed or another frame."""
        return _expect(cls, decode_broker(data))


@dataclass(frozen=True, slots=True, init=False)
class Address:
    """The receivers of a request: an entry of its metadata, or all of it."""

    MIME: ClassVar[str] = BROKER_MIME
    TYPE: ClassVar[int] = 5
    origin: bytes
    "The route id of the requester; 16 zero bytes for a requester that offers no service."
    tags: Tags
    "The tags that a route must have."
    method: Method
    wrapped: bytes
    "Metadata for the receiver; no broker changes it (R-69)."
    encrypted: bool
    "The payload is encrypted."
    metadata: Tags | None
    """Hints for brokers that the published text has before the tags. None writes no such list, as all implementations
    do (D-9)."""

    def __init__(
        self,
        tags: TagsLike = (),
        *,
        method: Method = "unicast",
        origin: bytes = bytes(16),
        wrapped: bytes = b"",
        encrypted: bool = False,
        metadata: TagsLike | None = None,
    ) -> None:
        listed = None if metadata is None else _tags_of(metadata)
        _set(self, origin=origin, tags=_tags_of(tags), method=method)
        _set(self, wrapped=wrapped, encrypted=encrypted, metadata=listed)

    def encode(self) -> bytes:
        """The entry's bytes.

        Raises Violation for a value that cannot be written; also for an empty list before other bytes, which would be
        read as the list.
        """
        flag = _FLAGS.get(self.method)
        if flag is None:
            raise invalid(f"a method is one of {', '.join(_FLAGS)}, not {self.method!r}", "2.6")
        tags = _encode_tags(self.tags) + self.wrapped
        if (self.wrapped and not self.tags) or (self.metadata == () and tags):
            raise invalid("an ADDRESS needs at least one tag", "2.6")
        listed = _encode_tags(self.metadata or ())
        flags = flag | (_ENCRYPTED if self.encrypted else 0)
        return _header(self.TYPE, flags) + _id(self.origin) + listed + tags

    @classmethod
    def decode(cls, data: bytes, *, address_metadata: bool = False) -> Self:
        """The value of an entry; with ``address_metadata`` a list precedes the tags (D-9).

        Raises Violation when it is malformed or another frame, and for more than one of U, M and S (R-60).
        """
        return _expect(cls, decode_broker(data, address_metadata=address_metadata))


BrokerFrame = RouteSetup | RouteJoin | RouteRemove | BrokerInfo | Address
"The value of an entry of type ``BROKER_MIME``."


def decode_broker(data: bytes, *, address_metadata: bool = False) -> BrokerFrame:
    """The value of a broker entry: the minor version, unassigned flags and bytes after a whole frame are ignored.

    Args:
        data: the entry's bytes.
        address_metadata: whether a list of metadata stands before the tags of an ADDRESS (D-9).

    Raises:
        Violation: it is malformed, of another major version, or of an unknown type; the code is INVALID.
    """
    reader = _Reader(data)
    major, _, head = reader.number(2), reader.number(2), reader.number(2)
    if major != _MAJOR:
        raise invalid(f"a broker frame of version {major}; {_MAJOR}.{_MINOR} is understood", "2.6")
    type, flags = head >> 10, head & 0x3FF
    if type == RouteSetup.TYPE:
        return RouteSetup(reader.take(16), reader.text(reader.number(1)), reader.tags())
    if type == RouteJoin.TYPE:
        ids = reader.take(16), reader.take(16)
        return RouteJoin(*ids, reader.number(8), reader.text(reader.number(1)), reader.tags())
    if type == RouteRemove.TYPE:
        return RouteRemove(reader.take(16), reader.take(16), reader.number(8))
    if type == BrokerInfo.TYPE:
        return BrokerInfo(reader.take(16), reader.number(8), reader.tags())
    if type == Address.TYPE:
        return _address(reader, flags, address_metadata)
    raise invalid(f"a broker frame of type 0x{type:02X}, which is unknown", "2.6")


def _address(reader: _Reader, flags: int, address_metadata: bool) -> Address:
    methods = [name for flag, name in _METHODS.items() if flags & flag]
    if len(methods) > 1:
        raise invalid(f"an ADDRESS is for one of {', '.join(_FLAGS)}, not for {' and '.join(methods)}", "R-60")
    origin = reader.take(16)
    metadata = reader.tags() if address_metadata else None
    return Address(
        reader.tags(),
        method=methods[0] if methods else "unicast",
        origin=origin,
        wrapped=reader.rest(),
        encrypted=bool(flags & _ENCRYPTED),
        metadata=metadata,
    )


class _Reader:
    """Read the fields of a frame in order."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        start, self._at = self._at, self._at + size
        if self._at > len(self._data):
            raise invalid(f"a broker frame is cut off: {size} bytes where {len(self._data) - start} are left", "2.6")
        return self._data[start : self._at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def text(self, size: int) -> str:
        try:
            return str(self.take(size), "utf-8")
        except UnicodeDecodeError:
            raise invalid("text in a broker frame is not UTF-8", "2.6") from None

    def rest(self) -> bytes:
        return self._data[self._at :]

    def tags(self) -> Tags:
        """Read a list of tags, which may be absent. A list may end early: Java encoders leave tags out (I-9)."""
        found: list[tuple[str, str | None]] = []
        more = True
        while more and self._at < len(self._data):
            key = self._key()
            if self._at == len(self._data):
                found.append((key, None))
                break
            head = self.number(1)
            found.append((key, self.text(head & 0x7F)))
            more = head >= 0x80
        return tuple(found)

    def _key(self) -> str:
        head = self.number(1)
        if head < 0x80:
            if not head:
                raise invalid("a tag's key is empty", "I-9")
            return self.text(head)
        id = head & 0x7F
        if id in _EXTENDED:
            return f"0x{id:02X}:0x{self.number(2):04X}"
        return KEY_NAMES.get(id, f"0x{id:02X}")


def _encode_tags(tags: Tags) -> bytes:
    parts = bytearray()
    for left, (key, value) in enumerate(tags, 1 - len(tags)):
        id = _KEY_IDS.get(key)
        if id is not None:
            parts.append(0x80 | id)
        else:
            text = _utf8(key, "a tag's key")
            if not 1 <= len(text) <= 0x7F:
                raise invalid(f"a tag's key has 1 to 127 bytes, not {len(text)}", "I-9")
            if _BY_NUMBER.fullmatch(key):
                raise invalid(f"the key {key} has no name: it is read and not written", "I-10")
            parts.append(len(text))
            parts += text
        if value is None:
            raise invalid(f"the tag {key} has no value: such a tag is read and not written", "D-9")
        text = _utf8(value, "a tag's value")
        if len(text) > 0x7F:
            raise invalid(f"a tag's value of {len(text)} bytes: at most 127 fit", "I-9")
        parts.append(len(text) | (0x80 if left else 0))
        parts += text
    return bytes(parts)


def _tags_of(tags: TagsLike) -> Tags:
    given: object = tags
    if isinstance(given, (str, bytes)):
        raise TypeError(f'tags are names with values, such as {{"ServiceName": "weather"}}, not {given!r:.60}')
    pairs = tags.items() if isinstance(tags, Mapping) else tags
    return tuple((_canonical(key), value) for key, value in pairs)


def _canonical(key: str) -> str:
    """The canonical name of a key: prefixes are equivalent (I-6), and a well-known key has none."""
    found = _PREFIX.match(key)
    if found is None:
        return key
    rest = key[found.end() :]
    return rest if rest in _KEY_IDS else f"io.rsocket.broker.{rest}"


def _header(type: int, flags: int = 0) -> bytes:
    return b"".join(part.to_bytes(2, "big") for part in (_MAJOR, _MINOR, type << 10 | flags))


def _id(id: bytes) -> bytes:
    if len(id) != 16:
        raise invalid(f"an id has 16 bytes, not {len(id)}", "2.6")
    return id


def _time(timestamp: int) -> bytes:
    if not 0 <= timestamp < 1 << 64:
        raise invalid(f"a timestamp has 64 bits: {timestamp} does not fit", "2.6")
    return timestamp.to_bytes(8, "big")


def _name(name: str) -> bytes:
    text = _utf8(name, "a service's name")
    if len(text) > 0xFF:
        raise invalid(f"a service's name of {len(text)} bytes: at most 255 fit", "2.6")
    return bytes((len(text),)) + text


def _utf8(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise invalid(f"{what} is not Unicode text", "2.6") from None


def _set(frame: object, **values: object) -> None:
    for name, value in values.items():
        object.__setattr__(frame, name, value)


def _expect(kind: type[_Frame], frame: object) -> _Frame:
    if not isinstance(frame, kind):
        raise invalid(f"the broker frame is {type(frame).__name__}, not {kind.__name__}", "2.6")
    return frame
