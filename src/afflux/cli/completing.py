"""Complete values of options and arguments in a shell: addresses, protocols and output formats. ``ListenOption`` is the
option of commands that relay what they serve. ``prepared`` checks the options that install completion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated

import typer

from afflux.protocols.registry import AUTO, PROTOCOLS
from afflux.transports.registry import TRANSPORTS

__all__ = ["ListenOption", "addresses", "one_of", "prepared", "protocols"]

_INSTALLING = ("--install-completion", "--show-completion")
_ZSH_END = "compdef %(complete_func)s %(prog_name)s"
"The end of typer's script for zsh."
_ZSH_FIRST = f"""if [ "$funcstack[1]" = "_%(prog_name)s" ]; then
  %(complete_func)s "$@"
else
  {_ZSH_END}
fi
"""
"""The same for a file that zsh loads at the first Tab of a session: it has to complete then. typer's only registers the
function, so that the first Tab does nothing."""
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


def prepared(arguments: Sequence[str]) -> str | None:
    """Prepare typer for a command line that installs or shows completion; return what is wrong with it, if anything.
    No-op for any other command line."""
    if not arguments or arguments[0] not in _INSTALLING:
        return None
    if len(arguments) > 1:
        return f"{arguments[0]} takes no value: it is for the shell that runs it"
    from typer import _completion_shared as typers

    scripts = getattr(typers, "_completion_scripts", {})
    detect = getattr(typers, "_get_shell_name", None)
    shell = detect() if detect is not None else None
    if shell not in scripts and detect is not None and scripts:
        found = "the shell that runs this is not known" if shell is None else f"this shell is {shell}"
        return f"{found}; completion is for {', '.join(scripts)}"
    script = scripts.get("zsh", "").rstrip()
    if script.endswith(_ZSH_END):
        scripts["zsh"] = script.removesuffix(_ZSH_END) + _ZSH_FIRST
    return None
