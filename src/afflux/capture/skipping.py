"""Count the packets that are skipped, by reason, and remember the first of each.

Traffic that is not TCP is skipped too, and is no loss: ``lost`` leaves it out. Does not decide which packets are
skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from afflux.capture.packets import NO_TIME, Ints, Packets

__all__ = ["NOT_IP", "NOT_TCP", "UNKNOWN", "Place", "Skipped", "lost"]

NOT_IP: Final = "not IP"
NOT_TCP: Final = "not TCP"


class Place(NamedTuple):
    """A packet of a capture file."""

    packet: int
    "Its number in the file, from 0; -1 if it is unknown."
    offset: int
    "Where its data begins in the decompressed file; -1 if it is unknown."
    time: int
    "When it was captured, in nanoseconds."


UNKNOWN: Final = Place(-1, -1, NO_TIME)
"The place of fragments, which are several packets."


class Skipped(Counter[str]):
    """The number of packets that were skipped, by reason."""

    def __init__(self) -> None:
        super().__init__()
        self.first: dict[str, Place] = {}
        "The first packet of each reason that has one."

    def note(self, reason: str, packets: Packets | None, found: Ints) -> None:
        """Count the packets of a batch whose indexes are ``found``; None for datagrams made of fragments."""
        if not len(found):
            return
        self[reason] += len(found)
        if packets is not None and reason not in self.first:
            at = int(found[0])
            place = packets.offset + int(packets.start[at])
            self.first[reason] = Place(packets.number + at, place, int(packets.time[at]))


def lost(counts: Mapping[str, int], first: Mapping[str, Place]) -> Iterator[tuple[str, Place]]:
    """Yield why packets were skipped that may have been ours, with their number, and the first of them."""
    for reason, count in counts.items():
        if count and reason not in (NOT_IP, NOT_TCP):
            many = "1 packet" if count == 1 else f"{count:,} packets"
            yield f"{many} skipped: {reason}", first.get(reason, UNKNOWN)
