"""Parse the lines of ``afflux shell``: a command and the options of ``afflux request``."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

import typer

from afflux.cli import conflicts
from afflux.cli.exits import DONE, USAGE, usage
from afflux.cli.output import Printer
from afflux.cli.request import Asked
from afflux.cli.telling import tell

__all__ = ["CONNECTION", "END", "HELP", "VERBS", "Word", "parse"]

VERBS: Final = {
    "request": "--request",
    "stream": "--stream",
    "channel": "--channel",
    "fire": "--fnf",
    "fnf": "--fnf",
    "push": "--push",
    "routes": "--routes",
}
"The commands that send a request, and their options."

CONNECTION: Final = (
    *("--resume", "--store", "--lease", "--auth-file", "--mmt", "--dmt"),
    *("--limit", "--connect-timeout"),
)
"Options of the connection, which is made once."


_LONGEST: Final = 0x2_0000
"Characters of a line: as many as Linux permits in an argument. Longer ones take minutes to split into words."


@dataclass(frozen=True, slots=True)
class Word:
    """A command of the shell itself."""

    names: tuple[str, ...]
    text: str = ""
    "What it prints."


END: Final = Word(("exit", "quit"))
HELP: Final = Word(
    ("help",),
    """\
request -r ROUTE -d DATA    one request, one answer
stream -r ROUTE -d DATA     one request, many items: --take N, --cursor FROM, …
channel -d DATA -d DATA     many items in both directions
fire -r ROUTE -d DATA       no answer
push -m DATA                metadata about the connection
routes                      the server's routes, if it lists them
exit                        end the shell, as Ctrl-D does
Options are those of afflux request. Ctrl-C cancels the running request.
A line that starts with a space is not stored in the history.
""",
)


def parse(line: str, uri: str, defaults: dict[str, Any]) -> tuple[Asked, Printer] | Word | int:
    """Parse a line.

    Args:
        line: what was entered.
        uri: the server's address.
        defaults: values of request's parameters that the line does not give.

    Returns:
        The request with its printer; END or HELP; or an exit code: 0 for an empty line or a comment, else that of a
        mistake, which is printed to stderr.
    """
    if line.lstrip().startswith("#"):
        return DONE
    if len(line) > _LONGEST:
        return _mistake(f"the line is longer than {_LONGEST:,} characters: put the data into a file, -d @FILE")
    try:
        words = shlex.split(line)
    except ValueError as error:
        return _mistake(f"cannot read the line: {str(error).lower()}")
    if not words:
        return DONE
    if words[0] == "afflux":
        return _mistake("omit afflux: a line of the shell begins with request, stream, channel, …")
    first, *rest = words
    if first in VERBS and rest and "://" in rest[0] and not rest[0].startswith("-"):
        return _mistake(f"omit {rest[0]}: the shell is connected to {uri}")
    for word in (END, HELP):
        if first in word.names:
            return word
    if first.startswith("-"):
        return _request(words, uri, defaults)
    if first not in VERBS:
        near = get_close_matches(first.lower(), (*VERBS, *END.names, *HELP.names), n=1, cutoff=0.6)
        return _mistake(f"unknown command {first!r}; " + (f"did you mean {near[0]}?" if near else "see help"))
    return _request([VERBS[first], *rest], uri, defaults)


def _mistake(text: str) -> int:
    tell(f"afflux: {text}")
    return USAGE


def _request(words: list[str], uri: str, defaults: dict[str, Any]) -> tuple[Asked, Printer] | int:
    from afflux.cli.app import run

    found: list[tuple[Asked, Printer]] = []

    def take(context: typer.Context, asked: Asked, show: Printer) -> None:
        for option in CONNECTION:
            if option in conflicts.given(context):
                usage(f"{option} belongs to the connection: give it to afflux shell")
        if "-" in (*asked.data, asked.lines, asked.metadata):
            usage("stdin has the lines of the shell: write data in the line, or @FILE")
        found.append((asked, show))

    code = run(["request", uri, *words], help=HELP.names[0], obj=take, default_map={"request": defaults})
    return found[0] if found else code
