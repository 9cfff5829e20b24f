"""Remember the last delivered bytes of each direction, to compare retransmissions with."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from afflux.capture.reassembly import Delivery, Half
from afflux.core.limits import Limits

__all__ = ["Recent"]

_EACH: Final = 0x4000
"Bytes of a direction that are remembered."


class Recent:
    """The last bytes of the directions of one capture.

    Args:
        limits: a quarter of ``capture_bytes`` is remembered; the least recently used directions are forgotten first.
    """

    def __init__(self, limits: Limits) -> None:
        self._most = limits.capture_bytes // 4
        self._known: OrderedDict[Half, bytes] = OrderedDict()
        self._size = 0

    def remember(self, half: Half, delivered: Delivery) -> None:
        """Remember delivered bytes of a direction; none from before a gap."""
        before = self.forget(half)
        if isinstance(delivered, int):
            return
        data = delivered if len(delivered) >= _EACH else before + delivered
        self._known[half] = data = data[-_EACH:]
        self._size += len(data)
        while self._size > self._most:
            _, oldest = self._known.popitem(last=False)
            self._size -= len(oldest)

    def forget(self, half: Half) -> bytes:
        """Forget the bytes of a direction, and return them."""
        known = self._known.pop(half, b"")
        self._size -= len(known)
        return known

    def of(self, half: Half) -> bytes:
        """Return the last bytes of a direction, as far as they are remembered."""
        return self._known.get(half, b"")
