"""The command ``afflux``: what happens before a command is chosen. Only light imports here.

``--version``, a command that does not exist, one that is not built yet, and the missing extra are answered here,
without typer. One file beside this one is one command; ``app.py`` puts them together.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

__all__ = ["COMMANDS", "PLANNED", "main"]

COMMANDS = ("serve", "request", "bench", "decode", "demo", "doctor")
"The commands there are, in the order of the help."

PLANNED = ("inspect", "capture", "bridge", "relay", "spark", "check")
"The commands that the interface promises and this version does not have."

USAGE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. ``arguments`` default to those of the process."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    first = arguments[0] if arguments else "--help"
    if first in ("--version", "-V"):
        return _version()
    if not first.startswith("-") and first not in COMMANDS:
        return _no_such(first)
    try:
        for package in ("typer", "rich"):
            import_module(package)
        from afflux.cli.app import run
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in ("typer", "rich"):
            raise
        return _say('the command line needs the extra "cli": pip install "afflux[cli]"')
    return run(arguments)


def _version() -> int:
    import afflux

    sys.stdout.write(f"afflux {afflux.__version__}\n")
    return 0


def _no_such(name: str) -> int:
    if name in PLANNED:
        import afflux

        version = ".".join(afflux.__version__.split(".")[:2])
        return _say(f"{name} is not built yet in {version}; there are: {', '.join(COMMANDS)}")
    from difflib import get_close_matches

    near = get_close_matches(name, COMMANDS, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(COMMANDS)}"
    return _say(f"no command {name!r}; {hint}")


def _say(text: str) -> int:
    sys.stderr.write(f"afflux: {text}\n")
    return USAGE
