"""Declare the option --origin, which commands that serve WebSocket addresses have, and check its values."""

from __future__ import annotations

from typing import Annotated

import typer

from afflux.cli.exits import usage

__all__ = ["Origins", "origins_of"]

Origins = Annotated[
    list[str] | None,
    typer.Option(
        "--origin",
        metavar="ORIGIN",
        help="At ws:// and wss://: let only pages of ORIGIN (https://app.example) connect, * for all; otherwise those "
        "of the same host. May be repeated.",
    ),
]


def origins_of(uri: str, given: list[str] | None) -> list[str] | None:
    """Return the values of --origin, checked; None if there are none."""
    from afflux.transports import ws_origins
    from afflux.transports.address import parse

    if not given:
        return None
    transport = parse(uri, serving=True).transport
    if transport not in ("ws", "wss"):
        usage(f"--origin is for ws:// and wss://, not for {transport}://")
    try:
        ws_origins.origins_of(given)
    except ValueError as error:
        usage(f"--origin: {error}")
    return given
