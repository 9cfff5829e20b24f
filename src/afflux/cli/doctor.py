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
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("", "found", "purpose", "remedy", box=None, pad_edge=False)
    for finding in found:
        version = Text(finding.version or "missing", style="green" if finding.version else "yellow")
        table.add_row(finding.name, version, Text(finding.purpose), Text(finding.remedy or ""))
    Console(file=sys.stdout, width=tables.width()).print(table)
