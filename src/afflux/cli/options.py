"""Declare the options that mean the same in several commands. What one command has alone is declared there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from afflux.cli.completing import addresses
from afflux.cli.inputs import path_name

__all__ = [
    *("AuthFile", "BothWays", "DataMime", "Leased", "ManyItems", "MetadataMime", "MetadataOption", "NoAnswer"),
    *("OneAnswer", "Resumed", "Route", "ServerUri", "Store", "data_option"),
]

ServerUri = Annotated[str, typer.Argument(metavar="URI", help="Address of the server.", autocompletion=addresses)]

OneAnswer = Annotated[bool, typer.Option("--request", help="One request, one answer. [default]")]
ManyItems = Annotated[bool, typer.Option("--stream", help="One request, many items.")]
BothWays = Annotated[bool, typer.Option("--channel", help="Many items in both directions.")]
NoAnswer = Annotated[bool, typer.Option("--fnf", help="Fire and forget: no answer.")]

Route = Annotated[str | None, typer.Option("-r", "--route", metavar="ROUTE", help="Route to call.")]
MetadataOption = Annotated[
    str | None, typer.Option("-m", "--metadata", metavar="DATA", help="Metadata: text, - for stdin, @FILE.")
]
MetadataMime = Annotated[str | None, typer.Option("--mmt", metavar="MIME", help="MIME type of metadata.")]
DataMime = Annotated[str | None, typer.Option("--dmt", metavar="MIME", help="MIME type of data.")]
AuthFile = Annotated[
    Path | None,
    typer.Option(
        "--auth-file",
        metavar="FILE",
        parser=path_name,
        help="File with credentials: bearer TOKEN, or simple USER PASSWORD.",
    ),
]
Leased = Annotated[bool, typer.Option("--lease", help="Wait for a lease before sending.")]
Resumed = Annotated[bool, typer.Option("--resume", help="Resume the session after a lost connection.")]
Store = Annotated[
    Path | None,
    typer.Option(
        "--store",
        metavar="FILE",
        parser=path_name,
        help="With --resume: store sessions in FILE, so that the same command can resume them after a crash.",
    ),
]


def data_option(more: str = "") -> Any:
    """Return the option -d of a command that sends requests; ``more`` ends its help."""
    help = f"Data of the request: text, - for stdin, @FILE{more}."
    return typer.Option("-d", "--data", metavar="DATA", help=help)
