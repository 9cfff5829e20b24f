"""Find captures that have the same packets: copies of a file, and captures of the same traffic at two places.

A copy is passed over. Of two captures that begin alike, such as those of two interfaces, or of which one was started
later, each may have packets that the other one lacks: both are decoded, and a warning names what removes the packets
that both have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from filecmp import cmp
from itertools import islice
from pathlib import Path
from typing import Final

from afflux.capture.network import Network
from afflux.capture.overlapping import LEAST, MOST, Beginning, overlapping, rows_of
from afflux.capture.packets import NO_TIME
from afflux.capture.reading import Capture
from afflux.capture.segments import segments
from afflux.capture.source import compression

__all__ = ["Beginning", "Copies", "beginning"]

_START: Final = 0x1_0000
"Bytes of a file in which its first packets are looked for."
_TWICE: Final = (
    "connections are decoded twice, or their bytes count as repeated; give one of them, or merge both with "
    "`mergecap -w OUT IN IN`, and remove copies with `editcap -d OUT ONCE`"
)


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
            first = packets.time[found.index[:MOST]]
            until = int(first[-1]) if len(first) else NO_TIME
            return Beginning(int(packets.time[0]), compressed, frozenset(islice(rows_of(found), MOST)), until)
    return Beginning(NO_TIME, compressed)


class Copies:
    """The captures so far, to compare others with.

    Args:
        report: is called with a line for each capture that begins as an earlier one does, or within it.
    """

    def __init__(self, report: Callable[[str], None] | None) -> None:
        self._report = report
        self._alike: dict[tuple[int, int], list[Path]] = {}
        self._owners: dict[Hashable, Path] = {}
        self._told: set[tuple[Path, Path]] = set()

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

    def within(self, captures: Iterable[tuple[Path, Beginning]]) -> None:
        """Warn of the captures that begin within an earlier one and have its packets. Nothing is read if nobody is
        told."""
        if self._report is not None:
            for path, other, _ in overlapping([*captures], self._told):
                self._report(f"warning: {path} begins within {other}, and has the packets that it has: {_TWICE}")

    def _compare(self, path: Path, begin: Beginning) -> None:
        """Warn of an earlier capture with most of the first segments."""
        owners = Counter(self._owners[one] for one in begin.segments if one in self._owners)
        for other, count in owners.most_common(1):
            if count >= max(LEAST, len(begin.segments) // 2) and self._report is not None:
                self._told |= {(path, other), (other, path)}
                self._report(f"warning: {path} begins with the same packets as {other}: {_TWICE}")
        for one in begin.segments:
            self._owners.setdefault(one, path)
