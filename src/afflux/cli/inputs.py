"""What the user typed, made into values: payloads, items, durations, headers of time. No connection lives here."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

from afflux.cli.exits import usage

__all__ = ["LINE_LIMIT", "duration", "items", "one"]

LINE_LIMIT = 0x100_0000
"The longest line, in bytes, that -D takes as one item: 16 MiB."

_UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "m": 60.0, "h": 3600.0}


def duration(text: str) -> float:
    """Seconds: ``200ms``, ``1.5s``, ``2m``; a bare number is seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(us|ms|s|m|h)?", text.strip())
    if match is None:
        usage(f"{text!r} is not a duration; write 200ms, 1.5s or 2m")
    return float(match[1]) * _UNITS[match[2] or ""]


def one(text: str) -> bytes:
    """The data that one -d or -m stands for: ``-`` is stdin to its end, ``@file`` a file's bytes, else the text."""
    if text == "-":
        return sys.stdin.buffer.read()
    if text.startswith("@"):
        return _existing(text[1:]).read_bytes()
    return text.encode()


async def items(source: str) -> AsyncIterator[bytes]:
    """The items of -D, one a line without its end: ``-`` is stdin as it comes, ``@file`` or a bare path a file."""
    if source == "-":
        stream: BinaryIO = sys.stdin.buffer
        async for line in _lines(stream):
            yield line
        return
    with _existing(source.removeprefix("@")).open("rb") as file:
        async for line in _lines(file):
            yield line


async def _lines(file: BinaryIO) -> AsyncIterator[bytes]:
    """Lines, read in another thread: the next one only when this one was taken."""
    while line := await asyncio.to_thread(file.readline, LINE_LIMIT + 1):
        if len(line) > LINE_LIMIT:
            usage(f"a line is longer than {LINE_LIMIT:,} bytes")
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def _existing(name: str) -> Path:
    path = Path(name)
    if not path.is_file():
        usage(f"there is no file {name!r}")
    return path
