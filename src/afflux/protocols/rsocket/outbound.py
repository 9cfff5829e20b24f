"""What waits to be written, and in which turn. Fragmentation lives here; no state of streams does.

1. Frames of stream 0 go first (R-21), but for the farewell: no request may come after CONNECTION_CLOSE.
2. Requests leave in the order of their ids (R-8): the first fragment of a large one queues like any frame.
3. Frames of one stream keep their order. A payload that needs fragments opens a *lane* for its stream, and
   whatever that stream sends later queues behind it.
4. Lanes take turns, a fragment each, with the ordinary frames in between: one large payload delays nobody else
   by more than a fragment.
5. With resumption, what leaves is retained; what was retained and has to be repeated goes before what is new, and
   while there is no transport, or no room to retain more, only stream 0 speaks. One turn may pass the room: what
   is retained stays below ``resume_bytes``, one chunk (64 KiB and an item, or a frame) and one fragment more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from struct import Struct
from typing import Any

from afflux.core.payload import Payload, PayloadLike, payload_of
from afflux.protocols.rsocket.frames import FLAG_COMPLETE, FLAG_FOLLOWS, FLAG_METADATA, NEXT
from afflux.protocols.rsocket.resume import Retained

__all__ = ["HEADER", "HEADER_SIZE", "Fragments", "Outbound"]

HEADER = Struct(">BHIH")
"Length (8 + 16 bits), stream id, type and flags: what every frame starts with on a byte stream."
HEADER_SIZE = HEADER.size

_COPY_BELOW = 0x1000
"Joining header and data at once is cheaper below this size; above it the copy costs more than the object."


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

    def state(self) -> list[Any]:
        """What ``of_state`` takes: what was not handed over yet."""
        metadata = bytes(self._metadata) if self._with_metadata else None
        return [self._stream, self._word, self._extra, metadata, bytes(self._data), self.complete, self._mtu]

    @classmethod
    def of_state(cls, state: list[Any]) -> Fragments:
        """The rest of a payload."""
        return cls(*state)

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


class Outbound:  # long: frames, runs and payloads go in, blocks come out, and a snapshot takes both ways
    """The queue of one connection."""

    __slots__ = (
        "_control",
        "_counts",
        "_gates",
        "_lanes",
        "_last",
        "_popped",
        "_ready",
        "_repeat",
        "frames",
        "mtu",
        "paused",
        "retained",
        "size",
    )

    def __init__(self, mtu: int) -> None:
        self.mtu = mtu
        "Bytes a frame may have, with its prefix."
        self._control: list[bytes] = []
        self._last = b""
        self._ready: deque[bytes] = deque()
        self._counts: deque[int] = deque()
        "Frames in each chunk of ``_ready``; 0 is the head of a frame whose rest is the next chunk."
        self._lanes: dict[int, deque[bytes | Fragments]] = {}
        self._gates: dict[int, int] = {}
        "New lanes wait until ``_popped`` is so much: what was in ``_ready`` before may be of the same stream."
        self._popped = 0
        self.size = 0
        "Bytes waiting, of payloads still to be cut as well."
        self.frames = 0
        "Frames and uncut payloads waiting."
        self.retained: Retained | None = None
        "Where frames of streams are kept when they leave; None without resumption."
        self.paused = False
        "Only stream 0 speaks: the session has no transport, or has not been resumed."
        self._repeat: deque[bytes] = deque()
        "What was sent before and goes again; counted in nothing."

    def control(self, frame: bytes) -> None:
        """Queue a frame of stream 0, its prefix included."""
        self._control.append(frame)
        self.size += len(frame)
        self.frames += 1

    def farewell(self, frame: bytes) -> None:
        """Queue the last frame of stream 0: it goes when nothing else waits, so that no request comes after it."""
        self._last = frame
        self.size += len(frame)
        self.frames += 1

    def frame(self, stream: int, frame: bytes) -> None:
        """Queue a frame of a stream, its prefix included."""
        self.put(stream, frame, 1)

    def put(self, stream: int, data: bytes, frames: int) -> None:
        """Queue whole frames of a stream, prefixes included."""
        lane = self._lanes.get(stream) if self._lanes else None
        if lane is None:
            self._ready.append(data)
            self._counts.append(frames)
            self.frames += frames
        else:
            lane.append(data)
            self.frames += 1
        self.size += len(data)

    def payload(self, stream: int, word: int, extra: bytes, payload: Payload, complete: bool) -> None:
        """Queue one payload as a frame, or as fragments when it is above the MTU."""
        data = payload.data
        metadata = payload.metadata
        size = HEADER_SIZE + len(extra) + len(data) + (0 if metadata is None else 3 + len(metadata))
        if size > self.mtu:
            fragments = Fragments(stream, word, extra, metadata, data, complete, self.mtu)
            if word != NEXT:
                first = b"".join(fragments.next())
                self._ready.append(first)
                self._counts.append(1)
                self.size += len(first)
                self.frames += 1
            if stream not in self._lanes:
                self._lanes[stream] = deque()
                self._gates[stream] = self._popped + len(self._ready)
            self._lanes[stream].append(fragments)
            self.size += fragments.size
            self.frames += 1
            return
        if complete:
            word |= FLAG_COMPLETE
        length = size - 3
        if metadata is None:
            header = HEADER.pack(length >> 16, length & 0xFFFF, stream, word) + extra
        else:
            header = HEADER.pack(length >> 16, length & 0xFFFF, stream, word | FLAG_METADATA) + extra
            header += len(metadata).to_bytes(3, "big") + metadata
        if self._lanes:
            self.put(stream, header + data, 1)
            return
        if size < _COPY_BELOW:
            self._ready.append(header + data)
            self._counts.append(1)
        else:
            self._ready += (header, data)
            self._counts += (0, 1)
        self.size += size
        self.frames += 1

    def run(self, stream: int, payloads: Sequence[PayloadLike], last: int) -> None:
        """Queue many items at once: one chunk for a run of small ones, one header for a run of one size.

        ``last`` is the index of the item that completes the stream, or -1.
        """
        chunks: list[bytes] = []
        size = frames = 0
        length, header = -1, b""
        small = min(_COPY_BELOW, self.mtu - HEADER_SIZE)
        for index, item in enumerate(payloads):
            if isinstance(item, bytes):
                data = item
            elif isinstance(item, Payload) and item.metadata is None:
                data = item.data
            else:
                data = None
            if data is None or index == last or len(data) > small:
                if chunks:
                    self.put(stream, b"".join(chunks), frames)
                    chunks, frames, size = [], 0, 0
                self.payload(stream, NEXT, b"", payload_of(item), index == last)
                continue
            if len(data) != length:
                length = len(data)
                header = HEADER.pack(0, length + 6, stream, NEXT)
            chunks += (header, data)
            frames += 1
            size += length
            if size > 0x10000:
                self.put(stream, b"".join(chunks), frames)
                chunks, frames, size = [], 0, 0
        if chunks:
            self.put(stream, b"".join(chunks), frames)

    def drop(self, stream: int) -> None:
        """Forget what a stream still has in its lane: it is canceled or has failed (R-38)."""
        self._gates.pop(stream, None)
        for entry in self._lanes.pop(stream, ()):
            self.size -= entry.size if isinstance(entry, Fragments) else len(entry)
            self.frames -= 1

    def clear(self) -> None:
        """Forget everything of all streams; what stream 0 has to say stays."""
        self._ready.clear()
        self._counts.clear()
        self._lanes.clear()
        self._gates.clear()
        self._repeat.clear()
        self._last = b""
        self.size = sum(map(len, self._control))
        self.frames = len(self._control)

    @property
    def waiting(self) -> int:
        """Bytes that take would hand over, now or later: ``size``, and what goes again."""
        return self.size + sum(map(len, self._repeat)) if self._repeat else self.size

    def suspend(self) -> None:
        """The transport is gone, and what stream 0 had to say to it with it."""
        self.paused = True
        self._repeat.clear()
        self._take_control()
        self.size -= len(self._last)
        self.frames -= bool(self._last)
        self._last = b""

    def resume(self) -> None:
        """There is a new transport: everything that is retained goes again, in order (R-50)."""
        self.paused = False
        self._repeat.extend(() if self.retained is None else self.retained.blocks())

    def state(self) -> dict[str, Any]:
        """What ``restore`` takes: all that streams have queued. What stream 0 has to say belongs to a transport."""
        return {
            "ready": [list(self._ready), list(self._counts)],
            "lanes": [
                [id, [entry.state() if isinstance(entry, Fragments) else entry for entry in lane]]
                for id, lane in self._lanes.items()
            ],
            "gates": [[id, gate - self._popped] for id, gate in self._gates.items()],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state, without a transport."""
        self.suspend()
        ready, counts = state["ready"]
        self._ready.extend(ready)
        self._counts.extend(counts)
        self.size = sum(map(len, ready))
        self.frames = sum(counts)
        for id, entries in state["lanes"]:
            lane = [Fragments.of_state(entry) if isinstance(entry, list) else entry for entry in entries]
            self._lanes[id] = deque(lane)
            self.size += sum(entry.size if isinstance(entry, Fragments) else len(entry) for entry in lane)
            self.frames += len(lane)
        self._gates.update((id, self._popped + gate) for id, gate in state["gates"])

    def take(self, limit: int) -> bytes:
        """Bytes to write now, about ``limit`` at most: whole frames, at least one if there is any."""
        if not self.size and not self.frames and not self._repeat:
            return b""
        if self.paused or self._repeat:
            return self._take_control() + (b"" if self.paused else self._repeat.popleft())
        if self.retained is not None:
            return self._take_retained(limit, self.retained)
        ready = self._ready
        if not self._lanes and self.size <= limit:
            data = b"".join([*self._control, *ready, self._last]) if self._control or self._last else b"".join(ready)
            self._control.clear()
            self._last = b""
            ready.clear()
            self._counts.clear()
            self.size = self.frames = 0
            return data
        chunks: list[bytes | memoryview] = [self._take_control()]
        self._take_streams(chunks, limit - len(chunks[0]))
        chunks.append(self._take_last())
        return b"".join(chunks)

    def _take_retained(self, limit: int, retained: Retained) -> bytes:
        """The same with resumption. A block of frames is retained as it leaves."""
        control = self._take_control()
        chunks: list[bytes | memoryview] = []
        limit -= len(control)
        limit = min(limit, retained.room if retained.size else max(1, retained.room))
        self._take_streams(chunks, limit)
        block = b"".join(chunks)
        retained.add(block)
        return control + block + self._take_last()

    def _take_control(self) -> bytes:
        """All that stream 0 has to say, but for the farewell."""
        if not self._control:
            return b""
        data = b"".join(self._control)
        self.frames -= len(self._control)
        self.size -= len(data)
        self._control.clear()
        return data

    def _take_last(self) -> bytes:
        """The farewell, when nothing else waits."""
        if not self._last or self._ready or self._lanes:
            return b""
        data, self._last = self._last, b""
        self.size -= len(data)
        self.frames -= 1
        return data

    def _take_streams(self, chunks: list[bytes | memoryview], limit: int) -> None:
        """Frames of streams, about ``limit`` bytes: ordinary ones and lanes in turn."""
        size = 0
        while size < limit and (self._ready or self._lanes):
            if self._ready:
                size += self._take_ready(chunks, min(0x10000, limit - size))
            if self._lanes:
                size += self._take_fragment(chunks)

    def _take_ready(self, chunks: list[bytes | memoryview], most: int) -> int:
        """Move ordinary frames: one turn's worth, ``most`` bytes and the rest of a chunk."""
        ready, counts = self._ready, self._counts
        size = count = 0
        while ready and (size < most or not count):
            chunk = ready.popleft()
            self._popped += 1
            count = counts.popleft()
            chunks.append(chunk)
            size += len(chunk)
            self.frames -= count
        self.size -= size
        return size

    def _take_fragment(self, chunks: list[bytes | memoryview]) -> int:
        """Move one frame of the lane whose turn it is, and send the lane to the back; 0 when all have to wait."""
        stream = next((id for id in self._lanes if self._gates.get(id, 0) <= self._popped), None)
        if stream is None:
            return 0
        self._gates.pop(stream, None)
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
