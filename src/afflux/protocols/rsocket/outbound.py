"""What waits to be written, and in which turn. Fragmentation lives here; no state of streams does.

1. Frames of stream 0 go first (R-21).
2. Frames of one stream keep their order. A payload that needs fragments opens a *lane* for its stream, and
   whatever that stream sends later queues behind it.
3. Lanes take turns, a fragment each, with the ordinary frames in between: one large payload delays nobody else
   by more than a fragment.
"""

from __future__ import annotations

from collections import deque
from struct import Struct

from afflux.core.errors import Violation
from afflux.protocols.rsocket.frames import PayloadFrame

__all__ = ["HEADER", "HEADER_SIZE", "MAX_FRAME", "Fragments", "Outbound", "prefixed"]

HEADER = Struct(">BHIH")
"Length (8 + 16 bits), stream id, type and flags: what every frame starts with on a byte stream."
HEADER_SIZE = HEADER.size
MAX_FRAME = 0xFFFFFF
"The largest frame that a 24-bit length can announce (R-3)."

_FLAG_M = 0x100
_FLAG_F = 0x080
_FLAG_C = 0x040
_FLAG_N = 0x020
_PAYLOAD = PayloadFrame.TYPE << 10
_COPY_BELOW = 0x1000
"Joining header and data at once is cheaper below this size; above it the copy costs more than the object."


def prefixed(frame: bytes) -> bytes:
    """The frame with its 24-bit length before it (R-2)."""
    size = len(frame)
    if size > MAX_FRAME:
        raise Violation(f"a frame of {size:,} bytes is above {MAX_FRAME:,}", rule="R-3")
    return size.to_bytes(3, "big") + frame


class Fragments:
    """One payload, cut into frames as they are wanted (R-33 to R-36)."""

    __slots__ = ("_data", "_extra", "_metadata", "_mtu", "_stream", "_with_metadata", "_word", "complete", "size")

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
        self.size = len(self._metadata) + len(self._data)
        "Payload bytes not yet handed over; the headers are not counted."

    def next(self) -> list[bytes | memoryview]:
        """The chunks of the next frame; ``size`` is 0 after the last one."""
        header_size = HEADER_SIZE + len(self._extra) + (3 if self._with_metadata else 0)
        room = self._mtu - header_size
        metadata, self._metadata = self._metadata[:room], self._metadata[room:]
        room -= len(metadata)
        data, self._data = self._data[:room], self._data[room:]
        self.size -= len(metadata) + len(data)
        flags = _FLAG_M if self._with_metadata else 0
        if self.size:
            flags |= _FLAG_F
        elif self.complete:
            flags |= _FLAG_C
        length = header_size - 3 + len(metadata) + len(data)
        header = HEADER.pack(length >> 16, length & 0xFFFF, self._stream, self._word | flags) + self._extra
        if self._with_metadata:
            header += len(metadata).to_bytes(3, "big")
        self._word, self._extra, self._with_metadata = _PAYLOAD | _FLAG_N, b"", bool(self._metadata)
        return [header, metadata, data]


class Outbound:
    """The queue of one connection."""

    __slots__ = ("_control", "_lanes", "_ready", "frames", "size")

    def __init__(self) -> None:
        self._control: list[bytes] = []
        self._ready: deque[bytes] = deque()
        self._lanes: dict[int, deque[bytes | Fragments]] = {}
        self.size = 0
        "Bytes waiting, of payloads still to be cut as well."
        self.frames = 0
        "Frames and uncut payloads waiting."

    def control(self, frame: bytes) -> None:
        """Queue a bare frame of stream 0."""
        data = prefixed(frame)
        self._control.append(data)
        self.size += len(data)
        self.frames += 1

    def frame(self, stream: int, frame: bytes) -> None:
        """Queue a bare frame of a stream."""
        self.put(stream, prefixed(frame), 1)

    def put(self, stream: int, data: bytes, frames: int) -> None:
        """Queue whole frames of a stream, prefixes included."""
        lane = self._lanes.get(stream) if self._lanes else None
        (self._ready if lane is None else lane).append(data)
        self.size += len(data)
        self.frames += frames

    def put_header_and_data(self, stream: int, header: bytes, data: bytes) -> None:
        """Queue one frame that is a header and data, without a copy of data that is long."""
        if len(data) < _COPY_BELOW or self._lanes:
            self.put(stream, header + data, 1)
            return
        self._ready.append(header)
        self._ready.append(data)
        self.size += len(header) + len(data)
        self.frames += 1

    def put_fragments(self, stream: int, fragments: Fragments) -> None:
        """Queue a payload that is to be cut."""
        self._lanes.setdefault(stream, deque()).append(fragments)
        self.size += fragments.size
        self.frames += 1

    def drop(self, stream: int) -> None:
        """Forget what a stream still has in its lane: it is canceled or has failed (R-38)."""
        for entry in self._lanes.pop(stream, ()):
            self.size -= entry.size if isinstance(entry, Fragments) else len(entry)
            self.frames -= 1

    def clear(self) -> None:
        """Forget everything of all streams; what stream 0 has to say stays."""
        self._ready.clear()
        self._lanes.clear()
        self.size = sum(map(len, self._control))
        self.frames = len(self._control)

    def take(self, limit: int) -> bytes:
        """Bytes to write now, about ``limit`` at most: whole frames, at least one if there is any."""
        if not self.size and not self.frames:
            return b""
        ready = self._ready
        if not self._lanes and self.size <= limit:
            data = b"".join([*self._control, *ready]) if self._control else b"".join(ready)
            self._control.clear()
            ready.clear()
            self.size = self.frames = 0
            return data
        chunks: list[bytes | memoryview] = list(self._control)
        size = sum(map(len, self._control))
        self.frames -= len(self._control)
        self.size -= size
        self._control.clear()
        while size < limit and (ready or self._lanes):
            if ready:
                size += self._take_ready(chunks)
            if self._lanes:
                size += self._take_fragment(chunks)
        return b"".join(chunks)

    def _take_ready(self, chunks: list[bytes | memoryview]) -> int:
        """Move ordinary frames: one turn's worth, the size of a lane's fragment."""
        ready = self._ready
        size = 0
        while ready and size < 0x10000:
            chunk = ready.popleft()
            chunks.append(chunk)
            size += len(chunk)
        self.size -= size
        if not ready and not self._lanes:
            self.frames = 0
        return size

    def _take_fragment(self, chunks: list[bytes | memoryview]) -> int:
        """Move one frame of the lane whose turn it is, and send the lane to the back."""
        stream = next(iter(self._lanes))
        lane = self._lanes.pop(stream)
        entry = lane[0]
        if isinstance(entry, Fragments):
            before = entry.size
            frame = entry.next()
            chunks.extend(frame)
            moved = sum(map(len, frame))
            self.size -= before - entry.size
            done = not entry.size
        else:
            chunks.append(entry)
            moved = len(entry)
            self.size -= moved
            done = True
        if done:
            lane.popleft()
            self.frames -= 1
        if lane:
            self._lanes[stream] = lane
        return moved
