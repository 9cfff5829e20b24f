"""Messages of reactive-streams-io by hand, a parser of them, and a client. No afflux code, no tests."""

from __future__ import annotations

from tests.honest.catalogue import Place
from tests.honest.link import Framing, Link, Lost

FRAMING = Framing(0)
UNBOUNDED = (1 << 63) - 1
HELLO = b"\x01\x00\x00"
"clientHello of version 0 without extensions."


def varint(value: int, pad: int = 0) -> bytes:
    """A varint; ``pad`` makes it so many bytes longer than it need be."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value | (0x80 if pad else 0))
    out += b"\x80" * (pad - 1) + b"\x00" * bool(pad)
    return bytes(out)


def subscribe(id: int, publisher: bytes, demand: int) -> bytes:
    """subscribe."""
    return b"\x03" + varint(len(publisher)) + publisher + varint(id) + varint(demand)


def request(id: int, n: int) -> bytes:
    """request."""
    return b"\x04" + varint(id) + varint(n)


def cancel(id: int) -> bytes:
    """cancel."""
    return b"\x05" + varint(id)


GOODBYE = b"\x0b\x04done"


class Short(Exception):  # noqa: N818
    """The message is not whole yet."""


class Subscription:
    """What has come on one id."""

    def __init__(self) -> None:
        self.size: int | None = None
        self.items: list[bytes] = []
        self.done = False
        self.error: bytes | None = None


class Client:
    """One connection; each subscription has a fresh id."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.of: dict[int, Subscription] = {}
        self.greeted = False
        self.goodbye: bytes | None = None
        self._raw = bytearray()
        self._next = 0
        self._at = 0

    @classmethod
    async def open(cls, place: Place, *more: bytes, receive_buffer: int = 0) -> Client:
        """Connect and greet, with more behind it at once."""
        client = cls(await place.dial(FRAMING, receive_buffer))
        place.clients.append(client)
        await client.link.write(HELLO + b"".join(more))
        return client

    def ids(self, count: int) -> list[int]:
        """Fresh ids."""
        first, self._next = self._next, self._next + count
        for id in range(first, self._next):
            self.of[id] = Subscription()
        return list(range(first, self._next))

    async def send(self, *messages: bytes) -> None:
        """Messages in one write."""
        await self.link.write(b"".join(messages))

    async def turn(self) -> None:
        """Take in what has come next."""
        self._raw += await self.link.frame()
        self._at = 0
        done = 0
        try:
            while self._at < len(self._raw):
                self._message()
                done = self._at
        except Short:
            pass
        del self._raw[:done]

    def _byte(self) -> int:
        if self._at >= len(self._raw):
            raise Short
        self._at += 1
        return self._raw[self._at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
        return value | byte << shift

    def _bytes(self, size: int) -> bytes:
        if len(self._raw) < self._at + size:
            raise Short
        self._at += size
        return bytes(self._raw[self._at - size : self._at])

    def _message(self) -> None:
        kind = self._varint()
        if kind == 2:
            assert self._varint() == 0
            for _ in range(self._varint()):
                self._varint()
            self.greeted = True
            return
        if kind == 11:
            self.goodbye = self._bytes(self._varint())
            if self.goodbye != b"done":
                raise Lost(f"goodbye: {self.goodbye!r}")
            return
        one = self.of[self._varint()]
        match kind:
            case 6:
                one.size = self._varint()
            case 7:
                one.items.append(self._bytes(one.size or self._varint()))
            case 8:
                one.done = True
            case 9:
                one.error, one.done = self._bytes(self._varint()), True
            case 10:
                count = self._varint()
                packed, size = self._bytes(count * (one.size or 0)), one.size or 1
                one.items += [packed[at : at + size] for at in range(0, len(packed), size)]
            case _:
                raise AssertionError(f"an unexpected message {kind}")

    async def done(self, *ids: int) -> list[Subscription]:
        """Read until these have ended."""
        for id in ids:
            while not self.of[id].done:
                await self.turn()
            assert self.of[id].error is None, self.of[id].error
        return [self.of.pop(id) for id in ids]

    async def items(self, id: int, count: int) -> list[bytes]:
        """Read until a subscription has so many items."""
        while len(self.of[id].items) < count and not self.of[id].done:
            await self.turn()
        assert self.of[id].error is None, self.of[id].error
        return self.of[id].items

    async def works(self) -> None:
        """An ordinary subscription is served."""
        (id,) = self.ids(1)
        await self.send(subscribe(id, b"count:3:4", 3))
        assert (await self.done(id))[0].items == [b"0...", b"1...", b"2..."]
