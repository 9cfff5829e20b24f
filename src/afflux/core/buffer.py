"""The receive buffer: bytes that arrived and are not yet a whole message. Only it knows "not yet".

Theory of operation. A parser wants one contiguous block with as many whole messages as possible. Most reads
begin at a message boundary, so the block is the very object that was read, not a copy. Only the unread tail is
kept, with the number of bytes that make its message whole; nothing is handed out again before they are there.
So a message that comes byte by byte costs one append for each byte and one copy at the end, whatever its length.
Memory follows the bytes that arrived, never a length that was declared.
"""

from __future__ import annotations

from afflux.core.errors import Violation

__all__ = ["ReceiveBuffer"]


class ReceiveBuffer:
    """What one connection received and has not read, at most ``limit`` bytes.

    The cycle: ``block = buffer.feed(data)``; unless it is None, parse it and give the tail back with
    ``buffer.keep(block, position, need)`` before the next feed. Not to keep anything is right when all was read.
    """

    __slots__ = ("_need", "held", "limit")

    limit: int
    "The most bytes that may be held."

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = bytearray()
        "The bytes; their owner alone changes them."
        self._need = 0

    @property
    def pending(self) -> int:
        """How many bytes are held."""
        return len(self.held)

    def feed(self, data: bytes | memoryview) -> bytes | None:
        """Add bytes that arrived; return everything unread once it is as long as needed, else None.

        When nothing was held, ``data`` itself is returned; of a view, which its owner will fill anew, a copy. So a
        view costs one copy in any case, where bytes that were made of it would cost two behind what is held.

        Raises:
            Violation: still not as long as needed, and more than ``limit`` is held (rule ``connection_bytes``).
        """
        held = self.held
        if len(held) + len(data) >= self._need:
            self._need = 0
            if not held:
                return data if isinstance(data, bytes) else bytes(data)
            self.held = bytearray()
            return b"".join((held, data))
        held += data
        self._check()
        return None

    def keep(self, block: bytes, position: int, need: int = 0) -> None:
        """Keep ``block[position:]``; feed holds back until ``need`` bytes, counted from ``position``, are there.

        A ``need`` that no message can have holds everything back until take. After feed returned None, or with an
        empty block, it changes the need of what is held.

        Raises:
            Violation: more than ``limit`` would be held (rule ``connection_bytes``).
        """
        if position < len(block):
            self.held += memoryview(block)[position:]
        self._need = need
        self._check()

    def take(self) -> bytes:
        """Everything unread, however long it is; ``b""`` when nothing is held."""
        block = bytes(self.held)
        self.clear()
        return block

    def clear(self) -> None:
        """Forget what is held, and what was needed."""
        self.held = bytearray()
        self._need = 0

    def _check(self) -> None:
        if len(self.held) > self.limit:
            raise Violation("buffer-full", rule="connection_bytes")
