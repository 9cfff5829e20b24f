"""Queue and encode the outbound frames of one connection. scheduler.py decides which stream sends next.

1. Frames of stream 0 go first (R-21), except the farewell: no request may come after CONNECTION_CLOSE.
2. Requests leave in the order of their ids (R-8): a stream that begins to send joins the end of the scheduler's queue,
   and its first frames go in its first turn, whatever their size.
3. Frames of one stream keep their order. Only credit overtakes: it does not wait for a payload that is being split.
4. Streams take turns by bytes, with a quantum of 16 KiB each: a payload of 256 MiB among 64 busy streams gets a 65th of
   the link.
5. With resumption, frames of streams are retained as they leave. Frames to be repeated go before new ones. While the
   transport is missing, or there is no room to retain more, only stream 0 sends. One turn may exceed the room: retained
   data stays below ``resume_bytes`` plus one chunk (64 KiB and an item, or a frame) and one fragment.

Many small frames of different streams, requests or answers, form one chunk, which the scheduler treats as a stream of
its own, with a negative number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from afflux.core.limits import Limits
from afflux.core.payload import Payload, PayloadLike
from afflux.protocols.family.bulk import CHUNK, frames_of, queue_each
from afflux.protocols.family.fragments import Fragments, Whole
from afflux.protocols.family.layout import COPY_BELOW, Layout
from afflux.protocols.family.member import Opening, Role
from afflux.protocols.family.scheduler import Entry, Scheduler

__all__ = ["COPY_BELOW", "Outbound", "Retaining"]

_MANY = 4
"Fewer items are encoded one by one, which is faster then."


class Retaining(Protocol):
    """A store of the stream frames that were sent."""

    @property
    def size(self) -> int:
        """Bytes retained."""

    @property
    def room(self) -> int:
        """Bytes that may still be sent."""

    def add(self, block: bytes) -> bytes:
        """Retain whole frames that are being sent; return the frames to send."""

    def blocks(self) -> Iterable[bytes]:
        """All retained frames, in order."""


class Outbound:
    """The outbound queue of one connection."""

    __slots__ = (
        "_batches",
        "_control",
        "_last",
        "_small",
        "layout",
        "mtu",
        "paused",
        "repeat",
        "retained",
        "scheduler",
    )

    def __init__(self, layout: Layout, limits: Limits, mtu: int) -> None:
        self.layout = layout
        self.scheduler = Scheduler(layout, limits)
        "The queues of the streams. It counts the bytes and frames of stream 0 as well."
        self.mtu = mtu
        "Bytes a frame may have, including its length."
        self._small = min(COPY_BELOW, mtu)
        self._control: list[bytes] = []
        self._last = b""
        self._batches = 0
        self.retained: Retaining | None = None
        "The store of sent stream frames; None without resumption."
        self.paused = False
        "Only stream 0 sends: the session has no transport, or has not been resumed."
        self.repeat: deque[bytes] | tuple[()] = ()
        "Frames that are sent again; not included in any count."

    # -- input ------------------------------------------------------------------------------------------------

    def control(self, frame: bytes) -> None:
        """Queue a frame of stream 0, its length included."""
        self._control.append(frame)
        self.scheduler.size += len(frame)
        self.scheduler.frames += 1

    def farewell(self, frame: bytes) -> None:
        """Queue the last frame of stream 0: it is sent when the queue is empty, so that no request comes after it."""
        self._last = frame
        self.scheduler.size += len(frame)
        self.scheduler.frames += 1

    def frame(self, stream: int, frame: bytes) -> None:
        """Queue a frame of a stream, its length included."""
        self.scheduler.queue(stream, frame, len(frame), 1)

    def put(self, stream: int, data: bytes, frames: int) -> None:
        """Queue whole frames of a stream, lengths included."""
        size = len(data)
        self.scheduler.queue(stream, data if frames == 1 else Whole((data,), frames, size), size, frames)

    def request(self, stream: int, opening: Opening, extra: bytes, payload: Payload, complete: bool) -> None:
        """Queue a request, whole or split."""
        self._queue(stream, (opening.word, extra), opening.later or (opening.word, extra), payload, complete, opening)

    def item(self, stream: int, role: Role, payload: Payload, complete: bool) -> None:
        """Queue one item."""
        data, layout = payload.data, self.layout
        size = layout.size + len(data)
        plain = payload.metadata is None and type(payload) is Payload
        if not plain or role.extra or size > self.mtu or size >= COPY_BELOW:
            first = (role.item, role.extra)
            self._queue(stream, first, first, payload, complete, None)
            return
        word = role.item | layout.complete if complete else role.item
        length = size - layout.own
        if layout.id_first:
            header: bytes = layout.header.pack(0, length, stream, word)
        else:
            header = layout.header.pack(0, length, word, stream)
        self.scheduler.queue(stream, header + data, size, 1)

    def run(self, stream: int, role: Role, payloads: Sequence[PayloadLike], last: int) -> None:
        """Queue a list of items: one chunk for a run of small ones.

        ``last`` is the index of the item that completes the stream, always the last one, or -1.
        """
        prelude = self.layout.prelude
        if prelude is not None and prelude.queue(self, stream, role, payloads, last):
            return
        frames = None
        if len(payloads) >= _MANY:
            frames = frames_of(self.layout, self.mtu, stream, role, payloads, ends=last >= 0)
        if frames is None:
            queue_each(self, stream, role, payloads, last)
            return
        for chunk, count in frames:
            self.put(stream, chunk, count)

    def batch(self, streams: Sequence[int], word: int, payloads: Sequence[Payload], opening: Opening | None) -> None:
        """Queue one payload for each of several streams that have nothing queued: a request without credit, or without
        ``opening`` an answer. A run of small ones is one chunk."""
        layout = self.layout
        if layout.prelude is not None and layout.prelude.batch(self, streams, word, payloads, opening):
            return
        chunks: list[bytes] = []
        size = frames = marked_size = 0
        small = self._small
        pack, own, header_size, id_first = layout.header.pack, layout.own, layout.size, layout.id_first
        marked = word | layout.metadata
        for place, stream in enumerate(streams):  # zip with strict= costs as much as a frame
            payload = payloads[place]
            data = payload.data
            whole = header_size + len(data)
            if (metadata := payload.metadata) is not None:
                marked_size = len(metadata)
                whole += layout.metadata_size + marked_size
            if whole > small:
                self.chunk(chunks, frames)
                chunks, size, frames = [], 0, 0
                self.alone(stream, word, payload, opening)
                continue
            if metadata is not None:
                first, second = (stream, marked) if id_first else (marked, stream)
                counted = layout.metadata_counts + marked_size
                chunks += (layout.marked.pack(0, whole - own, first, second, 0, counted), metadata, data)
            elif id_first:
                chunks += (pack(0, whole - own, stream, word), data)
            else:
                chunks += (pack(0, whole - own, word, stream), data)
            size += whole
            frames += 1
            if size > CHUNK:
                self.chunk(chunks, frames)
                chunks, size, frames = [], 0, 0
        self.chunk(chunks, frames)

    def chunk(self, chunks: list[bytes], frames: int) -> None:
        """Queue frames of different streams as one chunk."""
        if frames:
            self._batches -= 1
            data = b"".join(chunks)
            size = len(data)
            self.scheduler.queue(self._batches, data if frames == 1 else Whole((data,), frames, size), size, frames)

    def alone(self, stream: int, word: int, payload: Payload, opening: Opening | None) -> None:
        """Queue one payload of a batch, whole or split: a request, or without ``opening`` an answer."""
        first = (word & ~self.layout.complete, b"")
        later = first if opening is None else opening.later or first
        self._queue(stream, first, later, payload, opening is None, opening)

    def _queue(
        self,
        stream: int,
        first: tuple[int, bytes],
        later: tuple[int, bytes],
        payload: Payload,
        complete: bool,
        opening: Opening | None,
    ) -> None:
        """Queue one payload as a frame, or as fragments if it exceeds the MTU. ``opening`` marks a request."""
        data, metadata, layout = payload.data, payload.metadata, self.layout
        if layout.prelude is not None and type(payload) is not Payload:
            flags, more = layout.prelude.encode(payload, opening is not None)
            first = (first[0] | flags, first[1] + more)
        word, extra = first
        size = layout.size + len(extra) + len(data)
        if metadata is not None:
            size += layout.metadata_size + len(metadata)
        if size > self.mtu and (opening is None or opening.cut):
            asks = opening is not None
            cut = (metadata, data)
            fragments = Fragments(layout, stream, first, later, cut, complete=complete, mtu=self.mtu, asks=asks)
            self.scheduler.queue_payload(stream, fragments)
            return
        header = layout.head(stream, word | layout.complete if complete else word, extra, metadata, size)
        self.scheduler.queue(stream, header + data if size < COPY_BELOW else Whole((header, data), 1, size), size, 1)

    # -- transports ---------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Drop all queued data of all streams; frames of stream 0 stay."""
        self.scheduler.forget()
        self.repeat = ()
        self._last = b""
        self.scheduler.size = sum(map(len, self._control))
        self.scheduler.frames = len(self._control)

    def suspend(self) -> None:
        """Drop the queued frames of stream 0: the transport is gone."""
        self.paused = True
        self.repeat = ()
        self._take_control()
        self._drop_last()

    def resume(self) -> None:
        """Repeat all retained frames, in order, on the new transport (R-50)."""
        self.paused = False
        self.repeat = deque(() if self.retained is None else self.retained.blocks())

    def state(self) -> dict[str, Any]:
        """The state that ``restore`` reads: all queued data of streams, in the scheduler's order. Deficits, and frames
        of stream 0, belong to a transport."""
        queues = [[stream, [_state_of(entry) for entry in entries]] for stream, entries in self.scheduler.round()]
        return {"queues": queues, "batches": self._batches}

    def restore(self, state: dict[str, Any], later: tuple[int, bytes]) -> None:
        """Continue from a state, without a transport. ``later`` is how the fragments of a payload's rest begin."""
        self.suspend()
        for stream, entries in state["queues"]:
            for entry in entries:
                if isinstance(entry, bytes):
                    self.frame(stream, entry)
                elif len(entry) == 2:
                    self.put(stream, *entry)
                else:
                    self.scheduler.queue_payload(stream, Fragments.of_state(self.layout, later, entry))
        self._batches = state["batches"]

    def take(self, limit: int) -> bytes:
        """Return bytes to write now, at most about ``limit``: whole frames, at least one if any are queued."""
        scheduler = self.scheduler
        if not scheduler.frames and not self.repeat:
            if scheduler.queues:
                scheduler.forget()  # only deficits are left, and no other stream has sent for a turn of the loop
            return b""
        if self.paused or self.repeat:
            return self._take_control() + (self.repeat.popleft() if self.repeat and not self.paused else b"")
        if self.retained is not None:
            return self._take_retained(limit, self.retained)
        chunks: list[bytes | memoryview] = []
        if scheduler.size <= limit and scheduler.plain:
            if self._control:
                chunks.extend(self._control)
                self._control.clear()
            scheduler.take_all(chunks)
            if self._last:
                chunks.append(self._last)
                self._last = b""
            return b"".join(chunks)
        chunks.append(self._take_control())
        scheduler.take_turns(chunks, limit - len(chunks[0]), len(self._last))
        chunks.append(self._take_last())
        return b"".join(chunks)

    def _take_retained(self, limit: int, retained: Retaining) -> bytes:
        """Take frames with resumption: a block of frames is retained as it leaves."""
        control = self._take_control()
        chunks: list[bytes | memoryview] = []
        limit -= len(control)
        limit = min(limit, retained.room if retained.size else max(1, retained.room))
        self.scheduler.take_turns(chunks, limit, len(self._last))
        block = retained.add(b"".join(chunks))
        return control + block + self._take_last()

    def _take_control(self) -> bytes:
        """Take all frames of stream 0 except the farewell."""
        if not self._control:
            return b""
        data = b"".join(self._control)
        self.scheduler.frames -= len(self._control)
        self.scheduler.size -= len(data)
        self._control.clear()
        return data

    def _take_last(self) -> bytes:
        """Take the farewell, when the queue is empty."""
        return self._drop_last() if self._last and self.scheduler.size == len(self._last) else b""

    def _drop_last(self) -> bytes:
        data, self._last = self._last, b""
        self.scheduler.size -= len(data)
        self.scheduler.frames -= bool(data)
        return data


def _state_of(entry: Entry) -> Any:
    if isinstance(entry, bytes):
        return entry
    return [b"".join(entry.chunks), entry.frames] if isinstance(entry, Whole) else entry.state()
