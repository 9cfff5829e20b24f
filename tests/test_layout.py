"""The house: which way imports point, what every file says at its door, how large things may grow."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
FILES = sorted(SOURCE.rglob("*.py"))
NAMES = [str(path.relative_to(SOURCE)) for path in FILES]

INNER = ("afflux.core", "afflux.protocols")
WORLD = frozenset(
    ("asyncio", "socket", "time", "random", "logging", "threading", "selectors", "ssl", "subprocess", "multiprocessing")
)
LONGEST_FUNCTION = 40
LONGEST_FILE = 500
MOST_METHODS = 20
FOR_A_REASON = re.compile(r"#\s*long: \S")
"""A comment that says why something is longer, anywhere in its first lines."""


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[str]:
    """Every module that the file imports, also inside functions and for types only."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def inside(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


def test_relative_imports_are_not_used() -> None:
    relative = [
        f"{path.name}:{node.lineno}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert relative == []


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_a_file_says_what_lives_in_it(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    assert len(docstring.split()) >= 4, f"{path} does not say what lives in it"


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_imports_point_inward(path: Path) -> None:
    module = module_of(path)
    ours = [name for name in imports(path) if inside(name, "afflux")]
    if inside(module, "afflux.core"):
        assert [name for name in ours if not inside(name, "afflux.core")] == []
    elif inside(module, "afflux.protocols"):
        assert [name for name in ours if not inside(name, *INNER)] == []


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_the_inner_rings_know_no_world(path: Path) -> None:
    if inside(module_of(path), *INNER):
        assert {name.partition(".")[0] for name in imports(path)} & WORLD == set()


ANCESTORS = {"afflux.protocols.reactivesocket": "afflux.protocols.rsocket"}
"""A protocol of one family whose engine is another's, with other parts put in."""


def test_protocols_do_not_know_each_other() -> None:
    crossings = []
    for path in FILES:
        parts = module_of(path).split(".")
        if parts[:2] == ["afflux", "protocols"] and len(parts) > 2:
            own = ".".join(parts[:3])
            known = (own, ANCESTORS.get(own, own))
            foreign = [n for n in imports(path) if inside(n, "afflux.protocols") and not inside(n, *known)]
            crossings += [f"{path.name} imports {name}" for name in foreign if name != "afflux.protocols"]
    assert crossings == []


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_nothing_is_larger_than_it_should_be(path: Path) -> None:
    text = path.read_text()
    lines = text.splitlines()
    too_large = []
    if len(lines) > LONGEST_FILE and not FOR_A_REASON.search("\n".join(lines[:40])):
        too_large.append(f"{path.name} has {len(lines)} lines")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            size = _body_lines(node)
            if size > LONGEST_FUNCTION and not _reason(node, lines):
                too_large.append(f"{path.name}:{node.lineno} {node.name} has {size} lines")
        elif isinstance(node, ast.ClassDef):
            methods = sum(isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)) for part in node.body)
            contract = any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)
            if methods > MOST_METHODS and not contract and not _reason(node, lines):
                too_large.append(f"{path.name}:{node.lineno} {node.name} has {methods} methods")
    assert too_large == [], "make it smaller, or say why in a comment `# long: …`"


def _body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its signature and docstring."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def _reason(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, lines: list[str]) -> bool:
    first = min([node.lineno, *(part.lineno for part in node.decorator_list)]) - 2
    return bool(FOR_A_REASON.search("\n".join(lines[max(0, first) : node.body[0].lineno + 3])))


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_names_are_the_fields(path: Path) -> None:
    named = [
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("get_")
    ]
    assert named == []


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_the_list_of_exports_is_true(path: Path) -> None:
    tree = ast.parse(path.read_text())
    exported: list[str] = []
    defined: set[str] = set()
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List(elts=names)):
                exported = _texts(names)
            case ast.AnnAssign(target=ast.Name(id="__all__"), value=ast.List(elts=names)):
                exported = _texts(names)
        defined |= _defined(node)
    if "__getattr__" not in defined:
        assert [name for name in exported if name not in defined] == []
    assert len(exported) == len(set(exported))


def _texts(nodes: list[ast.expr]) -> list[str]:
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def _defined(node: ast.stmt) -> set[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return {(name.asname or name.name).partition(".")[0] for name in names}
        case ast.Assign(targets=targets):
            return {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case ast.If(body=body, orelse=orelse) | ast.Try(body=body, orelse=orelse):
            return set().union(*(_defined(part) for part in [*body, *orelse]))
        case ast.For(body=body):
            return set().union(*(_defined(part) for part in body))
    return set()
