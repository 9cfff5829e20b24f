"""Implement ``afflux wireshark``: write the dissector for Wireshark (afflux.wireshark)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

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
    if output == "-":
        sys.stdout.write(text)
    else:
        Path(output).write_text(text, encoding="utf-8")
        typer.echo(f"{output}: start Wireshark with -X lua_script:{output}")
