"""Write docs/conformance: for each rule of a wire, the code that implements it and the tests that check it.

Rules come from docs/specs, and tools/specs.py reads the citations. A citation in a comment, docstring, string or the
name of a test belongs to the function, class or table around it. Pages name symbols and no lines, so that a page
changes only when a symbol does.

Code that cites a rule without implementing it is left out: packages that show or measure a wire (``_SHOWS``), and the
``mentions`` of docs/conformance/<wire>.toml.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tools.specs import (
    Citation,
    Rule,
    Symbol,
    cited_in,
    cited_in_names,
    data,
    owner_of,
    protocols,
    rules,
    symbols,
)

__all__ = ["FOLDER", "Place", "in_code", "in_tests", "mentions", "pages", "write"]

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "conformance"
SOURCE = ROOT / "src" / "afflux"
TESTS = ROOT / "tests"
OWN_TESTS = ("test_conformance.py", "test_citations.py")
"Tests of these tools; what they cite is made up."

_SHOWS = ("bench", "cli", "demo", "testing", "dissector.py")
"Packages and modules that show or measure a wire; they implement none of its rules."

_RULE_IN_NAME = re.compile(r"_[RDI]_\d+(?=_|$)")

_NUMBERS = "RULES"
"The name of a table of rule numbers, which implements none of them."

_LEVELS = ("MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "MAY")


class Place(NamedTuple):
    """A symbol that cites a rule."""

    path: str
    "From the root of the project."
    symbol: str
    "Function, class with its method, or table; empty for the file itself."


# -- citations ------------------------------------------------------------------------------------------------


def in_code(protocol: str) -> dict[str, list[Place]]:
    """The symbols of the source that implement each rule of a wire."""
    places: dict[str, list[Place]] = {}
    for path, citation in (*_cited(SOURCE, protocol), *_shared(protocol)):
        around = _around(symbols(path), citation.line)
        place = _place(path, around.name if around else "")
        if not {*path.relative_to(SOURCE).parts} & {*_SHOWS} and not _is_mention(protocol, citation.id, place):
            _add(places, citation.id, place)
    return {id: [place for place in found if place.symbol or _alone(place, found)] for id, found in places.items()}


def _alone(place: Place, found: list[Place]) -> bool:
    """Whether no symbol of the same file is listed, so that the file stands for itself."""
    return not any(other.path == place.path and other.symbol for other in found)


def in_tests(protocol: str) -> dict[str, list[Place]]:
    """The tests that cite each rule of a wire, in their names or inside. Helpers and tables do not count."""
    places: dict[str, list[Place]] = {}
    for path in _files(TESTS):
        for citation, symbol in _in_names(path):
            if citation.protocol == protocol:
                _add(places, citation.id, _place(path, symbol.name))
    for path, citation in _cited(TESTS, protocol):
        around = _around((symbol for symbol in symbols(path) if symbol.is_test), citation.line)
        if around is not None:
            _add(places, citation.id, _place(path, around.name))
    return places


def mentions(protocol: str) -> list[tuple[str, str]]:
    """The rules and symbols that the settings of a wire leave out."""
    listed: dict[str, list[str]] = data(protocol).get("mentions", {})
    return [(id, symbol) for id, symbols in listed.items() for symbol in symbols]


def _is_mention(protocol: str, id: str, place: Place) -> bool:
    return place.symbol == _NUMBERS or (id, place.symbol or Path(place.path).name) in mentions(protocol)


def _cited(folder: Path, protocol: str) -> Iterator[tuple[Path, Citation]]:
    for path in _files(folder):
        yield from ((path, citation) for citation in _in_file(path) if citation.protocol == protocol)


@cache
def _in_file(path: Path) -> tuple[Citation, ...]:
    return tuple(cited_in(path.read_text(encoding="utf-8"), owner_of(path.relative_to(ROOT))))


@cache
def _in_names(path: Path) -> tuple[tuple[Citation, Symbol], ...]:
    return tuple(cited_in_names(path, owner_of(path.relative_to(ROOT))))


def _shared(protocol: str) -> Iterator[tuple[Path, Citation]]:
    """Citations in protocols/family: ``rules.credit`` cites the number that a wire's Rules give to credit."""
    numbers = {
        keyword.arg: keyword.value.value
        for path in _files(SOURCE)
        if owner_of(path.relative_to(SOURCE)) == protocol and "family" not in path.relative_to(SOURCE).parts
        for node in _nodes(path, "Rules(")
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Rules")
        for keyword in node.keywords
        if isinstance(keyword.value, ast.Constant)
    }
    for path in (path for path in _files(SOURCE) if "family" in path.relative_to(SOURCE).parts):
        for node in _nodes(path, "rules."):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("rules"):
                for citation in cited_in(str(numbers.get(node.attr, "")), protocol):
                    if citation.protocol == protocol:
                        yield path, citation._replace(line=node.lineno)


def _nodes(path: Path, word: str) -> Iterator[ast.AST]:
    """The syntax tree of a module that contains a word."""
    text = path.read_text(encoding="utf-8")
    return ast.walk(ast.parse(text)) if word in text else iter(())


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*.py")) if path.name not in OWN_TESTS)


def _place(path: Path, symbol: str) -> Place:
    return Place(path.relative_to(ROOT).as_posix(), symbol)


def _add(places: dict[str, list[Place]], id: str, place: Place) -> None:
    if place not in places.setdefault(id, []):
        places[id].append(place)


def _around(known: Iterable[Symbol], line: int) -> Symbol | None:
    """The innermost symbol around a line."""
    around = [symbol for symbol in known if symbol.first <= line <= symbol.last]
    return max(around, key=lambda symbol: (symbol.first, -symbol.last), default=None)


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
    "Every rule of the [specification](../specs/{wire}.md), with the code that implements it and the tests that fail "
    "if it does not. A symbol is listed because it cites the rule; code of other wires, benchmarks and the command "
    "line is not."
)


def page(protocol: str) -> str:
    """The page of one wire."""
    every, kept, tried = rules(protocol), in_code(protocol), in_tests(protocol)
    note = (
        f"Written by `python -m tools.conformance` from the [specification](../specs/{protocol}.md), "
        f"[{protocol}.toml]({protocol}.toml), the source and the tests."
    )
    about = _ABOUT.format(wire=protocol)
    parts = [f"# Conformance: {data(protocol)['title']}", *(textwrap.fill(part, 118) for part in (note, about))]
    parts.append(_totals(every, tried))
    for section in dict.fromkeys(rule.section for rule in every):
        inside = [rule for rule in every if rule.section == section]
        parts += [f"## {section}", *_table(protocol, inside, kept, tried)]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _totals(every: Iterable[Rule], tried: dict[str, list[Place]]) -> str:
    every = list(every)
    rows = ["| | rules | implemented | not built |", "|---|---|---|---|"]
    levels = [(level, [rule for rule in every if rule.level == level]) for level in _LEVELS]
    levels.append(("all", [rule for rule in every if rule.level]))
    for name, kind in (("decisions", "D-"), ("points of interoperability", "I-")):
        levels.append((name, [rule for rule in every if rule.id.startswith(kind)]))
    for name, inside in levels:
        missing = sum(bool(rule.not_built) for rule in inside)
        rows.append(f"| {name} | {len(inside)} | {len(inside) - missing} | {missing or ''} |")
    number = len({place for rule in every for place in tried.get(rule.id, ()) if not rule.not_built})
    return "\n".join(rows) + f"\n\nEvery implemented rule has its code and its tests: {number} tests in all."


def _table(
    protocol: str, inside: list[Rule], kept: dict[str, list[Place]], tried: dict[str, list[Place]]
) -> Iterator[str]:
    built = [rule for rule in inside if not rule.not_built]
    if built:
        rows = ["| rule | | implemented by | tested by |", "|---|---|---|---|"]
        for rule in built:
            by, tests_of = (_links(places.get(rule.id, [])) for places in (kept, tried))
            rows.append(f"| {_rule_link(protocol, rule)} | {_sentence(rule)} | {by} | {tests_of} |")
        yield "\n".join(rows)
    missing = [rule for rule in inside if rule.not_built]
    if missing:
        rows = ["| not built | | why not |", "|---|---|---|"]
        rows += [f"| {_rule_link(protocol, rule)} | {_sentence(rule)} | {rule.not_built} |" for rule in missing]
        yield "\n".join(rows)


def _rule_link(protocol: str, rule: Rule) -> str:
    return f"[{rule.id}](../specs/{protocol}.md#{rule.id.lower()})"


def _sentence(rule: Rule) -> str:
    return f"**{rule.level}** {rule.text}" if rule.level else rule.text


def _links(places: list[Place]) -> str:
    return "<br>".join(f"· {_link(place)}" for place in places)


def _link(place: Place) -> str:
    """A test by its words, code by its file and symbol; ``#name`` lets tools/docs.py find the line."""
    path = Path(place.path)
    target = f"../../{place.path}#{place.symbol}" if place.symbol else f"../../{place.path}"
    name = place.symbol.rpartition(".")[2]
    if name.startswith("test_"):
        return f"[{_RULE_IN_NAME.sub('', name).removeprefix('test_').replace('_', ' ')}]({target})"
    return f"[`{path.name}{f': {place.symbol}' if place.symbol else ''}`]({target})"


if __name__ == "__main__":
    write()
    print(f"written: {', '.join(pages())} in {FOLDER.relative_to(ROOT)}")
