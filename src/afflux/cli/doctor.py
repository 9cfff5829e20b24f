"""Implement ``afflux doctor``: report installed and missing packages, and full journals. Changes nothing."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from afflux.cli import tables
from afflux.cli.exits import usage
from afflux.cli.findings import Finding, findings, journals
from afflux.cli.inputs import directory
from afflux.cli.output import Format, format_of, output_option

__all__ = ["doctor"]

_OUTPUTS = (Format.table, Format.json, Format.ndjson)


def doctor(
    journal: Annotated[
        str | None, typer.Option("--journal", metavar="DIR", help="Also report the journals of `serve --journal DIR`.")
    ] = None,
    output: Annotated[
        str | None,
        output_option(*_OUTPUTS),
    ] = None,
) -> None:
    """Report what is installed, what is missing and how to install it, and journals that are full."""
    chosen = format_of(output, "doctor", *_OUTPUTS) or (Format.table if sys.stdout.isatty() else Format.ndjson)
    found = list(findings())
    if journal is not None:
        if journal.startswith("nats://"):
            usage("--journal: doctor reports directories; use afflux journal nats://HOST/STREAM")
        found += journals(directory(journal, "--journal"))
    if chosen is Format.json:
        typer.echo(json.dumps([asdict(finding) for finding in found], indent=2))
    elif chosen is Format.ndjson:
        for finding in found:
            typer.echo(json.dumps(asdict(finding), separators=(",", ":")))
    else:
        _table(found)


def _table(found: list[Finding]) -> None:
    """Print the findings as a table, and remedies that do not fit beside it in lines below it."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=sys.stdout, width=tables.width())
    remedies = [finding for finding in found if finding.remedy]
    columns = ["", "found", "purpose", *(["remedy"] if remedies else [])]
    rows = [(one.name, one.version or "missing", one.purpose, one.remedy or "")[: len(columns)] for one in found]
    beside = (
        bool(remedies) and sum(max(map(len, each)) + 1 for each in zip(columns, *rows, strict=True)) <= console.width
    )
    table = Table(*columns[: 4 if beside else 3], box=None, pad_edge=False)
    for finding, row in zip(found, rows, strict=True):
        version = Text(row[1], style="green" if finding.version else "yellow")
        table.add_row(row[0], version, *map(Text, row[2 : 4 if beside else 3]))
    console.print(table)
    if remedies and not beside:
        console.print(Text("\n".join(f"{one.name}: {one.remedy}" for one in remedies)), soft_wrap=True)
