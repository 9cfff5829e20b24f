"""Implement ``afflux decode``: print frames as JSON lines, from captures, or from hexadecimal or dumps of one side or
both.

Each protocol has a dissector (``core.dissector``) that finds and decodes its frames. Without ``--protocol`` the first
bytes of each side select it (``core.recognition``).
"""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from enum import StrEnum
from itertools import chain, islice
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from afflux.cli.captures import (
    MAGIC,
    Copy,
    KeyLog,
    OverlapOption,
    Ports,
    check_whole,
    decode_as,
    decoder_of,
    frames,
    secrets_of,
)
from afflux.cli.completing import protocols
from afflux.cli.exits import MALFORMED, usage
from afflux.cli.inputs import existing
from afflux.cli.output import Format, format_of, output_option, printer
from afflux.cli.selecting import Selection
from afflux.cli.telling import tell
from afflux.core.dissect import PayloadForm
from afflux.core.errors import MissingExtra, Unsupported
from afflux.core.payload import Payload
from afflux.core.recognition import Recognition, recognize, unknown
from afflux.core.texts import one_of
from afflux.protocols.registry import AUTO, PROTOCOLS, named, recognizable

if TYPE_CHECKING:
    from afflux.core.dissector import MakeDissector
    from afflux.core.entry import ProtocolEntry

__all__ = ["CHUNK", "Framing", "Shown", "Side", "capture_of", "decode", "dissector_of", "refuse_captures"]

CHUNK = 0x1_0000

DEFAULT = "rsocket"
"The protocol of bytes that are not recognized."
_NARROW = 20
"Columns of the narrowest terminal for which lines are broken."
_HEX_LINES = "; a file has one frame per line of hexadecimal with --framing none, and bytes without it"
PEEKED = 64
"Pieces of a source that are read to recognize the protocol."

Limit = Annotated[
    int | None, typer.Option("--limit", metavar="N", min=1, help="Stop after N frames; those of --where count.")
]
"The option that ends the output."

_OUTPUTS = (Format.ndjson, Format.json, Format.table, Format.csv)

Piece = tuple[bool, bytes]
"Whether the client sent the bytes, and the next bytes of that side or one bare frame."


class Framing(StrEnum):
    """How frames are delimited."""

    length = "length"
    none = "none"


class Shown(StrEnum):
    """How metadata and data are shown."""

    none = "none"
    hex = "hex"
    text = "text"


class Side(StrEnum):
    """The side that sent the bytes."""

    client = "client"
    server = "server"


def decode(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE | HEX…",
            help="A capture (pcap, pcapng), or a dump of each side, - for stdin; or hex with --hex, prefixed by > "
            "(client) or < (server).",
        ),
    ],
    as_hex: Annotated[bool, typer.Option("--hex", help="Read the arguments as hexadecimal bytes.")] = False,
    framing: Annotated[
        Framing,
        typer.Option("--framing", help="length: as on TCP; none: one bare frame per argument or line of hex."),
    ] = Framing.length,
    payload: Annotated[Shown, typer.Option("--payload", help="How to show metadata and data.")] = Shown.none,
    protocol: Annotated[
        str,
        typer.Option(
            "--protocol",
            metavar="NAME",
            autocompletion=protocols,
            help=f"Protocol: {', '.join(PROTOCOLS)}. Otherwise the first bytes select it.",
        ),
    ] = AUTO,
    role: Annotated[Side, typer.Option("--role", help="Side that sent the bytes, or the first file.")] = Side.client,
    ports: Ports = None,
    checksums: Annotated[
        bool, typer.Option("--checksums", help="In captures: count wrong TCP checksums. Nothing is dropped.")
    ] = False,
    keylog: KeyLog = None,
    overlap: OverlapOption = Copy.first,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 5 if a frame is malformed.")] = False,
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="FILTER", help="Frames to print, such as 'type == REQUEST_N and n < 4'."),
    ] = None,
    limit: Limit = None,
    output: Annotated[
        str | None,
        output_option(*_OUTPUTS, default="text"),
    ] = None,
) -> None:
    """Decode frames and print one JSON object for each."""
    chosen = format_of(output, "decode", *_OUTPUTS)
    selection = Selection(where, payload.value)
    make = None if protocol == AUTO else dissector_of(protocol)
    client = role is Side.client
    given = decode_as(ports or [])
    if not as_hex and len(words) == 1 and (file := capture_of(words[0])) is not None:
        if framing is not Framing.length or role is not Side.client:
            file.close()
            usage("--framing and --role apply to dumps and --hex: a capture has packets, and directions of its own")
        with file:
            options: dict[str, Any] = {"payload": selection.form, "checksums": checksums, "overlap": overlap.value}
            decoder = decoder_of(file, protocol=protocol, ports=given, secrets=secrets_of(keylog), **options)
            _finish(_print(_first(selection.of(frames(decoder)), limit), chosen), strict)
            check_whole(decoder, words[0])
        return
    if given or checksums or keylog or overlap is not Copy.first:
        usage("-d, --checksums, --keylog and --overlap apply to captures")
    if as_hex:
        sources = [_from_hex(words, client)]
    elif len(words) > 2:
        usage("decode reads one file, or one per side; more arguments require --hex")
    else:
        sources = _from_files(words, framing, client)
    if make is None:
        sources, make = _recognized(sources, framing)
    found = _records(chain.from_iterable(sources), make, framing, selection.form)
    wrong = _print(_first(selection.of(found), limit), chosen)
    if wrong and as_hex and framing is Framing.length and _are_bare(words, client, make):
        tell("afflux: without the length prefix that frames have on TCP, these bytes are frames: add --framing none")
    _finish(wrong, strict)


def _are_bare(words: list[str], client: bool, make: MakeDissector) -> bool:
    """Return whether hexadecimal bytes are bare frames: one per word, or one in all."""
    pieces = list(_from_hex(words, client))
    one = [(pieces[0][0], b"".join(data for _, data in pieces))] if pieces else []
    return any(all(make(side, "none").bare(data)["error"] is None for side, data in each) for each in (pieces, one))


def _first(records: Iterator[dict[str, Any]], limit: int | None) -> Iterator[dict[str, Any]]:
    """Yield the first records; say on stderr that there may be more."""
    count = 0
    for record in islice(records, limit):
        count += 1
        yield record
    if count == limit:
        tell(f"afflux: stopped after {_frames(count)} (--limit); what follows was not read")


def _frames(count: int) -> str:
    return "1 frame" if count == 1 else f"{count:,} frames"


def _finish(wrong: int, strict: bool) -> None:
    """Exit with 5 under --strict if frames were malformed."""
    if strict and wrong:
        tell(f"afflux: malformed frames: {wrong}")
        raise typer.Exit(MALFORMED)


def dissector_of(protocol: str) -> MakeDissector:
    """Return the dissector of a protocol.

    Raises:
        Unsupported: the protocol is unknown or has no dissector.
    """
    make = named(protocol).dissector
    if make is None:
        raise Unsupported(f"{protocol} has no dissector")
    return make


def _recognized(sources: list[Iterator[Piece]], framing: Framing) -> tuple[list[Iterator[Piece]], MakeDissector]:
    """Recognize the protocol from the first bytes of each side, and report it on stderr. Returns the dissector, and the
    sources with the pieces that were read from them."""
    starts: dict[bool, bytes] = {}
    side, result = _compared(starts, framing)
    for number, source in enumerate(sources):
        first: list[Piece] = []
        for client, data in islice(source, PEEKED):
            first.append((client, data))
            if framing is Framing.length or client not in starts:
                starts[client] = starts.get(client, b"") + data
            side, result = _compared(starts, framing)
            if result.protocol is not None or len(data) == CHUNK:
                break
        sources[number] = chain(first, source)
    entry = result.protocol or named(DEFAULT)
    tell(f"afflux: {_report(starts.get(side, b''), side, result, entry)}")
    return sources, dissector_of(entry.name)


def _compared(starts: Mapping[bool, bytes], framing: Framing) -> tuple[bool, Recognition]:
    """Return the side whose first bytes decide most, the client's among equals, and the result."""
    known, message = recognizable(), framing is Framing.none
    sides = [side for side in (True, False) if side in starts]
    found = [(side, recognize(known, starts[side], client=side, message=message)) for side in sides]
    nothing = (True, Recognition(None, (), more=True))
    return max(found, key=lambda one: (one[1].protocol is not None, len(one[1].candidates)), default=nothing)


def _report(data: bytes, client: bool, result: Recognition, entry: ProtocolEntry) -> str:
    """Return the sentence that reports which protocol was recognized, or the candidates and how to choose."""
    others = one_of([f"--protocol {one.name}" for one in result.candidates if one is not entry])
    if result.protocol is not None:
        return f"recognized {entry.name}" + (f"; the same bytes may begin another protocol: {others}" if others else "")
    if result.candidates:
        reason = f"{', '.join(one.name for one in result.candidates)} begin with the same bytes"
    else:
        reason = f"{unknown(data)} of a {'client' if client else 'server'}" if data else "no bytes to recognize"
    return f"{reason}; decoded as {entry.name}, choose with {others or '--protocol NAME'}"


def _records(
    found: Iterable[Piece], make: MakeDissector, framing: Framing, payload: PayloadForm
) -> Iterator[dict[str, Any]]:
    """Yield the frame records of both sides, in input order."""
    sides = {client: make(client, payload) for client in (True, False)}
    for client, data in found:
        if framing is Framing.none:
            yield sides[client].bare(data)
        else:
            yield from sides[client].feed(data)
    for side in sides.values():
        yield from side.end()


def _print(records: Iterator[dict[str, Any]], output: Format | None) -> int:
    """Print every frame and return the number of malformed ones."""
    show = _Records(output)
    wrong = 0
    for made in records:
        wrong += made["error"] is not None
        show.record(made)
    show.end()
    return wrong


class _Records:
    """Print frame records as text, JSON lines or another format."""

    def __init__(self, output: Format | None) -> None:
        self._text = output is None and sys.stdout.isatty()
        self._items = None if output in (None, Format.ndjson) else printer(output)

    def record(self, made: dict[str, Any]) -> None:
        """Print one record."""
        from afflux.core.dissect import line

        if self._text:
            sys.stdout.write(_wrapped(line(made, named(made["protocol"]).meanings)) + "\n")
            return
        text = json.dumps(made, ensure_ascii=False, separators=(",", ":"))
        if self._items is None:
            sys.stdout.write(text + "\n")
        else:
            self._items.item(Payload(text.encode()))

    def end(self) -> None:
        """Print the records that are still buffered."""
        if self._items is not None:
            self._items.end()


def _wrapped(text: str) -> str:
    """Break a line that is longer than the terminal between its words."""
    columns = shutil.get_terminal_size().columns
    if len(text) <= columns:
        return text
    return "\n".join(wrap(text, max(columns, _NARROW), subsequent_indent="    ", break_on_hyphens=False))


def _from_hex(words: Iterable[str], client: bool, hint: str = "") -> Iterator[Piece]:
    """Yield the bytes of each word. A leading > marks bytes of the client, a leading < bytes of the server; the mark
    also applies to the words that follow. ``hint`` is added to the error about a word that is not hexadecimal."""
    for word in words:
        text = word.strip()
        if text[:1] in (">", "<"):
            client, text = text[0] == ">", text[1:]
        if data := _bytes(text, hint):
            yield client, data


def _from_files(names: list[str], framing: Framing, client: bool) -> list[Iterator[Piece]]:
    """Return the content of the file of each side."""
    for name in names:
        if name != "-":
            existing(name, "FILE", hint="; hexadecimal bytes require --hex")
    return [_from_file(name, framing, side) for side, name in zip((client, not client), names, strict=False)]


def _from_file(name: str, framing: Framing, side: bool) -> Iterator[Piece]:
    """Yield the content of a file: bytes, or one bare frame per line in hexadecimal."""
    with nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as file:
        refuse_captures(file)
        _refuse_others(name, file)
        if framing is Framing.none:
            yield from _from_hex((line.decode("ascii", "replace") for line in file), side, _HEX_LINES)
        else:
            while data := file.read(CHUNK):
                yield side, data


def capture_of(name: str) -> BinaryIO | None:
    """Return the open file if it is a capture."""
    if name != "-" and not Path(name).is_file():
        return None
    if name != "-":
        existing(name, "FILE")
    file = sys.stdin.buffer if name == "-" else Path(name).open("rb")  # noqa: SIM115 -- the caller closes it
    if begins_capture(file):
        return file
    if name != "-":
        file.close()
    return None


def begins_capture(file: BinaryIO) -> bool:
    """Return whether a file begins like a capture; reads nothing."""
    return isinstance(file, io.BufferedReader) and file.peek(10).startswith(MAGIC)


def refuse_captures(file: BinaryIO) -> None:
    """Refuse a capture where a dump of one side is expected."""
    if not begins_capture(file):
        return
    if not Path(file.name).is_file():
        usage(f"{file.name!r} is a pipe: read a capture from a pipe as standard input, named -")
    usage("a capture (pcap, pcapng) has both sides: decode it alone, with afflux decode FILE")


def _refuse_others(name: str, file: BinaryIO) -> None:
    """Raise CaptureError for a file without content, or with the name of a capture."""
    try:
        from afflux.capture.errors import CaptureError
        from afflux.capture.source import named_as_capture, no_capture
    except MissingExtra:  # a dump needs no extra
        return
    if isinstance(file, io.BufferedReader):
        start = file.peek(10)[:10]
        if not start or named_as_capture(name):
            raise CaptureError(f"{'standard input' if name == '-' else name}: {no_capture(start)}")


def _bytes(text: str, hint: str) -> bytes:
    digits = re.sub(r"[\s:_]|0[xX]", "", text)
    try:
        return bytes.fromhex(digits)
    except ValueError:
        odd = f": {len(digits)} digits, and a byte has two" if re.fullmatch("[0-9a-fA-F]+", digits) else ""
        usage(f"not hexadecimal: {text[:40]!r}{odd}{hint}")
