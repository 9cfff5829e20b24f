"""Define the exit codes and map errors to them."""

from __future__ import annotations

import asyncio
import errno
import functools
import ssl
import sys
from collections.abc import Callable
from typing import NoReturn, ParamSpec

import typer

from afflux.cli.process import INTERRUPTED, PIPE_CLOSED, discard_output, interruptible, silence
from afflux.cli.telling import tell
from afflux.core import errors
from afflux.protocols.registry import PROTOCOLS

__all__ = [
    "DONE",
    "FAILED",
    "HANDSHAKE",
    "INTERRUPTED",
    "MALFORMED",
    "THRESHOLD",
    "TIMEOUT",
    "UNDECIDED",
    "USAGE",
    "by_wire_code",
    "code_of",
    "full_output",
    "guarded",
    "usage",
    "words",
]

DONE = 0
FAILED = 1
USAGE = 2
TIMEOUT = 3
HANDSHAKE = 4
MALFORMED = 5
UNDECIDED = 6
WRONG_PROTOCOL = 69
OTHER_CODE = 79
THRESHOLD = 99

BY_KIND = (
    (errors.ApplicationError, 64),
    (errors.Rejected, 65),
    (errors.Canceled, 66),
    (errors.Invalid, 67),
    (errors.RemoteProtocolError, 72),
)
"Exit codes for errors of protocols without error codes."

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_P = ParamSpec("_P")


def by_wire_code() -> dict[int, int]:
    """The exit code of each error code on the wire, as the protocols declare them."""
    return {wire: code for entry in PROTOCOLS.values() for wire, code in entry.exit_codes.items()}


def code_of(error: BaseException) -> int:
    """Return the exit code of ``error``: by its wire code if it has one, otherwise by its class."""
    if isinstance(error, (errors.AddressError, errors.Unsupported, errors.LocalProtocolError, ValueError)):
        return USAGE  # only afflux's own ValueErrors arrive here, such as AuthFileError
    if isinstance(error, errors.Error) and error.code is not None:
        return by_wire_code().get(error.code, OTHER_CODE)
    if any(isinstance(one, errors.RemoteProtocolError) and one.in_handshake for one in (error, error.__cause__)):
        return WRONG_PROTOCOL
    if isinstance(error, errors.SetupRefused) or _tls(error) or getattr(error, "in_handshake", False):
        return HANDSHAKE
    if isinstance(error, TimeoutError):
        return TIMEOUT
    if isinstance(error.__cause__, errors.RemoteProtocolError):
        error = error.__cause__  # the reason why the connection ended is more specific
    return next((code for kind, code in BY_KIND if isinstance(error, kind)), FAILED)


def _tls(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return True
        error = error.__cause__
    return False


def usage(text: str) -> NoReturn:
    """Print a usage error and exit."""
    tell(f"afflux: {text}")
    raise typer.Exit(USAGE)


def guarded(command: Callable[_P, None]) -> Callable[_P, None]:
    """Wrap a command: print an expected failure as one line on stderr and exit with its code. Bugs keep a traceback."""

    @functools.wraps(command)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
        with interruptible():
            try:
                command(*args, **kwargs)
                sys.stdout.flush()
            except BrokenPipeError:
                discard_output()
                raise typer.Exit(PIPE_CLOSED) from None
            except (KeyboardInterrupt, asyncio.CancelledError):
                silence()
                raise typer.Exit(INTERRUPTED) from None
            except (errors.Error, OSError) as error:
                tell(f"afflux: {words(error)}")
                raise typer.Exit(code_of(error)) from None

    return run


def words(error: BaseException) -> str:
    """Return the error in one line, without control characters from the peer's text."""
    text = "; ".join((_text(error), *getattr(error, "__notes__", ())))
    return "".join(char if char.isprintable() else " " for char in text)


def full_output(error: BaseException) -> bool:
    """Return whether the device of stdout is full."""
    return isinstance(error, OSError) and error.errno in _FULL and not error.filename


def _text(error: BaseException) -> str:
    if isinstance(error, errors.Error):
        text = error.message or type(error).__name__
        return f"{text} (0x{error.code:03X})" if error.code is not None else text
    if isinstance(error, TimeoutError):
        return str(error) or "timed out"
    if isinstance(error, OSError) and error.strerror:
        if full_output(error):
            return f"cannot write the output: {error.strerror}"
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__
