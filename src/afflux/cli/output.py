"""Print items to stdout: raw, json, ndjson, hex, table, csv or plain text. ``unwrapping.py`` describes payloads as
JSON, ``tables.py`` prints tables.
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

import typer

from afflux.cli import tables
from afflux.cli.completing import one_of
from afflux.cli.exits import usage
from afflux.cli.telling import tell
from afflux.cli.unwrapping import Unwrapper, record, value_of
from afflux.core.payload import Payload

__all__ = ["End", "Format", "Printer", "format_of", "output_option", "printer"]

TABLE_ROWS = 200
"Rows per table. Longer answers use several tables, which bounds memory."


class Format(StrEnum):
    """Values of -o."""

    text = "text"
    table = "table"
    json = "json"
    ndjson = "ndjson"
    csv = "csv"
    raw = "raw"
    hex = "hex"


class End(StrEnum):
    """Values of --end: what follows each item of the format raw."""

    none = "none"
    newline = "newline"
    nul = "nul"


_ENDS = {End.none: b"", End.newline: b"\n", End.nul: b"\0"}

_FORMULA = re.compile(r"[=+\-@\t\r\n＝＋－＠]")
"The first character of text that a spreadsheet runs as a formula; some cut tabs and line breaks first."
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
"Text that begins like a formula and is a number in any spreadsheet."


def output_option(*formats: Format, default: str = "table") -> Any:
    """Return the option -o of a command that has these formats; its value is for ``format_of``."""
    help = f"Output format. [default: {default}, or ndjson in a pipe]"
    return typer.Option("-o", "--output", metavar=f"<{'|'.join(formats)}>", help=help, autocompletion=one_of(formats))


def format_of(output: str | None, command: str, *formats: Format) -> Format | None:
    """Return the format called ``output``. Exits with a usage error if the command does not have it."""
    if output is not None and output not in formats:
        usage(f"invalid -o/--output: {output[:64]} is not one of {', '.join(formats)} (see afflux {command} --help)")
    return None if output is None else Format(output)


class Printer:
    """Print text, one item per line. Base class of the other formats. Call ``end`` once."""

    def __init__(self) -> None:
        self.out = sys.stdout.buffer
        self.items = 0

    def item(self, payload: Payload) -> None:
        """Print one item."""
        self.items += 1
        self.line(payload.data if _printable(payload.data) else payload.data.hex(" ").encode())

    def end(self, *, failed: bool = False) -> None:
        """Print buffered items and flush. ``failed``: an error follows, so that no items are not an empty answer."""
        self.out.flush()

    def line(self, data: bytes) -> None:
        """Write one line and flush, so that items of a slow stream appear as they arrive."""
        self.out.write(data + b"\n")
        self.out.flush()


class _Raw(Printer):
    """Print the bytes of the items, each followed by ``end``."""

    def __init__(self, end: bytes) -> None:
        super().__init__()
        self._end = end

    def item(self, payload: Payload) -> None:
        self.items += 1
        self.out.write(payload.data + self._end)
        self.out.flush()


class _Hex(Printer):
    def item(self, payload: Payload) -> None:
        self.items += 1
        self.line(payload.data.hex().encode())


class _Lines(Printer):
    """Print one JSON value per line."""

    def __init__(self, unwrapper: Unwrapper) -> None:
        super().__init__()
        self._unwrapper = unwrapper

    def item(self, payload: Payload) -> None:
        self.items += 1
        self.line(_encoded(self._unwrapper.line(payload)))


class _Document(Printer):
    """Print one JSON document: an array, or the single value of a request."""

    def __init__(self, unwrapper: Unwrapper, single: bool) -> None:
        super().__init__()
        self._unwrapper = unwrapper
        self._single = single

    def item(self, payload: Payload) -> None:
        lead = b"" if self._single else b"[\n" if self.items == 0 else b",\n"
        self.items += 1
        self.out.write(lead + _encoded(self._unwrapper.document(payload)))
        self.out.flush()

    def end(self, *, failed: bool = False) -> None:
        if failed and not self.items:
            return
        if not self._single:
            self.out.write(b"\n]" if self.items else b"[]")
        self.line(b"")


class _Csv(Printer):
    """Print CSV. Columns are those chosen, else the keys of the first item if it is a JSON object, else data and
    metadata. Text that a spreadsheet would run begins with an apostrophe (PC-24)."""

    def __init__(self, columns: Sequence[str]) -> None:
        super().__init__()
        self._columns = list(columns)
        self._absent = _Absent(columns)

    def item(self, payload: Payload) -> None:
        row = _row(payload)
        self._absent.remove(row)
        if self.items == 0:
            self._columns = self._columns or list(row)
            self._write(self._columns)
        self.items += 1
        self._write([tables.cell(row.get(column)) for column in self._columns])

    def end(self, *, failed: bool = False) -> None:
        self._absent.report()
        super().end(failed=failed)

    def _write(self, values: list[str]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\r\n").writerow(map(_inert, values))  # quotes both kinds of line breaks
        self.line(_encoded(text.getvalue().removesuffix("\r\n")))


class _Table(Printer):
    """Print tables, each with the chosen columns or all keys of its rows."""

    def __init__(self, columns: Sequence[str]) -> None:
        super().__init__()
        self._columns = columns
        self._rows: list[dict[str, Any]] = []
        self._absent = _Absent(columns)

    def item(self, payload: Payload) -> None:
        self.items += 1
        self._rows.append(row := _row(payload))
        self._absent.remove(row)
        if len(self._rows) >= TABLE_ROWS:
            self._show()

    def end(self, *, failed: bool = False) -> None:
        self._show()
        self._absent.report()
        super().end()

    def _show(self) -> None:
        if self._rows:
            tables.show(self._columns or list(dict.fromkeys(key for row in self._rows for key in row)), self._rows)
            self._rows.clear()


class _Absent:
    """The chosen columns that no item has had."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._names = dict.fromkeys(columns)
        self._first: list[str] = []
        "The keys of the first item."

    def remove(self, row: Iterable[str]) -> None:
        """Take away the columns that an item has."""
        if self._names:
            self._first = self._first or list(row)
            for name in row:
                self._names.pop(name, None)

    def report(self) -> None:
        """Report the rest, if there were items."""
        if self._names and self._first:
            tell(
                f"afflux: --columns: no item has {', '.join(self._names)}; the first has {', '.join(self._first)}",
                wrapped=True,
            )


def _row(payload: Payload) -> dict[str, Any]:
    if payload.data.startswith(b"{"):
        try:
            parsed = value_of(payload.data)
        except ValueError:
            parsed = None
        if isinstance(parsed, dict) and parsed:
            return parsed
    return record(payload)


def _inert(text: str) -> str:
    """Return a cell's text so that no spreadsheet runs it: with an apostrophe before a formula's first character."""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def _encoded(text: str) -> bytes:
    """Return text as UTF-8. Half a surrogate pair, which JSON may contain, is escaped as in JSON."""
    return text.encode("utf-8", "backslashreplace")


def _printable(data: bytes) -> bool:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    return all(char.isprintable() or char in "\t\n\r" for char in text)


def printer(
    chosen: Format | None,
    *,
    single: bool = False,
    unwrapper: Unwrapper | None = None,
    end: End = End.none,
    columns: Sequence[str] = (),
) -> Printer:
    """Return the printer of a format; by default text on a terminal and JSON lines elsewhere.

    Args:
        chosen: the format, None for the default.
        single: whether there is at most one item, which ``json`` prints alone and not in an array.
        unwrapper: knows the types of payloads, for the formats ``json`` and ``ndjson``.
        end: what follows each item of the format ``raw``.
        columns: the columns of ``csv`` and ``table``; if empty, the keys of the first item, and of all in a table.
    """
    unwrapper = unwrapper or Unwrapper()
    match chosen or (Format.text if sys.stdout.isatty() else Format.ndjson):
        case Format.json:
            return _Document(unwrapper, single)
        case Format.ndjson:
            return _Lines(unwrapper)
        case Format.raw:
            return _Raw(_ENDS[end])
        case Format.csv:
            return _Csv(columns)
        case Format.table:
            return _Table(columns)
        case Format.hex:
            return _Hex()
        case _:
            return Printer()
