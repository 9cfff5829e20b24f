"""Limit-Stream frames by hand, and a client that counts messages. No afflux code, no tests."""

from __future__ import annotations

import struct
from typing import NamedTuple

from tests.honest.catalogue import Place
from tests.honest.link import Framing, Link, Lost

FRAMING = Framing(3, subprotocol="limit-stream")
SETUP, PAYLOAD, ERROR, CHOOSE, END, EXT = 0x01, 0x0A, 0x0B, 0x10, 0x11, 0x3F
I, M = 0x200, 0x100  # noqa: E741 -- the flags' names
DONE = b"\x90"
"The empty struct of the channel ``sum``."


class Frame(NamedTuple):
    """A frame of the server."""

    id: int
    kind: int
    body: bytes


def frame(id: int, kind: int, body: bytes = b"", flags: int = 0) -> bytes:
    """Any frame, without its length."""
    return struct.pack("!IH", id, kind << 10 | flags) + body


def payload(data: bytes, metadata: bytes | None) -> tuple[bytes, int]:
    """The end of a frame, and the flag that goes with it."""
    if metadata is None:
        return data, 0
    return len(metadata).to_bytes(3, "big") + metadata + data, M


def setup(channel: bytes, data: bytes = b"") -> bytes:
    """SETUP."""
    return frame(0, SETUP, *payload(data, channel))


SKIPPED = frame(0, 0x05, b"unknown", I), frame(7, EXT, b"\0\0\0\x21unknown", I)
"Frames that a peer skips."


class Client:
    """One connection: the number of its last message, and that of the server's."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._own = -1
        self._peers = 0

    @classmethod
    async def open(cls, place: Place, *more: bytes, receive_buffer: int = 0) -> Client:
        """Connect, and send frames."""
        client = cls(await place.dial(FRAMING, receive_buffer))
        place.clients.append(client)
        await client.link.send(*more)
        return client

    def value(self, data: bytes, metadata: bytes | None = None) -> bytes:
        """PAYLOAD with the next number."""
        return frame(self._number(), PAYLOAD, *payload(data, metadata))

    def choice(self, branch: int) -> bytes:
        """CHOOSE with the next number, from 0."""
        return frame(self._number(), CHOOSE, bytes((branch,)))

    def abort(self) -> bytes:
        """ERROR[APPLICATION_ERROR] after the server's last message."""
        return frame(max(self._peers, 0) + 1, ERROR, struct.pack("!I", 0x201) + b"not wanted")

    async def frame(self) -> Frame:
        """The next frame of the server. Its number is the next one."""
        raw = await self.link.frame()
        id, word = struct.unpack_from("!IH", raw)
        one = Frame(id, word >> 10, raw[6:])
        assert word & 0x3FF == 0, one
        if one.kind in (PAYLOAD, CHOOSE):
            assert id == self._peers + 2, (id, self._peers)
            self._peers, self._own = id, id + 1
        elif id == 0 and one.kind == ERROR:
            raise Lost(f"ERROR: {one.body!r}")
        return one

    async def until_end(self) -> list[bytes]:
        """The values up to END."""
        values = []
        while (one := await self.frame()).kind != END:
            assert one.kind in (PAYLOAD, CHOOSE), one
            if one.kind == PAYLOAD:
                values.append(one.body)
        return values

    async def echoed(self, *items: bytes) -> None:
        """Send items over a plain channel, and receive the same."""
        first, *others = items
        await self.link.send(setup(b"plain", first), *map(self.value, others), self.choice(1))
        assert await self.until_end() == list(items)

    def sum(self, *numbers: bytes) -> list[bytes]:
        """The frames of a session of ``sum``."""
        return [setup(b"sum"), *map(self.value, numbers), self.choice(1), self.value(DONE)]

    async def works(self) -> None:
        """An ordinary session is served."""
        await self.link.send(*self.sum(b"\x01", b"\x02"))
        assert await self.until_end() == [b"\x03"]

    def _number(self) -> int:
        self._own += 2
        self._peers = self._own + 1
        return self._own
