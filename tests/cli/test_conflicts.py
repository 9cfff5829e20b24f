"""Options that mean nothing together are refused, with the reason. The rules are a table."""

from __future__ import annotations

import pytest
import typer

from afflux.cli import conflicts
from afflux.cli.app import application
from afflux.cli.conflicts import Excludes, Requires
from tests.cli.running import here

TABLES = {
    "request": conflicts.REQUEST,
    "serve": conflicts.SERVE,
    "check": conflicts.CHECK,
    "inspect": conflicts.INSPECT,
}
NOWHERE = "tcp://127.0.0.1:1"
VALUES = {
    **dict.fromkeys(("-d", "-D", "-m", "-r", "--journal", "--handler", "--file", "--sink", "--keep"), "1"),
    "--credit": "1",
    "--take": "1",
    "--delay": "1s",
    "-o": "hex",
    "--end": "nul",
    "--columns": "a",
    "--cursor": "0",
    "--store": "x",
    "--session": "x",
    "--journal-bytes": "2MB",
    "--workers": "2",
}
"Values of the options of ``request`` and ``serve`` that need one."
VALUES_OF = {
    "check": {
        "--channel": "x",
        "--protocol": "limit",
        "-d": "1=limit",
        "--keylog": "x",
        "--role": "server",
        "--emit": "python",
        "-o": "json",
    },
    "inspect": {"--top": "3", "-o": "json"},
}


def words_of(command: str, option: str) -> list[str]:
    name, _, value = option.partition(" ")
    values = VALUES_OF.get(command, VALUES)
    return [name, value] if value else [name, values[name]] if name in values else [name]


def options_of(rule: Excludes | Requires) -> tuple[str, ...]:
    return rule.options + rule.unless if isinstance(rule, Excludes) else (rule.option, *rule.others)


@pytest.mark.parametrize("command", TABLES)
def test_every_option_of_the_table_exists(command: str) -> None:
    found = typer.main.get_command(application())
    known = {option for parameter in found.commands[command].params for option in parameter.opts}  # type: ignore[attr-defined]
    named = {option.partition(" ")[0] for rule in TABLES[command] for option in options_of(rule)}
    assert named - known == set()


def cases() -> list[tuple[str, Excludes | Requires]]:
    return [(command, rule) for command, rules in TABLES.items() for rule in rules]


@pytest.mark.parametrize(("command", "rule"), cases(), ids=lambda case: getattr(case, "why", case))
def test_every_rule_refuses(command: str, rule: Excludes | Requires) -> None:
    options = rule.options if isinstance(rule, Excludes) else (rule.option,)
    given = {option.partition(" ")[0] for option in options}
    fault = rule.fault(given)
    assert fault is not None
    assert rule.why in fault
    ran = here(command, NOWHERE, *(word for option in options for word in words_of(command, option)))
    assert (ran.code, ran.out) == (2, "")
    assert ran.errors.startswith("afflux: --") or ran.errors.startswith(("afflux: -", "afflux: serve requires"))
    assert ran.errors.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            "request --take 3",
            "--take requires --stream, --channel or --cursor: the other calls have at most one answer",
        ),
        ("request --stream --end nul", "--end requires -o raw: the other formats separate items themselves"),
        ("request --end nul -o hex", "--end requires -o raw: the other formats separate items themselves"),
        ("request --cursor 0 --channel", "--cursor and --channel exclude each other: a cursor reads a stored stream"),
        (
            "request --routes -r x",
            "--routes and -r exclude each other: the request for the routes has neither data nor",
        ),
        ("request --push -d a -m b", "-d, -m and --push exclude each other: --push sends the metadata alone"),
        ("serve --demo --handler a:b", "serve requires exactly one of --demo, --handler MODULE:OBJECT, --file PATH"),
        ("serve --file x --list-routes", "--list-routes and --file exclude each other: that server has no routes"),
    ],
)
def test_the_message_names_the_options_and_the_reason(words: str, told: str) -> None:
    command, *options = words.split()
    ran = here(command, NOWHERE, *options)
    assert ran.code == 2
    assert ran.errors.startswith(f"afflux: {told}")


@pytest.mark.parametrize(
    "words",
    [
        "--stream --take 3 --credit 4 --graph",
        "--cursor 0 --take 3",
        "--cursor 0 --stream",
        "-o raw --end nul",
        "-o csv --columns a,b",
        "--fnf -D @/dev/null",
        "--push -m a",
        "--channel -D @/dev/null --resume --store FILE",
    ],
)
def test_other_options_are_accepted(words: str, tmp_path: object) -> None:
    ran = here("request", NOWHERE, *words.replace("FILE", f"{tmp_path}/x").split())
    assert "exclude each other" not in ran.errors
    assert "requires" not in ran.errors


def test_a_default_conflicts_with_nothing() -> None:
    assert "exclude" not in here("request", NOWHERE, "--fnf").errors
    assert "--credit requires" in here("request", NOWHERE, "--credit", "256").errors
