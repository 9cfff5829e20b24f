"""What waits to be written, and how it becomes frames. Whose turn it is, is turns.py's; no state of streams lives here.

1. Frames of stream 0 go first (R-21), but for the farewell: no request may come after CONNECTION_CLOSE.
2. Requests leave in the order of their ids (R-8): a stream that begins to send stands at the end of the row, and what
   it sends first goes at its first turn, whatever its size.
3. Frames of one stream keep their order. Only credit overtakes: it does not wait behind a payload that is being cut.
4. Streams take turns by bytes, a share of 16 KiB each: a payload of 256 MiB among 64 streams that are busy gets a
   65th of the link.
5. With resumption, what leaves is retained; what was retained and has to be repeated goes before what is new, and
   while there is no transport, or no room to retain more, only stream 0 speaks. One turn may pass the room: what
   is retained stays below ``resume_bytes``, one chunk (64 KiB and an item, or a frame) and one fragment more.

Many small frames of different streams, requests or answers, are one chunk: it stands in the row as a stream of its
own, with a number below 0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from afflux.core.payload import Payload, PayloadLike, payload_of
from afflux.protocols.rsocket.fragments import HEADER, HEADER_SIZE, Fragments, Whole
from afflux.protocols.rsocket.frames import FLAG_COMPLETE, FLAG_METADATA, NEXT
from afflux.protocols.rsocket.resume import Retained
from afflux.protocols.rsocket.turns import Turns

__all__ = ["HEADER", "HEADER_SIZE", "Fragments", "Outbound"]

_COPY_BELOW = 0x1000
"Joining header and data at once is cheaper below this size; above it the copy costs more than the object."


class Outbound(Turns):  # long: frames, runs and payloads go in, blocks come out, and a snapshot takes both ways
    """The queue of one connection."""

    __slots__ = ("_batches", "_control", "_last", "_repeat", "mtu", "paused", "retained")

    def __init__(self, mtu: int) -> None:
        super().__init__()
        self.mtu = mtu
        "Bytes a frame may have, with its prefix."
        self._control: list[bytes] = []
        self._last = b""
        self._batches = 0
        self.retained: Retained | None = None
        "Where frames of streams are kept when they leave; None without resumption."
        self.paused = False
        "Only stream 0 speaks: the session has no transport, or has not been resumed."
        self._repeat: deque[bytes] | tuple[()] = ()
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
        self.queue(stream, frame, len(frame), 1)

    def put(self, stream: int, data: bytes, frames: int) -> None:
        """Queue whole frames of a stream, prefixes included."""
        size = len(data)
        self.queue(stream, data if frames == 1 else Whole((data,), frames, size), size, frames)

    def payload(self, stream: int, word: int, extra: bytes, payload: Payload, complete: bool) -> None:
        """Queue one payload as a frame, or as fragments when it is above the MTU."""
        data = payload.data
        metadata = payload.metadata
        size = HEADER_SIZE + len(extra) + len(data) + (0 if metadata is None else 3 + len(metadata))
        if size > self.mtu:
            self.queue_payload(stream, Fragments(stream, word, extra, metadata, data, complete, self.mtu))
            return
        if complete:
            word |= FLAG_COMPLETE
        length = size - 3
        if metadata is None:
            header = HEADER.pack(length >> 16, length & 0xFFFF, stream, word) + extra
        else:
            header = HEADER.pack(length >> 16, length & 0xFFFF, stream, word | FLAG_METADATA) + extra
            header += len(metadata).to_bytes(3, "big") + metadata
        self.queue(stream, header + data if size < _COPY_BELOW else Whole((header, data), 1, size), size, 1)

    def payloads(self, streams: Sequence[int], word: int, payloads: Sequence[Payload]) -> None:
        """Queue one payload for each of several streams that have nothing queued: one chunk for a run of small ones.
        ``word`` has C where they are to have it."""
        chunks: list[bytes] = []
        size = frames = 0
        small = min(_COPY_BELOW, self.mtu)
        for stream, payload in zip(streams, payloads, strict=True):
            data, metadata = payload.data, payload.metadata
            length = HEADER_SIZE - 3 + len(data) + (0 if metadata is None else 3 + len(metadata))
            if length + 3 > small:
                self._chunk(chunks, size, frames)
                chunks, size, frames = [], 0, 0
                self.payload(stream, word & ~FLAG_COMPLETE, b"", payload, bool(word & FLAG_COMPLETE))
                continue
            if metadata is None:
                chunks += (HEADER.pack(0, length, stream, word), data)
            else:
                header = HEADER.pack(0, length, stream, word | FLAG_METADATA)
                chunks += (header, len(metadata).to_bytes(3, "big"), metadata, data)
            size += length + 3
            frames += 1
            if size > 0x10000:
                self._chunk(chunks, size, frames)
                chunks, size, frames = [], 0, 0
        self._chunk(chunks, size, frames)

    def _chunk(self, chunks: list[bytes], size: int, frames: int) -> None:
        if frames:
            self._batches -= 1
            self.put(self._batches, b"".join(chunks), frames)

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

    def clear(self) -> None:
        """Forget everything of all streams; what stream 0 has to say stays."""
        self.forget()
        self._repeat = ()
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
        self._repeat = ()
        self._take_control()
        self.size -= len(self._last)
        self.frames -= bool(self._last)
        self._last = b""

    def resume(self) -> None:
        """There is a new transport: everything that is retained goes again, in order (R-50)."""
        self.paused = False
        self._repeat = deque(() if self.retained is None else self.retained.blocks())

    def state(self) -> dict[str, Any]:
        """What ``restore`` takes: all that streams have queued. What stream 0 has to say belongs to a transport."""
        return {"queues": self.queues(), "batches": self._batches}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state, without a transport."""
        self.suspend()
        self.requeue(state["queues"])
        self._batches = state["batches"]

    def take(self, limit: int) -> bytes:
        """Bytes to write now, about ``limit`` at most: whole frames, at least one if there is any."""
        if not self.size and not self.frames and not self._repeat:
            if self._queues:
                self.forget()  # some only owe, and nobody else has sent anything for a turn of the loop
            return b""
        if self.paused or self._repeat:
            return self._take_control() + (self._repeat.popleft() if self._repeat and not self.paused else b"")
        if self.retained is not None:
            return self._take_retained(limit, self.retained)
        chunks: list[bytes | memoryview] = []
        if self.size <= limit and self.plain:
            if self._control:
                chunks.extend(self._control)
                self._control.clear()
            self.take_all(chunks)
            if self._last:
                chunks.append(self._last)
                self._last = b""
            self.size = self.frames = 0
            return b"".join(chunks)
        chunks.append(self._take_control())
        self.take_turns(chunks, limit - len(chunks[0]), len(self._last))
        chunks.append(self._take_last())
        return b"".join(chunks)

    def _take_retained(self, limit: int, retained: Retained) -> bytes:
        """The same with resumption. A block of frames is retained as it leaves."""
        control = self._take_control()
        chunks: list[bytes | memoryview] = []
        limit -= len(control)
        limit = min(limit, retained.room if retained.size else max(1, retained.room))
        self.take_turns(chunks, limit, len(self._last))
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
        if self.size > len(self._last):
            return b""
        data, self._last = self._last, b""
        self.size -= len(data)
        self.frames -= bool(data)
        return data
