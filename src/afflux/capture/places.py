"""Find the captures that paths name, and put them in the order of their packets.

All uncompressed captures together are one capture: a connection may begin in one file and end in another. A compressed
file cannot be read from the middle, so each is a capture of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path

from afflux.capture.errors import CaptureError
from afflux.capture.indexing import SUFFIX
from afflux.capture.packets import NO_TIME
from afflux.capture.reading import Capture, is_capture
from afflux.capture.source import GZIP, ZSTD, other_compression

__all__ = ["CaptureFiles", "captures_in", "unread"]

_START = 0x1_0000


@dataclass(frozen=True, slots=True)
class CaptureFiles:
    """Some captures, as absolute paths."""

    plain: list[Path]
    "The uncompressed ones, in the order of their first packets."
    compressed: list[Path]
    "The others, in the same order."

    @property
    def captures(self) -> list[list[Path]]:
        """The files of each capture."""
        return ([self.plain] if self.plain else []) + [[path] for path in self.compressed]


def captures_in(paths: Iterable[str]) -> CaptureFiles:
    """Return the captures that paths name: files, patterns such as ``captures/*.pcapng``, and directories, of which
    all captures are taken. In directories and patterns, other files are passed over.

    Raises:
        CaptureError: a file is not a capture, or nothing is found.
        OSError: a path does not exist, or a file cannot be read.
    """
    found: dict[Path, tuple[int, bool]] = {}
    for text in paths:
        found |= _named(text)
    order = sorted(found, key=lambda path: (found[path][0], str(path)))
    return CaptureFiles([one for one in order if not found[one][1]], [one for one in order if found[one][1]])


def unread(paths: Iterable[str]) -> list[tuple[str, str]]:
    """Return the files that ``captures_in`` passes over because they are compressed in a way that is not read, and the
    name of each compression. Raises OSError if a file cannot be read."""
    found = []
    for text in paths:
        for place in _places(text):
            if place.is_file():
                with place.open("rb") as file:
                    name = other_compression(file.read(10))
                found += [] if name is None else [(str(place), name)]
    return found


def _places(text: str) -> list[Path]:
    """Return what is in a directory, or matches a pattern."""
    path = Path(text)
    if path.is_dir():
        return sorted(path.iterdir())
    return [Path(one) for one in sorted(glob(text))] if has_magic(text) and not path.exists() else []


def _named(text: str) -> dict[Path, tuple[int, bool]]:
    path = Path(text)
    if path.is_dir():
        what = f"the directory {text} has no captures (pcap, pcapng; gzip or zstd)"
    elif has_magic(text) and not path.exists():
        what = f"no captures match {text}"
    else:
        return {path.absolute(): _first(path)}
    found = {}
    for place in _places(text):
        if place.is_file() and not place.name.startswith((".", "_")) and not place.name.endswith(SUFFIX):
            try:
                with place.open("rb") as file:
                    start = file.read(4)
                if is_capture(start):
                    found[place.absolute()] = _first(place)
            except CaptureError:
                continue
    if not found:
        raise CaptureError(what)
    return found


def _first(path: Path) -> tuple[int, bool]:
    """Return the time of the first packet of a file, and whether the file is compressed."""
    with path.open("rb") as file:
        compressed = file.read(4).startswith((GZIP, ZSTD))
        file.seek(0)
        for packets in Capture(file, chunk=_START):
            return int(packets.time[0]), compressed
    return NO_TIME, compressed
