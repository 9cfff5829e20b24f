"""RSocket 1.0 frames by hand, a parser of them, and a client that writes them. No afflux code, no tests."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Self

from tests.honest.catalogue import Place
from tests.honest.link import Framing, Link

FRAMING = Framing(3, subprotocol="rsocket")
MAX = 0x7FFFFFFF

SETUP, LEASE, KEEPALIVE, RESPONSE, FNF, STREAM, CHANNEL = range(1, 8)
REQUEST_N, CANCEL, PAYLOAD, ERROR, PUSH, RESUME, RESUME_OK = range(8, 15)
M, FOLLOWS, COMPLETE, NEXT = 0x100, 0x80, 0x40, 0x20
RESPOND, LEASES, RESUMABLE = 0x80, 0x40, 0x80

COMPOSITE = b"message/x.rsocket.composite-metadata.v0"
ROUTING = b"message/x.rsocket.routing.v0"
BINARY = b"application/binary"


class Frame(NamedTuple):
    """A frame from the server."""

    stream: int
    kind: int
    flags: int
    metadata: bytes | None
    data: bytes
    "The rest of the frame; of an ERROR its code and text."


def parse(raw: bytes) -> Frame:
    """Read a frame without its length."""
    stream, word = struct.unpack_from("!IH", raw)
    kind, flags, body, metadata = word >> 10, word & 0x3FF, raw[6:], None
    if flags & M and kind == PAYLOAD:
        size = int.from_bytes(body[:3], "big")
        metadata, body = body[3 : 3 + size], body[3 + size :]
    return Frame(stream, kind, flags, metadata, body)


# -- frames -----------------------------------------------------------------------------------------------------


def frame(stream: int, kind: int, body: bytes = b"", flags: int = 0) -> bytes:
    """Any frame."""
    return struct.pack("!IH", stream, kind << 10 | flags) + body


def payload(data: bytes, metadata: bytes | None) -> tuple[bytes, int]:
    """The end of a frame, and the flag that goes with it."""
    if metadata is None:
        return data, 0
    return len(metadata).to_bytes(3, "big") + metadata + data, M


def setup(
    keepalive: int = 20_000,
    lifetime: int = 90_000,
    metadata_mime: bytes = BINARY,
    data_mime: bytes = BINARY,
    *,
    token: bytes | None = None,
    lease: bool = False,
    data: bytes = b"",
    metadata: bytes | None = None,
) -> bytes:
    """SETUP, by default as rsocket-java's RSocketConnector sends it without options."""
    rest, flags = payload(data, metadata)
    resume = b"" if token is None else struct.pack("!H", len(token)) + token
    flags |= (RESUMABLE if resume else 0) | (LEASES if lease else 0)
    mimes = bytes((len(metadata_mime),)) + metadata_mime + bytes((len(data_mime),)) + data_mime
    return frame(0, SETUP, struct.pack("!HHII", 1, 0, keepalive, lifetime) + resume + mimes + rest, flags)


def request(id: int, data: bytes, metadata: bytes | None = None, kind: int = RESPONSE) -> bytes:
    """REQUEST_RESPONSE, or REQUEST_FNF."""
    rest, flags = payload(data, metadata)
    return frame(id, kind, rest, flags)


def stream(id: int, data: bytes, n: int = MAX, metadata: bytes | None = None) -> bytes:
    """REQUEST_STREAM."""
    rest, flags = payload(data, metadata)
    return frame(id, STREAM, struct.pack("!I", n) + rest, flags)


def channel(id: int, data: bytes, n: int = MAX) -> bytes:
    """REQUEST_CHANNEL with its first item."""
    return frame(id, CHANNEL, struct.pack("!I", n) + data)


def item(id: int, data: bytes) -> bytes:
    """PAYLOAD with NEXT."""
    return frame(id, PAYLOAD, data, NEXT)


def complete(id: int) -> bytes:
    """PAYLOAD with COMPLETE alone."""
    return frame(id, PAYLOAD, b"", COMPLETE)


def cancel(id: int) -> bytes:
    """CANCEL."""
    return frame(id, CANCEL)


def grant(id: int, n: int) -> bytes:
    """REQUEST_N."""
    return frame(id, REQUEST_N, struct.pack("!I", n))


def keepalive(data: bytes = b"", *, respond: bool = True, position: int = 0) -> bytes:
    """KEEPALIVE."""
    return frame(0, KEEPALIVE, struct.pack("!Q", position) + data, RESPOND if respond else 0)


def routing(route: bytes) -> bytes:
    """Routing metadata: one tag."""
    return bytes((len(route),)) + route


def composite(*entries: tuple[int, bytes]) -> bytes:
    """Composite metadata of well-known types."""
    return b"".join(bytes((0x80 | type,)) + len(body).to_bytes(3, "big") + body for type, body in entries)


def routed(route: bytes) -> bytes:
    """Composite metadata with a route, as Spring sends it."""
    return composite((0x7E, routing(route)))


def fragments(first: bytes, mtu: int) -> Iterator[bytes]:
    """A request cut as rsocket-java cuts it: each frame, its three bytes of length included, is ``mtu`` bytes long.
    Metadata goes first; each fragment that carries some has the flag and a length of its own."""
    stream, word = struct.unpack_from("!IH", first)
    kind, flags = word >> 10, word & 0x3FF
    fixed = first[6 : 6 + (4 if kind in (STREAM, CHANNEL) else 0)]
    rest = first[6 + len(fixed) :]
    metadata = b""
    if flags & M:
        size = int.from_bytes(rest[:3], "big")
        metadata, rest = rest[3 : 3 + size], rest[3 + size :]
    head = fixed
    while True:
        room = mtu - 3 - 6 - len(head)
        body, flag = b"", 0
        if metadata:
            part, metadata = metadata[: room - 3], metadata[room - 3 :]
            body, flag = len(part).to_bytes(3, "big") + part, M
            room -= len(body)
        if not metadata:
            body, rest = body + rest[:room], rest[room:]
        more = bool(metadata or rest)
        flag |= (FOLLOWS if more else 0) | (NEXT if kind == PAYLOAD else 0)
        yield frame(stream, kind, head + body, flag)
        if not more:
            return
        kind, head = PAYLOAD, b""


# -- the client -------------------------------------------------------------------------------------------------


class Answer:
    """What has come on one stream."""

    def __init__(self) -> None:
        self.items: list[bytes] = []
        self.metadata: list[bytes | None] = []
        self.granted = 0
        self.done = False
        self.error: tuple[int, bytes] | None = None
        self._parts = b""

    @property
    def data(self) -> bytes:
        """The only item."""
        assert self.error is None, self.error
        assert len(self.items) == 1, f"{len(self.items)} items"
        return self.items[0]

    def take(self, frame: Frame) -> None:
        """A frame of this stream."""
        if frame.kind == ERROR:
            self.error, self.done = (int.from_bytes(frame.data[:4], "big"), frame.data[4:]), True
        elif frame.kind == REQUEST_N:
            self.granted += int.from_bytes(frame.data, "big")
        elif frame.kind == PAYLOAD:
            self._parts += frame.data
            if frame.flags & FOLLOWS:
                return
            if frame.flags & NEXT:
                self.items.append(self._parts)
                self.metadata.append(frame.metadata)
            self._parts = b""
            self.done = self.done or bool(frame.flags & COMPLETE)
        else:
            raise AssertionError(f"an unexpected frame: {frame}")


class Client:
    """One connection that has sent its SETUP, or is about to."""

    framing = FRAMING
    first_id = 1
    parse = staticmethod(parse)
    hello = staticmethod(setup)
    asked = staticmethod(request)

    def __init__(self, link: Link) -> None:
        self.link = link
        self.answers: dict[int, Answer] = {}
        self.leases = 0
        self.echoed: list[bytes] = []
        "Data of KEEPALIVEs that were answered."
        self.refused: tuple[int, bytes] | None = None
        "An ERROR of stream 0."
        self._last = self.first_id - 2

    @classmethod
    async def open(cls, place: Place, *first: bytes, receive_buffer: int = 0) -> Self:
        """Connect, and write these frames at once: by default a SETUP as of rsocket-java."""
        link = await place.dial(cls.framing, receive_buffer)
        client = cls(link)
        place.clients.append(client)
        await link.send(*(first or (cls.hello(),)))
        return client

    def ids(self, count: int) -> list[int]:
        """Fresh ids of streams."""
        first, self._last = self._last + 2, self._last + 2 * count
        return list(range(first, self._last + 1, 2))

    def id(self) -> int:
        """A fresh id."""
        return self.ids(1)[0]

    def used(self, last: int) -> None:
        """Ids up to ``last`` were used by bytes that somebody else has made."""
        self._last = max(self._last, last)

    async def send(self, *frames: bytes) -> None:
        """Frames in one write."""
        await self.link.send(*frames)

    async def turn(self) -> Frame:
        """Take the next frame in."""
        found = self.parse(await self.link.frame())
        self.take(found)
        return found

    def take(self, found: Frame) -> None:
        """Sort a frame."""
        if found.stream:
            self.answers.setdefault(found.stream, Answer()).take(found)
        elif found.kind == KEEPALIVE:
            assert not found.flags & RESPOND
            self.echoed.append(found.data[8:])
        elif found.kind == LEASE:
            self.leases += int.from_bytes(found.data[4:8], "big")
        elif found.kind == ERROR:
            self.refused = int.from_bytes(found.data[:4], "big"), found.data[4:]
            raise AssertionError(f"the connection was ended: {self.refused}")

    def of(self, id: int) -> Answer:
        """What has come on a stream so far."""
        return self.answers.setdefault(id, Answer())

    async def done(self, *ids: int) -> list[Answer]:
        """Read until all these streams have ended."""
        for id in ids:
            while not self.of(id).done:
                await self.turn()
        return [self.answers.pop(id) for id in ids]

    async def items(self, id: int, count: int) -> list[bytes]:
        """Read until a stream has brought so many items."""
        answer = self.of(id)
        while len(answer.items) < count and not answer.done:
            await self.turn()
        assert len(answer.items) >= count, (len(answer.items), answer.error)
        return answer.items

    async def echoes(self, payloads: Iterable[bytes], metadata: bytes | None = None) -> None:
        """All of them in one write; each is answered rightly."""
        said = list(payloads)
        ids = self.ids(len(said))
        await self.send(*(self.asked(id, data, metadata) for id, data in zip(ids, said, strict=True)))
        for data, answer in zip(said, await self.done(*ids), strict=True):
            assert answer.data == data, (answer.data[:40], data[:40])

    async def works(self) -> None:
        """An ordinary request is answered."""
        await self.echoes([b"ordinary"])
