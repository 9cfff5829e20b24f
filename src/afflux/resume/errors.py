"""Define the errors of a sessions file. Each contains the file, the problem and the remedy."""

from __future__ import annotations

from afflux.files import FileError

__all__ = ["StoreDamaged", "StoreError", "StoreLocked", "StoreNoSpace"]


class StoreError(FileError):
    """A sessions file cannot be opened, read or written.

    Raised itself for a file of another program, a schema of a newer afflux, and a file that contains a session with
    another address.
    """

    word = "store"


class StoreDamaged(StoreError):
    """The file is truncated, or a checksum is wrong. Sessions are never restored in part."""

    word = "store-damaged"


class StoreLocked(StoreError):
    """Another process, or another object in this one, has the file open."""

    word = "store-locked"


class StoreNoSpace(StoreError):
    """The disk is full."""

    word = "store-no-space"
