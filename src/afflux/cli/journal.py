"""Implement ``afflux journal``: list the journals of a directory, and release the name of a reader that is gone."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from afflux.cli import tables
from afflux.cli.exits import usage
from afflux.cli.inputs import directory
from afflux.cli.output import Format, format_of, output_option
from afflux.cli.telling import tell
from afflux.journal.address import StreamAddress, is_stream_address
from afflux.journal.status import Status, inspect, release

__all__ = ["journal"]

_COLUMNS = ("journal", "first", "head", "bytes", "reader", "state", "problem")
_OUTPUTS = (Format.table, Format.json, Format.ndjson)


def journal(
    where: Annotated[
        str,
        typer.Argument(
            metavar="DIR|nats://HOST/STREAM", help="The directory, or the stream, of `--journal` of serve and relay."
        ),
    ],
    released: Annotated[
        str | None,
        typer.Option(
            "--release",
            metavar="NAME",
            help="Forget the reader NAME, so that another one may acknowledge. Stop the server first.",
        ),
    ] = None,
    output: Annotated[str | None, output_option(*_OUTPUTS)] = None,
) -> None:
    """List the journals of a directory: offsets, size, the reader whose acknowledgements trim, and what is wrong."""
    chosen = format_of(output, "journal", *_OUTPUTS) or (Format.table if sys.stdout.isatty() else Format.ndjson)
    shown = str(StreamAddress.parse(where)) if is_stream_address(where) else where  # without credentials
    if shown is where:
        directory(where, "DIR")
    if released is not None and not release(where, released):
        usage(f"no journal in {shown!r} has the reader {released!r}")
    found = list(inspect(where))
    if not found:
        tell(f"afflux: no journals in {shown!r}")
    if chosen is Format.json:  # a document, though an empty one
        typer.echo(json.dumps([asdict(status) for status in found], indent=2))
    elif chosen is Format.ndjson:
        for status in found:
            typer.echo(json.dumps(asdict(status), separators=(",", ":")))
    elif found:
        _table(found)


def _table(found: list[Status]) -> None:
    rows = []
    for each in found:
        numbers = ["?" if number is None else f"{number:,}" for number in (each.first, each.head, each.size)]
        cells = [Path(each.path).name, *numbers, each.reader or "-", each.state, each.problem or "-"]
        rows.append(dict(zip(_COLUMNS, cells, strict=True)))
    tables.show(_COLUMNS, rows)
