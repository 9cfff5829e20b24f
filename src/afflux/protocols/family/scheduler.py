"""Schedule the streams of one connection by deficit round robin. Frames are encoded in outbound.py and fragments.py.

Theory of operation. Streams with queued data form a round (``_row``). The first sends until its quantum of bytes is
used, and moves to the end of the round if data is left. Frames are never split, so a stream may exceed its quantum;
then it skips turns until the deficit is repaid, even when its queue is empty: otherwise a stream of single large items
would get more than a steady stream of small ones. A stream that is alone in the round has no deficit. So in any
interval in which two streams always have queued data, their shares differ by at most a quantum and the longest piece of
each: 64 KiB and an item for frames, the MTU for fragments.

A large payload is begun only while all begun ones have at most ``_TOGETHER`` bytes, or while there is none: the peer
has to join each in memory, and refuses those that exceed its memory. A stream that waits for this skips its turns.
Requests do not wait, because they leave in order; ``room`` bounds their number.

``should_yield`` extends fairness to the turns of the application's loop: a stream whose items are made as they are sent
may have an empty queue while another with a long queue could already send more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import cast

from afflux.core.limits import Limits
from afflux.protocols.family.fragments import Fragments, Whole
from afflux.protocols.family.layout import Layout

__all__ = ["SHARE", "Entry", "Scheduler"]

SHARE = 0x4000
"Bytes per turn: the quantum."

Entry = bytes | Whole | Fragments
"A frame, whole frames, or a payload to be split."

_CLEARED = 64
"Past turns are deleted from the round when there are this many, and they are half of it."
_LOOKED_AT = 64
_PACE = 0x10000
_YIELD_MS = 64
"Milliseconds after another stream's last substantial send during which a stream in deficit may not use idle capacity."
_LEAST_SHARE = 0x400
"The minimum quantum of a stream whose payload is being split, however many streams wait."
_TOGETHER = 0x400000
"Bytes of large payloads, other than requests, that are begun and not fully sent: half of what a peer may buffer."
_BUSY = 0x400
"Smallest burst that marks a stream active: more than a grant of credit, an answer, a keepalive."


class Scheduler:
    """The queues of one connection's streams."""

    __slots__ = (
        "_awaited",
        "_begun",
        "_begun_bytes",
        "_caught_up",
        "_cut_share",
        "_fragments",
        "_over",
        "_row",
        "_sent",
        "_shares",
        "_yield_ms",
        "frames",
        "large",
        "layout",
        "limits",
        "queues",
        "size",
    )

    def __init__(self, layout: Layout, limits: Limits) -> None:
        self.layout = layout
        self.limits = limits
        self.size = 0
        "Bytes queued, including frames of stream 0 and payloads that are not split yet."
        self.frames = 0
        "Frames and unsplit payloads queued, including frames of stream 0."
        self.large = 0
        "Unsent bytes of large payloads that are being split: they belong to the application, and are not copies."
        # Lists and dicts, because an empty deque takes 760 bytes, and most connections of a server are idle.
        self.queues: dict[int, Entry | deque[Entry]] = {}
        "By stream, one entry or several; a stream that only has a deficit is absent."
        self._row: list[int] = []
        self._over = 0
        "Number of past turns in the round."
        self._shares: dict[int, int] = {}
        "The rest of an interrupted turn's quantum, by stream; negative for a deficit."
        self._fragments = 0
        "Number of payloads to be split."
        self._begun: dict[int, int] = {}
        "Streams whose payload is begun, and its bytes."
        self._begun_bytes = 0
        self._cut_share = SHARE
        self._yield_ms = 0
        self._sent = 0
        "Substantial bytes sent since ``pace`` by streams whose queues were empty then."
        self._awaited: dict[int, None] = {}
        self._caught_up: list[int] = []

    # -- input ----------------------------------------------------------------------------------------------

    def queue(self, stream: int, entry: Entry, size: int, frames: int) -> None:
        """Append an entry to the stream's queue."""
        queues = self.queues
        queue = queues.get(stream)
        if queue is None:
            queues[stream] = entry
            self._row.append(stream)
        elif isinstance(queue, deque):
            queue.append(entry)
        else:
            queues[stream] = deque((queue, entry))
        self.size += size
        self.frames += frames

    def queue_payload(self, stream: int, fragments: Fragments) -> None:
        """Append a payload to be split."""
        self.queue(stream, fragments, fragments.size, 1)
        self._fragments += 1
        if fragments.large:
            self.large += fragments.size

    def queue_credit(self, stream: int, frame: bytes) -> None:
        """Queue REQUEST_N before the payload that the stream is sending, unless that is its request: no other stream
        waits for the credit."""
        if not self._fragments:
            self.queue(stream, frame, len(frame), 1)
            return
        entries = self._entries(stream)
        place = 0
        for entry in entries:
            if not isinstance(entry, bytes) or not self.layout.is_grant(entry):
                break
            place += 1
        if place == len(entries) or not isinstance(entry := entries[place], Fragments) or entry.asks:
            self.queue(stream, frame, len(frame), 1)
            return
        queue = self.queues[stream] = entries if isinstance(entries, deque) else deque(entries)
        queue.insert(place, frame)
        self.size += len(frame)
        self.frames += 1

    def queued(self, stream: int) -> int:
        """Bytes that a stream has queued, including payloads that are not split yet."""
        return sum(len(entry) if isinstance(entry, bytes) else entry.size for entry in self._entries(stream))

    def drop(self, stream: int, *, credit: bool = False) -> None:
        """Drop the payload that the stream is sending, and what is queued after it: the payload is canceled or has
        failed (R-38). Of a request the first frame stays queued, or later frames would refer to no stream. With
        ``credit`` REQUEST_N frames stay queued too: only one half of the stream has ended."""
        kept: deque[Entry] = deque()
        cut = False
        for entry in self._entries(stream):
            if isinstance(entry, Fragments):
                cut = True
            elif not cut or (credit and isinstance(entry, bytes) and self.layout.is_grant(entry)):
                kept.append(entry)
                continue
            self._uncount(entry)
            if isinstance(entry, Fragments) and entry.asks and not entry.begun:
                kept.append(first := b"".join(entry.next()))
                self.size += len(first)
                self.frames += 1
        if cut:
            self.queues[stream] = kept
            self._begun_bytes -= self._begun.pop(stream, 0)

    def discard(self, stream: int) -> None:
        """Drop a stream's queue."""
        if stream in self.queues:
            for entry in self._entries(stream):
                self._uncount(entry)
            self.queues[stream] = deque()
            self._begun_bytes -= self._begun.pop(stream, 0)

    def _entries(self, stream: int) -> Sequence[Entry]:
        """What a stream has queued."""
        queue = self.queues.get(stream)
        return queue if isinstance(queue, deque) else () if queue is None else (queue,)

    def _uncount(self, entry: Entry) -> None:
        """Subtract an entry that is dropped."""
        self.size -= len(entry) if isinstance(entry, bytes) else entry.size
        self.frames -= entry.frames if isinstance(entry, Whole) else 1
        if isinstance(entry, Fragments):
            self._fragments -= 1
            self.large -= entry.size if entry.large else 0

    def round(self) -> Iterator[tuple[int, Sequence[Entry]]]:
        """What each stream has queued, in the order of their turns."""
        for stream in self._row[self._over :]:
            yield stream, self._entries(stream)

    def forget(self) -> None:
        """Drop the queues of all streams, and count nothing as queued."""
        self._caught_up.extend(self._awaited)
        self._awaited.clear()
        self.queues.clear()
        self._row.clear()
        self._shares.clear()
        self._begun.clear()
        self._over = self._fragments = self.large = self._begun_bytes = self.size = self.frames = 0

    # -- which streams may add more ---------------------------------------------------------------------------

    def behind(self, stream: int) -> bool:
        """Whether the stream has queued data. If so, ``caught_up`` will return it when its queue is empty."""
        if not self.queues.get(stream):
            return False
        self._awaited[stream] = None
        return True

    def caught_up(self) -> list[int]:
        """The streams for which ``behind`` was true and whose queues are now empty."""
        if not self._caught_up:
            return []
        streams, self._caught_up = self._caught_up, []
        return streams

    def room_beside(self, unsent: int) -> int:
        """The room for payloads that are not large. A large one may exceed the high-water mark, and its unsent part
        takes no room from others: otherwise they would stop until it is sent. The total stays within that mark and a
        payload."""
        limits = self.limits
        if self.frames >= limits.outbound_high_frames:
            return 0
        return max(0, limits.outbound_high_bytes - self.size + min(self.large, limits.payload_bytes) - unsent)

    def crowd(self, waiting: int) -> None:
        """Set the number of streams that would send now if there was room: a stream whose payload is being split does
        not get their shares as well."""
        here = len(self._row) - self._over
        self._cut_share = max(_LEAST_SHARE, SHARE * here // (here + waiting)) if waiting else SHARE

    # -- yielding -------------------------------------------------------------------------------------------

    def should_yield(self) -> bool:
        """Whether ``take`` should wait for ``pace``, or until other streams have sent: all streams with queued data
        have used their quantum, and active streams have an empty queue at the moment."""
        return self._yield_ms > 0 and bool(self._row) and self._all_in_deficit()

    def pace(self) -> None:
        """Repay deficits after a millisecond: 64 KiB for each stream. A stream whose payload is being split is repaid
        only what active streams left of that: for their bytes turns have repaid it already, and it would get twice its
        share."""
        self._yield_ms -= 1
        left, self._sent = max(_LEAST_SHARE, _PACE - self._sent), 0
        for stream in self._row[self._over :]:
            is_cut = isinstance(_first(self.queues[stream]), Fragments)
            self._pass(stream, self._shares.get(stream, 0) + (left if is_cut else _PACE))

    def _all_in_deficit(self) -> bool:
        """Whether every stream with queued data has a deficit. Only the first streams of a long round are checked: with
        many in deficit no stream gets too much."""
        for place in range(self._over, min(len(self._row), self._over + _LOOKED_AT)):
            stream = self._row[place]
            if self.queues[stream] and self._shares.get(stream, 0) > -SHARE and not self._is_held(stream):
                return False
        return len(self._row) - self._over <= _LOOKED_AT

    # -- output ---------------------------------------------------------------------------------------------

    @property
    def plain(self) -> bool:
        """Whether no payload is split and no stream has a deficit: everything may leave in queue order."""
        return not self._fragments and not self._shares

    def take_all(self, chunks: list[bytes | memoryview]) -> None:
        """Move all queued frames of streams; those of stream 0 leave with them."""
        for queue in self.queues.values():
            if type(queue) is bytes:
                chunks.append(queue)
                continue
            for entry in queue if isinstance(queue, deque) else (queue,):
                if isinstance(entry, bytes):
                    chunks.append(entry)
                else:  # no payload is split
                    chunks.extend(cast("Whole", entry).chunks)
        self.forget()

    def take_turns(self, chunks: list[bytes | memoryview], limit: int, least: int) -> int:
        """Move about ``limit`` bytes, whole frames, until ``size`` is ``least``; return the number of bytes."""
        moved = 0
        while moved < limit and self.size > least:
            size = self._turn(chunks, limit - moved)
            if not size and moved and self._all_in_deficit():
                break
            moved += size
        if self.size == least and not self._yield_ms:
            frames = self.frames
            self.forget()  # no other stream waits: deficits are void
            self.size, self.frames = least, frames
        return moved

    def _turn(self, chunks: list[bytes | memoryview], most: int) -> int:
        """Let the first stream send its quantum, ``most`` bytes and the rest of a frame."""
        stream = self._row[self._over]
        queue = self.queues[stream]
        if alone := not self._yield_ms and len(self._row) - self._over == 1:
            self._shares.pop(stream, None)
            share = most
        else:
            share = self._shares.get(stream, 0) + (self._cut_share if isinstance(_first(queue), Fragments) else SHARE)
        moved, held = 0, False
        while queue and moved < most and moved < share and not (held := self._is_held(stream)):
            if isinstance(queue, deque):
                size, done = self._move(stream, queue[0], chunks)
                if done:
                    queue.popleft()
            else:
                size, done = self._move(stream, queue, chunks)
                if done:
                    queue = self.queues[stream] = deque()
            moved += size
        if not queue:
            if moved >= _BUSY and len(self._row) - self._over > 1:
                self._yield_ms = _YIELD_MS
                self._sent += moved
            self._pass(stream, 0 if alone else share - moved)
        elif held:
            self._pass(stream, min(0, share - moved))
        elif moved >= share:
            self._pass(stream, 0 if alone else share - moved)
        else:
            self._shares[stream] = share - moved - SHARE  # the limit is reached: its turn continues with the next take
        return moved

    def _is_held(self, stream: int) -> bool:
        """Whether the stream's next data is a payload that has to wait until others are completely sent."""
        if not self._begun or stream in self._begun:
            return False
        first = _first(self.queues[stream])
        return isinstance(first, Fragments) and not first.asks and self._begun_bytes + first.size > _TOGETHER

    def _move(self, stream: int, entry: Entry, chunks: list[bytes | memoryview]) -> tuple[int, bool]:
        """Move an entry, or the next frame of a payload; return the number of bytes, and whether the entry is done."""
        if isinstance(entry, bytes):
            chunks.append(entry)
            self.size -= len(entry)
            self.frames -= 1
            return len(entry), True
        if isinstance(entry, Whole):
            chunks.extend(entry.chunks)
            self.size -= entry.size
            self.frames -= entry.frames
            return entry.size, True
        before = entry.size
        if stream not in self._begun:
            self._begun[stream] = before
            self._begun_bytes += before
        frame = entry.next()
        chunks.extend(frame)
        self.size -= before - entry.size
        self.large -= before - entry.size if entry.large else 0
        if not entry.size:
            self.frames -= 1
            self._fragments -= 1
            self._begun_bytes -= self._begun.pop(stream, 0)
        return sum(map(len, frame)), not entry.size

    def _pass(self, stream: int, share: int) -> None:
        """End the turn of the first stream, with ``share`` left of its quantum."""
        row = self._row
        self._over += 1
        self._shares.pop(stream, None)
        if self.queues[stream] or (share < 0 < stream):
            row.append(stream)
            if share < 0:
                self._shares[stream] = share
        else:
            del self.queues[stream]
            if self._awaited.pop(stream, 0) is None:
                self._caught_up.append(stream)
        if self._over == len(row) or (self._over >= _CLEARED and self._over * 2 > len(row)):
            del row[: self._over]
            self._over = 0


def _first(queue: Entry | deque[Entry]) -> Entry | deque[Entry]:
    """The entry that a queue sends next; an empty queue itself."""
    return queue[0] if isinstance(queue, deque) and queue else queue
