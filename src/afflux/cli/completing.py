"""Complete values of options and arguments in a shell: addresses, protocols and output formats. ``ListenOption`` is the
option of commands that relay what they serve."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated

import typer

from afflux.protocols.registry import AUTO, PROTOCOLS
from afflux.transports.registry import TRANSPORTS

__all__ = ["ListenOption", "addresses", "one_of", "protocols"]

_IN_PROCESS = "mem"
"The transport within one process: a command reaches nothing there."


def one_of(values: Iterable[str]) -> Callable[[str], list[str]]:
    """Return the completion of an option that has these values."""
    values = list(values)
    return lambda incomplete: [value for value in values if value.startswith(incomplete)]


def protocols(incomplete: str) -> list[str]:
    """Complete the name of a protocol."""
    return one_of([*PROTOCOLS, AUTO])(incomplete)


def addresses(incomplete: str) -> list[str]:
    """Complete the start of an address: ``tcp://`` for RSocket, ``jmux+tcp://`` after ``jmux+``. Before the plus, the
    protocols are offered without their transports."""
    protocol, plus, _ = incomplete.rpartition("+")
    ends = [f"{protocol}{plus}{name}://" for name in TRANSPORTS if name != _IN_PROCESS]
    names = [] if plus else [f"{name}+" for name in (*PROTOCOLS, AUTO)]
    return one_of(ends + names)(incomplete)


ListenOption = Annotated[
    str,
    typer.Option(
        "--listen", metavar="URI", help="Address to listen on; port 0 selects a free port.", autocompletion=addresses
    ),
]
