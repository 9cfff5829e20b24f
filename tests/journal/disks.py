"""A file system that is really full. Only root may mount one; elsewhere these tests are skipped."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(directory: Path, size: int) -> Iterator[Path]:
    """Mount a file system of ``size`` bytes at ``directory``."""
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted: {mounted.stderr.strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


def fill(directory: Path) -> Path:
    """Fill the disk to its last byte with a file of another program; return it."""
    other = directory / "other"
    with other.open("ab", buffering=0) as file:
        for size in (0x100000, 0x1000, 1):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    return other
