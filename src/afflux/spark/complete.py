"""Name the files of complete parts, check them after a restart, and make them durable together.

1. A name is ``part-<partition>-<attempt>-<rows>-<checksum>-<columns>.parquet``. ``checksum`` is the CRC-32 of the file.
   ``columns`` is the fingerprint of the schema (schemas.py), so that parts are compared without opening them.
2. A part is not synced when it is complete: the system only begins to write it. The commit syncs all parts of its batch
   in one pass. Most are on the disk by then, and the file system combines the rest.
3. If the machine crashes before the commit, a file may have its name, but not its bytes. So a receiver compares the
   parts that it finds when it starts with their checksums, before it commits them. It need not check its own.

Earlier versions synced each part, and their names have no checksum.
"""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

from afflux.protocols.rsocket.staging import Part

__all__ = ["begin_to_write", "checksum", "is_whole", "mark_in", "name_of", "stem", "stem_in", "sync_files"]

_READ_BYTES = 0x1_0000
_THREADS = 8
"Files that are synced concurrently: the file system combines their entries in its journal."
_STEM = 4
"Words of a name that identify the part."


def stem(part: Part) -> str:
    """Return the beginning of the name of a part's file, which identifies the part."""
    return f"part-{part.partition:05}-{part.attempt:016x}-{part.rows}"


def name_of(part: Part, crc: int, mark: str) -> str:
    """Return the name of a part's file."""
    return f"{stem(part)}-{crc:08x}-{mark}.parquet"


def stem_in(name: str) -> str:
    """Return the stem in the name of a file."""
    return "-".join(name.split("-")[:_STEM])


def mark_in(name: str) -> str:
    """Return the fingerprint of the columns in the name of a file."""
    return name.removesuffix(".parquet").rpartition("-")[2]


def checksum(path: Path) -> int:
    """Return the CRC-32 of a file."""
    crc = 0
    with path.open("rb", buffering=0) as file:
        while data := file.read(_READ_BYTES):
            crc = zlib.crc32(data, crc)
    return crc


def begin_to_write(path: Path) -> None:
    """Let the system write a file to the disk soon, without waiting, where it takes such advice."""
    if sys.platform == "linux":
        handle = os.open(path, os.O_RDWR)
        try:
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)


def is_whole(path: Path) -> bool:
    """Return whether a file has the bytes that its part had; True for files of earlier versions.

    Raises:
        OSError: the file cannot be read.
    """
    words = path.name.split("-")[_STEM:-1]
    return not words or words[0] == f"{checksum(path):08x}"


def sync_files(directory: Path, names: Sequence[str]) -> list[str]:
    """Make files durable; return the names of those that exist.

    Raises:
        OSError: a file could not be written. Do not use it: the next sync may succeed without its bytes.
    """
    shares = [names[start::_THREADS] for start in range(min(_THREADS, len(names)))]
    with ThreadPoolExecutor(_THREADS, "afflux-sync") as threads:
        there = {name for synced in threads.map(partial(_sync_each, directory), shares) for name in synced}
    return [name for name in names if name in there]


def _sync_each(directory: Path, names: Sequence[str]) -> list[str]:
    synced = []
    for name in names:
        with suppress(FileNotFoundError):
            handle = os.open(directory / name, os.O_RDWR)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
            synced.append(name)
    return synced
