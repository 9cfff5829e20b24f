"""Open captures in the order of their first packets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from os import PathLike, fspath
from pathlib import Path
from typing import Any, BinaryIO

from afflux.capture.packets import NO_TIME
from afflux.capture.reading import Capture

__all__ = ["in_order_of_time"]


def in_order_of_time(files: Any, stack: ExitStack) -> Iterator[tuple[str, BinaryIO]]:
    """Yield each file and its name, in the order of their first packets."""
    if isinstance(files, str | PathLike) or hasattr(files, "read"):
        files = [files]
    named, others = [], []
    for file in files:
        if isinstance(file, str | PathLike):
            named.append(Path(fspath(file)))
        else:
            others.append(file)
    if len(named) > 1:
        named.sort(key=_first_time)
    for path in named:
        with path.open("rb") as opened:
            yield str(path), opened
    for file in others:
        yield str(getattr(file, "name", "")), file


def _first_time(path: Path) -> tuple[int, str]:
    """Return the time of the first packet of a file, and its name."""
    with path.open("rb") as file:
        for packets in Capture(file, chunk=0x1_0000):
            return int(packets.time[0]), str(path)
    return NO_TIME, str(path)
