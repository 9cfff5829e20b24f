"""Declare the options --limit and --connect-timeout, which several commands have, and parse their values.

A value is written in the unit of its limit: a size (16MiB), a time (30s), a number, ``off`` where the limit has it, and
two of them with a comma for a pair.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from math import inf
from typing import Annotated, Any, Final

import typer

from afflux.cli.completing import one_of
from afflux.cli.exits import usage
from afflux.cli.inputs import above_0, duration, size
from afflux.core.errors import Error, LimitExceeded, RemoteProtocolError
from afflux.core.limits import ROWS, LimitRow, Limits, unknown

__all__ = ["ConnectTimeout", "LimitOption", "allow_open_files", "connect_timeout", "limits_of", "name_option"]

LimitOption = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="NAME=VALUE",
        autocompletion=one_of(f"{name}=" for name in ROWS),
        help="Set a limit: payload_bytes=16MiB, handshake_s=30s, idle_s=off, … May be repeated.",
    ),
]
ConnectTimeout = Annotated[
    str | None,
    typer.Option(
        "--connect-timeout", metavar="TIME", help="Fail if no connection is made in this time. [default: 10s]"
    ),
]

_SPARE_FILES: Final = 240
"Open files of a process in addition to its connections."
_OF_SERVERS: Final = (
    *("connections", "connections_per_address", "accepts_per_s", "half_handshakes", "accept_backoff_s"),
    *("auth_failures", "resume_sessions", "resume_process_bytes", "resume_rate"),
    *("journal_bytes", "partitions", "staged_bytes", "staging_parts"),
)
"Limits that have no effect at a client."
_ABOVE_0: Final = frozenset(
    ("connections", "accepts_per_s", "half_handshakes", "streams", "handshake_s", "payload_bytes")
)
"Limits with which nothing works when they are 0."
_FRAME_MARGIN: Final = 0x1_0000
"Bytes by which ``frame_bytes`` exceeds a small ``payload_bytes``, unless it was set itself."
_NUMBER = re.compile(r"\d[\d_]*(\.\d+)?")
_NAMED = re.compile(r"\b([a-z_]+)=[\d.]")
_SIZED = re.compile(r"(\d+) bytes(?: or more)? exceed ([a-z_]+)=(\d+)")


def limits_of(given: Sequence[str] | None, base: Limits | None = None, *, client: bool = False) -> Limits:
    """Return ``base``, or the limits of a server, with the values of --limit. Exits with a usage error for an unknown
    name, one that has no effect in this command (``client``: in one that only connects), a value that is none, or
    values that contradict each other."""
    base = base or Limits.server()
    if not given:
        return base
    changes: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            usage(f"invalid --limit {text!r}: expected NAME=VALUE, such as payload_bytes=16MiB")
        if name not in ROWS:
            usage(f"--limit: {unknown(name)}")
        if reason := _not_here(name, client):
            usage(f"--limit {name} {reason}")
        if name in changes:
            usage(f"--limit {name} is given twice")
        changes[name] = _value(ROWS[name], value.strip())
    try:
        return base.replace(**changes)
    except (TypeError, ValueError) as error:
        bound = re.search(r" exceeds ([a-z_]+)=", str(error))
        usage(f"--limit: {error}{f'; set --limit {bound[1]}=… as well' if bound else ''}{_unit(str(error))}")


def _unit(text: str) -> str:
    """Return the unit of the limit that an error is about, in parentheses; nothing if the text has it."""
    names = [name for name in re.findall(r"[a-z_]+", text) if name in ROWS]
    unit = ROWS[names[-1]].unit if names else ""
    return f" ({unit})" if unit and f"({unit})" not in text else ""


def _not_here(name: str, client: bool) -> str | None:
    """Return why a limit has no effect in this command, if it has none."""
    if name.startswith("capture_"):
        return "is for captures, which this command does not read"
    if client and name in _OF_SERVERS:
        return f"is for servers, and this command connects to one: use afflux serve --limit {name}=…"
    return None


def connect_timeout(text: str | None) -> float | None:
    """Parse --connect-timeout into seconds."""
    return None if text is None else above_0(text, "--connect-timeout")


def name_option(error: Error) -> None:
    """Add the option that raises the limit to an error that names one, and the side whose limit it is."""
    sized = _SIZED.search(error.message)
    named = sized[2] if sized else next((name for name in _NAMED.findall(error.message) if name in ROWS), None)
    if named is None or (sized and int(sized[1]) > (ROWS[named].most or inf)):
        return  # such as a frame of a peer that speaks another protocol
    if named == "frame_bytes" and not (sized and int(sized[3]) <= _FRAME_MARGIN):
        named = "payload_bytes"  # which frame_bytes follows
    if isinstance(error.__cause__ or error, (LimitExceeded, RemoteProtocolError)):
        error.add_note(f"raise it with --limit {named}=…")
    else:
        error.add_note(f"raise it where the server runs, with afflux serve --limit {named}=… or limits= in a program")


def allow_open_files(connections: int) -> None:
    """Raise the soft limit of open files for this number of connections, as far as the hard limit permits. The usual
    soft limit of 1,024 would make further connections wait, or fail."""
    with contextlib.suppress(ImportError, OSError, ValueError):  # missing on Windows; a system may refuse
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = connections + _SPARE_FILES
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if soft != resource.RLIM_INFINITY and soft < most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _value(row: LimitRow, text: str) -> Any:
    """Parse the value of one limit."""
    if row.off and text in ("off", "none"):
        return None
    if not isinstance(row.server, tuple):
        part = _part(row, text)
        if not part and row.name in _ABOVE_0:
            usage(f"--limit {row.name}={text}: nothing would be served: it has to be above 0 ({row.unit})")
        return part
    parts = text.split(",")
    if len(parts) != len(row.server):
        usage(f"--limit {row.name}={text}: expected {len(row.server)} values with a comma ({row.unit})")
    return tuple(_part(row, part.strip()) for part in parts)


def _part(row: LimitRow, text: str) -> Any:
    """Parse a number, a size or a time, by the name of the limit."""
    if _NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    is_size = row.name.endswith("_bytes")
    is_time = row.name.endswith(("_s", "_ms")) and "_per_" not in row.name
    if is_size and re.fullmatch(r"\d+[A-Za-z]+", text):
        return size(text, f"--limit {row.name}")
    if is_time and re.fullmatch(r"\d+(\.\d+)?[a-z]+", text):
        return duration(text, f"--limit {row.name}") * (1000 if row.name.endswith("_ms") else 1)
    like = "a size such as 16MiB" if is_size else "a time such as 30s" if is_time else "a number"
    return usage(f"--limit {row.name}={text}: expected {like}{', or off' if row.off else ''} ({row.unit})")
