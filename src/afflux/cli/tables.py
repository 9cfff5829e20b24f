"""Print rows as tables that fit the terminal, or 80 columns elsewhere. Rows that are too wide become key: value."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["WIDTH", "cell", "show", "width"]

WIDTH = 80
"Columns where there is no terminal."

_MOST_LABEL = 24
"A longer name of a column has a line of its own."


def width() -> int:
    """Return the columns to fit: those of the terminal, of the variable COLUMNS, or 80."""
    return shutil.get_terminal_size((WIDTH, 24)).columns if sys.stdout.isatty() else WIDTH


def cell(value: Any) -> str:
    """Return the text of a JSON value: text itself, nothing for null, JSON for others."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def show(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows to stdout: as a table if each row fits on one line, otherwise one ``key: value`` a line."""
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    texts = [[_text(row.get(column)) for column in columns] for row in rows]
    columns = [_text(column).replace("\n", "\\n") for column in columns]
    most = width()
    widths = [max(map(cell_len, cells)) for cells in zip(columns, *texts, strict=True)]
    single = all("\n" not in cell for cells in texts for cell in cells)
    if not single or sum(widths) + 3 * len(widths) + 1 > most:
        _show_turned(columns, texts, most)
        return
    table = Table()
    for column in columns:
        table.add_column(Text(column), no_wrap=True)
    for cells in texts:
        table.add_row(*map(Text, cells))
    Console(file=sys.stdout, width=most).print(table)


def _text(value: Any) -> str:
    """Return the text of a cell, or the name of a column, for a terminal. Control characters other than line breaks are
    escaped, because they would move the cursor."""
    text = cell(value)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)


def _show_turned(columns: Sequence[str], rows: Sequence[Sequence[str]], most: int) -> None:
    """Print one value a line behind its column's name, and a line between the rows. Long values continue on the next
    line, under their start."""
    from rich.cells import cell_len, chop_cells

    label = min(_MOST_LABEL, max(cell_len(column) for column in columns))
    indent = " " * (label + 2)
    for number, cells in enumerate(rows):
        if number:
            sys.stdout.write("\n")
        for column, cell in zip(columns, cells, strict=True):
            room = max(8, most - len(indent))
            lines = [part for line in cell.split("\n") for part in chop_cells(line, room) or [""]]
            if cell_len(column) > label:
                sys.stdout.write("\n".join(chop_cells(f"{column}:", most)) + "\n")
                sys.stdout.writelines(f"{indent}{line}".rstrip() + "\n" for line in lines)
                continue
            first = f"{column}:" + " " * (label - cell_len(column) + 1)
            for lead, line in zip([first, *[indent] * len(lines)], lines, strict=False):
                sys.stdout.write(f"{lead}{line}".rstrip() + "\n")
