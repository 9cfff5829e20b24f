"""Print the progress of a long job to stderr: lines with the time, and on a terminal one line that is rewritten."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console

__all__ = ["Progress"]


class Progress:
    """Shows lines with the seconds since it was made. Leaving it ends the rewritten line."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._start = time.monotonic()
        self._waits_for = ""
        self._open = False
        "Whether the cursor is behind a rewritten line."

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open:
            sys.stderr.write("\n")
            self._open = False

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start

    def say(self, text: str) -> None:
        """Print a line. Markup of rich counts."""
        self.clear()
        self._console.print(f"[dim]{self.elapsed:6.1f} s[/dim]  {text}", soft_wrap=True)

    def clear(self) -> None:
        """Remove the rewritten line."""
        if self._open:
            sys.stderr.write("\r\x1b[K")
            self._open = False
        self._waits_for = ""

    def wait(self, text: str) -> None:
        """Show what is awaited, with the passing time: see ``tick``. Without a terminal, print it once."""
        if sys.stderr.isatty():
            self._waits_for = text
            self.tick()
        else:
            self.say(text)

    def tick(self) -> None:
        """Show the time that has passed. Call it once a second."""
        if self._waits_for:
            self.rewrite(self._waits_for)

    def rewrite(self, text: str) -> None:
        """Replace the last line, on a terminal. The line is cut to the terminal's width."""
        line = f"{self.elapsed:6.1f} s  {text}"
        sys.stderr.write(f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}")
        sys.stderr.flush()
        self._open = True
