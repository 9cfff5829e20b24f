"""``afflux decode``: frames as JSON lines, from hexadecimal or from a dump. What a frame says is not known here."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from afflux.cli.exits import MALFORMED, usage
from afflux.cli.output import Format, printer
from afflux.core.payload import Payload

__all__ = ["Framing", "Shown", "decode", "frames"]

CAPTURES = {
    bytes.fromhex("a1b2c3d4"),
    bytes.fromhex("d4c3b2a1"),
    bytes.fromhex("a1b23c4d"),
    bytes.fromhex("4d3cb2a1"),
    bytes.fromhex("0a0d0d0a"),
}
"How pcap and pcapng files start."

PREFIX = 3

Piece = tuple[int, bytes, int]
"Where a frame starts, its bytes, and how many of them are missing."


class Framing(StrEnum):
    """How frames stand one after the other."""

    length = "length"
    none = "none"


class Shown(StrEnum):
    """How much of metadata and data is shown."""

    none = "none"
    hex = "hex"
    text = "text"


class Side(StrEnum):
    """Whose bytes these are."""

    client = "client"
    server = "server"


def decode(
    words: Annotated[list[str], typer.Argument(metavar="FILE | HEX…", help="A dump, - for stdin, or hex with --hex.")],
    as_hex: Annotated[bool, typer.Option("--hex", help="The arguments are bytes in hexadecimal.")] = False,
    framing: Annotated[
        Framing,
        typer.Option("--framing", help="length: as on TCP; none: one bare frame an argument, or a line of hex."),
    ] = Framing.length,
    payload: Annotated[Shown, typer.Option("--payload", help="Show metadata and data.")] = Shown.none,
    protocol: Annotated[str, typer.Option("--protocol", metavar="NAME", help="Which wire it is.")] = "rsocket",
    role: Annotated[Side, typer.Option("--role", help="Which side sent the bytes.")] = Side.client,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 5 when a frame is malformed.")] = False,
    where: Annotated[str | None, typer.Option("--where", hidden=True)] = None,
    output: Annotated[
        Format | None,
        typer.Option("-o", "--output", help="ndjson, json, table, csv. [default: text, or ndjson in a pipe]"),
    ] = None,
) -> None:
    """Read frames and print one JSON object each."""
    if where is not None:
        usage("--where comes with a later version of afflux")
    if output in (Format.raw, Format.hex):
        usage(f"decode has no output {output.value}; it has ndjson, json, table, csv")
    _known(protocol)
    if as_hex:
        found = _from_hex(words, framing)
    elif len(words) > 1:
        usage("decode reads one file; several arguments go with --hex")
    else:
        found = _from_file(words[0], framing)
    wrong = _print(found, payload, role, output)
    if strict and wrong:
        typer.echo(f"afflux: malformed frames: {wrong}", err=True)
        raise typer.Exit(MALFORMED)


def _known(protocol: str) -> None:
    from afflux.registry import PROTOCOLS, nearest

    if protocol not in PROTOCOLS:
        raise nearest("protocol", protocol, PROTOCOLS)
    PROTOCOLS[protocol].built()


def _print(found: Iterator[Piece], payload: Shown, role: Side, output: Format | None) -> int:
    """Print every frame; how many were malformed."""
    from afflux.protocols.rsocket.frames import record

    show = _Records(output)
    wrong = 0
    for offset, data, missing in found:
        made = record(data, offset=offset, payload=payload.value, dir=">" if role is Side.client else "<")
        if missing:
            made["error"] = {"rule": "R-2", "reason": f"cut off: {missing} bytes are missing"}
        wrong += made["error"] is not None
        show.record(made)
    show.end()
    return wrong


class _Records:
    """Prints frame records: lines for a person or a program, or one of the other formats."""

    def __init__(self, output: Format | None) -> None:
        self._text = output is None and sys.stdout.isatty()
        self._items = None if output in (None, Format.ndjson) else printer(output)

    def record(self, made: dict[str, Any]) -> None:
        """Print one."""
        from afflux.core.dissect import line

        if self._text:
            sys.stdout.write(line(made) + "\n")
            return
        text = json.dumps(made, ensure_ascii=False, separators=(",", ":"))
        if self._items is None:
            sys.stdout.write(text + "\n")
        else:
            self._items.item(Payload(text.encode()))

    def end(self) -> None:
        """Print what was held back."""
        if self._items is not None:
            self._items.end()


def _from_hex(words: list[str], framing: Framing) -> Iterator[Piece]:
    """Bare frames, one an argument; or all arguments together as one piece of a byte stream."""
    pieces = [_bytes(word) for word in words]
    if framing is Framing.none:
        return _bare(pieces)
    return frames(io.BytesIO(b"".join(pieces)))


def _from_file(name: str, framing: Framing) -> Iterator[Piece]:
    if name == "-":
        file: BinaryIO = sys.stdin.buffer
    elif Path(name).is_file():
        file = Path(name).open("rb")  # noqa: SIM115 -- read to its end by the iterator, then the process ends
    else:
        usage(f"there is no file {name!r}; bytes in hexadecimal go with --hex")
    if framing is Framing.none:
        return _bare(_bytes(line.decode("ascii", "replace")) for line in file if line.strip())
    start = file.peek(4)[:4] if isinstance(file, io.BufferedReader) else b""
    if start in CAPTURES:
        usage("captures (pcap, pcapng) come with a later version of afflux")
    return frames(file)


def _bytes(text: str) -> bytes:
    digits = re.sub(r"[\s:_]|0[xX]", "", text)
    try:
        return bytes.fromhex(digits)
    except ValueError:
        usage(f"this is not hexadecimal: {text[:40]!r}")


def _bare(pieces: Any) -> Iterator[Piece]:
    offset = 0
    for piece in pieces:
        yield offset, piece, 0
        offset += len(piece)


def frames(file: BinaryIO) -> Iterator[Piece]:
    """Each frame behind its 24-bit length, with the offset at which the frame itself starts.

    What the end cuts off comes with the number of bytes that are missing.
    """
    offset = 0
    while prefix := file.read(PREFIX):
        if len(prefix) < PREFIX:
            yield offset, prefix, PREFIX - len(prefix)
            return
        size = int.from_bytes(prefix, "big")
        data = file.read(size)
        yield offset + PREFIX, data, size - len(data)
        offset += PREFIX + len(data)
