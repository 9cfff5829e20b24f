"""Complete values of options and arguments in a shell: addresses, protocols and output formats."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from afflux.protocols.registry import AUTO, PROTOCOLS
from afflux.transports.registry import TRANSPORTS

__all__ = ["addresses", "one_of", "protocols"]

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
