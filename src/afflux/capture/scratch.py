"""Write a directory that appears complete or not at all: it is made beside its place and moved there.

A directory in the making is locked. What a killed process has left is not, so that a later one removes it (``sweep``).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final
from uuid import uuid4

__all__ = ["moved", "named_if_full", "nearest", "probe", "replace_directory", "scratch", "sweep"]

_LOCK: Final = ".lock"
_OLD: Final = ".old"
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_EXCHANGE: Final = 2
_AT_FDCWD: Final = -100


@contextmanager
def scratch(parent: Path, prefix: str) -> Iterator[Path]:
    """Make a directory in ``parent`` whose name begins with ``prefix``, and remove it at the end if it is still there.
    Raises OSError."""
    path, lock = _locked(parent, prefix)
    try:
        yield path
    finally:
        lock.close()
        _remove(path)


def _remove(path: Path) -> None:
    """Remove a directory of ``scratch``, its lock last: if this is interrupted, ``sweep`` removes the rest. Errors are
    ignored."""
    with suppress(OSError):
        for one in path.iterdir():
            if one.is_dir() and not one.is_symlink():
                shutil.rmtree(one, ignore_errors=True)
            elif one.name != _LOCK:
                one.unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)


def _locked(parent: Path, prefix: str) -> tuple[Path, BinaryIO]:
    """Return a new directory, and the file whose lock keeps ``sweep`` from removing it."""
    while True:
        path = parent / f"{prefix}{uuid4().hex[:12]}"
        path.mkdir()
        lock = (path / _LOCK).open("wb")
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (path / _LOCK).exists():
            return path, lock
        lock.close()  # it was swept before it was locked


def nearest(path: Path) -> Path:
    """Return an absolute path, or the first directory above it that exists."""
    return next(one for one in (path, *path.parents) if one.exists())


def probe(directory: Path) -> None:
    """Check that directories can be made in a directory: make one and remove it. Raises OSError, which names the
    directory."""
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".afflux-", dir=directory))
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or 0), str(directory)) from None


@contextmanager
def named_if_full(directory: str) -> Iterator[None]:
    """Name the directory in the error of a full disk or of a file that is too large: pyarrow's gives none."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise OSError(error.errno, os.strerror(error.errno), directory) from None


def sweep(parent: Path, prefix: str, place: Path | None = None) -> None:
    """Remove what killed processes have left. What one of them was replacing returns to ``place``."""
    for path in parent.glob(f"{prefix}*"):
        with suppress(OSError), (path / _LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for old in path.glob(f"*{_OLD}") if place is not None else ():
                _return(old, place)
            _remove(path)


def moved(made: Path, place: Path) -> bool:
    """Move a directory of ``scratch`` to its place; return False if there is one already. Raises OSError."""
    (made / _LOCK).unlink(missing_ok=True)
    try:
        made.rename(place)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def replace_directory(made: Path, place: Path) -> None:
    """Move a directory of ``scratch`` to its place. If there is one, both change places at once, and the old one is
    removed with the scratch directory. Raises OSError."""
    if moved(made, place) or _exchanged(made, place):
        return
    old = made.with_name(f"{made.name}{_OLD}")
    try:
        place.rename(old)
        made.rename(place)
    except BaseException:  # an interruption between both, too
        _return(old, place)
        raise
    old.rename(made)


def _return(old: Path, place: Path | None) -> None:
    """Move a directory back to its place, if that is free."""
    if place is not None and not place.exists():
        with suppress(OSError):
            old.rename(place)


def _exchanged(one: Path, other: Path) -> bool:
    """Let two directories change places; return False if the system cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    if rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
        return False
    raise OSError(number, os.strerror(number), str(other))
