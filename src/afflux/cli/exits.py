"""Exit codes, and how an error becomes one. The only place where they are written."""

from __future__ import annotations

import asyncio
import functools
import os
import ssl
import sys
from collections.abc import Callable
from typing import NoReturn, ParamSpec

import typer

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
    "USAGE",
    "by_wire_code",
    "code_of",
    "guarded",
    "usage",
]

DONE = 0
FAILED = 1
USAGE = 2
TIMEOUT = 3
HANDSHAKE = 4
MALFORMED = 5
OTHER_CODE = 79
THRESHOLD = 99
INTERRUPTED = 130

BY_KIND = (
    (errors.ApplicationError, 64),
    (errors.Rejected, 65),
    (errors.Canceled, 66),
    (errors.Invalid, 67),
    (errors.RemoteProtocolError, 72),
)
"Where the protocol has no codes."

_P = ParamSpec("_P")


def by_wire_code() -> dict[int, int]:
    """The exit code of each error code on the wire, as the protocols declare them."""
    return {wire: code for entry in PROTOCOLS.values() for wire, code in entry.exit_codes.items()}


def code_of(error: BaseException) -> int:
    """The exit code that tells what ``error`` told: its wire code where it has one, else its kind."""
    if isinstance(error, (errors.AddressError, errors.Unsupported, errors.LocalProtocolError, ValueError)):
        return USAGE  # a ValueError is told only when it is one of ours, such as a credentials file that is wrong
    if isinstance(error, errors.Error) and error.code is not None:
        return by_wire_code().get(error.code, OTHER_CODE)
    if isinstance(error, errors.SetupRefused) or _tls(error) or getattr(error, "in_handshake", False):
        return HANDSHAKE
    if isinstance(error, TimeoutError):
        return TIMEOUT
    if isinstance(error.__cause__, errors.RemoteProtocolError):
        error = error.__cause__  # by what the connection ended, whatever that did to a request
    return next((code for kind, code in BY_KIND if isinstance(error, kind)), FAILED)


def _tls(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return True
        error = error.__cause__
    return False


def usage(text: str) -> NoReturn:
    """End the command because of how it was called."""
    typer.echo(f"afflux: {text}", err=True)
    raise typer.Exit(USAGE)


def guarded(command: Callable[_P, None]) -> Callable[_P, None]:
    """The command, with each expected failure as one line on stderr and its exit code; a bug keeps its traceback."""

    @functools.wraps(command)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            command(*args, **kwargs)
            sys.stdout.flush()
        except BrokenPipeError:
            # Whoever read stdout has left, as head does: there is nobody to tell.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            raise typer.Exit(FAILED) from None
        except (KeyboardInterrupt, asyncio.CancelledError):
            raise typer.Exit(INTERRUPTED) from None
        except (errors.Error, OSError) as error:
            typer.echo(f"afflux: {_words(error)}", err=True)
            raise typer.Exit(code_of(error)) from None

    return run


def _words(error: BaseException) -> str:
    """The error in one line, without what a peer's text could do to a terminal."""
    text = "; ".join((_text(error), *getattr(error, "__notes__", ())))
    return "".join(char if char.isprintable() else " " for char in text)


def _text(error: BaseException) -> str:
    if isinstance(error, errors.Error):
        text = error.message or type(error).__name__
        return f"{text} (0x{error.code:03X})" if error.code is not None else text
    if isinstance(error, TimeoutError):
        return str(error) or "not done in time"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__
