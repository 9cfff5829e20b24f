"""The conformance pages: which line keeps a rule, and which test tries it. ``python -m tools.conformance`` writes them.

A rule is a number, such as R-27, with a sentence: docs/conformance/<protocol>.toml has them all. Code and tests cite
the number where they keep or try the rule: in a comment, a docstring, a string, or the name of a test. This tool
collects the citations and names the function, class or table around each. The pages name symbols and not lines, so
that they change only when a symbol does.

Every protocol numbers its rules from 1. In the package of a protocol, in its tests and in the files that its .toml
names, a number is of that protocol; everywhere else it is RSocket's.
"""

from __future__ import annotations

import ast
import re
import textwrap
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

__all__ = [
    "FOLDER",
    "Place",
    "Rule",
    "cited_in",
    "in_code",
    "in_tests",
    "pages",
    "protocols",
    "rules",
    "symbols",
    "write",
]

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "conformance"
SOURCE = ROOT / "src" / "afflux"
TESTS = ROOT / "tests"
OWN_TEST = "test_conformance.py"
"The test of this tool: what it cites is made up."

_CITED = re.compile(r"(?<!such as )(?<!such as ``)(?<![\w-])([RDI])-(\d+)(?![\w-])(?: to \1-(\d+)(?![\w-]))?")
"One rule, or two with all between them: R-33 to R-36. What is only an example follows the words ``such as``."
DEFAULT = "rsocket"
"The protocol whose rules everything cites that is no protocol's own."

_NAMED = re.compile(r"_([RDI])_(\d+)(?=_|$)")
"The rule in a test's name: test_R_31_..."

_LEVELS = ("MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "MAY")


class Rule(NamedTuple):
    """A sentence of a specification that something has to keep."""

    id: str
    section: str
    level: str
    "MUST, MUST NOT, SHOULD, SHOULD NOT or MAY; nothing for a decision or a point."
    text: str
    source: str
    "Where it stands."
    not_built: str
    "Why nothing keeps it."


class Place(NamedTuple):
    """A symbol that cites a rule."""

    path: str
    "From the root of the project."
    symbol: str
    "Function, class with its method, or table; nothing for the file itself."


class Symbol(NamedTuple):
    """A function, class or module's name, and the lines that belong to it."""

    name: str
    first: int
    "With its decorators and the comment above them."
    line: int
    "Where it is defined."
    last: int
    is_test: bool


# -- rules ----------------------------------------------------------------------------------------------------


@cache
def _data(protocol: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / f"{protocol}.toml").read_text(encoding="utf-8"))


def protocols() -> list[str]:
    """The protocols that have rules here."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def rules(protocol: str) -> list[Rule]:
    """Every rule of a protocol, in order: those of the specification, the decisions, the points."""
    data = _data(protocol)
    found = [
        _rule(row, section["name"], section.get("not_built", ""))
        for section in data["section"]
        for row in section["rule"]
    ]
    found += [_rule(row, "Decisions") for row in data["decision"]]
    return found + [_rule(row, "Interoperability") for row in data["point"]]


def _rule(row: dict[str, str], section: str, not_built: str = "") -> Rule:
    built = row.get("not_built", not_built)
    return Rule(row["id"], section, row.get("level", ""), row["text"], row.get("source", ""), built)


# -- citations ------------------------------------------------------------------------------------------------


def cited_in(text: str) -> Iterator[tuple[str, int]]:
    """Each rule that ``text`` cites, with the number of the line."""
    for found in _CITED.finditer(text):
        kind, first, last = found.groups()
        line = text.count("\n", 0, found.start()) + 1
        for number in range(int(first), int(last or first) + 1):
            yield f"{kind}-{number}", line


def in_code(protocol: str) -> dict[str, list[Place]]:
    """The symbols of the source that cite each rule."""
    places: dict[str, list[Place]] = {}
    for path in _files(SOURCE, protocol):
        text, known = path.read_text(encoding="utf-8"), symbols(path)
        for id, line in cited_in(text):
            around = _around(known, line)
            _add(places, id, path, around.name if around else "")
    return places


def in_tests(protocol: str) -> dict[str, list[Place]]:
    """The tests that cite each rule, in their names or inside. Helpers and tables beside them are no tests."""
    places: dict[str, list[Place]] = {}
    for path in _files(TESTS, protocol):
        text, known = path.read_text(encoding="utf-8"), symbols(path)
        for symbol in known:
            for kind, number in _NAMED.findall(symbol.name) if symbol.is_test else ():
                _add(places, f"{kind}-{number}", path, symbol.name)
        for id, line in cited_in(text):
            around = _around((symbol for symbol in known if symbol.is_test), line)
            if around is not None:
                _add(places, id, path, around.name)
    return places


def _files(folder: Path, protocol: str) -> Iterator[Path]:
    """The modules whose numbers are rules of ``protocol``."""
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).parts
        if parts != (OWN_TEST,) and _owner(parts) == protocol:
            yield path


def _owner(parts: tuple[str, ...]) -> str:
    """The protocol whose rules a module cites: RSocket's, unless it is another's; none beside the packages, where tests
    of several protocols stand together and a number says nothing."""
    for protocol in protocols():
        data = _data(protocol)
        if parts[:2] == ("protocols", data["package"]) or "/".join(parts) in data.get("files", ()):
            return protocol
    return "" if parts[0] == "protocols" else DEFAULT


def _add(places: dict[str, list[Place]], id: str, path: Path, symbol: str) -> None:
    place = Place(path.relative_to(ROOT).as_posix(), symbol)
    if place not in places.setdefault(id, []):
        places[id].append(place)


def _around(known: Iterable[Symbol], line: int) -> Symbol | None:
    """The innermost symbol around a line."""
    around = [symbol for symbol in known if symbol.first <= line <= symbol.last]
    return max(around, key=lambda symbol: (symbol.first, -symbol.last), default=None)


@cache
def symbols(path: Path) -> list[Symbol]:
    """The functions, classes and top-level names of a module, in order."""
    text = path.read_text(encoding="utf-8")
    return list(_symbols(ast.parse(text), text.splitlines(), path.name.startswith("test_")))


def _symbols(parent: ast.Module | ast.ClassDef, lines: list[str], tests: bool, before: str = "") -> Iterator[Symbol]:
    for node, after in pairwise([*parent.body, None]):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield _symbol(node, before + name, lines, tests and name.startswith("test_"))
            case ast.ClassDef(name=name):
                yield _symbol(node, before + name, lines)
                yield from _symbols(node, lines, tests, f"{before}{name}.")
            case ast.Assign(targets=[ast.Name(id=name), *_]) | ast.AnnAssign(target=ast.Name(id=name)) if not before:
                words = after if isinstance(after, ast.Expr) else node  # the sentence under a name belongs to it
                yield _symbol(node, name, lines)._replace(last=words.end_lineno or node.lineno)


def _symbol(node: ast.stmt, name: str, lines: list[str], is_test: bool = False) -> Symbol:
    first = min([node.lineno, *(part.lineno for part in getattr(node, "decorator_list", ()))])
    while first > 1 and lines[first - 2].lstrip().startswith("#"):
        first -= 1
    return Symbol(name, first, node.lineno, node.end_lineno or node.lineno, is_test)


# -- pages ----------------------------------------------------------------------------------------------------


def pages() -> dict[str, str]:
    """Every page by its file name."""
    return {f"{protocol}.md": page(protocol) for protocol in protocols()}


def write(folder: Path = FOLDER) -> None:
    """Write every page."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


_ABOUT = (
    'The rules of the specification by their numbers; code, errors and tests cite these. "Kept by" is where the code '
    'keeps the rule, "tried by" the tests that would fail if it did not. In what stands in brackets, {letters}.'
)

_ABOUT_DECISIONS = """\
Where the specification leaves something open, or contradicts itself.
"""

_ABOUT_POINTS = """\
What other implementations do that the specification does not say, and what follows for afflux.
"""


def page(protocol: str) -> str:
    """The page of one protocol."""
    every, kept, tried = rules(protocol), in_code(protocol), in_tests(protocol)
    rules_of = f"[{protocol}.toml]({protocol}.toml)"
    note = f"Written by `python -m tools.conformance` from {rules_of}, the source and the tests."
    about = textwrap.fill(_ABOUT.format(letters=_data(protocol)["about"]), 118)
    parts = [f"# Conformance: {_data(protocol)['title']}", note, about, _totals(every, tried)]
    for section in dict.fromkeys(rule.section for rule in every):
        about = {"Decisions": _ABOUT_DECISIONS, "Interoperability": _ABOUT_POINTS}.get(section, "")
        inside = [rule for rule in every if rule.section == section]
        parts += [f"## {section}", about, *_table(inside, kept, tried)]
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


def _totals(every: list[Rule], tried: dict[str, list[Place]]) -> str:
    rows = ["| | rules | kept | not built |", "|---|---|---|---|"]
    levels = [(level, [rule for rule in every if rule.level == level]) for level in _LEVELS]
    levels.append(("all", [rule for rule in every if rule.level]))
    for name, section in (("decisions", "Decisions"), ("points", "Interoperability")):
        levels.append((name, [rule for rule in every if rule.section == section]))
    for name, inside in levels:
        missing = sum(bool(rule.not_built) for rule in inside)
        rows.append(f"| {name} | {len(inside)} | {len(inside) - missing} | {missing or ''} |")
    number = len({place for rule in every for place in tried.get(rule.id, ()) if not rule.not_built})
    return "\n".join(rows) + f"\n\nEvery rule that is kept has its code and its tests: {number} tests in all."


def _table(inside: list[Rule], kept: dict[str, list[Place]], tried: dict[str, list[Place]]) -> Iterator[str]:
    built = [rule for rule in inside if not rule.not_built]
    if built:
        rows = ["| rule | | kept by | tried by |", "|---|---|---|---|"]
        for rule in built:
            by, tests_of = (_links(places.get(rule.id, [])) for places in (kept, tried))
            rows.append(f"| {rule.id} | {_sentence(rule)} | {by} | {tests_of} |")
        yield "\n".join(rows)
    missing = [rule for rule in inside if rule.not_built]
    if missing:
        rows = ["| not built | | why not |", "|---|---|---|"]
        rows += [f"| {rule.id} | {_sentence(rule)} | {rule.not_built} |" for rule in missing]
        yield "\n".join(rows)


def _sentence(rule: Rule) -> str:
    return f"**{rule.level}** {rule.text} ({rule.source})" if rule.level else rule.text


def _links(places: list[Place]) -> str:
    return "<br>".join(f"· {_link(place)}" for place in places)


def _link(place: Place) -> str:
    """A test by its words, code by its file and name; ``#name`` leads on to the line where a reader can follow it."""
    path = Path(place.path)
    target = f"../../{place.path}#{place.symbol}" if place.symbol else f"../../{place.path}"
    name = place.symbol.rpartition(".")[2]
    if name.startswith("test_"):
        return f"[{_NAMED.sub('', name).removeprefix('test_').replace('_', ' ')}]({target})"
    return f"[`{path.name}{f': {place.symbol}' if place.symbol else ''}`]({target})"


if __name__ == "__main__":
    write()
    print(f"written: {', '.join(pages())} in {FOLDER.relative_to(ROOT)}")
