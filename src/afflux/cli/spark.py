"""Implement ``afflux spark``: pipelines on Spark. The extra ``spark`` is needed."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from glob import glob, has_magic
from pathlib import Path
from typing import Annotated

import typer

from afflux.cli.captures import Copy, KeyLog, OnlyProtocol, OverlapOption, Ports, Stall, secrets_of
from afflux.cli.examples import epilog
from afflux.cli.exits import INTERRUPTED, guarded, usage
from afflux.cli.inputs import above_0, duration, existing, new_directory
from afflux.cli.selecting import filter_of

__all__ = ["spark"]

_MASTER = "local[*,4]"
"All cores of this machine; a task may fail three times."

_STOPS = (signal.SIGINT, signal.SIGTERM)
_STOP_CALLS = 2
"Signals that are counted; the next one kills Spark's JVM."

_CAUSES = "spark.sql.pyspark.jvmStacktrace.enabled"
"The setting with which an error of Spark contains its causes."

PartitionBy = Annotated[
    list[str] | None,
    typer.Option("--partition-by", metavar="COLUMN", help="Distribute the files into directories. Repeatable."),
]
Conf = Annotated[list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark. Repeatable.")]

spark = typer.Typer(name="spark", no_args_is_help=True, rich_markup_mode=None)


@spark.callback(epilog=epilog("spark"))
def _spark() -> None:
    """Pipelines on Spark: streams into tables."""


@spark.command(epilog=epilog("spark"))
@guarded
def tail(
    uri: Annotated[str, typer.Argument(metavar="URI", help="The server's address; it must support the cursor.")],
    out: Annotated[
        str, typer.Option("--out", metavar="DIR", help="Directory of the table, on any of Spark's file systems.")
    ],
    route: Annotated[str | None, typer.Option("-r", "--route", metavar="ROUTE", help="Route of the stream.")] = None,
    data: Annotated[str | None, typer.Option("-d", "--data", metavar="TEXT", help="Data of the request.")] = None,
    format: Annotated[
        str, typer.Option("--format", metavar="NAME", help="Format of the table: parquet, delta or another of Spark.")
    ] = "parquet",
    schema: Annotated[
        str | None,
        typer.Option("--schema", metavar="COLUMNS", help="Columns of the data, such as 'carrier STRING', or @FILE."),
    ] = None,
    partition_by: PartitionBy = None,
    max_rows: Annotated[
        int | None, typer.Option("--max-rows", metavar="N", min=1, help="The most rows of a batch: its credit.")
    ] = None,
    every: Annotated[
        str,
        typer.Option(
            "--every",
            metavar="TIME",
            help="The least time between the starts of batches: 10s, 2m; 10 alone is 10s.",
        ),
    ] = "0s",
    available_now: Annotated[
        bool, typer.Option("--available-now", help="End after the items that the server has stored.")
    ] = False,
    options: Annotated[
        list[str] | None,
        typer.Option("-O", "--option", metavar="NAME=VALUE", help="An option of the source, such as format=json."),
    ] = None,
    master: Annotated[
        str, typer.Option("--master", metavar="URL", help="Spark's master: local[4], spark://host:7077, yarn, k8s://…")
    ] = _MASTER,
    conf: Conf = None,
) -> None:
    """Follow a stream into a table, each item exactly once. The table contains the checkpoint: the same command
    continues where the last one ended. Progress is on stderr; the result is one JSON object on stdout. SIGINT and
    SIGTERM stop it after the running batch, a second one at once."""
    named = {"uri": ("URI", uri), "route": ("-r", route), "requestData": ("-d", data)}
    given = _source_options(options, named | {"maxRowsPerBatch": ("--max-rows", max_rows)})
    settings = {_CAUSES: "true"} | _pairs(conf, "--conf")
    _check_master(master)
    columns = _columns(schema)
    every_s = duration(every, "--every")
    from afflux.spark.leaving import session_of
    from afflux.spark.logfile import LogFile
    from afflux.spark.options import Options
    from afflux.spark.tail import CONTINUES, Tail, follow

    if (columns is None) != (Options.parse(given).format == "raw"):
        usage("--schema and -O format=json (or msgpack, cbor, arrow) need each other")
    begun = time.monotonic()
    with LogFile() as log, _stops(view := _View(log.say)) as stops:
        what = Tail(
            options=given,
            out=out,
            format=format,
            schema=columns,
            partition_by=partition_by or (),
            every_s=every_s,
            available_now=available_now,
            log=str(log.path),
        )
        view.say("starting Spark")
        with session_of("afflux spark tail", master, CONTINUES, **settings) as session:
            stops.count()
            view.say(f"Spark {session.version} on {master}: {uri} into {out}")
            summary = follow(session, what, lambda event: view.say(str(event)), lambda: len(stops.received))
        if not summary.batches:
            view.say("no new items were stored")
    typer.echo(json.dumps(asdict(summary) | {"seconds": round(time.monotonic() - begun, 1)}))
    if stops.received and stops.received[0] == signal.SIGINT:
        raise typer.Exit(INTERRUPTED)


@spark.command(epilog=epilog("spark decode"))
@guarded
def decode(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH…", help="Captures, patterns such as 'captures/*.pcapng', directories.")
    ],
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="Directory of the tables, which it replaces.")],
    tables: Annotated[
        str | None, typer.Option("--tables", metavar="NAMES", help="Tables, such as frames,streams; all by default.")
    ] = None,
    payload: Annotated[bool, typer.Option("--payload", help="Add metadata and data to the table frames.")] = False,
    where: Annotated[
        str | None, typer.Option("--where", metavar="FILTER", help="Rows of the table frames, as in decode --where.")
    ] = None,
    protocol: OnlyProtocol = "auto",
    ports: Ports = None,
    keylog: KeyLog = None,
    overlap: OverlapOption = Copy.first,
    stall: Stall = "100ms",
    partition_by: PartitionBy = None,
    index_dir: Annotated[
        str | None,
        typer.Option("--index-dir", metavar="DIR", help="Directory of the indexes; by default beside each capture."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a report about the tables to this file.")
    ] = None,
    master: Annotated[
        str,
        typer.Option("--master", metavar="URL", help="Spark's master, such as local[4]; none: this process, no Spark."),
    ] = _MASTER,
    conf: Conf = None,
) -> None:
    """Decode captures into Parquet tables: frames, connections, streams, credit, stalls, latencies, violations. The
    tables appear when all is decoded, and replace those of an earlier run. Progress is on stderr; the result is one
    JSON object on stdout."""
    from afflux.spark.decodecommand import HERE, Asked, run
    from afflux.spark.logfile import LogFile

    out, index_dir = _local(out, "--out"), index_dir and _local(index_dir, "--index-dir")
    _check_paths(paths)
    _check_master(master)
    target = new_directory(out, "--out").absolute()
    if index_dir is not None:
        new_directory(index_dir, "--index-dir")
    if html is not None and target in html.absolute().parents:
        usage("--html: the report cannot be inside --out, which has tables only")
    if where is not None:
        filter_of(where, table=True)
    if keylog is not None:
        existing(keylog, "--keylog", regular=True)
        secrets_of(keylog)
    given = {"ports": ",".join(ports or ()), "where": where, "protocol": protocol, "payload": str(payload)}
    given |= {"stallSeconds": str(above_0(stall, "--stall"))}
    given |= {"keylog": keylog and str(Path(keylog).absolute()), "overlap": overlap.value}
    asked = Asked(
        paths=paths,
        out=out,
        tables=tables,
        options={name: value for name, value in given.items() if value}
        | {"stallSeconds": str(above_0(stall, "--stall"))},
        partition_by=partition_by or (),
        index_dir=Path(index_dir) if index_dir else None,
        html=html,
        master=master,
        conf=_pairs(conf, "--conf"),
    )
    with nullcontext() if master == HERE else LogFile() as log:
        result = run(asked, _View(log.say if log is not None else _line).say)
    typer.echo(json.dumps(result))


def _check_master(master: str) -> None:
    """Refuse an empty --master, which Spark would replace by one of its own settings, or wait for."""
    if not master.strip():
        usage("--master is empty: write one such as local[4]")


def _check_paths(paths: Sequence[str]) -> None:
    """Exit with a usage error if a path does not exist, or a pattern matches nothing."""
    for text in paths:
        name = _local(text, "PATH")
        if has_magic(name) and not Path(name).exists():
            if not glob(name):
                usage(f"PATH: no captures match {text!r}")
        elif not name or not Path(name).is_dir():
            existing(name, "PATH")


def _local(text: str, option: str) -> str:
    """Return a path without ``file://``. Exits with a usage error for that of an object store."""
    from afflux.capture.errors import CaptureError
    from afflux.capture.places import local

    try:
        return local(text)
    except CaptureError as error:
        usage(f"{option}: {error.message}")


def _pairs(given: Sequence[str] | None, option: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            usage(f"{option} must be NAME=VALUE, not {text!r}")
        if name.lower() in map(str.lower, pairs):
            usage(f"{option} {name} is given twice")
        pairs[name] = value
    return pairs


def _source_options(options: Sequence[str] | None, named: Mapping[str, tuple[str, object]]) -> dict[str, str]:
    """Return the options of the source: those of ``-O``, and those that have an option or argument of their own."""
    given = _pairs(options, "--option")
    for name, (spelled, value) in named.items():
        if value is not None and name.lower() in map(str.lower, given):
            usage(f"-O {name} and {spelled} exclude each other")
    return given | {name: str(value) for name, (_, value) in named.items() if value is not None}


def _columns(schema: str | None) -> str | None:
    """Return the value of ``--schema``, or the content of the file that ``@FILE`` names."""
    if schema is None or not schema.startswith("@"):
        return schema
    try:
        return existing(schema[1:], "--schema").read_text("utf-8")
    except UnicodeDecodeError as error:
        usage(f"--schema: {schema[1:]!r} is not UTF-8 text (byte {error.start})")


def _line(text: str) -> None:
    typer.echo(text, err=True)


class _View:
    """Print events to stderr, with the seconds since the start."""

    def __init__(self, line: Callable[[str], None]) -> None:
        self._start = time.monotonic()
        self._line = line

    def say(self, text: str) -> None:
        """Print one line."""
        self._line(f"{time.monotonic() - self._start:8.1f} s  {text}")


class _Stops:
    """SIGINT and SIGTERM: an interruption while Spark starts, and then counted. Spark's own handler of SIGINT would
    cancel the batch."""

    def __init__(self, view: _View) -> None:
        self.received: list[int] = []
        "The signals since :meth:`count`."
        self._view = view

    def count(self) -> None:
        """Collect the signals from now on."""
        for number in _STOPS:
            signal.signal(number, self._note)

    def _note(self, number: int, _: object) -> None:
        self.received.append(number)
        if len(self.received) > _STOP_CALLS:
            raise KeyboardInterrupt
        once = len(self.received) == 1
        self._view.say("stops after this batch; once more stops it now" if once else "stops now")


@contextmanager
def _stops(view: _View) -> Iterator[_Stops]:
    """Handle SIGINT and SIGTERM meanwhile."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in _STOPS}
    try:
        yield _Stops(view)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
