"""Remember the last delivered bytes of each direction, to compare retransmissions with."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from afflux.capture.reassembly import Delivery, Half
from afflux.core.limits import Limits

__all__ = ["REMEMBERED", "Recent"]

REMEMBERED: Final = 0x4000
"Bytes of a direction that are remembered."
_MOST_HELD: Final = REMEMBERED + REMEMBERED // 4
"Bytes of a direction that are held, of which the first may be too old."
_MOST_PIECES: Final = 32


class _Tail:
    """The last bytes of a direction, as pieces: to join them each time would copy all of them."""

    __slots__ = ("_held", "_pieces", "size")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._held = 0
        self.size = 0
        "The bytes that are remembered."

    def add(self, data: bytes) -> int:
        """Remember more bytes; return by how many ``size`` grows."""
        before = self.size
        if len(data) >= REMEMBERED:
            self._pieces, self._held = [data[-REMEMBERED:]], REMEMBERED
        else:
            self._pieces.append(data)
            self._held += len(data)
            if self._held > _MOST_HELD or len(self._pieces) > _MOST_PIECES:
                self._pieces = [self.joined()]
                self._held = len(self._pieces[0])
        self.size = self._held if self._held < REMEMBERED else REMEMBERED
        return self.size - before

    def joined(self) -> bytes:
        """Return the bytes."""
        return b"".join(self._pieces)[-REMEMBERED:]


class Recent:
    """The last bytes of the directions of one capture.

    Args:
        limits: a quarter of ``capture_bytes`` is remembered; the least recently used directions are forgotten first.
    """

    def __init__(self, limits: Limits) -> None:
        self._most = limits.capture_bytes // 4
        self._known: OrderedDict[Half, _Tail] = OrderedDict()
        self._size = 0

    def remember(self, half: Half, delivered: Delivery) -> None:
        """Remember delivered bytes of a direction; none from before a gap."""
        if isinstance(delivered, int):
            self.forget(half)
            return
        tail = self._known.get(half)
        if tail is None:
            tail = self._known[half] = _Tail()
        else:
            self._known.move_to_end(half)
        self._size += tail.add(delivered)
        while self._size > self._most:
            _, oldest = self._known.popitem(last=False)
            self._size -= oldest.size

    def forget(self, half: Half) -> None:
        """Forget the bytes of a direction."""
        known = self._known.pop(half, None)
        if known is not None:
            self._size -= known.size

    def of(self, half: Half) -> bytes:
        """Return the last bytes of a direction, as far as they are remembered."""
        known = self._known.get(half)
        return b"" if known is None else known.joined()
