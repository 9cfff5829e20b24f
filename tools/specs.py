"""Read the numbered rules of docs/specs, hostile.md, cursor.md and staging.md, and the citations of them.

Rules of a wire begin with R, D or I. Each wire numbers its own from 1, so a citation has to name its wire, in one of
three ways. The first that applies decides:

1. Its name before the number: "RSocket R-26", "Jmux R-42 and D-8", "rsio R-1 to R-4".
2. A sentence earlier in the file: "Rule numbers are Jmux's".
3. The path: a folder or a part of the file's name is the wire's ("protocols/jmux", "test_rsocket_flow.py");
   numbers in protocols/family are RSocket's.

All other prefixes (HS, FC, DR, C, …) belong to one page and mean the same everywhere. In a wire's files a number such
as 3.4 in a state table or in ``rule=`` is a section of the wire's page. Examples follow the words "such as".
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

__all__ = [
    "Citation",
    "Rule",
    "Symbol",
    "cases",
    "cited_in",
    "cited_in_names",
    "data",
    "known",
    "linked",
    "owner_of",
    "protocols",
    "rules",
    "sections",
    "symbols",
]

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
DATA = DOCS / "conformance"
SHARED_PAGES = ("hostile.md", "cursor.md", "staging.md")
"Pages whose prefixes belong to no wire."

_ROW = re.compile(r'^\| <a id="[a-z]+-\d+"></a>([A-Z]+-\d+) \| (.*) \|$', re.MULTILINE)
_HEADING = re.compile(r"^#+ (?:(\d+(?:\.\d+)?)\.? )?(.*)$", re.MULTILINE)
_SECTION_ROW = re.compile(r"^\| (\d\.\d) \|", re.MULTILINE)
_TEST_NAME = re.compile(r"_([A-Z]{1,2})_(\d+)(?=_|$)")

_LEVELS = ("MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "MAY")


class Rule(NamedTuple):
    """A numbered row of a specification page."""

    id: str
    section: str
    level: str
    "MUST, MUST NOT, SHOULD, SHOULD NOT or MAY; empty for decisions and points of interoperability."
    text: str
    source: str
    not_built: str
    "Why no code implements it; empty if code does."


class Citation(NamedTuple):
    """One rule that a text cites."""

    protocol: str | None
    "The wire of the rule; empty for prefixes that belong to no wire; None if the text does not show the wire."
    id: str
    line: int


class Symbol(NamedTuple):
    """A function, class or top-level name of a module, and the lines that belong to it."""

    name: str
    first: int
    "With its decorators and the comment above them."
    line: int
    "Where it is defined."
    last: int
    is_test: bool


# -- pages ----------------------------------------------------------------------------------------------------


@cache
def data(protocol: str) -> dict[str, Any]:
    """The settings of a wire, from docs/conformance/<wire>.toml."""
    return tomllib.loads((DATA / f"{protocol}.toml").read_text(encoding="utf-8"))


@cache
def protocols() -> tuple[str, ...]:
    """The wires that have a specification here."""
    return tuple(sorted(path.stem for path in (DOCS / "specs").glob("*.md")))


@cache
def rules(protocol: str) -> tuple[Rule, ...]:
    """Every row of a wire's page in order: rules, decisions, points of interoperability."""
    text = (DOCS / "specs" / f"{protocol}.md").read_text(encoding="utf-8")
    headings = [(found.start(), found[2]) for found in _HEADING.finditer(text)]
    not_built = data(protocol).get("not_built", {})
    found = []
    for row in _ROW.finditer(text):
        section = [title for start, title in headings if start < row.start()][-1]
        found.append(_rule(row[1], section, row[2].split(" | "), not_built.get(row[1], "")))
    return tuple(found)


def _rule(id: str, section: str, cells: list[str], not_built: str) -> Rule:
    match cells:
        case [level, text, source] if level in _LEVELS:
            return Rule(id, section, level, text, source, not_built)
        case [others, here]:
            return Rule(id, section, "", f"{others} afflux: {here}", "", not_built)
        case [text]:
            return Rule(id, section, "", text, "", not_built)
    raise ValueError(f"{id} has {len(cells)} cells: {cells}")


@cache
def sections(protocol: str) -> frozenset[str]:
    """The numbers of the sections of a wire's page."""
    text = (DOCS / "specs" / f"{protocol}.md").read_text(encoding="utf-8")
    return frozenset({found[1] for found in _HEADING.finditer(text) if found[1]} | set(_SECTION_ROW.findall(text)))


@cache
def cases() -> dict[str, str]:
    """The ids that belong to no wire, each with its page."""
    return {row[1]: page for page in SHARED_PAGES for row in _ROW.finditer((DOCS / page).read_text(encoding="utf-8"))}


def known(citation: Citation) -> bool:
    """Whether a page has the cited row."""
    if citation.protocol is None:
        return False
    return citation.id in ({rule.id for rule in rules(citation.protocol)} if citation.protocol else cases())


# -- citations ------------------------------------------------------------------------------------------------


@cache
def _names() -> dict[str, str]:
    """The wire of each name that prose uses."""
    return {name: protocol for protocol in protocols() for name in data(protocol)["names"]}


@cache
def _prefixes() -> tuple[frozenset[str], frozenset[str]]:
    """The prefixes of wires, and those of the shared pages."""
    own = {rule.id.partition("-")[0] for protocol in protocols() for rule in rules(protocol)}
    return frozenset(own), frozenset(id.partition("-")[0] for id in cases())


@cache
def _named() -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, _names()))})(?:'s)? \Z")


_CITED = re.compile(
    r"Rule\s+numbers\s+(?:here\s+)?are\s+(?P<marker>[\w-]+)'s"
    r"|(?<![\w-])(?P<kind>[A-Z]{1,2})-(?P<first>\d+)(?![\w-])(?: to (?P=kind)-(?P<last>\d+)(?![\w-]))?"
)
_EXAMPLE = re.compile(r"such as `{0,2}\Z")
_NEAR = 40
"Characters before a number in which the name of its wire stands."
_JOIN = re.compile(r"(?:, |,? and |,? or |; |/)\Z")


def cited_in(text: str, owner: str | None = None) -> Iterator[Citation]:
    """Each rule that ``text`` cites. ``owner`` is the wire of numbers that nothing in the text assigns to one."""
    own, shared = _prefixes()
    named, end = None, -1
    for found in _CITED.finditer(text):
        if found["marker"]:
            owner = _names()[found["marker"]]
            continue
        before = text[max(0, found.start() - _NEAR) : found.start()]
        misspelled = len(found["kind"]) == 2 == len(found["first"])  # no page has the prefix, but it looks like a case
        if (found["kind"] not in own | shared and not misspelled) or _EXAMPLE.search(before):
            continue
        if name := _named().search(before):
            named = _names()[name[1]]
        elif not (end >= 0 and _JOIN.fullmatch(text, end, found.start())):
            named = None
        end = found.end()
        protocol = (named or owner) if found["kind"] in own else ""
        line = text.count("\n", 0, found.start()) + 1
        for number in range(int(found["first"]), int(found["last"] or found["first"]) + 1):
            yield Citation(protocol, f"{found['kind']}-{number:0{len(found['first'])}}", line)


def cited_in_names(path: Path, owner: str | None = None) -> Iterator[tuple[Citation, Symbol]]:
    """Each rule in the name of a test, such as test_R_31_…, with the test."""
    own, shared = _prefixes()
    text = path.read_text(encoding="utf-8")
    if not _TEST_NAME.search(text):
        return
    markers = [
        (text.count("\n", 0, found.start()), _names()[found["marker"]])
        for found in _CITED.finditer(text)
        if found["marker"]
    ]
    for symbol in symbols(path):
        protocol = ([owner] + [marked for line, marked in markers if line < symbol.line])[-1]
        for kind, number in _TEST_NAME.findall(symbol.name) if symbol.is_test else ():
            if kind in own | shared:
                yield Citation(protocol if kind in own else "", f"{kind}-{number}", symbol.line), symbol


def owner_of(path: Path) -> str | None:
    """The wire that a path names, or None: a folder is named after it, or a part of the file's name."""
    parts = [*path.parts[:-1], *re.split(r"[_.]", path.name), path.stem]
    found = {protocol for protocol in protocols() for part in data(protocol)["paths"] if part in parts}
    return found.pop() if len(found) == 1 else None


_SECTION_CELL = re.compile(r"\|(3(?:\.\d)?(?:, 3\.\d)*)\|$")
_CODE_LINK_OR_ID = re.compile(r"`[^`]*`|\[[^\]]*\]\([^)]*\)|\b[A-Z]{1,2}-\d+\b")


def linked(text: str, owner: str | None) -> str:
    """A page of a folder of docs with a link at each citation. Code, links and headings stay as they are."""

    def link(citation: Citation, shown: str) -> str:
        if not known(citation):
            return shown
        page = f"specs/{citation.protocol}.md" if citation.protocol else cases()[citation.id]
        return f"[{shown}](../{page}#{citation.id.lower()})"

    done, fenced = [], False
    for line in text.split("\n"):
        fenced ^= line.startswith("```")
        plain = fenced or line.startswith(("```", "#", "    "))
        done.append(line if plain else _linked_line(line, owner, link))
    return "\n".join(done)


def _linked_line(line: str, owner: str | None, link: Callable[[Citation, str], str]) -> str:
    by_id = {citation.id: citation for citation in cited_in(line, owner)}

    def replace(found: re.Match[str]) -> str:
        shown = found[0]
        return link(by_id[shown], shown) if shown in by_id else shown

    def section(found: re.Match[str]) -> str:
        shown = [f"[{part}](../specs/{owner}.md#3-states)" for part in found[1].split(", ")]
        return f"|{', '.join(shown)}|"

    line = _CODE_LINK_OR_ID.sub(replace, line)
    return _SECTION_CELL.sub(section, line) if owner else line


# -- symbols --------------------------------------------------------------------------------------------------


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
