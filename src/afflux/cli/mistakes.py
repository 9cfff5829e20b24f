"""Put usage errors of typer into the words and the style of all other errors of the commands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import typer

__all__ = ["UsageError", "words"]

UsageError: Any = typer.BadParameter.__mro__[1]
"What typer raises for a command line that it cannot parse."

_HANDLER = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
"A handler, MODULE:OBJECT."


def words(error: Any, arguments: Sequence[str], help: str | None = None) -> str:
    """Return the error as one line: what is wrong, what would be right, and where the help is. ``arguments`` is the
    command line, ``help`` what shows the help, if not the command's ``--help``."""
    if help is not None:
        return f"{_text(error, arguments)} (see {help})"
    command = next(iter(arguments), "")
    path = command if error.ctx is None else error.ctx.command_path.removeprefix("afflux").strip()
    return f"{_text(error, arguments)} (see {' '.join(['afflux', *path.split(), '--help'])})"


def _text(error: Any, arguments: Sequence[str]) -> str:
    kind = type(error).__name__
    if kind == "NoSuchOption":
        known = _options(error.ctx)
        if after := _too_early(error.ctx, error.option_name, arguments):
            return f"option {error.option_name} belongs after the command: {after} {error.option_name} …"
        return f"unknown option {error.option_name}{_one_hyphen(arguments, known) or _near(error.option_name, known)}"
    if kind == "MissingParameter":
        return f"{_name(error.param)} is missing"
    if kind == "BadParameter" and error.param is not None:
        return f"invalid {_name(error.param)}: {_value(error)}"
    if unknown := re.fullmatch(r"No such command '(.*?)'.*", error.message):
        return f"unknown command {unknown[1]!r}{_near(unknown[1], list(error.ctx.command.commands), listed=True)}"
    if option := getattr(error, "option_name", None):
        return f"{option} {'needs a value' if 'requires' in error.message else 'takes no value'}"
    if surplus := re.fullmatch(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", error.message):
        return f"unexpected argument {surplus[1]!r}{_meant(error.ctx, arguments)}"
    return _lowered(error.message)


def _value(error: Any) -> str:
    """Return what is wrong with the value of a parameter."""
    found = getattr(error.__cause__, "errors", None)
    first = found()[0] if callable(found) else {}
    match first:
        case {"type": "int_parsing" | "int_from_float", "input": value}:
            return f"{value!r} is not a whole number"
        case {"type": "float_parsing", "input": value}:
            return f"{value!r} is not a number"
        case {"type": "greater_than_equal", "input": value, "ctx": {"ge": least}}:
            return f"{value} is less than {least}"
        case {"type": "less_than_equal", "input": value, "ctx": {"le": most}}:
            return f"{value} is more than {most}"
    text = _lowered(error.message.removeprefix("Value error, ")).replace("'", "")
    if listed := re.fullmatch(r"(\S+) is not one of (.+)", text):
        text += _near(listed[1].lower(), listed[2].split(", "))
    return text


def _lowered(message: str) -> str:
    return message[:1].lower() + message[1:].rstrip(".")


def _name(parameter: Any) -> str:
    """Return the name of a parameter, as it is typed."""
    options = [name for name in parameter.opts if name.startswith("-")]
    return "/".join(options) if options else str(parameter.metavar or parameter.name.upper()).strip("[]{}.")


def _options(context: Any) -> list[str]:
    return [] if context is None else [name for parameter in context.command.params for name in parameter.opts]


def _too_early(context: Any, option: str, arguments: Sequence[str]) -> str:
    """Return the command that has an option which was written before it; ``""`` for none."""
    commands = {} if context is None else getattr(context.command, "commands", {})
    name = next((word for word in arguments if word in commands), None)
    if name is None or not any(option in parameter.opts for parameter in commands[name].params):
        return ""
    return f"{context.command_path} {name}"


def _one_hyphen(arguments: Sequence[str], known: Sequence[str]) -> str:
    """Return the long option that was written with one hyphen, such as ``-stream``; typer reads it as ``-s``."""
    meant = [f"-{word}" for word in arguments if f"-{word}" in known and len(word) > 2]
    return f"; did you mean {meant[0]}?" if meant else ""


def _meant(context: Any, arguments: Sequence[str]) -> str:
    """Return what may have been meant where a command line has one argument too many."""
    if context is None:
        return ""
    known = _options(context)
    handlers = [word for word in arguments if "--handler" in known and _HANDLER.fullmatch(word)]
    if handlers and "--handler" not in arguments:
        return f"; did you mean --handler {handlers[0]}?"
    return _one_hyphen(arguments, known)


def _near(name: str, known: Sequence[str], *, listed: bool = False) -> str:
    near = get_close_matches(name, [one for one in known if len(one) > 2], n=1, cutoff=0.7)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; available: {', '.join(known)}" if listed else ""
