"""One payload cut into frames, and whole frames that leave together: what queues for a stream. No queue lives here."""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from afflux.protocols.rsocket.frames import FLAG_COMPLETE, FLAG_FOLLOWS, FLAG_METADATA, NEXT

__all__ = ["HEADER", "HEADER_SIZE", "LARGE", "Fragments", "Whole"]

HEADER: Final = Struct(">BHIH")
"Length (8 + 16 bits), stream id, type and flags: what every frame starts with on a byte stream."
HEADER_SIZE: Final = 9

LARGE: Final = 0x10000
"A payload to be cut of more than so many bytes takes no room from frames of other streams."


class Whole:
    """Whole frames that are not torn: a run of small ones, or a large one whose header stands alone."""

    __slots__ = ("chunks", "frames", "size")

    def __init__(self, chunks: tuple[bytes, ...], frames: int, size: int) -> None:
        self.chunks = chunks
        self.frames = frames
        "How many they are."
        self.size = size
        "Bytes in all."


class Fragments:
    """One payload, cut into frames as they are wanted (R-33 to R-36). Nothing of it is copied before."""

    __slots__ = (
        "_data",
        "_extra",
        "_metadata",
        "_mtu",
        "_stream",
        "_with_metadata",
        "_word",
        "asks",
        "complete",
        "large",
        "size",
    )

    def __init__(
        self, stream: int, word: int, extra: bytes, metadata: bytes | None, data: bytes, complete: bool, mtu: int
    ) -> None:
        self._stream = stream
        self._word = word
        self._extra = extra
        self._with_metadata = metadata is not None
        self._metadata = memoryview(metadata or b"")
        self._data = memoryview(data)
        self._mtu = mtu
        self.complete = complete
        "The last fragment carries C, and none before it."
        self.asks = word != NEXT
        "It is a request: the peer knows nothing of the stream before it is whole."
        self.size = len(self._metadata) + len(self._data)
        "Payload bytes not yet handed over; the headers are not counted."
        self.large = self.size > LARGE

    @property
    def begun(self) -> bool:
        """Whether a request's first frame, which is one of its own kind, was handed over."""
        return self._word == NEXT

    def state(self) -> list[Any]:
        """What ``of_state`` takes: what was not handed over yet."""
        metadata = bytes(self._metadata) if self._with_metadata else None
        rest = [self._stream, self._word, self._extra, metadata, bytes(self._data), self.complete, self._mtu]
        return [*rest, self.asks]

    @classmethod
    def of_state(cls, state: list[Any]) -> Fragments:
        """The rest of a payload."""
        *rest, asks = state
        fragments = cls(*rest)
        fragments.asks = asks
        return fragments

    def next(self) -> list[bytes | memoryview]:
        """The chunks of the next frame; ``size`` is 0 after the last one."""
        header_size = HEADER_SIZE + len(self._extra) + (3 if self._with_metadata else 0)
        room = self._mtu - header_size
        metadata, self._metadata = self._metadata[:room], self._metadata[room:]
        room -= len(metadata)
        data, self._data = self._data[:room], self._data[room:]
        self.size -= len(metadata) + len(data)
        flags = FLAG_METADATA if self._with_metadata else 0
        if self.size:
            flags |= FLAG_FOLLOWS
        elif self.complete:
            flags |= FLAG_COMPLETE
        length = header_size - 3 + len(metadata) + len(data)
        header = HEADER.pack(length >> 16, length & 0xFFFF, self._stream, self._word | flags) + self._extra
        if self._with_metadata:
            header += len(metadata).to_bytes(3, "big")
        self._word, self._extra, self._with_metadata = NEXT, b"", bool(self._metadata)
        return [header, metadata, data]
