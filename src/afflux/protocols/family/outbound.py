"""Queue and encode the outbound frames of one connection. scheduler.py decides which stream sends next.

1. Frames of stream 0 go first (R-21), except the farewell: no request may come after CONNECTION_CLOSE.
2. Requests leave in the order of their ids (R-8): a stream that begins to send stands at the end of the row, and its
   first frames go at its first turn, whatever their size.
3. Frames of one stream keep their order. Only credit overtakes: it does not wait behind a payload that is being cut.
4. Streams take turns by bytes, with a quantum of 16 KiB each: a payload of 256 MiB among 64 streams that are busy gets
   a 65th of the link.
5. With resumption, frames of streams are retained as they leave; what has to be repeated goes before what is new, and
   while there is no transport, or no room to retain more, only stream 0 sends. One turn may exceed the room: what is
   retained stays below ``resume_bytes``, one chunk (64 KiB and an item, or a frame) and one fragment more.

Many small frames of different streams, requests or answers, are one chunk: it stands in the row as a stream of its
own, with a number below 0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from afflux.core.limits import Limits
from afflux.core.payload import Payload, PayloadLike, payload_of
from afflux.protocols.family.fragments import Fragments, Whole
from afflux.protocols.family.layout import Layout
from afflux.protocols.family.member import Opening, Role
from afflux.protocols.family.scheduler import Scheduler

__all__ = ["Outbound", "Retaining"]

_COPY_BELOW = 0x1000
"Joining header and data at once is cheaper below this size; above it the copy costs more than the object."


class Retaining(Protocol):
    """Where frames of streams are retained when they leave."""

    @property
    def size(self) -> int:
        """Bytes retained."""

    @property
    def room(self) -> int:
        """Bytes that may still be sent."""

    def add(self, block: bytes) -> None:
        """Whole frames are being sent."""

    def blocks(self) -> Iterable[bytes]:
        """Everything retained, in order."""


class Outbound(Scheduler):
    """The queue of one connection."""

    __slots__ = ("_batches", "_control", "_last", "_repeat", "mtu", "paused", "retained")

    def __init__(self, layout: Layout, limits: Limits, mtu: int) -> None:
        super().__init__(layout, limits)
        self.mtu = mtu
        "Bytes a frame may have, with its length."
        self._control: list[bytes] = []
        self._last = b""
        self._batches = 0
        self.retained: Retaining | None = None
        "Where frames of streams are retained; None without resumption."
        self.paused = False
        "Only stream 0 sends: the session has no transport, or has not been resumed."
        self._repeat: deque[bytes] | tuple[()] = ()
        "What was sent before and goes again; counted in nothing."

    # -- what goes in -----------------------------------------------------------------------------------------

    def control(self, frame: bytes) -> None:
        """Queue a frame of stream 0, its length included."""
        self._control.append(frame)
        self.size += len(frame)
        self.frames += 1

    def farewell(self, frame: bytes) -> None:
        """Queue the last frame of stream 0: it goes when nothing else waits, so that no request comes after it."""
        self._last = frame
        self.size += len(frame)
        self.frames += 1

    def frame(self, stream: int, frame: bytes) -> None:
        """Queue a frame of a stream, its length included."""
        self.queue(stream, frame, len(frame), 1)

    def put(self, stream: int, data: bytes, frames: int) -> None:
        """Queue whole frames of a stream, lengths included."""
        size = len(data)
        self.queue(stream, data if frames == 1 else Whole((data,), frames, size), size, frames)

    def request(self, stream: int, opening: Opening, extra: bytes, payload: Payload, complete: bool) -> None:
        """Queue a request, whole or cut."""
        self._queue(stream, (opening.word, extra), opening.later or (opening.word, extra), payload, complete, opening)

    def requests(self, streams: Sequence[int], opening: Opening, payloads: Sequence[Payload]) -> None:
        """Queue a request without credit for each of several new streams: one chunk for a run of small ones."""
        self._batch(streams, opening.word, payloads, opening)

    def answers(self, streams: Sequence[int], payloads: Sequence[Payload]) -> None:
        """Queue the one answer of each of several requests: one chunk for a run of small ones."""
        self._batch(streams, self.layout.answers[0], payloads, None)

    def item(self, stream: int, role: Role, payload: Payload, complete: bool) -> None:
        """Queue one item."""
        data, layout = payload.data, self.layout
        size = layout.size + len(data)
        if payload.metadata is not None or role.extra or size > self.mtu or size >= _COPY_BELOW:
            first = (role.item, role.extra)
            self._queue(stream, first, first, payload, complete, None)
            return
        word = role.item | layout.complete if complete else role.item
        length = size - layout.own
        if layout.id_first:
            header: bytes = layout.header.pack(0, length, stream, word)
        else:
            header = layout.header.pack(0, length, word, stream)
        self.queue(stream, header + data, size, 1)

    def run(self, stream: int, role: Role, payloads: Sequence[PayloadLike], last: int) -> None:
        """Queue many items at once: one chunk for a run of small ones, one header for a run of one size.

        ``last`` is the index of the item that completes the stream, or -1.
        """
        chunks: list[bytes] = []
        size = frames = 0
        length, header = -1, b""
        layout, extra = self.layout, role.extra
        own = layout.size + len(extra)
        small, counted, pack = min(_COPY_BELOW, self.mtu - own), own - layout.own, layout.header.pack
        first, second = (stream, role.item) if layout.id_first else (role.item, stream)
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
                self.item(stream, role, payload_of(item), index == last)
                continue
            if len(data) != length:
                length = len(data)
                header = pack(0, counted + length, first, second) + extra
            chunks += (header, data)
            frames += 1
            size += length
            if size > 0x10000:
                self.put(stream, b"".join(chunks), frames)
                chunks, frames, size = [], 0, 0
        if chunks:
            self.put(stream, b"".join(chunks), frames)

    def _batch(self, streams: Sequence[int], word: int, payloads: Sequence[Payload], opening: Opening | None) -> None:
        """Queue one payload for each of several streams that have nothing queued."""
        chunks: list[bytes] = []
        size = frames = 0
        small = min(_COPY_BELOW, self.mtu)
        layout = self.layout
        pack, own, header_size, id_first = layout.header.pack, layout.own, layout.size, layout.id_first
        for stream, payload in zip(streams, payloads, strict=True):
            data = payload.data
            whole = header_size + len(data)
            if payload.metadata is not None:
                whole += layout.metadata_size + len(payload.metadata)
            if whole > small:
                self._chunk(chunks, size, frames)
                chunks, size, frames = [], 0, 0
                first = (word & ~layout.complete, b"")
                later = first if opening is None else opening.later or first
                self._queue(stream, first, later, payload, opening is None, opening)
                continue
            if payload.metadata is not None:
                chunks += (layout.head(stream, word, b"", payload.metadata, whole), data)
            elif id_first:
                chunks += (pack(0, whole - own, stream, word), data)
            else:
                chunks += (pack(0, whole - own, word, stream), data)
            size += whole
            frames += 1
            if size > 0x10000:
                self._chunk(chunks, size, frames)
                chunks, size, frames = [], 0, 0
        self._chunk(chunks, size, frames)

    def _chunk(self, chunks: list[bytes], size: int, frames: int) -> None:
        if frames:
            self._batches -= 1
            self.put(self._batches, b"".join(chunks), frames)

    def _queue(
        self,
        stream: int,
        first: tuple[int, bytes],
        later: tuple[int, bytes],
        payload: Payload,
        complete: bool,
        opening: Opening | None,
    ) -> None:
        """Queue one payload as a frame, or as fragments when it is above the MTU. ``opening``: it is a request."""
        data, metadata, layout = payload.data, payload.metadata, self.layout
        word, extra = first
        size = layout.size + len(extra) + len(data)
        if metadata is not None:
            size += layout.metadata_size + len(metadata)
        if size > self.mtu and (opening is None or opening.cut):
            asks = opening is not None
            cut = (metadata, data)
            fragments = Fragments(layout, stream, first, later, cut, complete=complete, mtu=self.mtu, asks=asks)
            self.queue_payload(stream, fragments)
            return
        header = layout.head(stream, word | layout.complete if complete else word, extra, metadata, size)
        self.queue(stream, header + data if size < _COPY_BELOW else Whole((header, data), 1, size), size, 1)

    # -- transports ---------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Forget everything of all streams; frames of stream 0 stay."""
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
        """The transport is gone, and the queued frames of stream 0 with it."""
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
        """What ``restore`` takes: all that streams have queued, in the order of the row. Deficits, and frames of stream
        0, belong to a transport."""
        queues: list[list[Any]] = []
        for stream in self._row[self._over :]:
            queue = self._queues[stream]
            entries: list[Any] = []
            for entry in queue if isinstance(queue, deque) else (queue,):
                if isinstance(entry, bytes):
                    entries.append(entry)
                elif isinstance(entry, Whole):
                    entries.append([b"".join(entry.chunks), entry.frames])
                else:
                    entries.append(entry.state())
            queues.append([stream, entries])
        return {"queues": queues, "batches": self._batches}

    def restore(self, state: dict[str, Any], later: tuple[int, bytes]) -> None:
        """Continue from a state, without a transport. ``later`` is how the rest of a payload begins."""
        self.suspend()
        for stream, entries in state["queues"]:
            for entry in entries:
                if isinstance(entry, bytes):
                    self.queue(stream, entry, len(entry), 1)
                elif len(entry) == 2:
                    data, frames = entry
                    self.queue(stream, Whole((data,), frames, len(data)), len(data), frames)
                else:
                    self.queue_payload(stream, Fragments.of_state(self.layout, later, entry))
        self._batches = state["batches"]

    def take(self, limit: int) -> bytes:
        """Bytes to write now, about ``limit`` at most: whole frames, at least one if there is any."""
        if not self.size and not self.frames and not self._repeat:
            if self._queues:
                self.forget()  # only deficits are left, and no other stream has sent anything for a turn of the loop
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

    def _take_retained(self, limit: int, retained: Retaining) -> bytes:
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
