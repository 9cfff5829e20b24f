"""The README is true: its program prints what it says, its commands answer what it shows, its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.running import Server, on_a_terminal

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def fenced(language: str) -> list[str]:
    """The fenced blocks of a language, in order; "" for those without one."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [text for name, text in blocks if name == language]


def test_the_program_prints_the_output_in_the_readme() -> None:
    program = next(block for block in fenced("python") if "asyncio.run" in block)
    told = README[README.index(program) :].split("\n\nprints\n\n```\n")[1].partition("```")[0]
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert ran.stderr == ""
    assert ran.stdout == told


def test_the_commands_answer_what_the_readme_shows() -> None:
    session = next(block for block in fenced("") if "$ afflux request" in block)
    with Server("--demo") as server:
        shown = re.findall(r"^\$ afflux (request .*|decode .*)\n((?:[^$].*\n)*)", session, re.MULTILINE)
        assert len(shown) >= 2
        for command, answer in shown:
            assert on_a_terminal(command.replace("tcp://127.0.0.1:7000", server.uri)) == answer


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    dead = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert dead == []
