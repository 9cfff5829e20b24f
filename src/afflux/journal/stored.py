"""Share one backend among threads: changes one at a time, the note, and the registered reader. Items: store.py."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from afflux.core.limits import Limits
from afflux.journal.contract import Backend, Reader
from afflux.journal.errors import JournalError, JournalLocked, JournalNoSpace, ReaderConflict

__all__ = ["Stored"]


class Stored:
    """A backend and its state: what a :class:`Journal` has besides items. Changes are made one at a time."""

    path: Path
    "The file, or the name of the stream."
    limits: Limits
    first: int
    "The lowest stored offset; ``head`` if the log is empty."

    def __init__(self, backend: Backend, limits: Limits) -> None:
        self.limits = limits
        self.path = Path(backend.name)
        self.first = backend.heads.first
        self._backend = backend
        self._size = backend.heads.size
        self._writing = threading.Lock()  # orders writes; locked during disk writes
        self._memory = threading.Lock()  # protects the numbers and the collected blocks; locked briefly
        self._closed = False
        self._failure: str | None = None

    def release(self, name: str) -> None:
        """Forget the registered reader, so that another one may acknowledge.

        Raises:
            ReaderConflict: the registered reader has another name, or there is none.
            JournalNoSpace: the disk is full.
            JournalError: the disk failed.
        """
        with self._change():
            self._refresh()
            registered = self.reader
            if registered is None or registered.name != name:
                found = "none is registered" if registered is None else f"its reader is {registered.name!r}"
                raise ReaderConflict(self.path, f"there is no reader {name!r} to release: {found}")
            self._backend.register(None)

    def refresh(self) -> int:
        """Learn what other processes have trimmed, where the storage permits that; return the lowest offset left.

        Raises:
            JournalError: the storage failed.
        """
        with self._change():
            self._refresh()
            return self.first

    def _refresh(self) -> None:
        size = self._backend.heads.size
        self._backend.refresh()
        heads = self._backend.heads
        self.first = max(self.first, heads.first)
        with self._memory:
            self._size -= size - heads.size

    @property
    def note(self) -> bytes:
        """What ``remember`` has stored; empty at first."""
        return self._backend.heads.note

    def remember(self, note: bytes) -> None:
        """Store ``note`` durably, in place of the former one. A note that is stored before an item is appended is there
        whenever that item is.

        Raises:
            JournalNoSpace: the disk is full; the former note is still there.
            JournalError: the disk failed.
        """
        with self._change():
            if note != self.note:
                self._backend.remember(note)

    @property
    def reader(self) -> Reader | None:
        """The reader whose acknowledgements trim, or None."""
        return self._backend.heads.reader

    def _check_usable(self) -> None:
        if self._closed:
            raise JournalError(self.path, "the journal is closed")
        if self._failure is not None:
            raise JournalError(self.path, f"an earlier write failed: {self._failure}")

    @contextmanager
    def _change(self) -> Iterator[None]:
        """Change the backend, unless an earlier change has failed for good."""
        with self._writing:
            self._check_usable()
            try:
                yield
            except (JournalLocked, JournalNoSpace, ReaderConflict):
                raise
            except JournalError as error:
                self._failure = error.reason
                raise
