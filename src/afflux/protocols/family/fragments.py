"""Represent queued data of a stream: whole frames that leave together, and payloads that are split into frames."""

from __future__ import annotations

from typing import Any, Final

from afflux.protocols.family.layout import Layout

__all__ = ["LARGE", "Fragments", "Whole"]

LARGE: Final = 0x10000
"A payload of more bytes, waiting to be split, takes no room from frames of other streams."


class Whole:
    """Whole frames that are never split: a run of small ones, or a large one whose header is a chunk of its own."""

    __slots__ = ("chunks", "frames", "size")

    def __init__(self, chunks: tuple[bytes, ...], frames: int, size: int) -> None:
        self.chunks = chunks
        self.frames = frames
        "Number of frames."
        self.size = size
        "Bytes in total."


class Fragments:
    """One payload, split into frames when they are sent (R-33 to R-36). Nothing is copied before.

    ``first`` is the flag word of the first frame and the bytes before its payload, ``later`` the same of the others;
    ``asks`` is whether it is a request: the peer has no such stream before the request is whole.
    """

    __slots__ = (
        "_data",
        "_extra",
        "_later",
        "_layout",
        "_metadata",
        "_mtu",
        "_stream",
        "_with_metadata",
        "_word",
        "asks",
        "begun",
        "complete",
        "large",
        "size",
    )

    def __init__(
        self,
        layout: Layout,
        stream: int,
        first: tuple[int, bytes],
        later: tuple[int, bytes],
        payload: tuple[bytes | None, bytes],
        *,
        complete: bool,
        mtu: int,
        asks: bool,
    ) -> None:
        metadata, data = payload
        self._layout = layout
        self._stream = stream
        self._word, self._extra = first
        self._later = later
        self._with_metadata = metadata is not None
        self._metadata = memoryview(metadata or b"")
        self._data = memoryview(data)
        self._mtu = mtu
        self.complete = complete
        "The last fragment carries C, and none before it."
        self.asks = asks
        self.begun = False
        "The first frame was sent."
        self.size = len(self._metadata) + len(self._data)
        "Payload bytes not sent yet, without headers."
        self.large = self.size > LARGE

    def state(self) -> list[Any]:
        """The unsent rest, as ``of_state`` reads it."""
        metadata = bytes(self._metadata) if self._with_metadata else None
        rest = [self._stream, self._word, self._extra, metadata, bytes(self._data), self.complete, self._mtu]
        return [*rest, self.asks]

    @classmethod
    def of_state(cls, layout: Layout, later: tuple[int, bytes], state: list[Any]) -> Fragments:
        """Restore the rest of a payload."""
        stream, word, extra, metadata, data, complete, mtu, asks = state
        payload = (metadata, data)
        fragments = cls(layout, stream, (word, extra), later, payload, complete=complete, mtu=mtu, asks=asks)
        fragments.begun = word == later[0]
        return fragments

    def next(self) -> list[bytes | memoryview]:
        """Return the chunks of the next frame; ``size`` is 0 after the last one."""
        layout, prefixed = self._layout, self._with_metadata
        header_size = layout.size + len(self._extra) + (layout.metadata_size if prefixed else 0)
        room = max(0, self._mtu - header_size)
        metadata, self._metadata = self._metadata[:room], self._metadata[room:]
        room -= len(metadata)
        data, self._data = self._data[:room], self._data[room:]
        self.size -= len(metadata) + len(data)
        word = self._word
        if self.size:
            word |= layout.follows
        elif self.complete:
            word |= layout.complete
        size = header_size + len(metadata) + len(data)
        header = layout.head(self._stream, word, self._extra, bytes(metadata) if prefixed else None, size)
        self._word, self._extra = self._later
        self._with_metadata = bool(self._metadata)
        self.begun = True
        return [header, data]
