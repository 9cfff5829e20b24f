"""Implement ``afflux wireshark``: write the dissector for Wireshark (afflux.wireshark)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from afflux.cli.inputs import writable
from afflux.replacing import replace_file

__all__ = ["wireshark"]


def wireshark(
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="The Lua script; - for stdout.", show_default=False)
    ] = "-",
) -> None:
    """Write a Wireshark dissector in Lua for all protocols. Put it into Wireshark's folder of personal Lua plugins, or
    run `wireshark -X lua_script:FILE`."""
    import afflux
    from afflux.wireshark import script

    text = script(afflux.__version__)
    if output != "-":
        writable(output, "--output")
    target = Path(output)
    if output == "-":
        sys.stdout.write(text)
    elif target.exists() and not target.is_file():
        target.write_text(text, encoding="utf-8")  # a device or a pipe
    else:
        replace_file(target, text.encode())
        typer.echo(f"{output}: start Wireshark with -X lua_script:{output}")
