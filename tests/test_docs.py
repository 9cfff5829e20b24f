"""The documentation is true: its programs run and print what they say, its lists are those of the code."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from afflux import cli
from afflux.core import errors
from afflux.protocols.registry import PROTOCOLS
from afflux.transports.registry import TRANSPORTS
from tests.cli.forking import Process
from tests.pages import Block, Reader, blocks_of

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
    differ: bool
    "Numbers are those of one run, by the comment before it: <!-- needs: spark; numbers differ -->."


_BLOCK = re.compile(
    r"(?:^<!-- needs: (?P<needs>\w+)(?P<differ>; numbers differ)? -->\n+)?^```python\n(?P<code>.*?)^```$"
    r"(?:\n\nprints\n\n```\n(?P<prints>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)


def programs_of(text: str, name: str) -> list[Program]:
    return [
        Program(
            f"{name}:{text.count(chr(10), 0, found.start('code')) + 1}",
            *found.group("code", "prints", "needs"),
            found["differ"] is not None,
        )
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
def test_the_program_runs_and_prints_the_output_on_the_page(program: Program) -> None:
    if program.needs is not None:
        pytest.skip(f"needs {program.needs}: tests/{program.needs} tries what the page shows")
    with Process([], program=program.code, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        shown, errors = process.communicate(timeout=PATIENCE)
    assert errors == "", f"{program.name} fails"
    assert process.returncode == 0
    if program.prints is not None:
        assert shown == program.prints


def test_programs_are_found_with_what_they_print_and_need() -> None:
    text = "A\n\n```python\nprint(1)\n```\n\nprints\n\n```\n1\n```\n\n"
    text += "<!-- needs: spark; numbers differ -->\n```python\nspark\n```\n"
    assert programs_of(text, "page") == [
        Program("page:4", "print(1)\n", "1\n", None, False),
        Program("page:15", "spark\n", None, "spark", True),
    ]


SESSIONS = {
    str(path.relative_to(ROOT)): blocks
    for path in sorted(DOCS.rglob("*.md"))
    if (blocks := blocks_of(path.read_text(encoding="utf-8")))
}


MADE = "docs/how-to/capture-tables.md"
"""Its programs read with Spark what its commands have made: tests/spark/test_programs.py follows the commands and
compares what they show, and then runs the programs."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SESSIONS if name != MADE])
def test_the_commands_print_the_output_on_the_page(name: str, tmp_path: Path) -> None:
    pytest.importorskip("typer", reason="the commands need the extra cli")
    if shutil.which("openssl") is None and any("$ openssl" in block.text for block in SESSIONS[name]):
        pytest.skip("the page makes certificates with openssl")
    if any("$ nats-server" in block.text for block in SESSIONS[name]):
        if shutil.which("nats-server") is None:
            pytest.skip("the page needs nats-server (Debian, Ubuntu: apt-get install nats-server)")
        pytest.importorskip("nats", reason="the page needs the extra nats")
    with Reader(tmp_path) as reader:
        for block in SESSIONS[name]:
            reader.follow(block)


@pytest.mark.parametrize("name", SESSIONS)
def test_every_file_of_a_page_is_used_by_a_command_behind_it(name: str) -> None:
    blocks = SESSIONS[name]
    unused = []
    for at, block in enumerate(blocks):
        if block.title is not None:
            behind = "".join(later.text for later in blocks[at + 1 :])
            if not re.search(rf"\b{re.escape(Path(block.title).stem)}\b", behind):
                unused.append(block.title)
    assert unused == []


@pytest.mark.parametrize("name", SESSIONS)
def test_a_file_is_named_in_the_words_before_it(name: str) -> None:
    """Not every reader of Markdown shows titles of blocks."""
    text = (ROOT / name).read_text(encoding="utf-8")
    before = {found[1]: text[: found.start()].rpartition("```\n")[2] for found in re.finditer(r'title="([^"]+)"', text)}
    assert [title for title, words in before.items() if f"`{title}`" not in words] == []


def test_files_and_sessions_are_found() -> None:
    text = 'A\n\n```python title="a.py"\nprint(1)\n```\n\n<!-- numbers differ -->\n```console\n$ python a.py\n1\n```\n'
    assert blocks_of(text) == [Block("a.py", "print(1)\n", False), Block(None, "$ python a.py\n1\n", True)]


def test_a_session_that_shows_something_else_is_an_error(tmp_path: Path) -> None:
    with Reader(tmp_path) as reader:
        reader.follow(Block("a.py", "print('127.0.0.1:7000')\n", False))
        reader.follow(Block(None, "$ python \\\n  a.py\n127.0.0.1:7000\n$ echo 1 ▁▂\n1 ▁▂\n", False))
        reader.follow(Block(None, "$ echo 23 ▃\n1 ▁▂\n", True))
        with pytest.raises(AssertionError, match="instead of"):
            reader.follow(Block(None, "$ echo 2\n1\n", False))
        with pytest.raises(AssertionError, match="instead of"):
            reader.follow(Block(None, "$ echo two\n1\n", True))


def test_every_page_is_in_the_index() -> None:
    index = page("README.md")
    folders = (DOCS, DOCS / "how-to")
    there = [path.relative_to(DOCS).as_posix() for folder in folders for path in folder.glob("*.md")]
    assert [name for name in there if name != "README.md" and f"]({name})" not in index] == []


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
    abstract = {"Consequence", "Error", "ProtocolError", "Violation"}
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
    assert shown == named | set(exits.by_wire_code().values())


def listed(heading: str) -> set[str]:
    """The names in the first column of the table under a heading of not-yet.md."""
    section = page("not-yet.md").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_what_is_not_built_is_listed() -> None:
    assert not listed("Transports") & set(TRANSPORTS)
    assert not listed("Protocols") & set(PROTOCOLS)
    assert listed("The command line") == set(cli.PLANNED)
