"""Implement ``afflux serve``: run a server on one address until a signal stops it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hmac
import logging
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from afflux.cli import conflicts
from afflux.cli.completing import addresses
from afflux.cli.exits import INTERRUPTED, usage
from afflux.cli.handlers import check_verbs, load
from afflux.cli.inputs import (
    check_cursors,
    check_reach,
    check_store,
    credentials,
    duration,
    existing,
    new_directory,
    path_name,
)
from afflux.cli.limiting import LimitOption, allow_open_files, limits_of
from afflux.cli.options import Store
from afflux.cli.origins import Origins, origins_of
from afflux.cli.stopping import GRACE, Stopped, listen_for_signals, unless_stopped
from afflux.cli.storing import JOURNAL, JournalBytes, Keep, storage_of
from afflux.cli.streams import on_report_signal, report
from afflux.cli.verbose import Verbose, log_shown
from afflux.core.errors import ApplicationError
from afflux.protocols.registry import AUTO

if TYPE_CHECKING:
    from afflux.aio.server import Server
    from afflux.protocols.family.lease import FixedLease

__all__ = ["Lines", "fast_loop", "serve"]

_log = logging.getLogger("afflux.serve")

MOST_WORKERS = 1024

LINE_LIMIT = 0x100_0000
"Maximum line length of --file: 16 MiB."


def serve(
    context: typer.Context,
    uri: Annotated[
        str,
        typer.Argument(
            metavar="URI", help="Address to listen on; port 0 selects a free port.", autocompletion=addresses
        ),
    ],
    demo: Annotated[bool, typer.Option("--demo", help="Serve the demo: echo, numbered items, flight data.")] = False,
    handler: Annotated[
        str | None,
        typer.Option("--handler", metavar="MODULE:OBJECT", help="Serve an object with handler methods, or its class."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="PATH", parser=path_name, help="Serve the lines of a file as a stream."),
    ] = None,
    journal: Annotated[str | None, JOURNAL] = None,
    journal_bytes: JournalBytes = None,
    keep: Keep = None,
    sink: Annotated[
        Path | None,
        typer.Option(
            "--sink", metavar="DIR", parser=path_name, help="Store rows that Spark writes, as Parquet in DIR."
        ),
    ] = None,
    lease: Annotated[
        str | None,
        typer.Option("--lease", metavar="N/TIME", help="Grant N requests per TIME to clients that request leases."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Let clients resume their sessions.")] = False,
    store: Store = None,
    auth_file: Annotated[
        Path | None,
        typer.Option(
            "--auth-file", metavar="FILE", parser=path_name, help="Accept only clients with the credentials in FILE."
        ),
    ] = None,
    origin: Origins = None,
    workers: Annotated[
        int,
        typer.Option("--workers", metavar="N", min=1, max=MOST_WORKERS, help="Processes that share the address."),
    ] = 1,
    list_routes: Annotated[
        bool,
        typer.Option("--list-routes", help="Let clients list the handler's routes (request --routes); --demo does so."),
    ] = False,
    limit: LimitOption = None,
    stats: Annotated[
        str | None,
        typer.Option(
            "--stats",
            metavar="TIME",
            help="Print rates, live streams, stalls and refusals to stderr at this interval, such as 5s.",
        ),
    ] = None,
    verbose: Verbose = 0,
    worker: Annotated[int | None, typer.Option("--worker", hidden=True)] = None,
) -> None:
    """Serve one address; auto+tcp://… recognizes each client's protocol. Prints `ready URI` when it listens. SIGINT and
    SIGTERM drain and stop it; SIGUSR1 prints the live streams of every connection to stderr, and what each waits
    for."""
    conflicts.check(conflicts.SERVE, conflicts.given(context))
    if not (demo or handler or file or sink):
        usage(conflicts.SOURCE)
    check_reach(uri)
    if journal is not None:
        check_cursors(uri, "--journal")
    limits = limits_of(limit)
    storage = storage_of(journal, journal_bytes, keep or [], limits)
    terms = _terms(lease, resume, store, auth_file) | {"origins": origins_of(uri, origin), "limits": limits}
    every = None if stats is None else _interval(stats)
    if auth_file is not None:
        _check_setup(uri, auth_file)
    if workers > 1:
        words = _arguments({"--handler": handler, "--file": file, "--lease": lease, "--auth-file": auth_file})
        words += [f"--origin={page}" for page in origin or ()] + [f"--limit={text}" for text in limit or ()]
        words += ["--list-routes"] * list_routes + ["-v"] * verbose + _arguments({"--stats": stats})
        stopped_by = _share(uri, workers, ["--demo", *words] if demo else words)
    else:
        chosen = _demo() if demo else _lines(file) if file is not None else _sink(sink) if sink else load(handler or "")
        if list_routes and not demo:
            chosen = _listed(chosen)
        check_verbs(uri, chosen)
        with log_shown(verbose, _label(worker)), asyncio.Runner(loop_factory=fast_loop()) as runner:
            try:
                stopped_by = runner.run(_serve(uri, chosen, storage, terms, worker, every))
            except Stopped as stopped:
                stopped_by = stopped.number
    if stopped_by == signal.SIGINT:
        raise typer.Exit(INTERRUPTED)


def _interval(text: str) -> float:
    from afflux.cli.stats import interval

    return interval(text)


def _arguments(options: Mapping[str, object]) -> list[str]:
    """Return the given options as arguments of a worker's command line."""
    return [f"{option}={value}" for option, value in options.items() if value is not None]


def _share(uri: str, workers: int, words: Sequence[str]) -> signal.Signals:
    from afflux.cli.workers import supervise

    return supervise(uri, workers, words, GRACE)


def _terms(lease: str | None, resume: bool, store: Path | None, auth_file: Path | None) -> dict[str, Any]:
    """Build the other arguments of afflux.serve."""
    import afflux

    check_store(store)
    terms: dict[str, Any] = {"resume": resume, "store": store}
    if lease is not None:
        terms["lease"] = _lease(lease)
    if auth_file is not None:
        shown = credentials(auth_file)
        terms["on_setup"] = afflux.auth.at_setup(lambda credentials, peer: _same(shown, credentials))
    return terms


def _lease(text: str) -> FixedLease:
    """Parse --lease. Exits with a usage error for anything else than N/TIME."""
    import afflux

    match = re.fullmatch(r"([0-9]{1,19})/(.+)", text)
    if match is None or not int(match[1]):
        usage(f"invalid --lease {text[:64]!r}: expected N/TIME, such as 100/1s")
    try:
        return afflux.FixedLease(int(match[1]), duration(match[2], "--lease"))
    except ValueError as error:
        usage(f"invalid --lease {text[:64]!r}: {error}")


def _same(wanted: Any, shown: Any) -> Any:
    """Return the credentials as the principal if they match, otherwise None."""
    same = shown is not None and hmac.compare_digest(wanted.encode(), shown.encode())
    return shown if same else None


def fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop factory if it is installed, otherwise None for asyncio's."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _demo() -> object:
    from afflux.demo.responder import Responder

    return Responder()


def _listed(handler: object) -> object:
    from afflux.aio.listing import listed

    try:
        return listed(handler)
    except TypeError as error:
        usage(f"--list-routes: {error}")


def _check_setup(uri: str, auth_file: Path) -> None:
    """Exit with a usage error if the protocol has no credentials at setup. With ``auto`` the server refuses the clients
    of such a protocol."""
    import afflux
    from afflux.calls import terms_of
    from afflux.transports.address import parse

    address, limits = parse(uri, serving=True), afflux.Limits()
    if address.protocol == AUTO:
        return
    terms = terms_of(address, limits, [credentials(auth_file)], None, None, None, None, None)
    try:
        address.entry.make("client", terms, limits=limits, decide=False, now=0.0)
    except afflux.Unsupported as error:
        usage(f"--auth-file: {error.message}")


class Lines:
    """The handler of --file: ``stream`` yields the lines of the file without line ends, for any request."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def stream(self, payload: object) -> AsyncIterator[list[bytes]]:
        """Yield lists of lines, read on demand."""
        try:
            with self._path.open("rb") as file:
                while lines := await asyncio.to_thread(_some_lines, file):
                    yield lines
        except OSError as error:
            _log.error("--file: cannot read %r: %s", str(self._path), error.strerror)
            raise ApplicationError(message="the server cannot read its file") from None

    # Each call yields the same lines from the start: a journal may call again and skip what it has stored.
    stream.replays = True  # type: ignore[attr-defined]  # an attribute on a function, read by afflux.journal


def _lines(path: Path) -> Lines:
    return Lines(existing(str(path), "--file", regular=True))


def _sink(directory: Path) -> object:
    from afflux.spark.receiving import receive

    return receive(new_directory(str(directory), "--sink"))


def _some_lines(file: BinaryIO) -> list[bytes]:
    """Return the next lines, about 64 KiB; an empty list at the end."""
    lines: list[bytes] = []
    taken = 0
    while taken < 0x1_0000 and (line := file.readline(LINE_LIMIT + 1)):
        if len(line) > LINE_LIMIT:
            raise ApplicationError(message=f"a line is longer than {LINE_LIMIT:,} bytes")
        taken += len(line)
        lines.append(line.removesuffix(b"\n").removesuffix(b"\r"))
    return lines


def _label(worker: int | None) -> str:
    """Return what stands before the lines of a worker on stderr."""
    return "" if worker is None else f"[{os.getpid()}] "


async def _serve(
    uri: str,
    handler: object,
    storage: dict[str, Any] | None,
    terms: dict[str, Any],
    worker: int | None,
    stats: float | None,
) -> signal.Signals:
    """Serve until a signal arrives or a worker's parent exits; return the signal."""
    import afflux

    stopped: asyncio.Future[signal.Signals] = asyncio.get_running_loop().create_future()
    listen_for_signals(stopped)
    allow_open_files(terms["limits"].connections)
    async with contextlib.AsyncExitStack() as stack:
        if storage is not None:
            from afflux.journal import Journalled

            handler = journalled = await stack.enter_async_context(Journalled(handler, **storage))
            await unless_stopped(stopped, journalled.prepare())  # before "ready": an unusable folder fails now
        elif isinstance(handler, contextlib.AbstractAsyncContextManager):
            await stack.enter_async_context(handler)
        server = await stack.enter_async_context(afflux.serve(uri, handler, reuse_port=worker is not None, **terms))
        _spare_collector()
        on_report_signal(lambda: report(server))
        if worker is None:
            if server.uri.startswith(f"{AUTO}+"):
                _explain_auto(server)
            sys.stdout.write(f"ready {server.uri}\n")
            sys.stdout.flush()
        else:
            _answer_to_parent(worker, server.uri, stopped)
        if stats is not None:
            from afflux.cli.stats import printing

            await stack.enter_async_context(printing(server, stats, _label(worker)))
        number = await stopped
        await server.close(drain=GRACE, keep=terms["store"] is not None)
        return number


def _explain_auto(server: Server) -> None:
    """Print to stderr the protocols that are recognized, and those that are never guessed."""
    from afflux.protocols.registry import recognizable

    lines = [f"auto recognizes {', '.join(server.protocols)}"]
    lines += [
        f"{entry.name} is not recognized: {entry.unguessed}; serve it at an address of its own, {entry.name}+tcp://…"
        for entry in recognizable()
        if entry.unguessed
    ]
    sys.stderr.write("".join(f"afflux: {line}\n" for line in lines))
    sys.stderr.flush()


def _spare_collector() -> None:
    """Exclude existing objects from garbage collection and collect less often, because ended connections leave no
    cycles. With 10,000 connections, a new one costs a third less."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


def _answer_to_parent(line: int, uri: str, stopped: asyncio.Future[signal.Signals]) -> None:
    """Report this worker's address to the parent. When the parent exits, drain and stop; if already draining, exit."""
    from afflux.cli.workers import Line

    def lost() -> None:
        if stopped.done():
            os.kill(os.getpid(), signal.SIGKILL)
        stopped.set_result(signal.SIGTERM)

    parent = Line(line)
    parent.listens(uri)
    parent.watch(lost)
