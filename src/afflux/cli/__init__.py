"""Dispatch the ``afflux`` command. Imports only light modules.

Handles ``--version``, unknown commands, planned commands and the missing extra without typer. Each other module of
this package is one command or a helper; see ``app.py`` for the assembled application.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

__all__ = ["COMMANDS", "PLANNED", "main"]

COMMANDS = (
    *("serve", "request", "relay", "bench", "decode", "inspect", "capture", "wireshark", "check", "demo", "journal"),
    "spark",
    "shell",
    "doctor",
)
"Available commands, in the order of the help."

PLANNED = ("bridge",)
"Planned commands that this version does not have."

USAGE = 2
_SHOWN = 64
"Characters of a word that an error shows at most."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Without ``arguments`` it is the process's own command line."""
    if arguments is not None:
        return _run(list(arguments))
    from afflux.cli.process import run_process

    return run_process(lambda: _run(sys.argv[1:]))


def _run(arguments: list[str]) -> int:
    first = arguments[0] if arguments else "--help"
    if first in ("--version", "-V"):
        return _version()
    if not first.startswith("-") and first not in COMMANDS:
        return _unknown(first)
    try:
        for package in ("typer", "rich"):
            import_module(package)
        from afflux.cli.app import run
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in ("typer", "rich"):
            raise
        if first == "doctor":
            from afflux.cli.findings import plain

            return plain(arguments[1:])
        return _fail('the command line needs the extra "cli": pip install "afflux[cli]"; afflux doctor shows more')
    return run(arguments)


def _version() -> int:
    import afflux

    sys.stdout.write(f"afflux {afflux.__version__}\n")
    return 0


def _unknown(name: str) -> int:
    if name in PLANNED:
        import afflux

        version = ".".join(afflux.__version__.split(".")[:2])
        return _fail(f"{name} is not built yet in {version}; available commands: {', '.join(COMMANDS)}")
    return _fail(f"unknown command {name[:_SHOWN]!r}; {_meant(name)}")


def _meant(name: str) -> str:
    """Return what may have been meant by a word that is not a command."""
    from difflib import get_close_matches

    if name == "help":
        return "afflux --help lists the commands, and afflux COMMAND --help explains one"
    if "://" in name:
        return f"a command comes first: afflux request {name[:_SHOWN]}, or serve, bench, shell, …"
    near = get_close_matches(name.lower(), COMMANDS, n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else f"available commands: {', '.join(COMMANDS)}"


def _fail(text: str) -> int:
    sys.stderr.write(f"afflux: {text}\n")
    return USAGE
