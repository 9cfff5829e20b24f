"""What can go wrong with a file of sessions: each error says which file, what is wrong and what to do. Nothing else."""

from __future__ import annotations

from pathlib import Path

from afflux.core.errors import Error

__all__ = ["StoreDamaged", "StoreError", "StoreLocked", "StoreNoSpace"]


class StoreError(Error):
    """A file of sessions can't be opened, read or written.

    Raised as it is for: a file of another program, a schema of a newer afflux, a file that holds a session with
    another address.
    """

    path: Path
    "The file."
    reason: str
    "What is wrong and what to do, without the path: fit to be told to a peer."

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}", rule=self.word)
        self.path = path
        self.reason = reason

    word = "store"
    "The reason word, which is ``rule`` as well."


class StoreDamaged(StoreError):
    """The file is truncated, or a checksum is wrong: no session is ever guessed."""

    word = "store-damaged"


class StoreLocked(StoreError):
    """Somebody else has the file open: another process, or another object in this one."""

    word = "store-locked"


class StoreNoSpace(StoreError):
    """The disk is full."""

    word = "store-no-space"
