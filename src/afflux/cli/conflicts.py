"""Declare which options mean nothing together, and refuse them with the reason. Values are checked elsewhere.

An option stands for itself, ``-o raw`` for an option with that value. ``given`` reads from typer's context which
options were written on the command line: defaults conflict with nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import typer

from afflux.cli.exits import usage

__all__ = ["CHECK", "INSPECT", "REQUEST", "SERVE", "SOURCE", "Excludes", "Requires", "check", "given"]


@dataclass(frozen=True, slots=True)
class Excludes:
    """Options that are refused if all are given."""

    options: tuple[str, ...]
    "The options, most often two."
    why: str
    "The reason, a clause that follows a colon."
    unless: tuple[str, ...] = ()
    "Options that make sense of them: any one is enough."
    says: str = ""
    "What is wrong, instead of the names of the options."

    def fault(self, options: Collection[str]) -> str | None:
        """Return what is wrong with the given options, if anything is."""
        if all(option in options for option in self.options) and not any(option in options for option in self.unless):
            return f"{self.says or _listed(self.options, 'and') + ' exclude each other'}: {self.why}"
        return None


@dataclass(frozen=True, slots=True)
class Requires:
    """An option that is refused without any of some others."""

    option: str
    "The option."
    others: tuple[str, ...]
    "Any one of these is enough."
    why: str
    "The reason, a clause that follows a colon."
    says: str = ""
    "What is wrong, instead of the names of the options."

    def fault(self, options: Collection[str]) -> str | None:
        """Return what is wrong with the given options, if anything is."""
        if self.option in options and not any(other in options for other in self.others):
            return f"{self.says or f'{self.option} requires ' + _listed(self.others, 'or')}: {self.why}"
        return None


def _listed(names: tuple[str, ...], word: str) -> str:
    return f"{', '.join(names[:-1])} {word} {names[-1]}" if len(names) > 1 else names[0]


def _one_of(options: Iterable[str], why: str, says: str = "") -> list[Excludes]:
    """Return the rules of options of which one may be given."""
    options = tuple(options)
    return [
        Excludes((first, second), why, says=says) for at, first in enumerate(options) for second in options[at + 1 :]
    ]


def _each(option: str, others: Iterable[str], why: str, unless: tuple[str, ...] = ()) -> list[Excludes]:
    return [Excludes((option, other), why, unless) for other in others]


_SESSION = "a session type describes both directions of a channel"
_STORED = "only such a call can be continued later"
_STORABLE = "--store requires --stream, --channel or a single --request"
_ITEMS = ("--stream", "--channel", "--cursor")

REQUEST: tuple[Excludes | Requires, ...] = (
    *_one_of(("--request", "--stream", "--channel", "--fnf", "--push", "--routes"), "a command makes one kind of call"),
    Excludes(("-d", "-D"), "both give the data to send"),
    *_each("-D", ("--stream", "--push", "--cursor"), "-D sends many items, and that call sends one: use -d"),
    Excludes(("-d", "-m", "--push"), "--push sends the metadata alone"),
    Excludes(("-r", "--push"), "pushed metadata has no route"),
    *(Requires(option, _ITEMS, "a single answer has no window of items") for option in ("--credit", "--graph")),
    Requires("--take", _ITEMS, "the other calls have at most one answer"),
    *_each("--delay", ("--fnf", "--push", "--routes"), "that call waits for no items"),
    Requires("--delay", (*_ITEMS, "-D"), "one request has no items to pause after"),
    Requires("--push", ("-m", "-d"), "it sends metadata, and there is none"),
    *(
        Excludes((option, verb), "that call prints no answer")
        for option in ("-o", "--end", "--columns")
        for verb in ("--fnf", "--push")
    ),
    Requires("--end", ("-o raw",), "the other formats separate items themselves"),
    Requires("--columns", ("-o table", "-o csv"), "the other formats have no columns"),
    *_each("--cursor", ("--request", "--channel", "--fnf", "--push", "--routes"), "a cursor reads a stored stream"),
    *_each("--routes", ("-d", "-D", "-m", "-r"), "the request for the routes has neither data nor a route"),
    Requires("--session", ("--channel",), _SESSION, "--session requires --channel and -r CHANNEL"),
    Requires("--session", ("-r",), _SESSION, "--session requires --channel and -r CHANNEL"),
    Requires("--store", ("--resume",), "the file stores a session to resume"),
    *(Excludes(("--store", verb), _STORED, (), _STORABLE) for verb in ("--fnf", "--push", "--routes")),
    Excludes(("--store", "-D"), _STORED, ("--channel",), _STORABLE),
    *_each("--cursor", ("--store", "--session"), "a cursor continues by its offset: use --retry"),
    Excludes(("--quiet", "-v"), "the log is printed to stderr"),
    Excludes(("--quiet", "--graph"), "the graph is printed to stderr"),
)
"Of ``afflux request``."

SOURCE = "serve requires exactly one of --demo, --handler MODULE:OBJECT, --file PATH, --sink DIR"
_ONE_PROCESS = "belongs to one process"

SERVE: tuple[Excludes | Requires, ...] = (
    *_one_of(("--demo", "--handler", "--file", "--sink"), "a server has one handler", SOURCE),
    *(Requires(option, ("--journal",), "it is about journals") for option in ("--journal-bytes", "--keep")),
    Excludes(("--journal", "--sink"), "a journal stores streams, and a sink has none"),
    Requires("--store", ("--resume",), "the file stores sessions to resume"),
    *(
        Excludes(("--workers", option), why, ("--workers 1",))
        for option, why in (
            ("--journal", f"a journal {_ONE_PROCESS}"),
            ("--sink", f"a table {_ONE_PROCESS}"),
            ("--resume", f"a session {_ONE_PROCESS}, and its client may reconnect to another"),
            ("--store", f"a session file {_ONE_PROCESS}"),
        )
    ),
    *_each("--list-routes", ("--file", "--sink"), "that server has no routes"),
)
"Of ``afflux serve``."


CHECK: tuple[Excludes | Requires, ...] = (
    *(
        Requires(option, ("--against",), "it is about frames, and types alone have none")
        for option in ("--channel", "--protocol", "-d", "--keylog", "--role")
    ),
    *_each("-o", ("--format", "--dual", "--emit"), "that prints a file of its own form"),
)
"Of ``afflux check``."

INSPECT: tuple[Excludes | Requires, ...] = (Excludes(("--top", "-o"), "rows are limited by --limit"),)
"Of ``afflux inspect``."


def given(context: typer.Context) -> set[str]:
    """Return the options on the command line, each in all its spellings, and every option with its value, such as
    ``-o raw``, whether it was given or not."""
    found: set[str] = set()
    for parameter in context.command.params:
        name = parameter.name or ""
        found.update(f"{option} {context.params.get(name)}" for option in parameter.opts)
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            found.update(parameter.opts)
    return found


def check(rules: Iterable[Excludes | Requires], options: Collection[str]) -> None:
    """Refuse options that break a rule: exit with a usage error that names them, and the reason."""
    for rule in rules:
        if (fault := rule.fault(options)) is not None:
            usage(fault)
