"""Parse command-line values: payloads, items, durations."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

from afflux.cli.exits import usage
from afflux.core.autocredit import Kept

__all__ = [
    *("LINE_LIMIT", "check_metadata", "check_reach", "check_source", "credit", "directory", "duration"),
    *("existing", "items", "new_directory", "one", "size"),
]

LINE_LIMIT = 0x100_0000
"Maximum line length of -D in bytes: 16 MiB."

CHUNK = 0x1_0000

_COMPOSITE = "message/x.rsocket.composite-metadata.v0"
_ROUTING = "message/x.rsocket.routing.v0"
_AUTHENTICATION = "message/x.rsocket.authentication.v0"

_UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def duration(text: str, option: str = "duration") -> float:
    """Parse a duration into seconds: ``200ms``, ``1.5s``, ``2m``; a bare number is seconds. Exits with a usage error
    that names the option for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(us|ms|s|m|h|d)?", text.strip())
    if match is None:
        usage(f"invalid {option} {text!r}: write 200ms, 1.5s or 2m")
    return float(match[1]) * _UNITS[match[2] or ""]


_SIZES: dict[str, int] = {"": 1, "B": 1} | {
    f"{letter}{suffix}": int(base ** (power + 1))
    for power, letter in enumerate("KMGT")
    for suffix, base in (("B", 1000), ("iB", 1024))
}


def size(text: str, option: str = "size") -> int:
    """Parse a size into bytes: ``50GB``, ``512MiB``; a bare number is bytes. Exits with a usage error as above."""
    match = re.fullmatch(r"(\d{1,15})([A-Za-z]*)", text.strip())
    if match is None or match[2] not in _SIZES:
        usage(f"invalid {option} {text!r}: write 50GB, 512MiB or a number of bytes")
    return int(match[1]) * _SIZES[match[2]]


def check_metadata(mmt: str | None, route: str | None, auth_file: Path | None) -> None:
    """Refuse options that metadata of the type ``--mmt`` cannot carry."""
    if mmt in (None, _COMPOSITE):
        return
    if (route is not None and mmt != _ROUTING) or (auth_file is not None and mmt != _AUTHENTICATION):
        usage(f"-r and --auth-file require composite metadata: omit --mmt, or set it to {_COMPOSITE}")


def credit(text: str) -> Kept:
    """Parse --credit: 1 to 2^31-1, or ``auto``."""
    if text == "auto":
        return "auto"
    if not re.fullmatch(r"\d{1,10}", text) or not 0 < int(text) <= 0x7FFFFFFF:
        usage(f"invalid --credit {text!r}: expected 1 to {0x7FFFFFFF:,}, or auto")
    return int(text)


async def one(text: str) -> bytes:
    """Read the data of one -d or -m: ``-`` is all of stdin, ``@file`` the bytes of a file, otherwise the text."""
    if text == "-":
        parts = []
        while part := await _read(sys.stdin.fileno()):
            parts.append(part)
        return b"".join(parts)
    if text.startswith("@"):
        return existing(text[1:]).read_bytes()
    return os.fsencode(text)  # keeps command-line bytes that are not UTF-8


async def items(source: str) -> AsyncIterator[list[bytes]]:
    """Read the items of -D, one per line, in lists as they arrive: ``-`` is stdin, ``@file`` a file."""
    if source == "-":
        async for lines in _lines(sys.stdin.fileno()):
            yield lines
        return
    with existing(source.removeprefix("@")).open("rb", buffering=0) as file:
        async for lines in _lines(file.fileno()):
            yield lines


async def _lines(descriptor: int) -> AsyncIterator[list[bytes]]:
    """Yield lists of lines; reads more only when the previous list was consumed."""
    rest = b""
    while data := await _read(descriptor):
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > LINE_LIMIT:
            usage(f"a line is longer than {LINE_LIMIT:,} bytes")
        if lines:
            yield [line.removesuffix(b"\r") for line in lines]
    if rest:
        yield [rest.removesuffix(b"\r")]


async def _read(descriptor: int) -> bytes:
    """Read available bytes; b"" at the end. Uses a daemon thread, because a read from a silent terminal must block
    neither the loop nor the exit of the process."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[bytes] = loop.create_future()

    def tell(data: bytes) -> None:
        if not arrived.done():
            arrived.set_result(data)

    def work() -> None:
        try:
            data = os.read(descriptor, CHUNK)
        except OSError:
            data = b""
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(tell, data)

    threading.Thread(target=work, name="afflux-stdin", daemon=True).start()
    return await arrived


def existing(name: str, *, regular: bool = False, hint: str = "", instead: str = "") -> Path:
    """Return the path of a file. Exits with a usage error if there is none, or with ``regular`` if it is a device or a
    pipe, which cannot be read twice. ``hint`` is added where there is none, ``instead`` to that it is a pipe."""
    path = Path(name)
    if not name or not path.exists():
        usage(f"file {name!r} not found{hint}")
    if path.is_dir():
        usage(f"{name!r} is a directory, not a file")
    if regular and not path.is_file():
        usage(f"{name!r} is a device or a pipe, not a regular file: it is read more than once{instead}")
    return path


def directory(name: str) -> Path:
    """Return the path of a directory. Exits with a usage error if there is none."""
    path = Path(name)
    if not path.is_dir():
        usage(f"{name!r} is a file, not a directory" if path.exists() else f"directory {name!r} not found")
    return path


def new_directory(name: str, option: str) -> Path:
    """Return the path of a directory that exists or can be made. Exits with a usage error if it is a file."""
    path = Path(name)
    if path.exists() and not path.is_dir():
        usage(f"{option}: {name!r} is a file; it has to be a directory, which may be new")
    return path


def check_reach(uri: str) -> None:
    """Refuse a mem address: a command is a process of its own, so nothing else would be at it."""
    from afflux.transports.address import parse

    if parse(uri, serving=True).transport == "mem":
        usage(f"{uri} connects ends within one program, and a command is a program of its own: use tcp:// or unix://")


def check_source(source: str | None, *others: str | None) -> None:
    """Refuse a source of -D that does not exist, and stdin for two of the options, before anything is sent."""
    if [source, *others].count("-") > 1:
        usage("only one of -d, -D and -m can read stdin, which is read once")
    if source not in (None, "-"):
        existing(source.removeprefix("@"))
