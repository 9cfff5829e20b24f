"""Print items to stdout: raw, json, ndjson, hex, table, csv or plain text.

UTF-8 is shown as text; other bytes are hexadecimal, under a name that ends in ``_hex``.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
from enum import StrEnum
from textwrap import wrap
from typing import Any

import typer

from afflux.cli.exits import usage
from afflux.core.payload import Payload

__all__ = ["Format", "Printer", "format_of", "output_option", "printer", "record", "tell"]

TABLE_ROWS = 200
"Rows per table. Longer answers use several tables, which bounds memory."


class Format(StrEnum):
    """Values of -o."""

    table = "table"
    json = "json"
    ndjson = "ndjson"
    csv = "csv"
    raw = "raw"
    hex = "hex"


def tell(text: str) -> None:
    """Print a line on stderr; on a terminal, it is wrapped between words."""
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns
        lines = wrap(text, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
        text = "\n".join(lines)
    typer.echo(text, err=True)


def output_option(*formats: Format, default: str = "table") -> Any:
    """Return the option -o of a command that has these formats; its value is for ``format_of``."""
    help = f"Output format. [default: {default}, or ndjson in a pipe]"
    return typer.Option("-o", "--output", metavar=f"<{'|'.join(formats)}>", help=help)


def format_of(output: str | None, command: str, *formats: Format) -> Format | None:
    """Return the format called ``output``. Exits with a usage error if the command does not have it."""
    if output is not None and output not in formats:
        usage(f"unsupported output {output} for {command}: use {', '.join(formats)}")
    return None if output is None else Format(output)


def record(payload: Payload) -> dict[str, Any]:
    """Return the payload as a JSON object: ``data`` and ``metadata``, or ``data_hex`` and ``metadata_hex``."""
    made = _named("data", payload.data)
    if payload.metadata is not None:
        made |= _named("metadata", payload.metadata)
    return made


def _named(name: str, value: bytes) -> dict[str, str]:
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_hex": value.hex()}


class Printer:
    """Print text, one item per line. Base class of the other formats. Call ``end`` once."""

    def __init__(self) -> None:
        self.out = sys.stdout.buffer
        self.items = 0

    def item(self, payload: Payload) -> None:
        """Print one item."""
        self.items += 1
        self.line(payload.data if _printable(payload.data) else payload.data.hex(" ").encode())

    def end(self) -> None:
        """Print buffered items and flush."""
        self.out.flush()

    def line(self, data: bytes) -> None:
        """Write one line and flush, so that items of a slow stream appear as they arrive."""
        self.out.write(data + b"\n")
        self.out.flush()


class _Raw(Printer):
    def item(self, payload: Payload) -> None:
        self.items += 1
        self.out.write(payload.data)
        self.out.flush()


class _Hex(Printer):
    def item(self, payload: Payload) -> None:
        self.items += 1
        self.line(payload.data.hex().encode())


class _Lines(Printer):
    def item(self, payload: Payload) -> None:
        self.items += 1
        self.line(json.dumps(record(payload), ensure_ascii=False, separators=(",", ":")).encode())


class _Document(Printer):
    """Print one JSON document: an array, or the single object of a request."""

    def __init__(self, single: bool) -> None:
        super().__init__()
        self._single = single

    def item(self, payload: Payload) -> None:
        lead = b"" if self._single else b"[\n" if self.items == 0 else b",\n"
        self.items += 1
        self.out.write(lead + json.dumps(record(payload), ensure_ascii=False, indent=2).encode())
        self.out.flush()

    def end(self) -> None:
        if not self._single:
            self.out.write(b"\n]" if self.items else b"[]")
        self.line(b"")


class _Csv(Printer):
    """Print CSV. Columns are the keys of the first item if it is a JSON object, otherwise data and metadata."""

    def __init__(self) -> None:
        super().__init__()
        self._columns: list[str] = []

    def item(self, payload: Payload) -> None:
        row = _row(payload)
        if not self._columns:
            self._columns = list(row)
            self._write(self._columns)
        self.items += 1
        self._write([row.get(column) for column in self._columns])

    def _write(self, values: list[Any]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="").writerow(values)
        self.line(text.getvalue().encode())


class _Table(Printer):
    """Print tables, each with the columns of its first row."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[dict[str, Any]] = []

    def item(self, payload: Payload) -> None:
        self.items += 1
        self._rows.append(_row(payload))
        if len(self._rows) >= TABLE_ROWS:
            self._show()

    def end(self) -> None:
        self._show()
        super().end()

    def _show(self) -> None:
        if not self._rows:
            return
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        columns = list(self._rows[0])
        table = Table()
        for column in columns:
            table.add_column(Text(column))
        for row in self._rows:
            table.add_row(*(Text("" if row.get(column) is None else str(row[column])) for column in columns))
        Console(file=sys.stdout, width=None if sys.stdout.isatty() else 1000).print(table)
        self._rows.clear()


def _row(payload: Payload) -> dict[str, Any]:
    if payload.data.startswith(b"{"):
        try:
            parsed = json.loads(payload.data)
        except ValueError:
            parsed = None
        if isinstance(parsed, dict) and parsed:
            return parsed
    return record(payload)


def _printable(data: bytes) -> bool:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    return all(char.isprintable() or char in "\t\n\r" for char in text)


def printer(chosen: Format | None, *, single: bool = False) -> Printer:
    """Return the printer of a format; by default text on a terminal and JSON lines elsewhere.

    With ``single`` there is at most one item, and ``json`` prints an object instead of an array.
    """
    if chosen is None:
        return Printer() if sys.stdout.isatty() else _Lines()
    if chosen is Format.json:
        return _Document(single)
    kinds: dict[Format, type[Printer]] = {
        Format.raw: _Raw,
        Format.hex: _Hex,
        Format.ndjson: _Lines,
        Format.csv: _Csv,
        Format.table: _Table,
    }
    return kinds[chosen]()
