"""ReactiveSocket frames by hand, and RSocket's client with them. No afflux code, no tests."""

from __future__ import annotations

import struct

from tests.honest import rsocket as rs
from tests.honest.link import Framing

FRAMING = Framing(4, inclusive=True)
MAX = 0x7FFFFFFF

SETUP, LEASE, KEEPALIVE, RESPONSE, FNF, STREAM, SUB, CHANNEL, REQUEST_N, CANCEL, ANSWER, ERROR, PUSH = range(1, 14)
M, RESPOND, FOLLOWS, COMPLETE, N = 0x4000, 0x2000, 0x2000, 0x1000, 0x0800


def frame(stream: int, kind: int, body: bytes = b"", flags: int = 0) -> bytes:
    """Any frame, without its length."""
    return struct.pack("!HHI", kind, flags, stream) + body


def payload(data: bytes, metadata: bytes | None) -> tuple[bytes, int]:
    """The end of a frame, and the flag that goes with it. The length of metadata counts itself."""
    if metadata is None:
        return data, 0
    return struct.pack("!I", len(metadata) + 4) + metadata + data, M


def setup(keepalive: int = 500, lifetime: int = 30_000) -> bytes:
    """SETUP as the text suggests it."""
    mime = b"application/octet-stream"
    body = struct.pack("!III", 0, keepalive, lifetime) + (bytes((len(mime),)) + mime) * 2
    return frame(0, SETUP, body)


def request(id: int, data: bytes, metadata: bytes | None = None, kind: int = RESPONSE) -> bytes:
    """REQUEST_RESPONSE, or REQUEST_FNF."""
    rest, flags = payload(data, metadata)
    return frame(id, kind, rest, flags)


def stream(id: int, data: bytes, n: int = MAX, kind: int = STREAM, flags: int = 0) -> bytes:
    """REQUEST_STREAM or REQUEST_SUB; the Java implementation sets N in ``flags``."""
    return frame(id, kind, struct.pack("!I", n) + data, flags)


def cancel(id: int) -> bytes:
    """CANCEL."""
    return frame(id, CANCEL)


def grant(id: int, n: int) -> bytes:
    """REQUEST_N."""
    return frame(id, REQUEST_N, struct.pack("!I", n))


def channel(id: int, data: bytes, n: int | None = None, flags: int = 0) -> bytes:
    """REQUEST_CHANNEL: with N the first one, without an item."""
    if n is None:
        return frame(id, CHANNEL, data, flags)
    return frame(id, CHANNEL, struct.pack("!I", n) + data, N | flags)


def keepalive(data: bytes = b"", *, respond: bool = True) -> bytes:
    """KEEPALIVE."""
    return frame(0, KEEPALIVE, data, RESPOND if respond else 0)


def parse(raw: bytes) -> rs.Frame:
    """A frame, as RSocket would have said it."""
    kind, flags, stream = struct.unpack_from("!HHI", raw)
    body, metadata = raw[8:], None
    if flags & M:
        size = int.from_bytes(body[:4], "big")
        metadata, body = body[4:size], body[size:]
    match kind:
        case 0x0B:
            ends = flags & COMPLETE
            item = 0 if ends and not body and metadata is None else rs.NEXT
            more = rs.FOLLOWS if flags & FOLLOWS and not ends else 0
            return rs.Frame(stream, rs.PAYLOAD, item | more | (rs.COMPLETE if ends else 0), metadata, body)
        case 0x03:
            return rs.Frame(0, rs.KEEPALIVE, rs.RESPOND if flags & RESPOND else 0, None, bytes(8) + body)
        case 0x09:
            return rs.Frame(stream, rs.REQUEST_N, 0, None, body)
        case 0x0C:
            return rs.Frame(stream, rs.ERROR, 0, None, body)
    raise AssertionError(f"an unexpected frame: {raw[:40].hex()}")


class Client(rs.Client):
    """One connection; the client's ids are even."""

    framing = FRAMING
    first_id = 2
    parse = staticmethod(parse)
    hello = staticmethod(setup)
    asked = staticmethod(request)
