"""Refuse an option with one value that is given twice: typer would drop the first value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import typer

__all__ = ["refuse_repeated"]


def refuse_repeated(command: Any) -> None:
    """Let a command, and those below it, refuse options that are repeated and have one value."""
    parse = command.parse_args

    def checked(context: Any, arguments: Sequence[str]) -> Any:
        """Look at the words before typer reads them; its own parser has only the last value."""
        if arguments or not command.no_args_is_help:
            _check(command, context, arguments)
        return parse(context, list(arguments))

    command.parse_args = checked
    for inner in getattr(command, "commands", {}).values():
        refuse_repeated(inner)


def _check(command: Any, context: Any, arguments: Sequence[str]) -> None:
    order = command.make_parser(context).parse_args(list(arguments))[2]
    for parameter, times in Counter(order).items():
        if times > 1 and parameter.param_type_name == "option" and _has_one_value(parameter):
            names = "/".join(parameter.opts)
            raise typer.BadParameter(f"{names} is given {_times(times)}: it has one value", ctx=context)


def _has_one_value(parameter: Any) -> bool:
    return not (parameter.multiple or parameter.is_flag or parameter.count)


def _times(number: int) -> str:
    return "twice" if number == 2 else f"{number} times"
