"""The examples do what they say, are short, and are all listed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.cli.forking import Process

FOLDER = Path(__file__).resolve().parent.parent / "examples"
LONGEST = 40

PRINTS = {
    "echo": "hello\n",
    "credit": (
        "requested 1, received 1; waits for: credit\n"
        "requested 2, received 2, 3; waits for: credit\n"
        "requested 3, received 4, 5, 6; waits for: credit\n"
        "7 numbers were made\n"
    ),
    "channel": "1\n1.5\n3\n",
    "router_json": (
        '{"placed":3,"of":"EUR"}\n'
        '{"symbol":"EUR","price":100}\n'
        '{"symbol":"EUR","price":101}\n'
        "refused: the data does not fit: Object missing required field `amount`\n"
    ),
    "authentication": "hello Ann\nrefused: not authenticated\n",
    "resumption": "1000 numbers, in order, without duplicates: True\n",
    "leases": (
        "request 0\nrequest 1\nrequest 2: no valid lease: none granted, used up or expired\n"
        "waiting for leases: 0 1 2 3 4\n"
    ),
    "unix_socket": "0 1 4 9 16\n",
    "websocket": "tick 0\ntick 1\ntick 2\n",
    "at_most_once": "done: pay 10\npay nobody: may have been processed\npay 20: safe to retry\n",
    "subscription": "EUR 100\nEUR 101\nEUR 102\nEUR 103\n",
    "publishers": "10 11 12 13 14 15 16 17 18 19\n['warm', 'warmer still']\nrefused: unknown-publisher\n",
    "reactive_streams": "".join(f"number {i}\n" for i in range(5)),
}


@pytest.mark.parametrize("name", PRINTS)
def test_it_prints_what_it_should(name: str) -> None:
    program = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    with Process([], program=program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        shown, errors = process.communicate(timeout=60)
    assert (shown, errors, process.returncode) == (PRINTS[name], "", 0)


def test_each_is_tested_and_listed() -> None:
    files = sorted(path.stem for path in FOLDER.glob("*.py"))
    assert files == sorted(PRINTS)
    listed = re.findall(r"^\| \[(\w+)\.py\]\(\1\.py\)", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == files


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_each_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST
