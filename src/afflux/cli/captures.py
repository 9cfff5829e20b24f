"""Decode captures for ``afflux decode``: the frames go to stdout, what else the capture contains to stderr."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from afflux.cli.completing import protocols
from afflux.cli.exits import FAILED, usage
from afflux.cli.telling import tell
from afflux.core.dissect import PayloadForm
from afflux.protocols.registry import AUTO, PROTOCOLS, named, recognizable

if TYPE_CHECKING:
    from afflux.capture import Decoder, Secrets
    from afflux.capture.reassembly import Overlap
    from afflux.core.entry import ProtocolEntry

__all__ = [
    *("MAGIC", "Copy", "KeyLog", "OnlyProtocol", "OverlapOption", "Ports", "Stall"),
    *("check_whole", "decode_as", "decoder_of", "frames", "secrets_of"),
]

KeyLog = Annotated[
    str | None,
    typer.Option(
        "--keylog",
        metavar="FILE",
        help="In captures: the secrets that decrypt TLS, as programs write them to the file of SSLKEYLOGFILE.",
    ),
]
"The option of a key log."


Ports = Annotated[
    list[str] | None,
    typer.Option(
        "-d", "--decode-as", metavar="PORT=NAME", help="In captures: protocol of a server's port; repeatable."
    ),
]
"The option of the protocols of ports, which ``decode_as`` parses."
OnlyProtocol = Annotated[
    str,
    typer.Option(
        "--protocol", metavar="NAME", help=f"Only this protocol: {', '.join(PROTOCOLS)}.", autocompletion=protocols
    ),
]
"The option of a protocol that other connections are left out for."
Stall = Annotated[
    str, typer.Option("--stall", metavar="TIME", help="A stall: nothing flows for this long, such as 100ms or 2s.")
]
"The option of the least stall."


class Copy(StrEnum):
    """The copy of bytes that counts."""

    first = "first"
    last = "last"


OverlapOption = Annotated[
    Copy,
    typer.Option(
        "--overlap",
        help="In captures: the copy that counts if bytes that wait for earlier ones are repeated with another content.",
    ),
]
"The option of the overlap policy."

MAGIC = tuple(
    bytes.fromhex(start)
    for start in ("a1b2c3d4", "d4c3b2a1", "a1b23c4d", "4d3cb2a1", "0a0d0d0a", "1f8b08", "28b52ffd", "fd377a585a00")
) + tuple(b"BZh%d1AY&SY" % level for level in range(1, 10))
"First bytes of pcap and pcapng files, and of files compressed with gzip, zstd, xz or bzip2."

_CHUNK = 0x4_0000
"Bytes of the file in one batch: a record takes a hundred times as much memory as the smallest frame."
_SHOWN = 20
"Connections, and conflicts, that are named on stderr; the others are only counted."


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
        if int(port) in found:
            usage(f"-d gives port {int(port)} two protocols: a port has one")
        found[int(port)] = named(name)
    return found


def secrets_of(name: str | None) -> Secrets | None:
    """Read a key log; None if there is none. Reports lines that cannot be used on stderr.

    Raises:
        MissingExtra: the library that decrypts is not installed.
    """
    if name is None:
        return None
    from afflux.capture.ciphers import needed
    from afflux.capture.errors import CaptureError
    from afflux.capture.secrets import key_log
    from afflux.core.limits import Limits

    needed()
    try:
        secrets = key_log(name, Limits.server())
    except CaptureError as error:
        usage(f"--keylog: {error.message}")
    except OSError as error:
        usage(f"--keylog: cannot read {name!r}: {error.strerror}")
    if not secrets:
        tell(f"afflux: {name}: the key log has no secrets, so nothing is decrypted with it")
    for count, what in ((secrets.ignored, "lines ignored"), (secrets.dropped, "connections dropped to bound memory")):
        if count:
            tell(f"afflux: {name}: {what}: {count}")
    return secrets


def decoder_of(
    file: BinaryIO,
    *,
    protocol: str,
    ports: dict[int, ProtocolEntry],
    payload: PayloadForm,
    checksums: bool,
    secrets: Secrets | None = None,
    overlap: Overlap = "first",
) -> Decoder:
    """Return the decoder of a capture, which ``frames`` reads.

    Raises:
        CaptureError: the file is not a capture.
        MissingExtra: numpy, or a library for zstd, is not installed.
    """
    from afflux.capture import Capture, Decoder

    entries = recognizable() if protocol == AUTO else (named(protocol),)
    capture = Capture(file, chunk=_CHUNK, secrets=secrets)
    return Decoder(capture, entries, ports=ports, payload=payload, checksums=checksums, overlap=overlap)


def frames(decoder: Decoder) -> Iterator[dict[str, Any]]:
    """Yield the frame records of a capture. Names the connections on stderr, and reports at the end."""
    shown = disputed = without = 0
    for record in decoder:
        shown = _opened(decoder, shown)
        without = _undecoded(decoder, without)
        disputed = _disputed(decoder, disputed)
        yield record
    _opened(decoder, shown)
    _undecoded(decoder, without)
    _disputed(decoder, disputed)
    _summary(decoder)


def check_whole(decoder: Decoder, name: str) -> None:
    """Exit with 1 if the file was damaged or truncated: what was whole has been decoded."""
    if decoder.capture.problem is not None:
        tell(f"afflux: {name}: {decoder.capture.problem}")
        raise typer.Exit(FAILED)


def _opened(decoder: Decoder, shown: int) -> int:
    """Name the connections that were recognized; return how many were named so far."""
    from afflux.capture.settings import Content

    for found in decoder.opened():
        if shown < _SHOWN and found.protocol is not None:
            names, connection = decoder.capture.names, found.connection
            low, high = names.text(connection.low), names.text(connection.high)
            client, server = (low, high) if found.client else (high, low)
            socket = " in WebSocket" if found.content is Content.WEBSOCKET else ""
            within = f" in {found.security}" if found.security is not None else ""
            tell(f"afflux: {connection.id} {client} > {server} {found.protocol.name}{socket}{within}")
        shown += 1
    return shown


def _undecoded(decoder: Decoder, shown: int) -> int:
    """Name the connections that cannot be decoded, and where they begin; return how many were named so far."""
    for found in decoder.undecoded():
        if shown < _SHOWN:
            low, high = map(decoder.capture.names.text, (found.connection.low, found.connection.high))
            client, server = (low, high) if found.connection.opener is not False else (high, low)
            at = f" at byte {found.place.offset:,}" if found.place.offset >= 0 else ""
            where = f", from packet {found.place.packet + 1:,}{at} on" if found.place.packet >= 0 else ""
            tell(f"afflux: {found.connection.id} {client} > {server} {found.text}{where}")
        shown += 1
    return shown


def _disputed(decoder: Decoder, shown: int) -> int:
    """Name the segments that contradict earlier ones; return how many were named so far."""
    for one in decoder.flows.disputes():
        if shown < _SHOWN:
            low, high = map(decoder.capture.names.text, (one.connection.low, one.connection.high))
            way = f"{low} > {high}" if one.rising else f"{high} > {low}"
            text = f"{one.connection.id} {way} repeated with another content: {one.size} bytes from byte {one.position}"
            tell(f"afflux: {text}")
        shown += 1
    return shown


def _summary(decoder: Decoder) -> None:
    """Report what the connections carry, and why packets were skipped."""
    from afflux.capture.order import warning

    tally = sorted(decoder.tally.items(), key=lambda item: -item[1])
    kinds = [f"{count} {content}" for content, count in tally]
    parts = [f"packets: {decoder.capture.packets}; connections: {', '.join(kinds) or 'none'}"]
    skipped = [f"{count} {reason}" for reason, count in (+decoder.network.skipped).most_common()]
    parts += [f"packets skipped: {', '.join(skipped)}"] if skipped else []
    if decoder.network.wrong_checksums:
        parts.append(f"wrong checksums: {decoder.network.wrong_checksums}")
    if decoder.flows.conflicts:
        parts.append(f"segments that contradict earlier ones: {decoder.flows.conflicts}")
    if decoder.flows.dropped:
        parts.append(f"connections dropped to bound memory: {decoder.flows.dropped}")
    for option in sorted(decoder.hints)[:_SHOWN]:
        name = option.partition("=")[2]
        parts.append(f"the first frame of a connection cannot be read: if the protocol is {name}, add {option}")
    if (first := decoder.order.first) is not None:
        parts.append(f"warning: {warning(len(decoder.order.late), decoder.capture.name, first.packet)}")
    if not decoder.capture.secrets and any(one.startswith("encrypted") for one in decoder.tally):
        parts.append("--keylog FILE decrypts TLS, with the file that SSLKEYLOGFILE names")
    for part in parts:
        tell(f"afflux: {part}", wrapped=True)
