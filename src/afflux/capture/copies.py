"""Find captures that have the same packets: copies of a file, and captures of the same traffic at two places.

A copy is passed over. Of two captures that only begin alike, such as those of two interfaces, each may have packets
that the other one lacks: both are decoded, and a warning names what removes the packets that both have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from filecmp import cmp
from pathlib import Path
from typing import Final, NamedTuple

from afflux.capture.network import Network
from afflux.capture.packets import NO_TIME
from afflux.capture.reading import Capture
from afflux.capture.segments import segments
from afflux.capture.source import compression

__all__ = ["Beginning", "Copies", "beginning"]

_START: Final = 0x1_0000
"Bytes of a file in which its first packets are looked for."
_MOST: Final = 64
"Segments at the beginning of a capture that are compared."
_LEAST: Final = 3
"Equal segments that are no accident."
_ONCE: Final = "merge both with `mergecap -w OUT IN IN`, and remove copies with `editcap -d OUT ONCE`"


class Beginning(NamedTuple):
    """How a capture begins."""

    time: int
    "The time of its first packet, in nanoseconds; ``NO_TIME`` if it has none."
    compressed: bool
    segments: frozenset[Hashable] = frozenset()
    "Its first TCP segments, without their times: ends, sequence numbers, flags and sizes."


def beginning(path: Path) -> Beginning:
    """Read the first packets of a file.

    Raises:
        CaptureError: it is not a capture.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        compressed = compression(file.read(10)) is not None
        file.seek(0)
        capture = Capture(file, chunk=_START)
        for packets in capture:
            found = segments(packets, Network(capture.limits))
            columns = (*found.low, *found.high, found.rising, found.seq, found.ack, found.flags, found.size + found.cut)
            rows = zip(*(column[:_MOST].tolist() for column in columns), strict=True)
            return Beginning(int(packets.time[0]), compressed, frozenset(rows))
    return Beginning(NO_TIME, compressed)


class Copies:
    """The captures so far, to compare others with.

    Args:
        report: is called with a line for each capture that begins as an earlier one does.
    """

    def __init__(self, report: Callable[[str], None] | None) -> None:
        self._report = report
        self._alike: dict[tuple[int, int], list[Path]] = {}
        self._owners: dict[Hashable, Path] = {}

    def of(self, path: Path, begin: Beginning) -> Path | None:
        """Return the earlier capture that a file is a copy of. Otherwise return None and note the file, with a warning
        if it begins with packets of an earlier one; compressed files are captures of their own. Raises OSError."""
        if begin.time == NO_TIME:
            return None
        others = self._alike.setdefault((path.stat().st_size, begin.time), [])
        for other in others:
            if cmp(path, other, shallow=False):
                return other
        others.append(path)
        if not begin.compressed:
            self._compare(path, begin)
        return None

    def _compare(self, path: Path, begin: Beginning) -> None:
        """Warn of an earlier capture with most of the first segments."""
        owners = Counter(self._owners[one] for one in begin.segments if one in self._owners)
        for other, count in owners.most_common(1):
            if count >= max(_LEAST, len(begin.segments) // 2) and self._report is not None:
                self._report(
                    f"warning: {path} begins with the same packets as {other}: connections are decoded twice, or their "
                    f"bytes count as repeated; give one of them, or {_ONCE}"
                )
        for one in begin.segments:
            self._owners.setdefault(one, path)
