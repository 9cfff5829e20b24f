"""The documentation is true: its programs run and print what they say, its lists are those of the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from afflux import cli
from afflux.core import errors
from afflux.registry import PROTOCOLS, TRANSPORTS

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PATIENCE = 60


class Program(NamedTuple):
    """A block of Python on a page."""

    name: str
    code: str
    prints: str | None
    "What the page says that it prints, if it says so."
    needs: str | None
    "What it cannot do without, by the comment before it: <!-- needs: spark -->."


_BLOCK = re.compile(
    r"(?:^<!-- needs: (?P<needs>\w+) -->\n+)?^```python\n(?P<code>.*?)^```$"
    r"(?:\n\nprints\n\n```\n(?P<prints>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)


def programs_of(text: str, name: str) -> list[Program]:
    return [
        Program(f"{name}:{text.count(chr(10), 0, found.start('code')) + 1}", *found.group("code", "prints", "needs"))
        for found in _BLOCK.finditer(text)
    ]


PROGRAMS = [
    program
    for path in sorted(DOCS.rglob("*.md"))
    for program in programs_of(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT)))
]


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("program", PROGRAMS, ids=[program.name for program in PROGRAMS])
def test_the_program_runs_and_prints_what_the_page_says(program: Program) -> None:
    if program.needs is not None:
        pytest.skip(f"needs {program.needs}: tests/{program.needs} tries what the page shows")
    command = [sys.executable, "-W", "error", "-c", program.code]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ran.stderr == "", f"{program.name} fails"
    assert ran.returncode == 0
    if program.prints is not None:
        assert ran.stdout == program.prints


def test_programs_are_found_with_what_they_print_and_need() -> None:
    text = "A\n\n```python\nprint(1)\n```\n\nprints\n\n```\n1\n```\n\n<!-- needs: spark -->\n```python\nspark\n```\n"
    assert programs_of(text, "page") == [
        Program("page:4", "print(1)\n", "1\n", None),
        Program("page:15", "spark\n", None, "spark"),
    ]


def test_every_page_is_in_the_index() -> None:
    index = page("README.md")
    there = [path.name for path in DOCS.glob("*.md") if path.name != "README.md"]
    assert [name for name in there if f"]({name})" not in index] == []


def tree(kind: type[errors.Error], before: str = "") -> list[str]:
    """The errors under ``kind`` that the core declares, drawn as on the page."""
    under = sorted(
        (sub for sub in kind.__subclasses__() if sub.__module__ == errors.__name__), key=lambda k: k.__name__
    )
    lines = []
    for number, sub in enumerate(under, 1):
        last = number == len(under)
        lines.append(f"{before}{'└─' if last else '├─'} {sub.__name__}")
        lines += tree(sub, before + ("   " if last else "│  "))
    return lines


def test_the_tree_of_errors_is_that_of_the_code() -> None:
    drawn = "\n".join(["Error", *tree(errors.Error)])
    assert f"```text\n{drawn}\n```" in page("errors.md")


def test_every_error_has_a_line() -> None:
    abstract = {"Error", "ProtocolError", "Violation"}
    text = page("errors.md")
    assert [name for name in errors.__all__ if name not in abstract and f"\n| `{name}` | " not in text] == []


def test_every_exit_code_has_a_line() -> None:
    pytest.importorskip("typer", reason="exit codes belong to the command line: the extra cli")
    from afflux.cli import exits

    named = {value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}
    table = page("errors.md").partition("## Exit codes of the command")[2]
    shown: set[int] = set()
    for cell in re.findall(r"^\| (\d[^|]*) \|", table, re.MULTILINE):
        numbers = [int(number) for number in re.findall(r"\d+", cell)]
        shown |= set(range(numbers[0], numbers[-1] + 1)) if " to " in cell else set(numbers)
    assert shown == named | set(exits.BY_WIRE_CODE.values())


def listed(heading: str) -> set[str]:
    """The names in the first column of the table under a heading of not-yet.md."""
    section = page("not-yet.md").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_what_is_not_built_is_listed() -> None:
    assert listed("Transports") == {entry.name for entry in TRANSPORTS.values() if entry.make is None}
    assert listed("Protocols") == {entry.name for entry in PROTOCOLS.values() if entry.make is None}
    assert listed("The command line") == set(cli.PLANNED)
