"""Processes for the tests of the commands: one that ends, one that serves. Contains no tests."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import NamedTuple

from afflux.cli.app import run as command_line
from tests.cli.forking import Process

COMMAND = (sys.executable, "-m", "afflux")
PATIENCE = 60.0
PIPE = subprocess.PIPE


def afflux(
    command: str | Sequence[str], *, stdin: str = "", env: dict[str, str] | None = None, timeout: float = PATIENCE
) -> subprocess.CompletedProcess[str]:
    """Run ``afflux`` with the words of a command line, to its end, in a process of its own."""
    words = shlex.split(command) if isinstance(command, str) else list(command)
    with Process(words, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=os.environ | (env or {}), text=True) as process:
        try:
            out, errors = process.communicate(stdin, timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return subprocess.CompletedProcess(words, process.wait(), out, errors)


class Ran(NamedTuple):
    """What came of a command line."""

    code: int
    out: str
    errors: str


def here(*words: str) -> Ran:
    """Run ``afflux`` in this process, as if its output went into pipes: a process of its own costs a third of a second
    before it does anything."""
    written = io.BytesIO()
    out = io.TextIOWrapper(written, encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()) as errors, own_modules():
        code = command_line(list(words))
    return Ran(code, written.getvalue().decode(), errors.getvalue())


@contextlib.contextmanager
def own_modules() -> Iterator[None]:
    """Forget the modules that are imported from the current folder: the next test has its own of the same name."""
    path = list(sys.path)
    try:
        yield
    finally:
        sys.path[:] = path
        for name, module in list(sys.modules.items()):
            if os.path.dirname(getattr(module, "__file__", None) or "") == os.getcwd():
                del sys.modules[name]


def on_a_terminal(command: str) -> str:
    """What ``afflux`` writes to a terminal; it has to end well and to say nothing on stderr."""
    terminal, far_end = pty.openpty()
    try:
        process = Process(shlex.split(command), stdout=far_end, stderr=PIPE, text=True)
        os.close(far_end)
        shown = b""
        with contextlib.suppress(OSError):  # EIO: the other end is closed
            while data := os.read(terminal, 0x1000):
                shown += data
        errors = process.communicate(timeout=PATIENCE)[1]
    finally:
        os.close(terminal)
    if process.returncode or errors:
        raise RuntimeError(f"{command} ended with {process.returncode}: {errors}")
    return shown.decode().replace("\r\n", "\n")


class Server:
    """``afflux serve``, or another ``command`` that listens, on a free port; ``uri`` is the address it printed.
    ``before`` is a command of a shell in a fresh process; ``fresh`` alone is a fresh process too: its memory is all its
    own."""

    def __init__(
        self,
        *options: str,
        uri: str = "tcp://127.0.0.1:0",
        before: str = "",
        fresh: bool = False,
        command: Sequence[str] = ("serve",),
    ) -> None:
        self._words = [*command, uri, *options]
        self._before = before
        self._fresh = fresh or bool(before)

    def _start(self) -> Process | subprocess.Popen[str]:
        if not self._fresh:
            return Process(self._words, stdout=PIPE, stderr=PIPE, text=True)
        command = shlex.join([*COMMAND, *self._words])
        shell = ["sh", "-c", f"{self._before or ':'}; exec {command}"]
        return subprocess.Popen(shell, stdout=PIPE, stderr=PIPE, text=True)

    def __enter__(self) -> Server:
        self.process = self._start()
        if self.process.stdout is None:
            raise RuntimeError("no stdout")
        ready = self.process.stdout.readline()
        if not ready.startswith("ready "):
            raise RuntimeError(f"no server: {ready!r} {self.process.communicate()[1]}")
        self.uri = ready.split()[1]
        return self

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str, str]:
        """Signal it; its exit code, and the rest of what it wrote."""
        self.process.send_signal(number)
        out, errors = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, errors

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.stop()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
