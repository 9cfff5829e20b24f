"""Jmux messages by hand, a parser of them, and a client that behaves like the Java original. No afflux code, no tests.

The Java original offers a ration of 32,768 bytes, sends Data of at most 1,024 bytes, and refills a session's ration
when its application reads: ``Call`` does so for what has arrived, unless it stands still.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable

from tests.honest.catalogue import Place
from tests.honest.link import Framing, Link, Lost

FRAMING = Framing(0)
RATION = 32_768
CHUNK = 1_024
HELLO = b"Jmux\x01\x00\x80\x00"
"The client's header: version 1, 128 × 256 bytes."

OPEN, CLOSE, EOF, ACK = 0x10, 0x08, 0x04, 0x02


def message(first: int, second: int = 0, number: int = 0, body: bytes = b"") -> bytes:
    """Any message."""
    return struct.pack("!BBH", first, second, number) + body


def data(session: int, body: bytes = b"", flags: int = 0) -> bytes:
    """Data."""
    return message(0x80 | flags, session, len(body), body)


def increment(session: int, size: int) -> bytes:
    """IncrementRation, of up to 65,535 bytes."""
    return message(0x10, session, size)


def abort(session: int) -> bytes:
    """Abort, without detail as the Java original sends it."""
    return message(0x20, session)


def acknowledgment(session: int) -> bytes:
    """Acknowledgment."""
    return message(0x40, session)


def noop(size: int = 0) -> bytes:
    """NoOperation."""
    return message(0, 0, size, bytes(size))


class Call:
    """One session, seen by its client."""

    def __init__(self, id: int, request: bytes, reading: bool) -> None:
        self.id = id
        self.reading = reading
        self.unsent = request
        self.opened = False
        self.room = RATION
        "What the server lets this side send."
        self.left = RATION
        "What this side lets the server send."
        self.answer = bytearray()
        self.done = False
        self.aborted = False
        self.sent_all = False

    def next(self) -> Iterable[bytes]:
        """The Data that may leave now: an empty one with open first, as when an application reads first."""
        while not self.sent_all:
            part = self.unsent[: min(CHUNK, self.room)]
            if self.unsent and not part:
                return
            self.unsent, self.room = self.unsent[len(part) :], self.room - len(part)
            self.sent_all = not self.unsent
            yield data(self.id, part, (0 if self.opened else OPEN) | (EOF if self.sent_all else 0))
            self.opened = True


class Client:
    """One connection."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.calls: dict[int, Call] = {}
        self.pings = 0
        self.pongs: list[int] = []
        self._raw = bytearray()
        self._greeted = False
        self._free = deque(range(128))

    @classmethod
    async def open(cls, place: Place, *more: bytes, receive_buffer: int = 0) -> Client:
        """Connect, greet, and wait for the server's header."""
        client = cls(await place.dial(FRAMING, receive_buffer))
        place.clients.append(client)
        await client.link.write(HELLO + b"".join(more))
        await client.greeted()
        return client

    async def greeted(self) -> None:
        """The server's header has come."""
        while not self._greeted:
            await self.turn()

    async def begin(self, request: bytes, *, reading: bool = True) -> Call:
        """A call on the lowest id that is free."""
        call = Call(self._free.popleft(), request, reading)
        self.calls[call.id] = call
        await self.link.write(b"".join(call.next()))
        return call

    async def begin_all(self, requests: Iterable[bytes], *, reading: bool = True) -> list[Call]:
        """Calls whose first messages leave in one write."""
        calls = [Call(self._free.popleft(), request, reading) for request in requests]
        self.calls |= {call.id: call for call in calls}
        await self.link.write(b"".join(said for call in calls for said in call.next()))
        return calls

    async def done(self, *calls: Call) -> list[bytes]:
        """The answers of these calls."""
        for call in calls:
            while not call.done:
                await self.turn()
            assert not call.aborted, f"session {call.id} was aborted"
        return [bytes(call.answer) for call in calls]

    async def ask(self, *requests: bytes) -> list[bytes]:
        """The answers to these requests, begun in one write."""
        return await self.done(*await self.begin_all(requests))

    async def abort(self, call: Call) -> None:
        """Give a call up; its id is free when the server has answered."""
        call.sent_all = call.aborted = True
        await self.link.write(abort(call.id))

    async def read(self, call: Call) -> None:
        """A call that stood still reads on."""
        call.reading = True
        await self._refill(call)

    async def turn(self) -> None:
        """Take in what has come next."""
        self._raw += await self.link.frame()
        if not self._greeted:
            if len(self._raw) < 8:
                return
            head = bytes(self._raw[:8])
            assert head[:5] == b"Jmux\x01", head
            del self._raw[:8]
            self._greeted = True
        replies = []
        while (found := self._cut()) is not None:
            replies.append(await self._take(*found))
        if said := b"".join(replies):
            await self.link.write(said)

    def _cut(self) -> tuple[int, int, int, bytes] | None:
        if len(self._raw) < 4:
            return None
        first, second, number = struct.unpack_from("!BBH", self._raw)
        size = 4 + (number if first in (0x00, 0x02, 0x08) or first & 0xFD == 0x20 or first & 0x80 else 0)
        if len(self._raw) < size:
            return None
        body = bytes(self._raw[4:size])
        del self._raw[:size]
        return first, second, number, body

    async def _take(self, first: int, second: int, number: int, body: bytes) -> bytes:
        """What a message brings, and what is answered at once."""
        match first:
            case 0x00:
                return b""
            case 0x02 | 0x08:
                raise Lost(f"{'Shutdown' if first == 2 else 'Error'}: {body!r}")
            case 0x04:
                self.pings += 1
                return message(0x06, 0, number)
            case 0x06:
                self.pongs.append(number)
                return b""
        call = self.calls[second]
        if first & 0xE1 == 0x80:
            return self._data(call, first, body)
        if first & 0xF1 == 0x10:
            call.room += number << (first & 0x0E)
            return b"".join(call.next())
        if first & 0xFD == 0x20:
            reply = b"" if call.aborted else abort(call.id)
            call.aborted, call.sent_all = True, True
            self._ended(call)
            return reply
        assert first == 0x30, hex(first)
        self._ended(call)
        return b""

    def _data(self, call: Call, flags: int, body: bytes) -> bytes:
        call.answer += body
        call.left -= len(body)
        assert call.left >= 0, "the server has sent beyond its ration"
        if flags & CLOSE:
            self._ended(call)
            return acknowledgment(call.id) if flags & ACK else b""
        return self._increment(call) if call.reading else b""

    async def _refill(self, call: Call) -> None:
        if said := self._increment(call):
            await self.link.write(said)

    def _increment(self, call: Call) -> bytes:
        if call.done or call.left > RATION // 2:
            return b""
        grant, call.left = RATION - call.left, RATION
        return increment(call.id, grant)

    def _ended(self, call: Call) -> None:
        call.done = True
        del self.calls[call.id]
        self._free.appendleft(call.id)

    async def works(self) -> None:
        """An ordinary call is answered."""
        assert await self.ask(b"ordinary") == [b"ordinary"]
