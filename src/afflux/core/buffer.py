"""Buffer received bytes until they form whole messages.

Theory of operation. A parser needs one contiguous block with as many whole messages as possible. Most reads
begin at a message boundary, so the block is the object that was read, not a copy. Only the unread tail is
buffered, with the number of bytes that complete its message; it is returned again when they have arrived.
A message that arrives byte by byte costs one append for each byte and one copy at the end, whatever its length.
Memory follows the bytes that arrived, never a declared length.
"""

from __future__ import annotations

from afflux.core.errors import Violation

__all__ = ["ReceiveBuffer"]


class ReceiveBuffer:
    """Bytes that one connection has received and not parsed, at most ``limit``.

    The cycle: ``block = buffer.feed(data)``; unless it is None, parse it and return the tail with
    ``buffer.keep(block, position, need)`` before the next feed. Without a tail, ``keep`` need not be called.
    """

    __slots__ = ("_need", "held", "limit")

    limit: int
    "The most bytes that may be buffered."

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = bytearray()
        "The buffered bytes, read-only for others."
        self._need = 0

    @property
    def pending(self) -> int:
        """The number of buffered bytes."""
        return len(self.held)

    def feed(self, data: bytes | memoryview) -> bytes | None:
        """Add received bytes; return all unparsed bytes if they are as many as needed, else None.

        When nothing was buffered, ``data`` itself is returned, or a copy of it if it is a view, whose owner reuses
        its memory. A view is therefore copied once, where converting it to bytes first could copy it twice.

        Raises:
            Violation: fewer bytes than needed, and more than ``limit`` are buffered (rule ``connection_bytes``).
        """
        held = self.held
        if not held and not self._need:
            return data if type(data) is bytes else bytes(data)
        if len(held) + len(data) >= self._need:
            self._need = 0
            self.held = bytearray()
            return b"".join((held, data))
        held += data
        self._check()
        return None

    def keep(self, block: bytes, position: int, need: int = 0) -> None:
        """Buffer ``block[position:]``; feed returns None until there are ``need`` bytes, counted from ``position``.

        With a ``need`` above any message's length, only take returns the bytes. After feed returned None, or with an
        empty block, this changes the need of the buffered bytes.

        Raises:
            Violation: more than ``limit`` bytes would be buffered (rule ``connection_bytes``).
        """
        if position < len(block):
            self.held += memoryview(block)[position:]
        self._need = need
        self._check()

    def take(self) -> bytes:
        """Return all buffered bytes, however many, and clear the buffer."""
        block = bytes(self.held)
        self.clear()
        return block

    def clear(self) -> None:
        """Discard the buffered bytes and the number needed."""
        self.held = bytearray()
        self._need = 0

    def _check(self) -> None:
        if len(self.held) > self.limit:
            raise Violation("buffer-full", rule="connection_bytes")
