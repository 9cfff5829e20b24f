"""The page of notebooks: what is typed at a prompt with ``await``, and at one without."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.running import Server

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "how-to" / "notebooks.md").read_text(encoding="utf-8")
PLACE = "tcp://127.0.0.1:7000"
SESSIONS = re.findall(r"^```pycon\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
WITH_AWAIT = [session for session in SESSIONS if "await " in session]
WITHOUT = [session for session in SESSIONS if "await " not in session]


def typed(session: str) -> str:
    """What is typed in a session."""
    return "".join(f"{line[4:]}\n" for line in session.splitlines() if line.startswith((">>>", "...")))


def shown(session: str) -> str:
    """What a session shows, without what is typed; the prompts stay."""
    return re.sub(r"^(>>>|\.\.\.).*\n", r"\1 ", session, flags=re.MULTILINE)


@pytest.mark.parametrize("session", WITH_AWAIT)
def test_a_prompt_with_await_shows_what_the_page_shows(session: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "asyncio"],
        input=typed(session).replace(PLACE, "tcp://127.0.0.1:0"),
        env=os.environ | {"PYTHON_COLORS": "0"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = re.sub(r"tcp://127\.0\.0\.1:\d+", PLACE, done.stdout)
    assert said.removesuffix(">>> ") == shown(session), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("session", WITHOUT)
def test_a_prompt_without_await_shows_what_the_page_shows(session: str) -> None:
    pytest.importorskip("typer", reason="the server is started by the command: the extra cli")
    with Server("--demo") as server:
        test = doctest.DocTestParser().get_doctest(session.replace(PLACE, server.uri), {}, "notebooks.md", None, None)
        said: list[str] = []
        results = doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    assert (results.failed, "".join(said)) == (0, "")


def test_both_kinds_of_prompt_are_on_the_page() -> None:
    assert len(WITH_AWAIT) == 4
    assert len(WITHOUT) == 1
