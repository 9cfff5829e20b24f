"""Assemble the commands into one application. See the module of each command for its options."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any, Final

import typer

from afflux.cli import COMMANDS
from afflux.cli.completing import prepared
from afflux.cli.examples import epilog
from afflux.cli.exits import INTERRUPTED, USAGE, guarded
from afflux.cli.mistakes import UsageError, words
from afflux.cli.process import PIPE_CLOSED
from afflux.cli.telling import tell
from afflux.cli.verbose import prefix_log

__all__ = ["application", "run"]

_HELP: Final = "Call, serve, measure and decode RSocket and five other protocols, with back-pressure."


def application(names: Sequence[str] = COMMANDS) -> typer.Typer:
    """Return the application with these commands. Only their modules are imported."""
    app = typer.Typer(
        name="afflux",
        epilog=epilog("afflux"),
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )
    for name in names:
        command = getattr(import_module(f"afflux.cli.{name}"), name)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, epilog=epilog(name))
        else:
            app.command(name, epilog=epilog(name))(guarded(command))
    app.callback(help=_HELP)(_afflux)
    return app


def _afflux(version: bool = typer.Option(False, "--version", "-V", help="Print the version and exit.")) -> None:
    """Accept ``--version``, which was handled before."""


@cache
def _tree(names: Sequence[str]) -> Callable[..., Any]:
    """The commands with their options, as typer reads them from the functions. A shell runs many lines with it."""
    tree = typer.main.get_command(application(names))
    _adjust_help(tree)
    return tree


def _adjust_help(command: Any) -> None:
    """Show arguments by their name alone: typer would add ``<str>``, and braces. Escape what stdout cannot show: typer
    would write UTF-8 to a terminal that has ASCII only."""
    whole = command.get_help
    command.get_help = lambda context: _encodable(whole(context))
    for parameter in command.params:
        if parameter.param_type_name == "argument" and parameter.metavar:
            parameter.display_type_rich = lambda **_: ""
            parameter.get_usage_pieces = lambda _, name=parameter.metavar: [name]
    for inner in getattr(command, "commands", {}).values():
        _adjust_help(inner)


def _encodable(text: str) -> str:
    """Return a text without characters that stdout does not have: they are escaped."""
    encoding = sys.stdout.encoding or "ascii"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def run(arguments: Sequence[str], *, help: str | None = None, **settings: Any) -> int:
    """Run a command line and return its exit code. Usage errors are printed and return 2. ``help`` is what they
    name as the help, if not ``--help``; ``settings`` are those of typer's context, such as ``obj``."""
    prefix_log()
    if wrong := prepared(arguments):
        tell(f"afflux: {wrong}")
        return USAGE
    try:
        names = arguments[:1] if arguments and arguments[0] in COMMANDS else COMMANDS
        code = _tree(tuple(names))(list(arguments), prog_name="afflux", standalone_mode=False, **settings)
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(error.ctx.get_help(), err=True)
        else:
            tell(f"afflux: {words(error, arguments, help)}")
        return USAGE
    except typer.Abort:
        return INTERRUPTED
    except SystemExit as done:
        if isinstance(done.__context__, BrokenPipeError):  # so typer and rich end a command
            return PIPE_CLOSED
        return done.code if isinstance(done.code, int) else 1
    return code if isinstance(code, int) else 0
