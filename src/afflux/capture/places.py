"""Find the captures that paths name, and put them in the order of their packets.

All uncompressed captures together are one capture: a connection may begin in one file and end in another. A compressed
file cannot be read from the middle, so each is a capture of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from glob import glob, has_magic
from pathlib import Path

from afflux.capture.errors import CaptureError, NoCapture
from afflux.capture.indexing import SUFFIX
from afflux.capture.packets import NO_TIME
from afflux.capture.reading import Capture
from afflux.capture.source import GZIP, ZSTD, named_as_capture, other_compression

__all__ = ["CaptureFiles", "Unreadable", "captures_in"]

_START = 0x1_0000


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A capture of which nothing can be read."""

    path: Path
    reason: str


@dataclass(frozen=True, slots=True)
class CaptureFiles:
    """Some captures, as absolute paths."""

    plain: list[Path]
    "The uncompressed ones, in the order of their first packets."
    compressed: list[Path]
    "The others, in the same order."
    unreadable: list[Unreadable] = field(default_factory=list)
    "Those in directories and patterns of which nothing can be read."

    @property
    def captures(self) -> list[list[Path]]:
        """The files of each capture."""
        return ([self.plain] if self.plain else []) + [[path] for path in self.compressed]


def captures_in(paths: Iterable[str], report: Callable[[str], None] | None = None) -> CaptureFiles:
    """Return the captures that paths name: files, patterns such as ``captures/*.pcapng``, and directories, of which
    all captures are taken. In directories and patterns, other files are passed over.

    Args:
        paths: names.
        report: is called with a line for each capture that is passed over because it cannot be read.

    Raises:
        CaptureError: a file is not a capture, or nothing is found.
        OSError: a path does not exist, or a file cannot be read.
    """
    found: dict[Path, tuple[int, bool]] = {}
    unreadable: dict[Path, Unreadable] = {}

    def passed(one: Unreadable) -> None:
        if one.path not in unreadable and report is not None:
            report(f"passed over {one.path}: {one.reason}")
        unreadable[one.path] = one

    for text in paths:
        found |= _named(text, passed)
    order = sorted(found, key=lambda path: (found[path][0], str(path)))
    return CaptureFiles(
        [one for one in order if not found[one][1]], [one for one in order if found[one][1]], [*unreadable.values()]
    )


def _places(text: str) -> list[Path]:
    """Return what is in a directory, or matches a pattern."""
    path = Path(text)
    if path.is_dir():
        return sorted(path.iterdir())
    return [Path(one) for one in sorted(glob(text))] if has_magic(text) and not path.exists() else []


def _named(text: str, passed: Callable[[Unreadable], None]) -> dict[Path, tuple[int, bool]]:
    path = Path(text)
    if path.is_dir():
        what = f"the directory {text} has no captures (pcap, pcapng; gzip or zstd)"
    elif has_magic(text) and not path.exists():
        what = f"no captures match {text}"
    else:
        if path.exists() and not path.is_file():
            raise CaptureError(
                f"{text} is a device or a pipe, not a regular file: captures are read more than once, so write it to a "
                "file first"
            )
        return {path.absolute(): _first(path)}
    found = {}
    for place in _places(text):
        if place.is_file() and not place.name.startswith((".", "_")) and not place.name.endswith(SUFFIX):
            try:
                found[place.absolute()] = _first(place)
            except CaptureError as error:
                if not isinstance(error, NoCapture) or _should_be(place):
                    passed(Unreadable(place.absolute(), error.message.removeprefix(f"{place}: ")))
    if not found:
        raise CaptureError(what)
    return found


def _should_be(path: Path) -> bool:
    """Return whether a file that does not begin as a capture should be one: it is named so, or is compressed in a way
    that is not read."""
    with path.open("rb") as file:
        return named_as_capture(path) or other_compression(file.read(10)) is not None


def _first(path: Path) -> tuple[int, bool]:
    """Return the time of the first packet of a file, and whether the file is compressed."""
    with path.open("rb") as file:
        compressed = file.read(4).startswith((GZIP, ZSTD))
        file.seek(0)
        for packets in Capture(file, chunk=_START):
            return int(packets.time[0]), compressed
    return NO_TIME, compressed
