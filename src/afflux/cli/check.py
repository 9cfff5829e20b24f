"""Implement ``afflux check``: parse, check, format, dualise and generate session types, and check captures and dumps
against them.

The language and the checks are in ``afflux.sessions``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from afflux.cli import conflicts
from afflux.cli.captures import KeyLog, Ports, check_whole
from afflux.cli.checking import Captured, connections
from afflux.cli.decode import CHUNK, Side, capture_of, dissector_of, refuse_captures
from afflux.cli.exits import FAILED, UNDECIDED, usage
from afflux.cli.inputs import existing
from afflux.cli.telling import tell
from afflux.core.dissect import escaped
from afflux.core.limits import Limits

if TYPE_CHECKING:
    from afflux.sessions import SessionSyntaxError, SessionTypes
    from afflux.sessions.recorded import Break, Report

__all__ = ["Emitted", "Shape", "check"]


_DEFAULT: Final = "limit"
"The protocol of a dump, if none is given."
_LOOK: Final = 64
"Frames of a dump that are read to recognize RSocket."


class Emitted(StrEnum):
    """The languages of generated modules."""

    python = "python"


class Shape(StrEnum):
    """The formats of the output."""

    text = "text"
    json = "json"
    ndjson = "ndjson"


def check(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE.lstr", help="Session types; - for stdin.")],
    dumps: Annotated[
        list[str] | None, typer.Argument(metavar="[DUMP]", help="With --against: the dump of the other side.")
    ] = None,
    formatted: Annotated[bool, typer.Option("--format", help="Print the types, formatted.")] = False,
    dual: Annotated[bool, typer.Option("--dual", help="Print the dual: the types as the client sees them.")] = False,
    emit: Annotated[Emitted | None, typer.Option("--emit", help="Print a typed module for both sides: python.")] = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against", metavar="FILE", help="Find the first frame of a capture, or of a dump, that breaks a type."
        ),
    ] = None,
    channel: Annotated[
        str | None, typer.Option("--channel", metavar="NAME", help="With --against: the channel, if none is named.")
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            "--protocol", metavar="NAME", help="With --against: limit, or rsocket. [default: limit for dumps]"
        ),
    ] = None,
    ports: Ports = None,
    keylog: KeyLog = None,
    role: Annotated[
        Side, typer.Option("--role", help="With --against: the side that sent the first dump.")
    ] = Side.client,
    output: Annotated[
        Shape | None, typer.Option("-o", "--output", help="Output format. [default: text, or ndjson in a pipe]")
    ] = None,
) -> None:
    """Check session types, or frames against them."""
    from afflux.sessions.recorded import PROTOCOLS

    conflicts.check(conflicts.CHECK, conflicts.given(context))
    if (formatted or dual) + (emit is not None) + (against is not None) > 1:
        usage("--format and --dual, --emit, and --against exclude each other")
    if dumps and against is None:
        usage("a dump needs --against")
    for name in (file, *(one for one in (against, *(dumps or [])) if one is not None)):
        if name != "-":
            existing(name, "FILE" if name == file else "--against" if name == against else "DUMP")
    shape = output or (Shape.text if sys.stdout.isatty() else Shape.ndjson)
    quiet = formatted or dual or emit is not None
    types = _loaded(file, None if quiet else shape)
    if against is not None:
        if protocol not in (None, *PROTOCOLS):
            usage(f"unsupported protocol {protocol!r}: expected {' or '.join(PROTOCOLS)}")
        if not dumps and (capture := capture_of(against)) is not None:
            with capture:
                found = connections(
                    capture, against, types=types, channel=channel, protocol=protocol, ports=ports or [], keylog=keylog
                )
                _captured(types, found, channel, shape, against)
        elif ports or keylog:
            usage("-d and --keylog apply to captures")
        else:
            _against(types, [against, *(dumps or [])], channel, protocol, role is Side.client, shape)
    elif formatted or dual:
        sys.stdout.write(_text(types, dual))
    elif emit is not None:
        sys.stdout.write(_module(types, "" if file == "-" else Path(file).name))
    else:
        _show([_summary(types, name) for name in types], shape)
        if not types:
            tell(f"afflux: {file!r} has no channels")


def _loaded(file: str, shape: Shape | None) -> SessionTypes:
    """Return the types of a file. Report its problems and exit if it has any."""
    from afflux.sessions import SessionSyntaxError, load, loads

    try:
        if file == "-":
            return loads(sys.stdin.read(Limits().session_type_bytes + 1), name="stdin")
        return load(existing(file, "FILE"))
    except SessionSyntaxError as error:
        typer.echo(error.message, err=True)
        if shape in (Shape.json, Shape.ndjson):
            _show(list(_problems(error, file)), shape)
        raise typer.Exit(FAILED) from None


def _problems(error: SessionSyntaxError, file: str) -> Iterator[dict[str, Any]]:
    for problem in error.problems:
        line, column = (None, None) if problem.place is None else (problem.place.line, problem.place.column)
        yield {"file": file, "line": line, "column": column, "rule": problem.rule, "text": problem.text}


def _text(types: SessionTypes, dual: bool) -> str:
    from afflux.sessions import dual as dual_of
    from afflux.sessions import format_file

    return format_file(dual_of(types.file) if dual else types.file)


def _module(types: SessionTypes, source: str) -> str:
    from afflux.sessions.generating import python_module

    try:
        return python_module(types, source=source)
    except ValueError as error:
        usage(str(error))


def _summary(types: SessionTypes, name: str) -> dict[str, Any]:
    from afflux.sessions import dual
    from afflux.sessions.formatting import format_chain

    chain = next(each.chain for each in types.file.channels if each.name == name)
    states = len(types[name].states)
    return {"channel": name, "states": states, "server": format_chain(chain), "client": format_chain(dual(chain))}


def _show(records: list[dict[str, Any]], shape: Shape) -> None:
    if shape is Shape.json:
        sys.stdout.write(json.dumps(records, ensure_ascii=False, indent=2) + "\n")
        return
    for record in records:
        if shape is Shape.ndjson:
            sys.stdout.write(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n")
        elif "undecided" in record:
            sys.stdout.write(f"{record['conn']}: undecided\n")
        elif record.get("error", "") is None:
            sys.stdout.write(_followed(record) + "\n")
        elif "states" in record:
            sys.stdout.write(f"{record['channel']}: {record['states']} states\n")


def _against(
    types: SessionTypes, names: list[str], channel: str | None, given: str | None, client: bool, shape: Shape
) -> None:
    if len(names) > 2:
        usage("--against reads one dump per side")
    protocol = given or _DEFAULT
    files = dict(zip((client, not client), names, strict=False))
    sides = {side: _records(name, protocol, side) for side, name in files.items()}
    report = _report(types, protocol, sides, channel)
    if report.broken is not None:
        _show([_break(report.broken)], shape)
        if given is None and all(_may_be_rsocket(name, side) for side, name in files.items()):
            tell(f"afflux: a dump is read as {_DEFAULT}, and this one may be rsocket: add --protocol rsocket")
        raise typer.Exit(FAILED)
    _show([_good(report)], shape)
    if not report.frames:
        tell("afflux: nothing was checked: there are no frames of sessions")
        raise typer.Exit(UNDECIDED)


def _may_be_rsocket(name: str, client: bool) -> bool:
    """Return whether a dump begins with frames of RSocket."""
    start = list(islice(_records(name, "rsocket", client), _LOOK))
    return bool(start) and all(record["error"] is None for record in start)


def _captured(types: SessionTypes, found: Captured, channel: str | None, shape: Shape, name: str) -> None:
    """Check each connection of a capture. Exit with 1 if a frame of any breaks a type, otherwise with 6 if the capture
    lacks frames of any, or has no frames of sessions."""
    results: list[dict[str, Any]] = []
    for one in found.connections:
        if one.lacks:
            results.append({"conn": one.conn, "protocol": one.protocol, "undecided": one.lacks, "error": None})
            tell(escaped(f"afflux: connection {one.conn} is undecided: {one.lacks}"), wrapped=True)
            continue
        report = _report(types, one.protocol, one.sides, channel)
        if report.broken is not None:
            results.append(_break(report.broken))
        else:
            results.append({"conn": one.conn, "protocol": one.protocol} | _good(report))
    checked = any(result["error"] or result.get("frames") for result in results)
    if not checked and not any("undecided" in result for result in results):
        tell("afflux: nothing was checked: the capture has no frames of sessions that can be read")
    _show(results, shape)
    check_whole(found.decoder, name)
    if any(result["error"] for result in results):
        raise typer.Exit(FAILED)
    if not checked or any("undecided" in result for result in results):
        raise typer.Exit(UNDECIDED)


def _report(
    types: SessionTypes, protocol: str, sides: Mapping[bool, Iterable[dict[str, Any]]], channel: str | None
) -> Report:
    from afflux.sessions.recorded import check_records

    try:
        return check_records(types, protocol, sides, channel)
    except ValueError as error:
        usage(str(error))


def _good(report: Report) -> dict[str, Any]:
    """Return the result for frames that follow the types."""
    result = {"frames": report.frames, "sessions": report.sessions, "open": report.open, "failed": report.failed}
    return result | {"error": None}


def _followed(result: dict[str, Any]) -> str:
    """Return the same in words."""
    state = "failed" if result["failed"] else "open" if result["open"] else "complete"
    last = f", the last is {state}" if result["sessions"] else ""
    conn = f"{result['conn']}: " if "conn" in result else ""
    return f"{conn}{result['frames']} frames follow the types; sessions: {result['sessions']}{last}"


def _break(broken: Break) -> dict[str, Any]:
    """Report a frame that breaks a type on stderr; return its record, with the reason under ``error``."""
    record = broken.record
    state = "" if broken.state is None else f" (state {broken.state})"
    reason = f"expected {broken.expected}{state}, not {broken.seen}"
    kind = f"frame {record['type']}" if record["type"] else "frame"
    where = f"{kind} {record['dir']} at offset {record['offset']}, stream {record['stream']}"
    if record["conn"]:
        where += f", connection {record['conn']}" + (f", {record['ts']}" if record["ts"] else "")
    tell(escaped(f"afflux: {where} breaks {broken.channel or 'the protocol'}: {reason}"), wrapped=True)
    error = {"rule": "SI-25", "reason": reason, "channel": broken.channel, "state": broken.state}
    return {**record, "error": error | {"expected": broken.expected, "seen": broken.seen}}


def _records(name: str, protocol: str, client: bool) -> Iterator[dict[str, Any]]:
    """Yield the frame records of a dump of one side."""
    existing(name, "FILE")
    dissector = dissector_of(protocol)(client, "hex")
    with Path(name).open("rb") as file:
        refuse_captures(file)
        while data := file.read(CHUNK):
            yield from dissector.feed(data)
    yield from dissector.end()
