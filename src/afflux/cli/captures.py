"""Decode captures for ``afflux decode``: the frames go to stdout, what else the capture contains to stderr."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

import typer

from afflux.cli.exits import FAILED, usage
from afflux.core.dissect import PayloadForm
from afflux.protocols.registry import AUTO, named, recognizable

if TYPE_CHECKING:
    from afflux.capture import Decoder
    from afflux.core.entry import ProtocolEntry

__all__ = ["MAGIC", "check_whole", "decode_as", "decoder_of", "frames"]

MAGIC = tuple(
    bytes.fromhex(start) for start in ("a1b2c3d4", "d4c3b2a1", "a1b23c4d", "4d3cb2a1", "0a0d0d0a", "1f8b08", "28b52ffd")
)
"First bytes of pcap and pcapng files, and of files compressed with gzip or zstd."

_CHUNK = 0x4_0000
"Bytes of the file in one batch: a record takes a hundred times as much memory as the smallest frame."
_SHOWN = 20
"Connections that are named on stderr; the others are only counted."


def decode_as(texts: list[str]) -> dict[int, ProtocolEntry]:
    """Parse ``PORT=NAME`` options.

    Raises:
        AddressError: a protocol is unknown.
    """
    found: dict[int, ProtocolEntry] = {}
    for text in texts:
        port, sign, name = text.partition("=")
        if not (sign and port.isascii() and port.isdigit() and int(port) <= 0xFFFF):
            usage(f"-d expects PORT=NAME, such as 7000=rsocket, not {text!r}")
        found[int(port)] = named(name)
    return found


def decoder_of(
    file: BinaryIO, *, protocol: str, ports: dict[int, ProtocolEntry], payload: PayloadForm, checksums: bool
) -> Decoder:
    """Return the decoder of a capture, which ``frames`` reads.

    Raises:
        CaptureError: the file is not a capture.
        MissingExtra: numpy, or a library for zstd, is not installed.
    """
    from afflux.capture import Capture, Decoder

    entries = recognizable() if protocol == AUTO else (named(protocol),)
    return Decoder(Capture(file, chunk=_CHUNK), entries, ports=ports, payload=payload, checksums=checksums)


def frames(decoder: Decoder) -> Iterator[dict[str, Any]]:
    """Yield the frame records of a capture. Names the connections on stderr, and reports at the end."""
    shown = 0
    for record in decoder:
        shown = _opened(decoder, shown)
        yield record
    _opened(decoder, shown)
    _summary(decoder)


def check_whole(decoder: Decoder, name: str) -> None:
    """Exit with 1 if the file was damaged or truncated: what was whole has been decoded."""
    if decoder.capture.problem is not None:
        typer.echo(f"afflux: {name}: {decoder.capture.problem}", err=True)
        raise typer.Exit(FAILED)


def _opened(decoder: Decoder, shown: int) -> int:
    """Name the connections that were recognized; return how many were named so far."""
    from afflux.capture import end_text

    for found in decoder.opened():
        if shown < _SHOWN and found.protocol is not None:
            low, high = (end_text(end) for end in (found.connection.low, found.connection.high))
            client, server = (low, high) if found.client else (high, low)
            typer.echo(f"afflux: {found.connection.id} {client} > {server} {found.protocol.name}", err=True)
        shown += 1
    return shown


def _summary(decoder: Decoder) -> None:
    """Report what the connections carry, and why packets were skipped."""
    tally = sorted(decoder.tally.items(), key=lambda item: -item[1])
    kinds = [f"{count} {content}" for content, count in tally]
    parts = [f"packets: {decoder.capture.packets}; connections: {', '.join(kinds) or 'none'}"]
    skipped = [f"{count} {reason}" for reason, count in (+decoder.network.skipped).most_common()]
    parts += [f"packets skipped: {', '.join(skipped)}"] if skipped else []
    if decoder.network.wrong_checksums:
        parts.append(f"wrong checksums: {decoder.network.wrong_checksums}")
    if decoder.flows.dropped:
        parts.append(f"connections dropped to bound memory: {decoder.flows.dropped}")
    for part in parts:
        typer.echo(f"afflux: {part}", err=True)
