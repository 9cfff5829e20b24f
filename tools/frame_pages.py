"""Write the reference page of a frame from its declaration: a bit diagram and a table of fields, in Markdown.

The text comes from the docstrings and from the sentence under each field.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable
from itertools import pairwise

from afflux.core.fields import Flag, Flagged, Kind, Rest, Sized, TypeWord, UInt
from afflux.core.frame import MISSING, Field, Frame

__all__ = ["bit_diagram", "field_docs", "frame_page", "reference_page"]

_ROW = 32
_Cell = tuple[int, str]
"Bits and label; 0 bits for a variable size."


def bit_diagram(frame: type[Frame]) -> str:
    """Draw the frame as sent, 32 bits a row; each field of variable size gets its own row."""
    rows = _rows([cell for field in frame.LAYOUT for cell in _cells(frame, field)])
    drawn = [_ruler()]
    width = 0
    for row in rows:
        following = _width(row)
        drawn += ["+" + "-+" * max(width, following), "|" + "".join(_draw(bits, label) for bits, label in row)]
        width = following
    drawn.append("+" + "-+" * width)
    return "\n".join(drawn)


def _ruler() -> str:
    tens = "".join(f" {bit // 10}" if bit % 10 == 0 else "  " for bit in range(_ROW))
    return f"{tens.rstrip()}\n{''.join(f' {bit % 10}' for bit in range(_ROW))}"


def _width(row: list[_Cell]) -> int:
    return sum(bits or _ROW for bits, _ in row)


def _draw(bits: int, label: str) -> str:
    room = 2 * (bits or _ROW) - 1
    return label[:room].center(room) + "|"


def _rows(cells: list[_Cell]) -> list[list[_Cell]]:
    rows: list[list[_Cell]] = [[]]
    for bits, label in cells:
        if not bits:
            rows += [[(0, label)], []]
            continue
        pieces = _split(bits, _ROW - _width(rows[-1]))
        named = pieces.index(max(pieces))
        for number, piece in enumerate(pieces):
            if _width(rows[-1]) == _ROW:
                rows.append([])
            rows[-1].append((piece, label if number == named else "..."))
    return [row for row in rows if row]


def _split(bits: int, left: int) -> list[int]:
    """Split a field into rows; the first row has ``left`` bits left."""
    pieces = [min(bits, left)] if left else []
    while (rest := bits - sum(pieces)) > 0:
        pieces.append(min(rest, _ROW))
    return pieces


def _cells(frame: type[Frame], field: Field) -> list[_Cell]:
    kind, name = field.kind, field.name
    if isinstance(kind, TypeWord):
        return [(kind.bits - kind.shift, f"Type 0x{frame.TYPE:02X}"), *_flag_cells(frame)]
    if isinstance(kind, UInt):
        return [(1, "0"), (kind.bits, name)] if kind.reserved else [(kind.bits, name)]
    if isinstance(kind, Sized):
        condition = f" (if {kind.flag.letter})" if kind.flag else ""
        length = f"{name} length{condition}"
        return [(kind.bits, length if len(length) < 2 * kind.bits else "length"), (0, name + condition)]
    if isinstance(kind, Flagged):
        return [(1, "0"), (31, f"{name} (if {kind.flag.letter})")]
    if isinstance(kind, Rest):
        return [(0, f"{name}, to the end")]
    return [(0, f"{name}: {kind.described}")] if kind.described else []


def _flag_cells(frame: type[Frame]) -> list[_Cell]:
    """Return the flags from the highest bit down, with adjacent unnamed bits joined."""
    letters = {flag.bit: flag.letter for flag, _ in frame.FLAGS}
    cells: list[_Cell] = []
    for bit in reversed(range(frame.WORD.shift)):
        letter = letters.get(1 << bit)
        if letter is None and cells and cells[-1][1] == "0":
            cells[-1] = (cells[-1][0] + 1, "0")
        else:
            cells.append((1, letter or "0"))
    return cells


def field_docs(frame: type[Frame]) -> dict[str, str]:
    """Return the sentence under each field, by name; empty if the source is not installed."""
    docs: dict[str, str] = {}
    for base in reversed(frame.__mro__):
        if not issubclass(base, Frame) or base is Frame:
            continue
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        except OSError:
            continue
        statements = list(ast.iter_child_nodes(body))
        for field, sentence in pairwise(statements):
            match field, sentence:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    docs[name] = inspect.cleandoc(text)
    return docs


def frame_page(frame: type[Frame]) -> str:
    """Return the page of one frame: heading, docstring, bit diagram, table of fields."""
    docs = field_docs(frame)
    table = [
        f"| `{field.name}` | {_type(field.kind)} | {_default(field)} | {docs.get(field.name, '')} |"
        for field in frame.LAYOUT
        if field.kind.in_value
    ]
    return "\n".join(
        [
            f"## {frame.NAME} (0x{frame.TYPE:02X})",
            "",
            inspect.cleandoc(frame.__doc__ or ""),
            "",
            "```text",
            bit_diagram(frame),
            "```",
            "",
            "| Field | Type | Default | Meaning |",
            "|---|---|---|---|",
            *table,
            "",
        ]
    )


def reference_page(title: str, frames: Iterable[type[Frame]]) -> str:
    """Return the page of a protocol: every frame, in the order given."""
    return "\n".join([f"# {title}", "", *(frame_page(frame) for frame in frames)])


def _default(field: Field) -> str:
    return "required" if field.default is MISSING else f"`{field.default!r}`"


def _type(kind: Kind) -> str:
    if isinstance(kind, Flag):
        return f"flag {kind.letter}, 0x{kind.bit:03X}"
    if isinstance(kind, UInt):
        bits = f"0+{kind.bits}" if kind.reserved else f"{kind.bits}"
        return f"{bits} bits, at least {kind.at_least}" if kind.at_least else f"{bits} bits"
    if isinstance(kind, Sized):
        what = "ASCII text" if kind.text else "bytes"
        condition = f", if {kind.flag.letter}" if kind.flag else ""
        return f"{what} after {kind.bits} bits of length{condition}"
    return kind.described or "bytes to the end"
