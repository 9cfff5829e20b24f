"""Write the contract of a public name as Markdown: its signature, its docstring, and a line for each member.

A page of the reference has it for readers of plain Markdown, between two comments; the first contains the directive of
mkdocstrings that replaces it on the site. Everything is read from the source; nothing is called.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from itertools import pairwise
from typing import Any, NamedTuple

__all__ = ["contract", "docstring", "first_sentence", "plain", "sided", "site_page"]

_WIDTH = 110
_SIDED = re.compile(r"^<!-- site\n(?P<site>.*?)-->\n.*?^<!-- end -->\n", re.MULTILINE | re.DOTALL)
_ANNOTATED = re.compile(r"^(\w+: [^=]+)=")
_SECTION = re.compile(r"^(Args|Raises|Returns|Yields):$")

_Function = ast.FunctionDef | ast.AsyncFunctionDef


class _Member(NamedTuple):
    """A public member of a class."""

    shown: str
    about: str


def sided(directive: str, markdown: str) -> str:
    """Return what the site shows for a name, and what plain Markdown shows for it."""
    return f"<!-- site\n{directive}-->\n{markdown}<!-- end -->\n"


def site_page(page: str) -> str:
    """Return a page with the directives for the site in place of the plain Markdown."""
    return _SIDED.sub(lambda found: found["site"], page)


def contract(name: str, thing: Any) -> str:
    """Return the contract of ``module.name``, whose value is ``thing``."""
    module, _, short = name.rpartition(".")
    head = f'### <a id="{name}"></a>{name}\n'
    if not (inspect.isclass(thing) or inspect.isroutine(thing)):
        return f"{head}\n{_value(module, short)}"
    node = _node(inspect.unwrap(thing))
    text = docstring(inspect.getdoc(thing) or "")
    if isinstance(node, ast.ClassDef):
        members = [f"- {member.shown}" + (f": {member.about}" if member.about else "") for member in _members(node)]
        return "\n".join([head, _code(_class(node)), text, *members, *([""] if members else [])])
    return "\n".join([head, _code(_signature(node)), text])


def docstring(text: str) -> str:
    """Return a docstring as Markdown: its sections are lists."""
    done, inside = [], False
    for line in plain(text.splitlines()).splitlines():
        if section := _SECTION.match(line):
            inside = True
            done += [*([""] if done and done[-1] else []), f"**{section[1]}**", ""]
        elif inside and re.match(r" {4}\S", line):
            name, colon, about = line.strip().partition(": ")
            done.append(f"- `{name}`: {about}" if colon else f"- {line.strip()}")
        elif inside and line.startswith(" " * 8):
            done.append("  " + line.strip())
        else:
            inside = inside and not line
            done.append(line)
    return "\n".join(done) + "\n"


def plain(lines: Iterable[str]) -> str:
    """Return Markdown: ``::`` before an indented example goes, and so does the role before a name."""
    text = "\n".join("" if line.strip() == "::" else re.sub(r"::$", ":", line) for line in lines)
    return re.sub(r":(?:class|func|mod|meth|attr|data|exc):(?=`)", "", text)


def first_sentence(text: str) -> str:
    """Return the first sentence of a docstring, on one line."""
    words = " ".join(text.partition("\n\n")[0].split())
    first = plain([re.split(r"(?<=[.:;]) ", words)[0].rstrip(":;")])
    return first + ("" if not first or first.endswith((".", "?")) else ".")


# -- what the source says -------------------------------------------------------------------------------------


def _node(thing: Any) -> Any:
    """Return the definition of a class or a function."""
    return ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]


def _class(node: ast.ClassDef) -> str:
    """Return the first line of a class; with the arguments that make an object, if it has ``__init__``."""
    made = next((each for each in node.body if isinstance(each, _Function) and each.name == "__init__"), None)
    if made is None:
        bases = ", ".join(map(ast.unparse, node.bases))
        return f"class {node.name}" + (f"({bases})" if bases else "")
    return _signature(made, f"class {node.name}").partition(" -> ")[0]


def _signature(node: _Function, shown: str = "") -> str:
    """Return a signature without ``self``, one argument on a line if it is long."""
    arguments = node.args
    for kind in (arguments.posonlyargs, arguments.args):
        if kind and kind[0].arg in ("self", "cls"):
            arguments = ast.parse(f"def f({ast.unparse(arguments)}): ...").body[0].args  # type: ignore[attr-defined]
            del (arguments.posonlyargs or arguments.args)[0]
            break
    result = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    name = shown or ("async def " if isinstance(node, ast.AsyncFunctionDef) else "def ") + node.name
    parts = [_ANNOTATED.sub(r"\1 = ", part) for part in _parts(ast.unparse(arguments))]
    line = f"{name}({', '.join(parts)}){result}"
    return line if len(line) <= _WIDTH else f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){result}"


def _parts(arguments: str) -> Iterator[str]:
    """Split arguments at the commas outside brackets and quotes."""
    depth, start, quote = 0, 0, ""
    for at, sign in enumerate(arguments):
        if quote or sign in "\"'":
            quote = "" if sign == quote else quote or sign
        elif sign == "," and not depth:
            yield arguments[start:at].strip()
            start = at + 1
        else:
            depth += (sign in "([{") - (sign in ")]}")
    yield arguments[start:].strip()


def _members(node: ast.ClassDef) -> Iterator[_Member]:
    """Yield the public members of a class in the order of the source: attributes with docstrings, and methods."""
    for each, after in pairwise([*node.body, ast.Pass()]):
        if isinstance(each, _Function):
            if each.name == "__init__":
                yield from (
                    found for pair in pairwise([*each.body, ast.Pass()]) if (found := _attribute(*pair, of_self=True))
                )
            elif not each.name.startswith("_") and (found := _method(each)):
                yield found
        elif found := _attribute(each, after):
            yield found


def _method(node: _Function) -> _Member | None:
    """Return a method or a property; None for an overload or a setter."""
    decorators = {ast.unparse(each) for each in node.decorator_list}
    if "overload" in decorators or any(each.endswith((".setter", ".deleter")) for each in decorators):
        return None
    about = first_sentence(ast.get_docstring(node) or "")
    if decorators & {"property", "cached_property", "functools.cached_property"}:
        return _Member(f"`{node.name}`", about)
    signature = " ".join(_signature(node).split()).replace("( ", "(").replace(", )", ")")
    return _Member(f"`{signature.replace('def ', '', 1)}`", about)


def _attribute(node: ast.stmt, after: ast.AST, *, of_self: bool = False) -> _Member | None:
    """Return an attribute that a docstring follows, and a public annotated field of a class."""
    match node:
        case ast.Assign(targets=[target]) | ast.AnnAssign(target=target):
            name = ast.unparse(target)
        case _:
            return None
    if of_self:
        owner, _, name = name.partition(".")
        if owner != "self":
            return None
    match after:
        case ast.Expr(value=ast.Constant(value=str(text))):
            about = first_sentence(inspect.cleandoc(text))
        case _:
            about = ""
    if (
        name.startswith("_")
        or not name.isidentifier()
        or not (about or (isinstance(node, ast.AnnAssign) and not of_self))
    ):
        return None
    return _Member(f"`{name}`", about)


@cache
def _module(name: str) -> ast.Module:
    return ast.parse(inspect.getsource(import_module(name)))


def _value(module: str, name: str) -> str:
    """Return the definition of a value and its docstring, from the module that assigns it."""
    statements = _module(module).body
    for node, after in pairwise([*statements, ast.Pass()]):
        match node:
            case ast.ImportFrom(module=str(other), names=names) if name in {each.asname or each.name for each in names}:
                return _value(other, next(each.name for each in names if name in (each.asname, each.name)))
            case ast.Assign(targets=[ast.Name(id=found)]) | ast.AnnAssign(target=ast.Name(id=found)) if found == name:
                match after:
                    case ast.Expr(value=ast.Constant(value=str(text))):
                        return f"{_code(ast.unparse(node), 'text')}\n{docstring(inspect.cleandoc(text))}"
                return _code(ast.unparse(node), "text")
    raise LookupError(f"no definition of {name} in {module}")


def _code(text: str, language: str = "py") -> str:
    return f"```{language}\n{text}\n```\n"
