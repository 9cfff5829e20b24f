"""Queue outgoing messages, and schedule the ids by deficit round robin. No state of a subscription is stored.

1. Messages about subscriptions, hello, subscribe, request, cancel, subscribed, go first and in order, so a subscriber
   that reuses an id is never misunderstood (R-34), and one that counts answers never waits (R-36).
2. Elements and endings of one id remain in order (R-31). Ids take turns of 16 KiB; excess bytes are a deficit.
3. Queued elements of a fixed size leave together, as onNextPacked (R-41): all that directly follow the same element
   when it leaves. No element waits to be packed.
4. A large element is split only if both sides list split messages.
5. goodbye is sent when the queue is empty, and nothing after it (R-44).
"""

from __future__ import annotations

from collections import deque
from typing import cast

from afflux.protocols.rsio.frames import OnNext, OnNextLastPart, OnNextPacked, OnNextPart
from afflux.protocols.rsio.kinds import varint

__all__ = ["SHARE", "Outbound"]

SHARE = 0x4000
"Quantum: bytes per turn."
_PACK = 0x10000
"Bytes of elements that fill one onNextPacked: as many again may follow."

_NEXT, _PACKED = bytes((OnNext.TYPE,)), bytes((OnNextPacked.TYPE,))
_PART, _LAST_PART = bytes((OnNextPart.TYPE,)), bytes((OnNextLastPart.TYPE,))


class _Fixed:
    """Queue of elements of a fixed size."""

    __slots__ = ("count", "elements", "head", "size")

    def __init__(self, id: bytes) -> None:
        self.head = id
        self.elements: list[bytes] = []
        self.count = 0
        self.size = 0

    def add(self, elements: list[bytes], size: int) -> None:
        self.elements += elements
        self.count += len(elements)
        self.size += size

    def next(self) -> bytes:
        """Return all of them as one message: a single one needs no count."""
        if self.count == 1:
            return b"".join((_NEXT, self.head, *self.elements))
        return b"".join((_PACKED, self.head, varint(self.count), *self.elements))


class _Parts:
    """Queue entry of an element that is sent in parts. Its bytes are copied only when a part is sent."""

    __slots__ = ("_data", "_head", "_part", "size")

    def __init__(self, id: bytes, number: int, data: bytes, part: int) -> None:
        self._head = id + varint(number)
        self._data = memoryview(data)
        self._part = part
        self.size = len(data)
        "Bytes not yet sent."

    def next(self) -> bytes:
        """Return the next message; ``size`` is 0 after the last one."""
        data, self._data = self._data[: self._part], self._data[self._part :]
        self.size = len(self._data)
        return b"".join((_PART if self.size else _LAST_PART, self._head, varint(len(data)), data))


_Entry = bytes | _Fixed | _Parts


class Outbound:
    """Queue and schedule the output of one connection."""

    __slots__ = ("_control", "_debts", "_last", "_pack", "_queues", "_row", "frames", "part", "size")

    def __init__(self, part: int, pack: int = _PACK) -> None:
        self.part = part
        "Bytes in a part of a large element."
        self._pack = pack
        self.size = 0
        "Bytes queued."
        self.frames = 0
        "Objects queued: messages, runs of small ones, elements of a fixed size."
        self._control: list[bytes] = []
        self._last = b""
        self._queues: dict[int, deque[_Entry]] = {}
        self._row: deque[int] | tuple[()] = ()
        self._debts: dict[int, int] = {}

    # -- input ----------------------------------------------------------------------------------------------

    def control(self, message: bytes) -> None:
        """Queue a message before all elements."""
        self._control.append(message)
        self.size += len(message)
        self.frames += 1

    def farewell(self, message: bytes) -> None:
        """Queue the last message."""
        self._last = message
        self.size += len(message)
        self.frames += 1

    def put(self, id: int, message: bytes) -> None:
        """Queue a message of an id, or a run of small ones: elements, or the end."""
        self._queue(id).append(message)
        self.size += len(message)
        self.frames += 1

    def fixed(self, id: int, head: bytes, elements: list[bytes], size: int) -> None:
        """Queue elements of ``size`` bytes each; ``head`` is the encoded id."""
        queue = self._queue(id)
        step = max(1, self._pack // size)
        for start in range(0, len(elements), step):
            some = elements[start : start + step]
            last = queue[-1] if queue else None
            if not (isinstance(last, _Fixed) and last.size < self._pack):
                last = _Fixed(head)
                queue.append(last)
            last.add(some, size * len(some))
        self.size += size * len(elements)
        self.frames += len(elements)

    def parts(self, id: int, head: bytes, number: int, data: bytes) -> None:
        """Queue one element to be sent in parts; ``number`` identifies it among those of the id."""
        self._queue(id).append(_Parts(head, number, data, self.part))
        self.size += len(data)
        self.frames += 1

    def _queue(self, id: int) -> deque[_Entry]:
        queue = self._queues.get(id)
        if queue is None:
            queue = self._queues[id] = deque()
            self._row = self._row or deque()
            self._row.append(id)
        return queue

    def queued(self, id: int) -> int:
        """Number of bytes that an id has queued."""
        return sum(len(entry) if isinstance(entry, bytes) else entry.size for entry in self._queues.get(id, ()))

    def drop(self, id: int) -> None:
        """Drop the queue of an id: its subscriber has canceled."""
        queue = self._queues.pop(id, None)
        if queue is None:
            return
        for entry in queue:
            self.size -= len(entry) if isinstance(entry, bytes) else entry.size
            self.frames -= entry.count if isinstance(entry, _Fixed) else 1
        cast("deque[int]", self._row).remove(id)  # a queue is in the row
        self._debts.pop(id, None)

    def clear(self) -> None:
        """Drop the queues of all ids; messages about subscriptions remain."""
        for id in list(self._queues):
            self.drop(id)

    # -- output ---------------------------------------------------------------------------------------------

    def take(self, limit: int) -> bytes:
        """Return bytes to write now, about ``limit`` at most: whole messages, at least one if there is any."""
        if not self.frames:
            return b""
        chunks = self._control
        moved = sum(map(len, chunks))
        self.size -= moved
        self.frames -= len(chunks)
        self._control = []
        while self._row and moved < limit:
            moved += self._turn(chunks, limit - moved)
        if self._last and not self._row:
            chunks.append(self._last)
            self.size -= len(self._last)
            self.frames -= 1
            self._last = b""
        return b"".join(chunks)

    def _turn(self, chunks: list[bytes], most: int) -> int:
        """Send one turn of the first id in the row: a quantum, or ``most`` bytes, and the rest of a message."""
        row = cast("deque[int]", self._row)
        id = row[0]
        queue = self._queues[id]
        share = SHARE - self._debts.pop(id, 0)
        moved = 0
        while queue and moved < most and moved < share:
            message = self._move(queue)
            chunks.append(message)
            moved += len(message)
        row.popleft()
        if queue:
            row.append(id)
            if moved > share and row[0] != id:
                self._debts[id] = moved - share
        else:
            del self._queues[id]
        return moved

    def _move(self, queue: deque[_Entry]) -> bytes:
        """Remove and return the next message of a queue."""
        entry = queue[0]
        if isinstance(entry, bytes):
            queue.popleft()
            self.size -= len(entry)
            self.frames -= 1
            return entry
        before = entry.size
        message = entry.next()
        if isinstance(entry, _Fixed):
            queue.popleft()
            self.size -= before
            self.frames -= entry.count
            return message
        self.size -= before - entry.size
        if not entry.size:
            queue.popleft()
            self.frames -= 1
        return message
