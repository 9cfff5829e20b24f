"""Find the captures that paths name, and put them in the order of their packets.

All uncompressed captures together are one capture: a connection may begin in one file and end in another. A compressed
file cannot be read from the middle, so each is a capture of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from glob import glob, has_magic
from pathlib import Path

from afflux.capture.copies import Beginning, Copies, beginning
from afflux.capture.errors import CaptureError, NoCapture
from afflux.capture.indexing import SUFFIX
from afflux.capture.source import compression, named_as_capture

__all__ = ["CaptureFiles", "Unreadable", "captures_among", "captures_in", "distinct", "local"]

_FILE = re.compile(r"^file:(?://)?(?=/(?!/))")
"The scheme of an absolute path, in both forms that Spark knows."


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


def local(text: str) -> str:
    """Return a path without ``file:`` or ``file://``. Raises CaptureError for the path of another host or scheme."""
    path = _FILE.sub("", text)
    if "://" in path:
        raise CaptureError(f"{text} is not in a file system: object stores are not supported")
    return path


def captures_in(paths: Iterable[str], report: Callable[[str], None] | None = None) -> CaptureFiles:
    """Return the captures that paths name: files, patterns such as ``captures/*.pcapng``, and directories, of which
    all captures are taken. In directories and patterns, other files are passed over. A file that has several names is
    taken once, and so are copies of a file.

    Args:
        paths: names.
        report: is called with a line for each capture that is passed over, because it cannot be read or is a copy, and
            for each that begins with the packets of another one.

    Raises:
        CaptureError: a file is not a capture, or nothing is found.
        OSError: a path does not exist, or a file cannot be read.
    """
    finding = _Finding(report)
    for text in paths:
        finding.add(text)
    return finding.files()


def captures_among(places: Iterable[Path], report: Callable[[str], None] | None = None) -> CaptureFiles:
    """Return the captures among some files; there may be none. ``report``: see ``captures_in``. Raises OSError if a
    file cannot be read."""
    finding = _Finding(report)
    finding.look(places)
    return finding.files()


def distinct(names: Iterable[str], report: Callable[[str], None]) -> list[str]:
    """Return the names of files without those of the same file, and without copies; other names remain as they are.

    Args:
        names: files, which need not be captures or exist.
        report: see ``captures_in``.
    """
    found, files, copies = list[str](), dict[tuple[int, int], str](), Copies(report)
    begins = dict[Path, Beginning]()
    for name in names:
        try:
            state = Path(name).stat()
            taken = files.get((state.st_dev, state.st_ino))
            if taken is not None:
                report(f"passed over {name}: " + ("given twice" if name == taken else f"the same file as {taken}"))
                continue
            files[state.st_dev, state.st_ino] = name
            begin = beginning(Path(name))
            copied = copies.of(Path(name), begin)
            if copied is None:
                begins[Path(name)] = begin
        except (CaptureError, OSError):
            copied = None
        if copied is None:
            found.append(name)
        else:
            report(f"passed over {name}: a copy of {copied}")
    copies.within(begins.items())
    return found


def _places(text: str) -> list[Path]:
    """Return what is in a directory, or matches a pattern."""
    path = Path(text)
    if path.is_dir():
        return sorted(path.iterdir())
    return [Path(one) for one in sorted(glob(text))] if has_magic(text) and not path.exists() else []


class _Finding:
    """Finds captures.

    Args:
        report: see ``captures_in``.
    """

    def __init__(self, report: Callable[[str], None] | None) -> None:
        self._report = report
        self._found: dict[Path, Beginning] = {}
        self._copies = Copies(report)
        self._unreadable: dict[Path, Unreadable] = {}
        self._names: dict[tuple[int, int], Path] = {}
        self._reported: set[Path] = set()

    def files(self) -> CaptureFiles:
        """Return what was found."""
        self._copies.within(self._found.items())
        order = sorted(self._found, key=lambda path: (self._found[path].time, str(path)))
        plain, compressed = ([path for path in order if self._found[path].compressed is one] for one in (False, True))
        return CaptureFiles(plain, compressed, [*self._unreadable.values()])

    def add(self, text: str) -> None:
        """Look at what a path names. Raises as ``captures_in``."""
        text = local(text)
        path = Path(text)
        if path.is_dir():
            what = f"the directory {text} has no captures (pcap or pcapng; plain, gzip, zstd, xz or bzip2)"
        elif has_magic(text) and not path.exists():
            what = f"no captures match {text}"
        else:
            if path.exists() and not path.is_file():
                raise CaptureError(
                    f"{text} is a device or a pipe, not a regular file: captures are read more than once, so write it "
                    "to a file first"
                )
            self._take(path)
            return
        if not self.look(_places(text)):
            raise CaptureError(what)

    def look(self, places: Iterable[Path]) -> bool:
        """Look for captures among files; return whether there are any."""
        some = False
        for place in places:
            if not place.is_file() or place.name.startswith((".", "_")) or place.name.endswith(SUFFIX):
                continue
            try:
                self._take(place)
                some = True
            except CaptureError as error:
                self._passed(place, error)
        return some

    def _take(self, path: Path) -> None:
        """Take a capture, unless it was taken under another name. Raises CaptureError, OSError."""
        place, begin, state = path.absolute(), beginning(path), path.stat()
        taken = self._names.setdefault((state.st_dev, state.st_ino), place)
        if place in self._found or place in self._reported:
            return
        if taken != place:
            self._reported.add(place)
            if self._report is not None:
                self._report(f"passed over {place}: the same file as {taken}")
        elif (copied := self._copies.of(place, begin)) is not None:
            self._reported.add(place)
            if self._report is not None:
                self._report(f"passed over {place}: a copy of {copied}")
        else:
            self._found[place] = begin

    def _passed(self, place: Path, error: CaptureError) -> None:
        """Note a file that is passed over: nothing is said of one that is no capture, and neither named as one nor
        compressed."""
        with place.open("rb") as file:
            start = file.read(10)
        path, reason = place.absolute(), error.message.removeprefix(f"{place}: ")
        if not isinstance(error, NoCapture) or named_as_capture(place):
            self._unreadable[path] = Unreadable(path, reason)
        elif compression(start) is None:
            return
        if path not in self._reported and self._report is not None:
            self._report(f"passed over {path}: {reason}")
        self._reported.add(path)
