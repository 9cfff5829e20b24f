"""Run a command line as the whole process: standard streams, SIGINT before and after a command, a closed stdout.

1. A standard stream that is closed is opened on /dev/null, so that no socket or file gets its descriptor.
2. SIGINT ends the process at once, with exit code 130, before a command begins and after it has ended. Within a command
   it raises KeyboardInterrupt (``interruptible``), and does so again if a finalizer has lost it. When the interpreter
   clears its modules, nothing is left to end, and SIGINT is ignored.
3. Characters that the encoding of stdout or stderr does not have are escaped, as in ``\\u2026``.
4. On a terminal an interrupted command ends its line, so that the prompt begins a new one.
"""

from __future__ import annotations

import atexit
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging

__all__ = [
    "INTERRUPTED",
    "PIPE_CLOSED",
    "discard_output",
    "interruptible",
    "leave_at_once",
    "run_process",
    "silence",
    "was_closed",
]

INTERRUPTED = 130
"128 + SIGINT."
PIPE_CLOSED = 141
"128 + SIGPIPE: the reader of stdout has closed the pipe, as head does."

_AGAIN_S = 0.05
"Seconds after which an interruption that was lost is repeated."

_whole_process = False
_closed: set[int] = set()
"Standard streams that the process was started without."


def run_process(run: Callable[[], int]) -> int:
    """Return the exit code of ``run``, which is everything that this process does."""
    global _whole_process
    _open_standard_streams()
    _escape_characters()
    _whole_process = True
    signal.signal(signal.SIGINT, _leave)
    # Python would restore the default action, which changes the exit code, before it clears its modules.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    code = 0
    try:
        code = run()
        sys.stdout.flush()
        sys.stderr.flush()
    except KeyboardInterrupt:
        silence()
        code = INTERRUPTED
    except BrokenPipeError:
        discard_output()
        code = PIPE_CLOSED
    except OSError as error:
        with suppress(OSError):
            if not code:  # otherwise the command has reported it
                sys.stderr.write(f"afflux: cannot write the output: {error.strerror}\n")
        discard_output()
        code = code or 1
    if code == INTERRUPTED:
        _end_line()
    return code


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt meanwhile. No-op within a program that is more than the command, and within a
    command that handles SIGINT itself."""
    if not _whole_process or signal.getsignal(signal.SIGINT) is not _leave:
        yield
        return
    import logging

    logging.getLogger().addFilter(_no_interruption)  # py4j logs one with its traceback
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.unraisablehook = _repeat
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, _leave)
        if sys.unraisablehook is _repeat:
            sys.unraisablehook = sys.__unraisablehook__


def silence() -> None:
    """Print no more of the objects that an interruption has left behind."""
    if _whole_process:
        import logging

        logging.disable(logging.CRITICAL)
        sys.unraisablehook = lambda _: None


def discard_output() -> None:
    """Write the rest of stdout to /dev/null: what is buffered must not fail again at the end of the process."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def _repeat(lost: sys.UnraisableHookArgs) -> None:
    """Interrupt once more, a moment later, if the interruption has reached a finalizer: Python only reports what these
    raise, and py4j has many."""
    if not issubclass(lost.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
        return
    import threading

    again = threading.Timer(_AGAIN_S, os.kill, (os.getpid(), signal.SIGINT))
    again.daemon = True
    again.start()


def _no_interruption(record: logging.LogRecord) -> bool:
    return record.exc_info is None or record.exc_info[0] is not KeyboardInterrupt


def leave_at_once() -> None:
    """Let SIGINT end the process at once from now on. No-op within a program that is more than the command."""
    if _whole_process:
        signal.signal(signal.SIGINT, _leave)


def _leave(number: int, frame: object) -> None:
    _end_line()
    os._exit(INTERRUPTED)


def was_closed(descriptor: int) -> bool:
    """Return whether the process was started without this standard stream."""
    return descriptor in _closed


def _end_line() -> None:
    with suppress(OSError):
        if os.isatty(2):
            os.write(2, b"\n")


def _escape_characters() -> None:
    """Let no text fail to be printed. Options and file names may have bytes that are no characters at all."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _open_standard_streams() -> None:
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            _closed.add(descriptor)
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
            setattr(sys, name, open(descriptor, mode, closefd=False))  # noqa: SIM115  # lives as long as the process
