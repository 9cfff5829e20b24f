"""Plan the reading of a capture file, and index it: which flows it has, and where their segments are.

Rules:

1. The file is cut into parts of equal size. Each part guesses where its first record begins (spans.py), and is indexed
   from there. Then the parts are stitched: the end of a part is the start of the next one. A part whose guess was
   another one is indexed again, so the result is exact whatever the packets contain.
2. Parts of a pcapng file are first indexed as if the section and the interfaces at the beginning of the file were all.
   Those for which that was wrong are indexed again.
3. The index is a directory beside the capture, or in a directory of the user's choice. Its name depends on the size,
   the time and the first bytes of the file, so that an index of a changed file is not found. It appears complete or not
   at all, and several processes may make it at once. A damaged one is made again.
4. Fragments of IP datagrams are completed after the stitching. The segments in them are a part of their own.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import numpy as np

from afflux.capture.errors import CaptureError, Problem
from afflux.capture.fragments import Fragments
from afflux.capture.network import TCP, Datagrams
from afflux.capture.packets import NO_TIME, PAD
from afflux.capture.parts import WIDE, Part, PartFile, Rows, build_part, pieces_in
from afflux.capture.pcapng import Pcapng, Section
from afflux.capture.scratch import moved, named_if_full, nearest, probe, replace_directory, scratch, sweep
from afflux.capture.segments import segments_in
from afflux.capture.skipping import Place, Skipped
from afflux.capture.spans import Span, first_record, format_of, read_at
from afflux.core.limits import Limits

__all__ = ["PART_BYTES", "SUFFIX", "FileIndex", "IndexedPart", "Job", "Run", "check_places", "index_of", "run_job"]

PART_BYTES: Final = 0x400_0000
"Bytes of a part."
SUFFIX: Final = ".afflux-index"
"The end of the name of the directory with the indexes of a file."
_VERSION: Final = 2
_MANIFEST: Final = "index.json"
_BLOB: Final = "fragments.bin"
_FRAGMENTS: Final = "fragments"
_ROUNDS: Final = 8
"How often all later parts are indexed again because a section or an interface begins."
_SAMPLE: Final = 0x1_0000


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The indexing of one part."""

    path: str
    header: bytes
    "The first 24 bytes of the file."
    begin: int
    "Where the part begins."
    stop: int
    "Where it ends."
    start: int | None
    "Where its first record begins; None: guess."
    size: int
    "Bytes of the file that are read at all."
    section: Section | None
    "See ``Pcapng.section``."
    limits: Limits
    directory: str
    name: str


Run = Callable[[Sequence[Job]], Sequence[Part | None]]
"Runs jobs, in parallel or one after the other, and returns what ``run_job`` returns for each."


@dataclass(frozen=True, slots=True)
class IndexedPart:
    """One part of an index."""

    start: int
    "Where its first record begins, in bytes of the file."
    number: int
    "The number of its first packet in the file, from 0."
    packets: int
    segments: str
    "The name of its file with segments; empty if there are none."
    flows: str
    "The name of its directory."


@dataclass(frozen=True, slots=True)
class FileIndex:
    """The index of one capture file. Sent to tasks."""

    path: str
    "The capture."
    directory: str
    "Where the files of the index are."
    size: int
    "Bytes of the capture when it was indexed. What was written later is not read."
    packets: int
    first_time: int
    "When the first packet was captured; ``NO_TIME`` for none."
    last_time: int
    "When the last packet was captured."
    problem: Problem | None
    "Why the file could not be read to its end."
    skipped: dict[str, int]
    "Packets without TCP, by reason."
    first_skipped: dict[str, Place]
    "The first of each."
    parts: list[IndexedPart]
    fragments: IndexedPart | None
    "Segments that were fragments; None for none."

    @property
    def blob(self) -> str:
        """The file with the segments that were fragments."""
        return str(Path(self.directory) / _BLOB)


def run_job(job: Job) -> Part | None:
    """Index a part. Returns None if no record seems to begin in it.

    Raises:
        OSError: the capture cannot be read, or the index not be written.
    """
    file = os.open(job.path, os.O_RDONLY)
    try:
        where = (job.size, job.section, job.limits)
        start = job.start
        if start is None:
            start = first_record(file, job.header, job.begin, job.stop, *where)
        if start is None:
            return None
        name = f"{job.name}-{uuid4().hex[:8]}"
        with named_if_full(job.directory):
            return build_part(file, job.header, start, job.stop, *where, Path(job.directory), name)
    finally:
        os.close(file)


def index_of(
    path: Path,
    limits: Limits,
    *,
    run: Run | None = None,
    index_dir: Path | None = None,
    part_bytes: int = PART_BYTES,
) -> FileIndex:
    """Return the index of an uncompressed capture file, which is made if there is none.

    Args:
        path: the file.
        limits: the bounds of a capture.
        run: runs the jobs; one after the other by default.
        index_dir: a directory for indexes, instead of the directory of the file.
        part_bytes: bytes of a part.

    Raises:
        CaptureError: the file is not a capture or is compressed, or there is no place for the index.
        OSError: the file cannot be read, or the index not be written.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        header = read_at(file.fileno(), 24, 0)
        format_of(header, limits)
        key = _key(file.fileno(), limits, part_bytes)
    place = _place(path, index_dir)
    found = _loaded(path, place / key)
    if found is not None:
        return found
    sweep(place, ".tmp-")
    with _without_remains(place), scratch(place, ".tmp-") as directory:
        maker = _Maker(path, header, size, limits, directory, run or _in_order, part_bytes)
        made = maker.made()
        (directory / _MANIFEST).write_text(json.dumps({"index": asdict(made), "files": maker.files}))
        _tidy(directory, maker.files)
        if not moved(directory, place / key):
            if (found := _loaded(path, place / key)) is not None:
                return found  # another process was faster
            replace_directory(directory, place / key)
    for other in place.iterdir():
        if not other.name.startswith((key.partition("-")[0], ".tmp-")):
            shutil.rmtree(other, ignore_errors=True)
    return replace(made, directory=str(place / key))


class _Maker:
    """Makes the index of one file."""

    def __init__(
        self, path: Path, header: bytes, size: int, limits: Limits, directory: Path, run: Run, part_bytes: int
    ) -> None:
        self._path = path
        self._header = header
        self._size = size
        self._limits = limits
        self._directory = directory
        self._run = run
        self._part_bytes = part_bytes
        self.files: dict[str, tuple[int, int]] = {}
        "The size and the CRC-32 of each file of the index."

    def made(self) -> FileIndex:
        """Index the file."""
        parts = self._stitched()
        number, indexed = 0, list[IndexedPart]()
        skipped = Skipped()
        for part in parts:
            names = self._noted(part.files)
            indexed.append(IndexedPart(part.start, number, part.packets, *names))
            for reason, place in part.first_skipped.items():
                skipped.first.setdefault(reason, place._replace(packet=number + place.packet))
            number += part.packets
            skipped.update(part.skipped)
        fragments = self._fragments(parts, indexed, skipped)
        with_packets = [part for part in parts if part.packets]
        return FileIndex(
            path=str(self._path.absolute()),
            directory=str(self._directory),
            size=self._size,
            packets=number,
            first_time=with_packets[0].first_time if with_packets else NO_TIME,
            last_time=with_packets[-1].last_time if with_packets else NO_TIME,
            problem=parts[-1].problem if parts else None,
            skipped=dict(+skipped),
            first_skipped=skipped.first,
            parts=[part for part in indexed if part.segments],
            fragments=fragments,
        )

    def _noted(self, files: Sequence[PartFile]) -> tuple[str, str]:
        self.files |= {file.name: (file.size, file.crc) for file in files}
        return (files[0].name, files[1].name) if files else ("", "")

    def _stitched(self) -> list[Part]:
        """Return the parts, each of which begins where the one before has ended (rules 1 and 2)."""
        first, section = self._beginning()
        begins = range(first, max(self._size, first + 1), self._part_bytes)
        jobs = [self._job(number, begin, section) for number, begin in enumerate(begins)]
        jobs[0] = replace(jobs[0], start=first, section=None)
        found = list(self._run(jobs))
        kept, start, rounds = list[Part](), first, 0
        for number, job in enumerate(jobs):
            if start >= job.stop:
                continue  # one record covers the whole part
            assumed, state = jobs[number].section, kept[-1].section if kept else None
            part = found[number]
            if part is None or part.start != start or assumed != state:
                rounds += assumed != state
                last = number + 1 if assumed == state or rounds > _ROUNDS else len(jobs)
                for later in range(number, last):
                    jobs[later] = replace(jobs[later], section=state, start=start if later == number else None)
                found[number:last] = self._run(jobs[number:last])
                part = found[number]
            if part is None:
                raise AssertionError("a part with a known start is always indexed")
            kept.append(part)
            start = part.end
            if part.problem is not None:
                break
        return kept

    def _job(self, number: int, begin: int, section: Section | None) -> Job:
        return Job(
            path=str(self._path.absolute()), header=self._header, begin=begin,
            stop=min(begin + self._part_bytes, self._size), start=None, size=self._size, section=section,
            limits=self._limits, directory=str(self._directory), name=f"{number:06}",
        )  # fmt: skip

    def _beginning(self) -> tuple[int, Section | None]:
        """Return where the first record begins, and the state of the section before its first packet."""
        if not isinstance(format_of(self._header, self._limits), Pcapng):
            return 24, None
        with self._path.open("rb") as file:
            span = Span(file.fileno(), self._header, 0, self._size, self._size, None, self._limits)
            for _ in span.packets():
                break
        return 0, span.section

    def _fragments(self, parts: Sequence[Part], indexed: Sequence[IndexedPart], skipped: Skipped) -> IndexedPart | None:
        """Complete the datagrams whose fragments the parts have put aside (rule 4)."""
        waiting, rows, at, crc = Fragments(self._limits.capture_bytes // 4), Rows(WIDE), 0, 0
        for part, known in zip(parts, indexed, strict=True):
            for piece in pieces_in(self._directory / part.pieces) if part.pieces else ():
                one = piece.fragment
                data = waiting.add(one.key, one.offset, one.data, one.more, skipped)
                if data is None:
                    continue
                found = segments_in(_datagram(one.key, one.protocol, len(data)), data + PAD, skipped)
                packet = known.number + piece.packet
                count = np.zeros(len(found), np.int64)
                rows.add(found, count + piece.time, count + packet, found.at + at)
                with (self._directory / _BLOB).open("ab") as blob:
                    blob.write(data)
                at, crc = at + len(data), zlib.crc32(data, crc)
        waiting.end(skipped)
        names = self._noted(rows.store(self._directory, _FRAGMENTS))
        if not names[0]:
            return None
        self.files[_BLOB] = (at, crc)
        return IndexedPart(0, 0, 0, *names)


def _datagram(key: tuple[int, ...], protocol: int, size: int) -> Datagrams:
    """Return a datagram that is at the beginning of a block; none if it is not TCP."""
    at = np.zeros(1 if protocol == TCP else 0, np.int64)
    halves = [np.full(len(at), half, np.uint64) for half in key[:4]]
    return Datagrams(at, at, at + size, at, (halves[0], halves[1]), (halves[2], halves[3]), at + TCP)


def _in_order(jobs: Sequence[Job]) -> list[Part | None]:
    return [run_job(job) for job in jobs]


def _key(file: int, limits: Limits, part_bytes: int) -> str:
    """Return the name of the index of a file: its state, and how it is indexed."""
    state = os.fstat(file)
    bounds = {name: getattr(limits, name) for name in limits.__dataclass_fields__ if name.startswith("capture_")}
    known = [
        repr((state.st_size, state.st_mtime_ns)).encode() + read_at(file, _SAMPLE, 0),
        repr((_VERSION, part_bytes, sorted(bounds.items()))).encode(),
    ]
    return "-".join(blake2b(each, digest_size=8).hexdigest() for each in known)


def check_places(paths: Iterable[Path], index_dir: Path | None) -> None:
    """Check that the indexes of files can be written, before long work; nothing is left. Raises as ``index_of``."""
    for there, path in {nearest(_named(path, index_dir)): path for path in paths}.items():
        with _permitted(path, there):
            probe(there)


def _named(path: Path, index_dir: Path | None) -> Path:
    """Return the directory of the indexes of a file."""
    path = path.absolute()
    if index_dir is None:
        return path.with_name(path.name + SUFFIX)
    own = blake2b(os.fsencode(path), digest_size=6).hexdigest()
    return index_dir.absolute() / f"{path.name}-{own}{SUFFIX}"


def _place(path: Path, index_dir: Path | None) -> Path:
    """Return the directory of the indexes of a file, which is made."""
    place = _named(path, index_dir)
    with _permitted(path, place):
        place.mkdir(parents=index_dir is not None, exist_ok=True)
        if not os.access(place, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place))
    return place


@contextmanager
def _without_remains(place: Path) -> Iterator[None]:
    """Remove the directory of the indexes of a file if making the first one fails."""
    try:
        yield
    except BaseException:
        with suppress(OSError):  # it has others
            place.rmdir()
        raise


@contextmanager
def _permitted(path: Path, place: Path) -> Iterator[None]:
    """Name another directory as the remedy where the index of a file may not be written."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise CaptureError(
            f"{place}: no permission to write the index of {path.name}; "
            "name another directory with --index-dir (indexDir)"
        ) from None


def _tidy(directory: Path, files: dict[str, tuple[int, int]]) -> None:
    """Remove what belongs to attempts that were not used."""
    for path in directory.iterdir():
        if path.name not in (*files, _MANIFEST) and not path.name.startswith("."):
            with suppress(OSError):
                path.unlink()


def _loaded(path: Path, directory: Path) -> FileIndex | None:
    """Return an index; None if there is none or it is damaged."""
    try:
        found: dict[str, Any] = json.loads((directory / _MANIFEST).read_text())
        for name, (size, crc) in found["files"].items():
            if (directory / name).stat().st_size != size or _crc(directory / name) != crc:
                return None
        index = found["index"]
        return FileIndex(**index | {
            "path": str(path.absolute()),
            "directory": str(directory),
            "problem": Problem(**index["problem"]) if index["problem"] else None,
            "first_skipped": {reason: Place(*place) for reason, place in index["first_skipped"].items()},
            "parts": [IndexedPart(**part) for part in index["parts"]],
            "fragments": IndexedPart(**index["fragments"]) if index["fragments"] else None,
        })  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _crc(path: Path) -> int:
    crc = 0
    with path.open("rb") as file:
        while data := file.read(0x40_0000):
            crc = zlib.crc32(data, crc)
    return crc
