"""Hold the segments of a batch in the order in which they are delivered: by connection and direction."""

from __future__ import annotations

from typing import NamedTuple

from afflux.capture.packets import Ints
from afflux.capture.segments import Segments

__all__ = ["Bulk", "Row"]


class Row(NamedTuple):
    """The segments of one direction in a batch."""

    half: int
    "The direction: twice the number of the pair of ends, and whether it is rising."
    first: int
    "Where they are in the order of delivery."
    stop: int
    single: bool
    "Whether each is handled by itself."
    seq: int
    "The first sequence number."
    begins: bool
    "They begin with a SYN."
    finishes: bool
    "They end with a FIN."

    @property
    def rising(self) -> bool:
        """The direction; see ``Segments``."""
        return bool(self.half & 1)


class Bulk:
    """Segments as lists, in the order in which they are delivered."""

    __slots__ = ("block", "numbers", "packets", "sizes", "starts", "stops")

    def __init__(self, found: Segments, order: Ints) -> None:
        starts, sizes = found.at[order], found.size[order]
        self.block = memoryview(found.block)
        self.numbers: list[int] = order.tolist()
        "Their numbers in the batch."
        self.sizes: list[int] = sizes.tolist()
        self.starts: list[int] = starts.tolist()
        "Where the data begins in the block."
        self.stops: list[int] = (starts + sizes).tolist()
        "Where it ends there."
        self.packets: list[int] = found.index[order].tolist()
