"""Frames of RSocket's extensible draft by hand, and RSocket's client with them. No afflux code, no tests."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from tests.honest import rsocket as rs

SETUP_OK, EXT = 0x0F, 0x3F
X, M, ACK = 0x200, 0x100, 0x080
D, MM = 0x010, 0x008
CHAIN = 0x080
"The flag of a chain on EXT."
FOLLOWS, IGNORABLE, ACKNOWLEDGE, MARK = 0x80, 0x40, 0x20, 0x08
KEEPALIVE, RESUME, LEASE, BROKER = range(4)


def compact(value: bytes | int) -> bytes:
    """A compact type."""
    return bytes((0x80 | value,)) if isinstance(value, int) else bytes((len(value) - 1,)) + value


def entry(id: bytes | int, payload: bytes = b"", flags: int = IGNORABLE) -> tuple[bytes, int, bytes]:
    """An entry of a chain; its payload has a length if it may be ignored."""
    length = len(payload).to_bytes(3, "big") if flags & IGNORABLE else b""
    return compact(id), flags, length + payload


def chain(*entries: tuple[bytes, int, bytes]) -> bytes:
    """Entries, one after the other."""
    last = len(entries) - 1
    follows = [FOLLOWS if place < last else 0 for place in range(len(entries))]
    return b"".join(
        id + bytes((flags | more,)) + rest for more, (id, flags, rest) in zip(follows, entries, strict=True)
    )


def alive(interval: int = 20_000, lifetime: int = 90_000, flags: int = IGNORABLE) -> tuple[bytes, int, bytes]:
    """Keepalive on SETUP."""
    return entry(KEEPALIVE, struct.pack("!II", interval, lifetime), flags)


def setup(
    *entries: tuple[bytes, int, bytes],
    ack: bool = False,
    data_mime: bytes | int = rs.BINARY,
    metadata_mime: bytes | int = rs.BINARY,
    data: bytes = b"",
) -> bytes:
    """SETUP, by default without extensions."""
    body = compact(data_mime) + compact(metadata_mime) + struct.pack("!HH", 2, 0) + chain(*entries) + data
    return rs.frame(0, rs.SETUP, body, (X if entries else 0) | (ACK if ack else 0))


def request(
    id: int,
    data: bytes,
    metadata: bytes | None = None,
    kind: int = rs.RESPONSE,
    entries: Iterable[tuple[bytes, int, bytes]] = (),
) -> bytes:
    """REQUEST_RESPONSE, or REQUEST_FNF."""
    rest, flags = rs.payload(data, metadata)
    head = chain(*entries)
    return rs.frame(id, kind, head + rest, flags | (X if head else 0))


def stream(id: int, data: bytes, n: int = rs.MAX, entries: Iterable[tuple[bytes, int, bytes]] = ()) -> bytes:
    """REQUEST_STREAM."""
    head = chain(*entries)
    return rs.frame(id, rs.STREAM, struct.pack("!I", n) + head + data, X if head else 0)


def grant(id: int, n: int, *entries: tuple[bytes, int, bytes]) -> bytes:
    """REQUEST_N, with entries as well."""
    return rs.frame(id, rs.REQUEST_N, struct.pack("!I", n) + chain(*entries), X if entries else 0)


def cancel(id: int, *entries: tuple[bytes, int, bytes]) -> bytes:
    """CANCEL, with entries as well."""
    return rs.frame(id, rs.CANCEL, chain(*entries), X if entries else 0)


def ext(*entries: tuple[bytes, int, bytes]) -> bytes:
    """EXT with a chain."""
    return rs.frame(0, EXT, chain(*entries), CHAIN)


def ping(data: bytes = b"", *, respond: bool = True) -> bytes:
    """A keepalive of the extension."""
    return ext(entry(KEEPALIVE, data, IGNORABLE | (MARK if respond else 0)))


def parse(raw: bytes) -> rs.Frame:
    """A frame, as RSocket would have said it: an EXT with a keepalive is a KEEPALIVE."""
    (word,) = struct.unpack_from("!H", raw, 4)
    kind, flags, body = word >> 10, word & 0x3FF, raw[6:]
    if kind == EXT:
        id, bits, size = body[0], body[1], int.from_bytes(body[2:5], "big")
        assert (id, flags & CHAIN, len(body)) == (0x80, CHAIN, 5 + size), raw.hex()
        return rs.Frame(0, rs.KEEPALIVE, rs.RESPOND if bits & MARK else 0, None, bytes(8) + body[5:])
    assert not flags & X or kind == SETUP_OK, f"entries that nobody asked for: {raw[:40].hex()}"
    return rs.parse(raw)


class Client(rs.Client):
    """One connection."""

    parse = staticmethod(parse)
    hello = staticmethod(lambda: setup(alive()))
    asked = staticmethod(request)
