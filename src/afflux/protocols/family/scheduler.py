"""Schedule the streams of one connection by deficit round robin. Frames are encoded in outbound.py and fragments.py.

Theory of operation. Streams with something queued stand in a row. The first sends until its quantum of bytes is used,
and goes to the end of the row if more is left. Frames are never split, so a stream may exceed its quantum; then it
skips turns until the deficit is repaid, even when nothing is left to send: otherwise a stream of single large items
would get more than a steady stream of small ones. A stream that is alone in the row has no deficit. So in any window
in which two streams always have something queued, what they get differs by no more than a quantum and the longest
piece of each: 64 KiB and an item for frames, the MTU for fragments.

Large payloads are begun only while all that are begun are ``_TOGETHER`` bytes or fewer, or one: the peer has to put
each together in memory, and refuses what is too much for it. A stream that waits for that skips its turns. Requests do
not wait, because they leave in order; there are never more of them than there was room for.

``should_yield`` extends this to the turns of the application's loop: a stream that makes its items as they are sent has
nothing queued yet when another with a long queue could already send more.
"""

from __future__ import annotations

from collections import deque
from typing import cast

from afflux.core.limits import Limits
from afflux.protocols.family.fragments import Fragments, Whole
from afflux.protocols.family.layout import Layout

__all__ = ["SHARE", "Entry", "Scheduler"]

SHARE = 0x4000
"Bytes per turn: the quantum."

Entry = bytes | Whole | Fragments
"A frame, whole frames, or a payload to be cut."

_CLEARED = 64
"Turns that are over are cleared away when they are so many, and half of the row."
_LOOKED_AT = 64
_PACE = 0x10000
_POLITE = 64
"Milliseconds after another stream's last substantial send during which a stream in deficit may not use idle capacity."
_LEAST_SHARE = 0x400
"The least quantum of a stream whose payload is being cut, however many others wait."
_TOGETHER = 0x400000
"Bytes of large payloads, other than requests, that are begun and not sent whole: half of what a peer may hold."
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
        "_polite",
        "_queues",
        "_row",
        "_sent",
        "_shares",
        "frames",
        "large",
        "layout",
        "limits",
        "size",
    )

    def __init__(self, layout: Layout, limits: Limits) -> None:
        self.layout = layout
        self.limits = limits
        self.size = 0
        "Bytes waiting, of payloads still to be cut as well."
        self.frames = 0
        "Frames and uncut payloads waiting."
        self.large = 0
        "Bytes of large payloads that are still to be cut: they are the application's own, and no copy."
        # Lists and dicts, because an empty deque takes 760 bytes, and most connections of a server are idle.
        self._queues: dict[int, Entry | deque[Entry]] = {}
        "By stream, one entry or several; none for a stream that only owes."
        self._row: list[int] = []
        self._over = 0
        "How many turns of the row are over."
        self._shares: dict[int, int] = {}
        "What streams in the row have left of a turn that goes on; below 0, what they owe."
        self._fragments = 0
        "How many payloads are to be cut."
        self._begun: dict[int, int] = {}
        "Streams whose payload is begun, and its bytes."
        self._begun_bytes = 0
        self._cut_share = SHARE
        self._polite = 0
        self._sent = 0
        "Bytes that were worth it since ``pace``, of those who had nothing left then."
        self._awaited: dict[int, None] = {}
        self._caught_up: list[int] = []

    # -- what goes in ---------------------------------------------------------------------------------------

    def queue(self, stream: int, entry: Entry, size: int, frames: int) -> None:
        """Put an entry behind what the stream has queued."""
        queues = self._queues
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
        """The same of a payload to be cut."""
        self.queue(stream, fragments, fragments.size, 1)
        self._fragments += 1
        if fragments.large:
            self.large += fragments.size

    def queue_credit(self, stream: int, frame: bytes) -> None:
        """Put REQUEST_N before the payload that the stream is sending, unless that is its request: nobody else waits
        for what it grants."""
        queue = self._queues.get(stream)
        entries = queue if isinstance(queue, deque) else () if queue is None else (queue,)
        place = 0
        for entry in entries:
            if not isinstance(entry, bytes) or not self.layout.is_grant(entry):
                break
            place += 1
        if place == len(entries) or not isinstance(entry := entries[place], Fragments) or entry.asks:
            self.queue(stream, frame, len(frame), 1)
            return
        if not isinstance(queue, deque):
            queue = self._queues[stream] = deque(entries)
        queue.insert(place, frame)
        self.size += len(frame)
        self.frames += 1

    def queued(self, stream: int) -> int:
        """Bytes that a stream has queued, of payloads still to be cut as well."""
        queue = self._queues.get(stream)
        entries = queue if isinstance(queue, deque) else () if queue is None else (queue,)
        return sum(len(entry) if isinstance(entry, bytes) else entry.size for entry in entries)

    def drop(self, stream: int, *, credit: bool = False) -> None:
        """Forget the payload that the stream is sending, and what it has queued behind that: it is canceled or has
        failed (R-38). Of a request the beginning goes, or what follows would be about nothing. With ``credit`` what
        the stream grants goes as well: only one half of it is over."""
        queue = self._queues.get(stream)
        entries = queue if isinstance(queue, deque) else () if queue is None else (queue,)
        kept: deque[Entry] = deque()
        cut = False
        for entry in entries:
            if isinstance(entry, Fragments):
                cut = True
                self._fragments -= 1
                self.large -= entry.size if entry.large else 0
                if entry.asks and not entry.begun:
                    before, first = entry.size, b"".join(entry.next())
                    self.size += len(first) - before
                    kept.append(first)
                    continue
            elif not cut or (credit and isinstance(entry, bytes) and self.layout.is_grant(entry)):
                kept.append(entry)
                continue
            self.size -= len(entry) if isinstance(entry, bytes) else entry.size
            self.frames -= entry.frames if isinstance(entry, Whole) else 1
        if cut:
            self._queues[stream] = kept
            self._ended(stream)

    def discard(self, stream: int) -> None:
        """Forget all that a stream has queued."""
        queue = self._queues.get(stream)
        if queue is None:
            return
        for entry in queue if isinstance(queue, deque) else (queue,):
            self.size -= len(entry) if isinstance(entry, bytes) else entry.size
            self.frames -= entry.frames if isinstance(entry, Whole) else 1
            if isinstance(entry, Fragments):
                self._fragments -= 1
                self.large -= entry.size if entry.large else 0
        self._queues[stream] = deque()
        self._ended(stream)

    def forget(self) -> None:
        """Forget what all streams have queued. ``size`` and ``frames`` are the caller's to set."""
        self._caught_up.extend(self._awaited)
        self._awaited.clear()
        self._queues.clear()
        self._row.clear()
        self._shares.clear()
        self._begun.clear()
        self._over = self._fragments = self.large = self._begun_bytes = 0

    # -- which streams may add more ---------------------------------------------------------------------------

    def behind(self, stream: int) -> bool:
        """Whether the stream still has something queued. If so, ``caught_up`` will tell when that is over."""
        if not self._queues.get(stream):
            return False
        self._awaited[stream] = None
        return True

    def caught_up(self) -> list[int]:
        """The streams that were behind, and are not any more."""
        if not self._caught_up:
            return []
        streams, self._caught_up = self._caught_up, []
        return streams

    def room_beside(self, unsent: int) -> int:
        """The room for payloads that are not large. One of these may exceed the high-water mark; what it still has to
        send takes no room from others, which would stand still until it is gone. All together stays within that mark
        and a payload."""
        limits = self.limits
        if self.frames >= limits.outbound_high_frames:
            return 0
        return max(0, limits.outbound_high_bytes - self.size + min(self.large, limits.payload_bytes) - unsent)

    def crowd(self, waiting: int) -> None:
        """So many streams would send something now, if there was room for it: who is being cut does not get their share
        as well."""
        here = len(self._row) - self._over
        self._cut_share = max(_LEAST_SHARE, SHARE * here // (here + waiting)) if waiting else SHARE

    # -- patience ---------------------------------------------------------------------------------------------

    def should_yield(self) -> bool:
        """Before a take: whether it should wait for ``pace``, or until others have sent something. So it is when
        whoever has something queued has had its share, and others are busy that have nothing queued just now."""
        return self._polite > 0 and bool(self._row) and self._all_owe()

    def pace(self) -> None:
        """A millisecond is over: everybody makes up for 64 KiB. Who is being cut makes up for what others have left of
        that: where they have sent more, turns have made up for it already, and it would get twice its part."""
        self._polite -= 1
        left, self._sent = max(_LEAST_SHARE, _PACE - self._sent), 0
        for stream in self._row[self._over :]:
            self._pass(stream, self._shares.get(stream, 0) + (left if self._is_cut(stream) else _PACE))

    def _all_owe(self) -> bool:
        """Whether nobody who has something queued has a share left to send it. Of a long row only the first are looked
        at: where so many have had their share there is nobody who gets too much."""
        for place in range(self._over, min(len(self._row), self._over + _LOOKED_AT)):
            stream = self._row[place]
            if self._queues[stream] and self._shares.get(stream, 0) > -SHARE and not self._is_held(stream):
                return False
        return len(self._row) - self._over <= _LOOKED_AT

    # -- what comes out ---------------------------------------------------------------------------------------

    @property
    def plain(self) -> bool:
        """There is nothing to be cut, and nobody owes: all may leave at once."""
        return not self._fragments and not self._shares

    def take_all(self, chunks: list[bytes | memoryview]) -> None:
        """Move everything. ``size`` and ``frames`` are the caller's to set."""
        for queue in self._queues.values():
            for entry in queue if isinstance(queue, deque) else (queue,):
                if isinstance(entry, bytes):
                    chunks.append(entry)
                else:  # there is nothing to be cut
                    chunks.extend(cast("Whole", entry).chunks)
        self.forget()

    def take_turns(self, chunks: list[bytes | memoryview], limit: int, least: int) -> int:
        """Move about ``limit`` bytes, whole frames, until ``size`` is ``least``; return how many they are."""
        moved = 0
        while moved < limit and self.size > least:
            size = self._turn(chunks, limit - moved)
            if not size and moved and self._all_owe():
                break
            moved += size
        if self.size == least and not self._polite:
            self.forget()  # nobody else wants to send: nobody owes anything
        return moved

    def _turn(self, chunks: list[bytes | memoryview], most: int) -> int:
        """The first of the row sends its share, ``most`` bytes and the rest of a frame."""
        stream = self._row[self._over]
        queue = self._queues[stream]
        if alone := not self._polite and len(self._row) - self._over == 1:
            self._shares.pop(stream, None)
            share = most
        else:
            share = self._shares.get(stream, 0) + (self._cut_share if self._is_cut(stream) else SHARE)
        moved, held = 0, False
        while queue and moved < most and moved < share and not (held := self._is_held(stream)):
            if isinstance(queue, deque):
                size, done = self._move(stream, queue[0], chunks)
                if done:
                    queue.popleft()
            else:
                size, done = self._move(stream, queue, chunks)
                if done:
                    queue = self._queues[stream] = deque()
            moved += size
        if not queue:
            if moved >= _BUSY and len(self._row) - self._over > 1:
                self._polite = _POLITE
                self._sent += moved
            self._pass(stream, 0 if alone else share - moved)
        elif held:
            self._pass(stream, min(0, share - moved))
        elif moved >= share:
            self._pass(stream, 0 if alone else share - moved)
        else:
            self._shares[stream] = share - moved - SHARE  # the limit is reached: its turn goes on
        return moved

    def _is_cut(self, stream: int) -> bool:
        """Whether what the stream sends now is a payload in fragments."""
        queue = self._queues[stream]
        first = queue[0] if isinstance(queue, deque) and queue else queue
        return isinstance(first, Fragments)

    def _is_held(self, stream: int) -> bool:
        """Whether what the stream would send is a payload that has to wait until others are sent whole."""
        if not self._begun or stream in self._begun:
            return False
        queue = self._queues[stream]
        first = queue[0] if isinstance(queue, deque) and queue else queue
        return isinstance(first, Fragments) and not first.asks and self._begun_bytes + first.size > _TOGETHER

    def _ended(self, stream: int) -> None:
        """The payload that the stream had begun is sent whole, or dropped."""
        self._begun_bytes -= self._begun.pop(stream, 0)

    def _move(self, stream: int, entry: Entry, chunks: list[bytes | memoryview]) -> tuple[int, bool]:
        """Move an entry, or the next frame of a payload: how many bytes, and whether nothing of it is left."""
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
            self._ended(stream)
        return sum(map(len, frame)), not entry.size

    def _pass(self, stream: int, share: int) -> None:
        """The turn of the first in the row is over, with so much of its share left."""
        row = self._row
        self._over += 1
        self._shares.pop(stream, None)
        if self._queues[stream] or (share < 0 < stream):
            row.append(stream)
            if share < 0:
                self._shares[stream] = share
        else:
            del self._queues[stream]
            if self._awaited.pop(stream, 0) is None:
                self._caught_up.append(stream)
        if self._over == len(row) or (self._over >= _CLEARED and self._over * 2 > len(row)):
            del row[: self._over]
            self._over = 0
