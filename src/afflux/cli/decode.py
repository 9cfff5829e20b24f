"""``afflux decode``: frames as JSON lines, from hexadecimal or from dumps, of one side of a connection or both.

What a frame is and where it ends is not known here: each protocol has a dissector (core.dissector).
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from afflux.cli.exits import MALFORMED, usage
from afflux.cli.output import Format, printer
from afflux.core.errors import Unsupported
from afflux.core.payload import Payload
from afflux.protocols.registry import PROTOCOLS, named

if TYPE_CHECKING:
    from afflux.core.dissector import MakeDissector

__all__ = ["Framing", "Shown", "Side", "decode"]

CAPTURES = {
    bytes.fromhex("a1b2c3d4"),
    bytes.fromhex("d4c3b2a1"),
    bytes.fromhex("a1b23c4d"),
    bytes.fromhex("4d3cb2a1"),
    bytes.fromhex("0a0d0d0a"),
}
"How pcap and pcapng files start."

CHUNK = 0x1_0000

Piece = tuple[bool, bytes]
"Whether the client sent it, and bytes: the next ones of that side, or one bare frame."


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
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE | HEX…",
            help="A dump of each side, - for stdin; or hex with --hex, each side's behind > or <.",
        ),
    ],
    as_hex: Annotated[bool, typer.Option("--hex", help="The arguments are bytes in hexadecimal.")] = False,
    framing: Annotated[
        Framing,
        typer.Option("--framing", help="length: as on TCP; none: one bare frame an argument, or a line of hex."),
    ] = Framing.length,
    payload: Annotated[Shown, typer.Option("--payload", help="Show metadata and data.")] = Shown.none,
    protocol: Annotated[
        str, typer.Option("--protocol", metavar="NAME", help=f"Which wire it is: {', '.join(PROTOCOLS)}.")
    ] = "rsocket",
    role: Annotated[
        Side, typer.Option("--role", help="Which side sent the bytes, or those of the first file.")
    ] = Side.client,
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
    make = _dissector(protocol)
    client = role is Side.client
    if as_hex:
        found = _from_hex(words, client)
    elif len(words) > 2:
        usage("decode reads one file, or one of each side; more arguments go with --hex")
    else:
        found = _from_files(words, framing, client)
    wrong = _print(_records(found, make, framing, payload), output)
    if strict and wrong:
        typer.echo(f"afflux: malformed frames: {wrong}", err=True)
        raise typer.Exit(MALFORMED)


def _dissector(protocol: str) -> MakeDissector:
    make = named(protocol).dissector
    if make is None:
        raise Unsupported(f"{protocol} has no dissector")
    return make


def _records(found: Iterator[Piece], make: MakeDissector, framing: Framing, payload: Shown) -> Iterator[dict[str, Any]]:
    """The records of what both sides sent, in the order in which it is given."""
    sides = {client: make(client, payload.value) for client in (True, False)}
    for client, data in found:
        if framing is Framing.none:
            yield sides[client].bare(data)
        else:
            yield from sides[client].feed(data)
    for side in sides.values():
        yield from side.end()


def _print(records: Iterator[dict[str, Any]], output: Format | None) -> int:
    """Print every frame; how many were malformed."""
    show = _Records(output)
    wrong = 0
    for made in records:
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


def _from_hex(words: Iterable[str], client: bool) -> Iterator[Piece]:
    """The bytes of each word. Behind a > they are the client's, behind a < the server's; that holds for the words which
    follow."""
    for word in words:
        text = word.strip()
        if text[:1] in (">", "<"):
            client, text = text[0] == ">", text[1:]
        if data := _bytes(text):
            yield client, data


def _from_files(names: list[str], framing: Framing, client: bool) -> Iterator[Piece]:
    """What stands in a file of each side: bytes, or with bare frames one a line in hexadecimal."""
    for name in names:
        if name != "-" and not Path(name).is_file():
            usage(f"there is no file {name!r}; bytes in hexadecimal go with --hex")
    for side, name in zip((client, not client), names, strict=False):
        with nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as file:
            _check(file)
            if framing is Framing.none:
                yield from _from_hex((line.decode("ascii", "replace") for line in file), side)
            else:
                while data := file.read(CHUNK):
                    yield side, data


def _check(file: BinaryIO) -> None:
    """A capture is no dump."""
    start = file.peek(4)[:4] if isinstance(file, io.BufferedReader) else b""
    if start in CAPTURES:
        usage("captures (pcap, pcapng) come with a later version of afflux")


def _bytes(text: str) -> bytes:
    digits = re.sub(r"[\s:_]|0[xX]", "", text)
    try:
        return bytes.fromhex(digits)
    except ValueError:
        usage(f"this is not hexadecimal: {text[:40]!r}")
