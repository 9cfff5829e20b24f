"""Queue outgoing frames. A connection has one session, so they leave in order."""

from __future__ import annotations

from collections import deque

__all__ = ["Outbound"]


class Outbound:
    """The queue of one connection."""

    __slots__ = ("_queue", "size")

    def __init__(self) -> None:
        self._queue: deque[bytes] = deque()
        self.size = 0
        "Bytes queued."

    @property
    def frames(self) -> int:
        """Frames queued."""
        return len(self._queue)

    def put(self, frame: bytes) -> None:
        """Queue a frame, with its length."""
        self._queue.append(frame)
        self.size += len(frame)

    def take(self, limit: int) -> bytes:
        """Return bytes to write now, about ``limit`` at most: whole frames, at least one if there is any."""
        queue = self._queue
        if self.size <= limit:
            data = b"".join(queue)
            queue.clear()
        else:
            chunks, moved = [], 0
            while queue and moved < limit:
                chunks.append(queue.popleft())
                moved += len(chunks[-1])
            data = b"".join(chunks)
        self.size -= len(data)
        return data
