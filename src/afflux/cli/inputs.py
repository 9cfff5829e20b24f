"""What the user typed, made into values: payloads, items, durations. No connection lives here."""

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

__all__ = ["LINE_LIMIT", "check_metadata", "credit", "duration", "items", "one"]

LINE_LIMIT = 0x100_0000
"The longest line, in bytes, that -D takes as one item: 16 MiB."

CHUNK = 0x1_0000

_COMPOSITE = "message/x.rsocket.composite-metadata.v0"
_ROUTING = "message/x.rsocket.routing.v0"
_AUTHENTICATION = "message/x.rsocket.authentication.v0"

_UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "m": 60.0, "h": 3600.0}


def duration(text: str) -> float:
    """Seconds: ``200ms``, ``1.5s``, ``2m``; a bare number is seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(us|ms|s|m|h)?", text.strip())
    if match is None:
        usage(f"{text!r} is not a duration; write 200ms, 1.5s or 2m")
    return float(match[1]) * _UNITS[match[2] or ""]


def check_metadata(mmt: str | None, route: str | None, auth_file: Path | None) -> None:
    """Whether metadata of the type ``--mmt`` can hold what else is asked for."""
    if mmt in (None, _COMPOSITE):
        return
    if (route is not None and mmt != _ROUTING) or (auth_file is not None and mmt != _AUTHENTICATION):
        usage(f"-r and --auth-file are entries of composite metadata: leave --mmt out, or make it {_COMPOSITE}")


def credit(text: str) -> Kept:
    """Items under way: 1 to 2^31-1, or ``auto``."""
    if text == "auto":
        return "auto"
    if not re.fullmatch(r"\d{1,10}", text) or not 0 < int(text) <= 0x7FFFFFFF:
        usage(f"--credit is 1 to {0x7FFFFFFF:,}, or auto, not {text!r}")
    return int(text)


async def one(text: str) -> bytes:
    """The data that one -d or -m stands for: ``-`` is stdin to its end, ``@file`` a file's bytes, else the text."""
    if text == "-":
        parts = []
        while part := await _read(sys.stdin.fileno()):
            parts.append(part)
        return b"".join(parts)
    if text.startswith("@"):
        return _existing(text[1:]).read_bytes()
    return os.fsencode(text)  # bytes of the command line that are not UTF-8 go as they are


async def items(source: str) -> AsyncIterator[list[bytes]]:
    """The items of -D, one a line without its end, in lists as they come: ``-`` is stdin, ``@file`` a file."""
    if source == "-":
        async for lines in _lines(sys.stdin.fileno()):
            yield lines
        return
    with _existing(source.removeprefix("@")).open("rb", buffering=0) as file:
        async for lines in _lines(file.fileno()):
            yield lines


async def _lines(descriptor: int) -> AsyncIterator[list[bytes]]:
    """Lines, read when the ones before were taken."""
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
    """What can be read now, b"" at the end. In a thread of its own: one that waits for a silent terminal for ever
    must hold up neither the loop nor the end of the process."""
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


def _existing(name: str) -> Path:
    path = Path(name)
    if not path.is_file():
        usage(f"there is no file {name!r}")
    return path
