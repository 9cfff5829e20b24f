"""The README is true: its programs run, its commands answer what it shows, its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.running import Server, on_a_terminal
from tests.test_docs import Program, programs_of

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
INSTALL = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PICTURE = ROOT / "docs" / "img" / "way.svg"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")])
PROGRAMS = [program for program in programs_of(README, "README.md") if program.needs is None]


@pytest.mark.parametrize("program", PROGRAMS, ids=[program.name for program in PROGRAMS])
def test_a_program_prints_what_its_comment_says(program: Program) -> None:
    told = "".join(
        f"{line}\n" for words in re.findall(r"print\(.*\)  # (.*)", program.code) for line in words.split(", ")
    )
    ran = subprocess.run([sys.executable, "-c", program.code], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.stdout, ran.stderr) == (told, "")


def test_the_first_program_is_short() -> None:
    lines = [line for line in PROGRAMS[0].code.splitlines() if line]
    assert len(lines) <= 12
    assert max(map(len, lines)) <= 88


def test_it_is_two_screens_long() -> None:
    assert len(README.splitlines()) <= 130


def test_the_commands_answer_what_the_readme_shows() -> None:
    pytest.importorskip("typer", reason="the commands need the extra cli")
    sessions = "".join(re.findall(r"^```\n(\$ afflux.*?)^```$", README, re.MULTILINE | re.DOTALL))
    with Server("--demo") as server:
        shown = re.findall(r"^\$ afflux (request .*|decode .*)\n((?:[^$].*\n)*)", sessions, re.MULTILINE)
        assert len(shown) >= 3
        for command, answer in shown:
            assert on_a_terminal(command.replace("tcp://127.0.0.1:7000", server.uri)) == answer


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    dead = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert dead == []


# -- what is installed --------------------------------------------------------------------------------------------


def packages(requirement: str) -> set[str]:
    """The extras or the package that a requirement names."""
    name, _, extras = re.split(r"[<>=;~]", requirement)[0].strip().partition("[")
    return set(extras.removesuffix("]").split(",")) if name == PROJECT["name"] else {name}


def test_every_extra_has_a_row_with_its_packages() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", INSTALL, re.MULTILINE))
    extras = PROJECT["optional-dependencies"]
    assert sorted(rows) == sorted(extras), "docs/install.md lists other extras than pyproject.toml"
    told = {name: set(rows[name].split(", ")) for name in extras if name not in ("all", "dev")}
    assert told == {name: set().union(*map(packages, extras[name])) for name in told}


def test_all_is_every_extra_for_users() -> None:
    extras = PROJECT["optional-dependencies"]
    (everything,) = extras["all"]
    installed = {package for name in packages(everything) for each in extras[name] for package in packages(each)}
    for name in set(extras) - {"all", "dev", "docs", "bench", "java"}:
        assert {package for each in extras[name] for package in packages(each)} <= installed, name


@pytest.mark.parametrize("text", [README, INSTALL], ids=["README.md", "install.md"])
def test_what_pip_installs_exists(text: str) -> None:
    named = re.findall(r'^pip install "?(afflux|\.)(?:\[([\w,]+)\])?"?(?: |$)', text, re.MULTILINE)
    assert len(named) == len(re.findall(r"^pip install", text, re.MULTILINE)) >= 3
    for _, extras in named:
        assert set(filter(None, extras.split(","))) <= set(PROJECT["optional-dependencies"])


def test_platforms_are_not_promised_beyond_what_is_tested() -> None:
    systems = [name for name in PROJECT["classifiers"] if name.startswith("Operating System")]
    assert systems == ["Operating System :: POSIX :: Linux"]
    for text in (README, INSTALL):
        assert re.search(r"macOS\W* (?:is|\|) not tested", text)
        assert re.search(r"Windows\W* (?:is|\|) not supported", text)


# -- the picture --------------------------------------------------------------------------------------------------


def luminance(colour: str) -> float:
    """The relative luminance of ``#rrggbb``, by WCAG 2."""
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def fills(style: str) -> dict[str, str]:
    """The colour of each class."""
    found = re.findall(r"^ *((?:\.[\w-]+(?:, )?)+) \{ [^}]*?fill: (#\w+)", style, re.MULTILINE)
    return {name.strip(" ."): colour for names, colour in found for name in names.split(",")}


def test_the_picture_is_legible_in_light_and_dark() -> None:
    text = PICTURE.read_text(encoding="utf-8")
    light_style, _, dark_style = text.partition("@media (prefers-color-scheme: dark)")
    light = fills(light_style)
    for colours in (light, light | fills(dark_style)):
        for name in ("head", "text", "note", "code", "back-text"):
            for ground in ("paper", "card"):
                dark, bright = sorted((luminance(colours[name]), luminance(colours[ground])))
                assert (bright + 0.05) / (dark + 0.05) >= 4.5, (name, ground)


def test_the_picture_stands_alone() -> None:
    text = PICTURE.read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    assert root.findtext(f"{space}title")
    assert root.findtext(f"{space}desc")
    assert "(docs/img/way.svg)" in README
    classes = {element.get("class") for element in root.iter() if element.get("class")}
    assert classes <= set(fills(text)) | {"data", "back", "free", "rule"}
    assert not re.search(r"<script|href|url\(|@import|<foreignObject", text)
