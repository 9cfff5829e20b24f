"""Checks the layout of src: the direction of imports, docstrings of files, names, exports, sizes.

A test checks one rule on every file and lists what breaks it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
FILES = sorted(SOURCE.rglob("*.py"))
TEXTS = {path: path.read_text() for path in FILES}
TREES = {path: ast.parse(text) for path, text in TEXTS.items()}

_ROW = re.compile(r"^\| [a-z ]+ \| ((?:`\w+` ?)+) \|", re.MULTILINE)
RINGS = [re.findall(r"`(\w+)`", row[1]) for row in _ROW.finditer((ROOT / "CONTRIBUTING.md").read_text())]
"The rings of CONTRIBUTING.md, from the inside out. A package imports only from packages before it."
_MODULE = re.compile(r"afflux(\.\w+)+")
COMPUTED = {
    "afflux/cli/__init__.py": "typer and rich",
    "afflux/cli/handlers.py": "the module of --handler",
    "afflux/codecs/__init__.py": "the libraries of codecs",
    "afflux/core/exports.py": "the modules of a package's exports, which the package also imports for types",
    "afflux/core/frame.py": "codecs that were generated in advance, beside the frames",
    "afflux/transports/registry.py": "the modules of the transports, which the file lists",
}
"Files that import a module by a computed name, and what they import."
DOOR = 99
"Where afflux itself stands: outside of all; only what a person runs may import it."

INNER = ("afflux.core", "afflux.protocols")
WORLD = frozenset(
    (
        *("asyncio", "socket", "time", "random", "logging", "threading", "selectors", "select", "ssl", "subprocess"),
        *("multiprocessing", "mmap", "ctypes", "os", "signal", "resource", "tempfile", "shutil", "platform"),
    )
)
LONGEST_FUNCTION = 40
LONGEST_FILE = 500
MOST_METHODS = 25
MOST_ATTRIBUTES = 20
FOR_A_REASON = re.compile(r"#\s*long: \S")
"""A comment that gives the reason for a length, anywhere in the first lines."""


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


@cache
def imports(path: Path) -> list[str]:
    """Every module that the file imports, also inside functions, for types only, or by a name in a string."""
    return list(imports_of(TREES[path]))


def imports_of(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.module == "afflux":
                yield from (f"afflux.{name.name}" for name in node.names)
            else:
                yield node.module or ""
    for named in imports_by_name(tree):
        match named:
            case ast.Constant(value=str(name)):
                yield name
            case ast.JoinedStr(values=[ast.Constant(value=str(start)), *_]) if "." in start:
                yield start.rpartition(".")[0]
            case _:  # computed: any module that the file names in a string
                yield from (
                    part.value
                    for part in ast.walk(tree)
                    if isinstance(part, ast.Constant) and isinstance(part.value, str) and _MODULE.fullmatch(part.value)
                )


def imports_by_name(tree: ast.Module) -> Iterator[ast.expr]:
    """The argument of every ``import_module`` and ``__import__``."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in ("import_module", "__import__"):
                yield node.args[0]


def inside(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


def test_relative_imports_are_not_used() -> None:
    relative = [
        f"{name_of(path)}:{node.lineno}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert relative == []


def test_every_file_has_a_docstring() -> None:
    docstrings = {name_of(path): ast.get_docstring(tree) or "" for path, tree in TREES.items()}
    assert [name for name, text in docstrings.items() if len(text.split()) < 4] == []


def test_imports_point_inward() -> None:
    """Every package is in a ring, and imports only from the packages before it: lazily or for types as well."""
    order = {package: number for number, package in enumerate(package for ring in RINGS for package in ring)}
    assert {package_of(module_of(path)) for path in FILES} - {"", "__main__"} == set(order)
    outward = []
    for path in FILES:
        own = package_of(module_of(path))
        if own not in order:
            continue  # afflux itself, which has every public name
        runs = own in RINGS[-1]
        for name in sorted(set(imports(path))):
            if inside(name, "afflux") and order.get(package_of(name), 0 if runs else DOOR) > order[own]:
                outward.append(f"{name_of(path)} imports {name}")
    assert outward == []


def test_imports_by_name_are_found() -> None:
    """By a string, by the constant start of an f-string, and by a variable, for which each module named in the file
    counts."""
    found = {
        'import_module("afflux.aio.peer")': ["afflux.aio.peer"],
        'importlib.import_module(f"afflux.aio.{name}.entry")': ["afflux.aio"],
        'import_module(row.module); ROWS = [("tcp", "afflux.aio.tcp")]': ["afflux.aio.tcp"],
        'import_module(f"{package}.codecs")': [],
        '__import__("afflux." + name)': [],
    }
    assert {text: list(imports_of(ast.parse(text))) for text in found} == found


def test_computed_imports_are_listed() -> None:
    """Only a name that is a string, or begins with one, shows what is imported; the others are listed here."""
    computed = {
        name_of(path)
        for path, tree in TREES.items()
        for named in imports_by_name(tree)
        if not (isinstance(named, ast.Constant) or ast.unparse(named).startswith(("f'afflux.", 'f"afflux.')))
    }
    assert computed == set(COMPUTED)


def package_of(module: str) -> str:
    """The package under ``afflux`` that a module is in: "" for afflux itself."""
    return f"{module}.".split(".")[1] if inside(module, "afflux") else ""


def test_the_inner_rings_import_nothing_of_the_system() -> None:
    found = [
        f"{name_of(path)} imports {name}"
        for path in FILES
        if inside(module_of(path), *INNER)
        for name in imports(path)
        if name.partition(".")[0] in WORLD
    ]
    assert found == []


FAMILY = "afflux.protocols.family"
"""The engine that RSocket and its relatives share; none of them knows another."""


EXTENDS = {"afflux.protocols.rsocket_draft": ("afflux.protocols.rsocket",)}
"""The draft is defined as a change of RSocket 1.0: what it does not change, it uses."""


def test_protocols_do_not_know_each_other() -> None:
    crossings = []
    for path in FILES:
        parts = module_of(path).split(".")
        if parts[:2] == ["afflux", "protocols"] and len(parts) > 2:
            own = ".".join(parts[:3])
            known = (own, FAMILY, *EXTENDS.get(own, ()))
            foreign = [n for n in imports(path) if inside(n, "afflux.protocols") and not inside(n, *known)]
            crossings += [f"{name_of(path)} imports {name}" for name in foreign if name != "afflux.protocols"]
    assert crossings == []


def test_nothing_is_larger_than_it_should_be() -> None:
    too_large = [text for path in FILES for text in _too_large(path)]
    assert too_large == [], "make it smaller, or give the reason in a comment `# long: …`"


def _too_large(path: Path) -> Iterator[str]:
    name, lines = name_of(path), TEXTS[path].splitlines()
    if len(lines) > LONGEST_FILE and not FOR_A_REASON.search("\n".join(lines[:40])):
        yield f"{name} has {len(lines)} lines"
    for node in ast.walk(TREES[path]):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            size = _body_lines(node)
            if size > LONGEST_FUNCTION and not _reason(node, lines):
                yield f"{name}:{node.lineno} {node.name} has {size} lines"
        elif isinstance(node, ast.ClassDef):
            methods = sum(isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)) for part in node.body)
            contract = any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)
            if methods > MOST_METHODS and not contract and not _reason(node, lines):
                yield f"{name}:{node.lineno} {node.name} has {methods} methods"
            if (attributes := len(_attributes(node))) > MOST_ATTRIBUTES and not _reason(node, lines):
                yield f"{name}:{node.lineno} {node.name} has {attributes} attributes"


def _attributes(cls: ast.ClassDef) -> set[str]:
    """What the methods of a class assign to ``self``."""
    return {
        node.attr
        for node in ast.walk(cls)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


def _body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its signature and docstring."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def _reason(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, lines: list[str]) -> bool:
    first = min([node.lineno, *(part.lineno for part in node.decorator_list)]) - 2
    return bool(FOR_A_REASON.search("\n".join(lines[max(0, first) : node.body[0].lineno + 3])))


def test_no_function_is_named_get() -> None:
    named = [
        f"{name_of(path)}:{node.lineno} {node.name}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("get_")
    ]
    assert named == []


def test_nothing_is_different_under_python_O() -> None:
    """``python -O`` removes assert statements and makes ``__debug__`` false, and does nothing else."""
    found = [
        f"{name_of(path)}:{node.lineno}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert) or (isinstance(node, ast.Name) and node.id == "__debug__")
    ]
    assert found == []


def test_the_lists_of_exports_are_true() -> None:
    assert [text for path, tree in TREES.items() for text in _wrong_exports(name_of(path), tree)] == []


def _wrong_exports(file: str, tree: ast.Module) -> Iterator[str]:
    exported: list[str] = []
    defined: set[str] = set()
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List(elts=names)):
                exported = _texts(names)
            case ast.AnnAssign(target=ast.Name(id="__all__"), value=ast.List(elts=names)):
                exported = _texts(names)
        defined |= _defined(node)
    for name in exported:
        if exported.count(name) > 1:
            yield f"{file} lists {name} twice"
        if name not in defined and "__getattr__" not in defined:
            yield f"{file} lists {name} and does not define it"


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
