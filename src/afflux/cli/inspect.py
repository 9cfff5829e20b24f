"""Implement ``afflux inspect``: what happened in captures, who stopped which stream, and which rules were broken."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from afflux.cli.captures import decode_as
from afflux.cli.exits import FAILED, MALFORMED, usage
from afflux.cli.inputs import duration
from afflux.cli.inspected import Summary, page
from afflux.cli.output import Format, format_of, output_option, printer
from afflux.core.payload import Payload
from afflux.protocols.registry import AUTO, PROTOCOLS, named

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from afflux.core.entry import ProtocolEntry

__all__ = ["inspect"]

_OUTPUTS = (Format.table, Format.json, Format.ndjson, Format.csv)
_SHOWN = ("connections", "streams", "stalls", "violations")


def inspect(
    files: Annotated[list[str], typer.Argument(metavar="FILE…", help="Captures (pcap, pcapng): one or more.")],
    ports: Annotated[
        list[str] | None,
        typer.Option("-d", "--decode-as", metavar="PORT=NAME", help="Protocol of a server's port; repeatable."),
    ] = None,
    protocol: Annotated[
        str, typer.Option("--protocol", metavar="NAME", help=f"Only this protocol: {', '.join(PROTOCOLS)}.")
    ] = AUTO,
    stall: Annotated[
        str, typer.Option("--stall", metavar="TIME", help="A stall: nothing flows for this long, such as 100ms or 2s.")
    ] = "100ms",
    conn: Annotated[str | None, typer.Option("--conn", metavar="ID", help="Only this connection.")] = None,
    stream: Annotated[int | None, typer.Option("--stream", metavar="N", help="Only streams with this id.")] = None,
    top: Annotated[int, typer.Option("--top", min=1, max=1_000, help="Rows of each part of the text.")] = 10,
    table: Annotated[
        str, typer.Option("--table", metavar="NAME", help="With -o: one table, such as credit or latencies.")
    ] = "",
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 5 if a rule was broken.")] = False,
    html: Annotated[str | None, typer.Option("--html", metavar="OUT", help="Write a report to this file.")] = None,
    output: Annotated[str | None, output_option(*_OUTPUTS, default="text")] = None,
) -> None:
    """Inspect captures: connections, streams, stalls with their causes, and broken rules."""
    chosen = format_of(output, "inspect", *_OUTPUTS)
    chosen = chosen or (None if sys.stdout.isatty() else Format.ndjson)
    rows = _Rows(files, ports or [], protocol, _least(stall), conn, stream)
    if html is not None:
        from afflux.capture import report

        report.write(rows.of, html)
    elif chosen is None:
        summary = Summary(files, top)
        for name, batch in rows.of(_SHOWN):
            summary.add(name, batch)
        sys.stdout.write(page(summary, detailed=conn is not None or stream is not None))
    else:
        _print(rows, chosen, table)
    _finish(rows, strict)


class _Rows:
    """The rows of the captures that were asked for, read anew at each call."""

    def __init__(
        self, files: list[str], ports: list[str], protocol: str, stall: float, conn: str | None, stream: int | None
    ) -> None:
        for name in files:
            if name != "-" and not Path(name).is_file():
                usage(f"file {name!r} not found")
        self._files = files
        self._ports = decode_as(ports)
        self._entries: tuple[ProtocolEntry, ...] | None = None if protocol == AUTO else (named(protocol),)
        self._stall = stall
        self._conn, self._stream = conn, stream
        self.broken = 0
        "Broken rules."
        self.damaged: dict[str, str] = {}
        "Files that could not be read to their end, and why."

    def of(self, tables: Iterable[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield rows of some tables; each with the table's name."""
        from afflux.capture import analyze

        files: list[Any] = [sys.stdin.buffer if name == "-" else name for name in self._files]
        wanted = {*tables, "violations"}
        self.broken = 0
        found = analyze(files, tables=wanted, entries=self._entries, ports=self._ports, stall_s=self._stall)
        for name, batch in found:
            kept = self._filtered(batch)
            if name == "violations":
                self._count(kept, batch)
            if name in tables and len(kept):
                yield name, kept

    def _filtered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow.compute as pc

        if self._conn is not None:
            batch = batch.filter(pc.equal(batch["conn"], self._conn))
        if self._stream is not None and "stream" in batch.schema.names:
            batch = batch.filter(pc.equal(batch["stream"], self._stream))
        return batch

    def _count(self, kept: pa.RecordBatch, batch: pa.RecordBatch) -> None:
        import pyarrow.compute as pc

        broken = pc.is_in(kept["kind"], _strings("state", "malformed"))
        self.broken += pc.sum(broken).as_py() or 0
        for row in batch.filter(pc.equal(batch["kind"], "damaged")).to_pylist():
            self.damaged[row["file"]] = f"{row['rule']} at byte {row['file_offset']}: {row['reason']}"


def _strings(*words: str) -> pa.Array:
    import pyarrow as pa

    return pa.array(words)


def _print(rows: _Rows, chosen: Format, table: str) -> None:
    """Print rows as JSON objects that name their table, or as one table."""
    import json

    from afflux.capture.schemas import TABLES

    if table and table not in TABLES:
        usage(f"there is no table {table!r}; there are {', '.join(TABLES)}")
    single = table or ("" if chosen in (Format.json, Format.ndjson) else "streams")
    texts = chosen in (Format.json, Format.ndjson)
    shown, count = (None if texts else printer(chosen)), 0
    for name, batch in rows.of((single,) if single else _SHOWN):
        for row in batch.to_pylist():
            made = row if single else {"table": name, **row}
            text = json.dumps(made, ensure_ascii=False, default=_plain, separators=(",", ":"))
            if shown is not None:
                shown.item(Payload(text.encode()))
            elif chosen is Format.json:
                sys.stdout.write(("[\n" if count == 0 else ",\n") + text)
            else:
                sys.stdout.write(text + "\n")
            count += 1
    if shown is not None:
        shown.end()
    elif chosen is Format.json:
        sys.stdout.write("\n]\n" if count else "[]\n")


def _plain(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return str(value.isoformat().replace("+00:00", "Z"))


def _finish(rows: _Rows, strict: bool) -> None:
    """Exit with 1 for a damaged file, and with 5 under --strict for a broken rule."""
    for name, text in rows.damaged.items():
        typer.echo(f"afflux: {name}: {text}", err=True)
    if rows.damaged:
        raise typer.Exit(FAILED)
    if strict and rows.broken:
        typer.echo(f"afflux: broken rules: {rows.broken}", err=True)
        raise typer.Exit(MALFORMED)


def _least(text: str) -> float:
    """Parse the time of --stall, in seconds."""
    least = duration(text)
    if least <= 0:
        usage("--stall expects a time above 0, such as 100ms or 2s")
    return least
