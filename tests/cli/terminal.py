"""A command on a terminal of its own, for the tests of the commands. Contains no tests."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
from collections.abc import Mapping, Sequence
from fcntl import ioctl
from types import TracebackType

__all__ = ["Terminal"]

PATIENCE = 60.0
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>78]")


class Terminal:
    """``afflux``, or another program, with a controlling terminal: what is typed arrives as from a keyboard, Ctrl-C
    included."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        columns: int = 80,
        program: Sequence[str] = (sys.executable, "-m", "afflux"),
    ) -> None:
        # The terminal does not answer questions about the cursor.
        environment = {**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", **(env or {})}
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            os.execvpe(program[0], [*program, *words], environment)
        self.pid = self._pid
        "The process of the program."
        self._code: int | None = None
        self.shown = ""
        "What the terminal has shown, without control sequences."

    def type(self, text: str) -> None:
        """Type keys; \\r is the Enter key, \\x03 is Ctrl-C, \\x04 is Ctrl-D and \\t the Tab key."""
        os.write(self._terminal, text.encode())

    def until(self, text: str) -> str:
        """Read until the terminal shows a text after what was returned before; return what it shows up to there."""
        while text not in self.shown:
            if not self._read():
                raise AssertionError(f"{text!r} is not shown, but {self.shown!r}")
        before, _, self.shown = self.shown.partition(text)
        return before + text

    def end(self) -> tuple[int, str]:
        """Read to the end; the exit code, and the rest of what the terminal shows."""
        while self._read():
            pass
        self._code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return self._code, self.shown

    def _read(self) -> bool:
        if not select.select([self._terminal], [], [], PATIENCE)[0]:
            raise AssertionError(f"nothing more is shown after {self.shown!r}")
        data = b""
        with contextlib.suppress(OSError):  # EIO: the other end is closed
            data = os.read(self._terminal, 0x1000)
        self.shown += _CONTROL.sub("", data.decode(errors="replace")).replace("\r\n", "\n")
        return bool(data)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._code is None:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._terminal)
