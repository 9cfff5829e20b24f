"""Keep a terminal for the lines of a command: what Spark, its JVM and its workers print goes to a log file.

1. While a :class:`LogFile` is entered, the file is stdout and stderr of this process and of every process that it
   starts, which may outlive the command. :meth:`LogFile.say` prints to the terminal.
2. The file has at most about ``most`` bytes. When it grows beyond, its middle is removed, and a line says how much.
3. A command that fails tells the path and the size of the file, as a note of its error. After a mistake of the user, an
   interruption or a success the file is removed. With warnings of afflux (:data:`KEPT`) a success keeps and tells it.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from afflux.core.errors import Error
from afflux.spark.losses import ACCEPTED

__all__ = ["KEPT", "LogFile"]

KEPT: Final = (ACCEPTED, "partial result: ")
"Warnings of afflux that a table cannot show: a log with one of them is kept."
MOST_BYTES: Final = 16 << 20
"Bytes above which the middle of the file is removed."
_HEAD_BYTES: Final = 1 << 20
"Bytes of its begin that are kept then: how Spark has started."
_CHECK_S: Final = 1.0
"Seconds between two looks at the size."
_STREAMS: Final = (1, 2)


class _Log(io.TextIOWrapper):
    """The file as a stream of Python. What is written after its end is lost: handlers of logging keep the stream, and
    threads of py4j log while the JVM ends."""

    def write(self, text: str, /) -> int:
        """Write text, or nothing after the end. Raises OSError."""
        return len(text) if self.closed else super().write(text)

    def flush(self) -> None:
        """Write what is buffered; a no-op after the end. Raises OSError."""
        if not self.closed:
            super().flush()


class LogFile:
    """The log of one command, in the directory for temporary files. Use it as a context manager."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self.path = Path()
        "The file, while entered and after a failure."
        self._most = most
        self._head = min(_HEAD_BYTES, most // 4)
        self._over = threading.Event()

    def __enter__(self) -> Self:
        self._python = sys.stdout, sys.stderr
        self._raw = _descriptor(sys.stderr)
        handle, name = tempfile.mkstemp(prefix="afflux-spark-", suffix=".log")
        os.close(handle)
        self.path = Path(name)
        appending = os.open(self.path, os.O_WRONLY | os.O_APPEND)  # the file may be cut while others write to it
        _flush()
        self._saved = [(stream, os.dup(stream)) for stream in _STREAMS]
        for stream in _STREAMS:
            os.dup2(appending, stream)
        self._terminal = dict(self._saved)[2] if self._raw else None
        sys.stderr = sys.stdout = _Log(open(appending, "wb"), errors="backslashreplace", line_buffering=True)
        self._watcher = threading.Thread(target=self._watch, name="afflux-log", daemon=True)
        self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, Exception):  # first: another interruption may cut the rest short
            self._remove()
        self._over.set()
        self._watcher.join()
        log, (sys.stdout, sys.stderr) = sys.stderr, self._python
        with suppress(OSError):
            log.close()
        for stream, saved in self._saved:
            os.dup2(saved, stream)
            os.close(saved)
        self._terminal = None
        if isinstance(error, Exception) and not _is_mistake(error) and self._size():
            error.add_note(f"Spark's log: {self.path} ({self._size():,} bytes)")
        elif error is None and self._has_warnings():
            self.say(f"warnings are in Spark's log: {self.path} ({self._size():,} bytes)")
        else:
            self._remove()

    def say(self, text: str) -> None:
        """Print a line to the terminal. A signal handler may call it at any time."""
        line = f"{text}\n"
        if self._terminal is not None:
            with suppress(OSError):
                os.write(self._terminal, line.encode(self._python[1].encoding or "utf-8", "replace"))
            return
        self._python[1].write(line)
        self._python[1].flush()

    # -- inside ---------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._over.wait(_CHECK_S):
            with suppress(OSError):
                self.bound()

    def bound(self) -> None:
        """Remove the middle of the file if it is too large. What is written at that moment may be lost."""
        size = self._size()
        if size <= self._most:
            return
        keep = self._most // 2
        with self.path.open("r+b") as file:
            file.seek(size - keep)
            tail = file.read()
            file.truncate(self._head)
        removed = size - keep - self._head
        with self.path.open("ab") as file:
            file.write(f"\n[afflux: {removed:,} bytes removed here]\n".encode() + tail)

    def _remove(self) -> None:
        with suppress(OSError):
            self.path.unlink()

    def _size(self) -> int:
        return self.path.stat().st_size

    def _has_warnings(self) -> bool:
        with suppress(OSError), self.path.open(encoding="utf-8", errors="replace") as file:
            return any(kept in line for line in file for kept in KEPT)
        return False


def _is_mistake(error: Exception) -> bool:
    """Return whether an error says what the user has to change: afflux's own errors of values do."""
    return isinstance(error, Error) and isinstance(error, ValueError)


def _descriptor(stream: Any) -> bool:
    """Return whether a stream of Python writes to the stderr of the process."""
    try:
        return bool(stream.fileno() == 2)
    except (OSError, AttributeError, ValueError):
        return False


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
