"""Implement ``afflux journal``: list the journals of a directory, and release the name of a reader that is gone."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from afflux.cli.exits import usage
from afflux.cli.inputs import directory
from afflux.cli.output import Format, format_of, output_option
from afflux.journal.address import StreamAddress, is_stream_address
from afflux.journal.status import Status, inspect, release

__all__ = ["journal"]

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
        directory(where)
    if released is not None and not release(where, released):
        usage(f"no journal in {shown!r} has the reader {released!r}")
    found = list(inspect(where))
    if not found:
        typer.echo(f"afflux: no journals in {shown!r}", err=True)
    if chosen is Format.json:
        typer.echo(json.dumps([asdict(status) for status in found], indent=2))
    elif chosen is Format.ndjson:
        for status in found:
            typer.echo(json.dumps(asdict(status), separators=(",", ":")))
    else:
        _table(found)


def _table(found: list[Status]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("journal", "first", "head", "bytes", "reader", "state", "problem", box=None, pad_edge=False)
    for each in found:
        numbers = ["?" if number is None else f"{number:,}" for number in (each.first, each.head, each.size)]
        problem = Text(each.problem or "", style="yellow")
        table.add_row(Path(each.path).name, *numbers, each.reader or "-", each.state, problem)
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else 160).print(table)
