"""Implement ``afflux inspect``: what happened in captures, who stopped which stream, and which rules were broken."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from afflux.cli import conflicts
from afflux.cli.captures import Copy, KeyLog, OnlyProtocol, OverlapOption, Ports, Stall, decode_as, secrets_of
from afflux.cli.exits import FAILED, MALFORMED, usage
from afflux.cli.inputs import duration, writable
from afflux.cli.inspected import Summary, page
from afflux.cli.inspecting import NothingSelected, Rows, captures, directory, first, records
from afflux.cli.inspecting import Source as Tables
from afflux.cli.output import Format, format_of, output_option, printer
from afflux.cli.selecting import filter_of
from afflux.cli.telling import tell
from afflux.core.payload import Payload
from afflux.protocols.registry import AUTO, named

if TYPE_CHECKING:
    from afflux.capture.report import Source

__all__ = ["inspect"]

_OUTPUTS = (Format.table, Format.json, Format.ndjson, Format.csv)
_STALL = "100ms"
_TOP = 10
_SHOWN = ("connections", "streams", "stalls", "violations")


def inspect(
    context: typer.Context,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE…",
            help="Captures (pcap, pcapng): one or more. Or a directory of tables, of `spark decode --out`.",
        ),
    ],
    ports: Ports = None,
    protocol: OnlyProtocol = AUTO,
    stall: Stall = _STALL,
    keylog: KeyLog = None,
    overlap: OverlapOption = Copy.first,
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="FILTER", help="Only streams with such a frame, such as 'code == 0x201'."),
    ] = None,
    conn: Annotated[str | None, typer.Option("--conn", metavar="ID", help="Only this connection.")] = None,
    stream: Annotated[int | None, typer.Option("--stream", metavar="N", help="Only streams with this id.")] = None,
    top: Annotated[
        int, typer.Option("--top", metavar="N", min=1, max=1_000, help="Rows of each part of the text.")
    ] = _TOP,
    table: Annotated[
        str, typer.Option("--table", metavar="NAME", help="With -o: one table, such as credit or latencies.")
    ] = "",
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="With -o: the first N rows of each table.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 5 if a rule was broken, or bytes are lost.")
    ] = False,
    html: Annotated[str | None, typer.Option("--html", metavar="OUT", help="Write a report to this file.")] = None,
    output: Annotated[str | None, output_option(*_OUTPUTS, default="text")] = None,
) -> None:
    """Inspect captures: connections, streams, stalls with their causes, and broken rules."""
    conflicts.check(conflicts.INSPECT, conflicts.given(context))
    chosen = format_of(output, "inspect", *_OUTPUTS)
    chosen = chosen or (None if sys.stdout.isatty() else Format.ndjson)
    least, given, entries = _least(stall), decode_as(ports or []), None if protocol == AUTO else (named(protocol),)
    selects = None if where is None else filter_of(where, table=True)
    source: Tables
    absent: frozenset[str] = frozenset()
    if len(files) == 1 and Path(files[0]).is_dir():
        if given or entries or keylog or stall != _STALL or overlap is not Copy.first:
            usage(f"-d, --protocol, --stall, --keylog and --overlap apply to captures; {files[0]!r} has tables")
        source = there = directory(Path(files[0]))
        absent = there.absent
    else:
        options = {"entries": entries, "ports": given, "stall_s": least, "overlap": overlap.value}
        source = captures(files, secrets=secrets_of(keylog), **options)
    if selects is not None and "-" in files:
        usage("--where reads the captures twice, and stdin can be read once: name a file")
    rows = Rows(source, conn=conn, stream=stream, where=selects, absent=absent)
    if strict:
        rows.need("--strict", "violations")
    if html is not None:
        if table or output is not None or top != _TOP or limit is not None:
            usage("--html writes a report to a file: leave out -o, --table, --top and --limit")
        if html == "-":
            usage("--html writes a report to a file, not to stdout: choose a name, such as report.html")
        writable(html, "--html")
        once = rows.of({*_SHOWN, "latencies", "credit", "frames"}) if "-" in files else None
        _report(rows.of if once is None else once, html, files, absent)
    elif chosen is None:
        if limit is not None:
            usage("--limit applies to rows, with -o; the text has --top")
        if table:
            usage("--table applies to rows, with -o; the text is about all of them")
        summary = Summary(files, top, absent)
        for name, batch in rows.of(_SHOWN if "connections" not in absent else (*_SHOWN, "frames")):
            summary.add(name, batch)
        sys.stdout.write(page(summary, detailed=conn is not None or stream is not None))
    else:
        _print(rows, chosen, table, limit)
    _finish(rows, strict)


def _report(source: Source, out: str, files: list[str], absent: frozenset[str]) -> None:
    """Write a report, and its size to stderr."""
    from afflux.capture.report import title_of, write

    size = write(source, out, title=title_of(files), absent=absent)
    tell(f"afflux: report written: {out}, {size:,} bytes")


def _print(rows: Rows, chosen: Format, table: str, limit: int | None) -> None:
    """Print rows as JSON objects that name their table, or as one table; at most ``limit`` of each table."""
    import json

    from afflux.capture.schemas import TABLES

    if table and table not in TABLES:
        usage(f"--table: there is no table {table!r}; there are {', '.join(TABLES)}")
    single = table or ("" if chosen in (Format.json, Format.ndjson) else "streams")
    texts = chosen in (Format.json, Format.ndjson)
    if single:
        rows.need(f"--table {table}" if table else f"-o {chosen.value}", single)
    elif absent := rows.absent.intersection(_SHOWN):
        tell(f"afflux: not in these tables: {', '.join(sorted(absent))}")
    shown, count = (None if texts else printer(chosen)), 0
    missing: NothingSelected | None = None
    try:
        for name, batch in first(rows.of((single,) if single else _SHOWN), limit):
            for row in records(batch):
                made = row if single else {"table": name, **row}
                text = json.dumps(made, ensure_ascii=False, default=_plain, separators=(",", ":"))
                if shown is not None:
                    shown.item(Payload(text.encode()))
                elif chosen is Format.json:
                    sys.stdout.write(("[\n" if count == 0 else ",\n") + text)
                else:
                    sys.stdout.write(text + "\n")
                count += 1
    except NothingSelected as error:
        missing = error
    if shown is not None:
        shown.end()
    elif chosen is Format.json and (count or missing is None):
        sys.stdout.write("\n]\n" if count else "[]\n")
    if missing is not None:
        raise missing


def _plain(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return str(value.isoformat().replace("+00:00", "Z"))


def _finish(rows: Rows, strict: bool) -> None:
    """Exit with 1 for a damaged file; under --strict with 5 for a broken rule or a frame that is not whole."""
    if rows.disordered:
        from afflux.capture.order import warning

        tell(f"afflux: warning: {warning(rows.disordered, *rows.late)}", wrapped=True)
    for name, text in rows.damaged.items():
        tell(f"afflux: {name}: {text}")
    if rows.damaged:
        raise typer.Exit(FAILED)
    if strict and (rows.broken or rows.torn):
        torn = f"; frames that are not whole: {rows.torn}" if rows.torn else ""
        tell(f"afflux: broken rules: {rows.broken}{torn}")
        raise typer.Exit(MALFORMED)


def _least(text: str) -> float:
    """Parse the time of --stall, in seconds."""
    least = duration(text, "--stall")
    if least <= 0:
        usage("--stall expects a time above 0, such as 100ms or 2s")
    return least
