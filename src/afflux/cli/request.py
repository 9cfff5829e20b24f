"""Implement ``afflux request``: parse the options, send the request and print the answer with ``output``."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from afflux.cli import answering, conflicts, inputs, options, retrying
from afflux.cli.exits import usage
from afflux.cli.explaining import explain
from afflux.cli.graph import Graph
from afflux.cli.inputs import duration, items, one
from afflux.cli.limiting import ConnectTimeout, LimitOption, connect_timeout, limits_of, name_option
from afflux.cli.looping import run_loop
from afflux.cli.output import End, Format, Printer, printer
from afflux.cli.reading import Reading
from afflux.cli.routes import ROUTE_COLUMNS, show_routes
from afflux.cli.telling import tell
from afflux.cli.unwrapping import Unwrapper
from afflux.cli.verbose import Verbose, log_shown
from afflux.core.autocredit import AutoWindow, Kept
from afflux.core.credit import Window
from afflux.core.errors import ConnectFailed, Error
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.retry.backoff import Backoff
from afflux.transports.durations import in_words

if TYPE_CHECKING:
    from afflux.aio.client import Connecting
    from afflux.sessions import Machine

__all__ = ["Asked", "perform", "request"]

_REFUSAL_S = 0.5
_LEASE_WAIT_S = 10.0
"Seconds that --lease waits without --max-time."

Verb = Literal["request", "stream", "channel", "fire", "push", "routes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The parsed options of one command."""

    uri: str
    verb: Verb
    route: str | None
    data: list[str]
    lines: str | None
    metadata: str | None
    metadata_mime: str | None
    data_mime: str | None
    credit: Kept
    take: int | None
    delay: float
    max_time: float | None
    graph: bool
    lease: bool
    resume: bool
    store: Path | None
    auth_file: Path | None
    session: Machine | None
    first: answering.FirstAnswer
    reading: Reading | None
    retry: Backoff | None
    quiet: bool
    limits: Limits
    connect_timeout: float | None
    verbose: int

    def note(self, text: str) -> None:
        """Print a line to stderr, unless --quiet."""
        if not self.quiet:
            tell(f"afflux: {text}")

    def connecting(self) -> Connecting:
        """Return a connection to enter. Raises as ``afflux.connect`` does."""
        import afflux

        credentials = None if self.auth_file is None else inputs.credentials(self.auth_file)
        return afflux.connect(
            self.uri,
            metadata_mime=self.metadata_mime,
            data_mime=self.data_mime,
            setup=None if credentials is None else [credentials],
            limits=self.limits,
            timeout=self.connect_timeout or self.first.connecting,
            lease=self.lease,
            lease_wait=(self.max_time or _LEASE_WAIT_S) if self.lease else None,
            resume=self.resume,
            store=self.store,
        )


def request(
    context: typer.Context,
    uri: options.ServerUri,
    response: options.OneAnswer = False,
    stream: options.ManyItems = False,
    channel: options.BothWays = False,
    fnf: options.NoAnswer = False,
    push: Annotated[bool, typer.Option("--push", help="Push metadata (-m, or else the data).")] = False,
    route: options.Route = None,
    data: Annotated[list[str] | None, options.data_option("; repeatable with --channel")] = None,
    lines: Annotated[
        str | None, typer.Option("-D", metavar="-|@FILE", help="One item per line, from stdin (-) or a file.")
    ] = None,
    metadata: options.MetadataOption = None,
    mmt: options.MetadataMime = None,
    dmt: options.DataMime = None,
    credit: Annotated[
        str,
        typer.Option("--credit", "--limitRate", metavar="N|auto", help="Maximum items in flight; auto adapts."),
    ] = "256",
    take: Annotated[int | None, typer.Option("--take", metavar="N", min=1, help="Stop after N items.")] = None,
    delay: Annotated[str, typer.Option("--delay", metavar="TIME", help="Pause after each item: 200ms, 1.5s.")] = "0",
    max_time: Annotated[
        str | None, typer.Option("--max-time", metavar="TIME", help="Stop after this time, with exit code 3.")
    ] = None,
    timeout: Annotated[
        str,
        typer.Option("--timeout", metavar="TIME", help="Longest wait for the first answer; 0: no limit."),
    ] = answering.DEFAULT,
    graph: Annotated[bool, typer.Option("--graph", help="Draw credit granted and used on stderr.")] = False,
    lease: options.Leased = False,
    resume: options.Resumed = False,
    store: options.Store = None,
    auth_file: options.AuthFile = None,
    session: Annotated[
        Path | None,
        typer.Option(
            "--session",
            metavar="FILE",
            parser=inputs.path_name,
            help='With --channel: session types. Each item is a value as JSON, or "choose N"; -r names the channel.',
        ),
    ] = None,
    cursor: Annotated[
        str | None,
        typer.Option(
            "--cursor", metavar="FROM[:COUNT]", help="Read a stored stream (serve --journal) from offset FROM on."
        ),
    ] = None,
    routes: Annotated[
        bool, typer.Option("--routes", help="List the server's routes, if it does so (serve --list-routes).")
    ] = False,
    retry: Annotated[
        str | None,
        typer.Option(
            "--retry",
            metavar="N[:TIME]",
            help="Up to N more attempts, if the request was not processed; the first after TIME, 100ms. With --cursor: "
            "continue at the next offset after any lost connection.",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print only errors to stderr.")] = False,
    limit: LimitOption = None,
    wait: ConnectTimeout = None,
    output: Annotated[
        Format | None,
        typer.Option(
            "-o", "--output", help="Output format; JSON payloads are unwrapped. [default: text, or ndjson in a pipe]"
        ),
    ] = None,
    end: Annotated[End, typer.Option("--end", help="With -o raw: what follows each item.")] = End.none,
    columns: Annotated[
        str | None,
        typer.Option("--columns", metavar="NAME,…", help="With -o table and csv: the columns to show."),
    ] = None,
    verbose: Verbose = 0,
) -> None:
    """Send a request and print the answer."""
    verb = _verb(stream=stream or cursor is not None, channel=channel, fire=fnf, push=push, routes=routes)
    output = _shape(verb, output)
    implied = {"--request"} if verb == "request" else {"-o table"} if output is Format.table else set()
    conflicts.check(conflicts.REQUEST, conflicts.given(context) | implied)
    inputs.check_metadata(mmt, route, auth_file, dmt)
    inputs.check_source(lines, *(data or []), metadata)
    inputs.check_reach(uri)
    inputs.check_store(store)
    asked = Asked(
        uri=uri,
        verb=verb,
        route=route,
        data=_data(verb, data or []),
        lines=lines,
        metadata=metadata,
        metadata_mime=mmt,
        data_mime=dmt,
        credit=inputs.credit(credit),
        take=take,
        delay=duration(delay, "--delay"),
        max_time=None if max_time is None else inputs.above_0(max_time, "--max-time"),
        graph=graph,
        lease=lease,
        resume=resume,
        store=store,
        auth_file=auth_file,
        session=_session(session, route),
        reading=_reading(uri, cursor),
        retry=None if retry is None else retrying.parse(retry),
        quiet=quiet,
        first=_first(uri, timeout, max_time, lease, cursor is not None),
        limits=limits_of(limit, client=True),
        connect_timeout=connect_timeout(wait),
        verbose=verbose,
    )
    run = context.obj or _start  # the shell has a connection already
    run(context, asked, _printer(asked, output, end, columns))


def _shape(verb: str, output: Format | None) -> Format | None:
    """Return the output format, with the default of --routes; None is that of items."""
    if output is None and verb == "routes":
        return Format.table if sys.stdout.isatty() else Format.json
    return output


def _session(file: Path | None, route: str | None) -> Machine | None:
    """Return the session type of --session; None without it."""
    if file is None or route is None:
        return None
    from afflux.cli import steps

    return steps.session_type(file, route)


def _reading(uri: str, cursor: str | None) -> Reading | None:
    """Return the read of --cursor."""
    if cursor is None:
        return None
    inputs.check_cursors(uri, "--cursor")
    return Reading.parse(cursor)


def _first(uri: str, timeout: str, max_time: str | None, lease: bool, stored: bool) -> answering.FirstAnswer:
    """Return the limit of --timeout, which the wait for a lease extends. ``stored``: a stored stream is read."""
    longest = _LEASE_WAIT_S if max_time is None else duration(max_time, "--max-time")
    return answering.FirstAnswer(uri, duration(timeout, "--timeout"), longest if lease else 0.0, stored=stored)


def _printer(asked: Asked, output: Format | None, end: End, columns: str | None) -> Printer:
    chosen = [] if columns is None else columns.split(",")
    if "" in chosen:
        usage(f"--columns {columns!r}: a name is empty")
    if asked.verb == "routes" and (unknown := [name for name in chosen if name not in ROUTE_COLUMNS]):
        usage(f"--columns: unknown {', '.join(unknown)}; the columns of --routes are {', '.join(ROUTE_COLUMNS)}")
    return printer(
        output,
        single=asked.verb == "request" and asked.lines is None,
        unwrapper=Unwrapper(asked.data_mime, asked.metadata_mime),
        end=end,
        columns=chosen,
    )


def _start(context: typer.Context, asked: Asked, show: Printer) -> None:
    with log_shown(asked.verbose):
        run_loop(perform(asked, show, asked.connecting))


def _verb(**chosen: bool) -> Verb:
    """Return the verb that was chosen, the first of several."""
    names: list[Any] = [name for name, given in chosen.items() if given]
    verb: Verb = names[0] if names else "request"
    return verb


def _data(verb: Verb, given: list[str]) -> list[str]:
    if len(given) > 1 and verb != "channel":
        usage("several -d require --channel")
    return given


async def perform(asked: Asked, show: Printer, open: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
    """Send a request and print its answer, within --max-time, and again if --retry says so.

    Args:
        asked: the options.
        show: prints the answer; it is ended.
        open: returns a connection to enter, once for each attempt.

    Raises:
        Error: that of the last attempt.
        TimeoutError: after --max-time.
    """
    open()  # refuses mistakes before anything is read
    failed = True
    try:
        async with asyncio.timeout(asked.max_time) as limit:
            call = {
                "route": asked.route,
                "metadata": None if asked.metadata is None else await one(asked.metadata, "-m"),
            }
            first = [await one(text, "-d") for text in asked.data]

            async def attempt() -> None:
                async with asked.first, open() as peer:
                    asked.first.connected(peer)
                    await _ask(peer, asked, call, first, show)

            await _attempts(attempt, asked, show)
            failed = False
    except TimeoutError as error:
        if limit.expired() and not str(error):
            raise TimeoutError(f"timed out after {in_words(asked.max_time or 0)} (--max-time)") from None
        raise
    except Error as error:
        name_option(error)
        given = {"-r": asked.route, "-m": asked.metadata, "--auth-file": asked.auth_file}
        explain(error, asked.uri, lease=asked.lease, resume=asked.resume, answered=bool(show.items), options=given)
        raise
    finally:
        show.end(failed=failed)
        if asked.reading is not None and (show.items or not failed):
            asked.note(asked.reading.summary())


async def _attempts(attempt: Callable[[], Awaitable[None]], asked: Asked, show: Printer) -> None:
    """Make the attempts that --retry allows."""
    reading = asked.reading

    def repeatable(error: Error) -> bool:
        if reading is not None:
            return retrying.is_lost(error)
        return not show.items and retrying.is_safe(error) and (asked.lines is None or isinstance(error, ConnectFailed))

    if asked.retry is None:
        await attempt()
        return
    await retrying.retried(attempt, asked.retry, repeatable=repeatable, progress=lambda: show.items, note=asked.note)


async def _ask(peer: Any, asked: Asked, call: dict[str, Any], data: list[bytes], show: Printer) -> None:
    first = data[0] if data else b""
    for left in peer.unfinished:
        if left.verb == asked.verb:
            await _go_on(left, asked, data, show)
            return
    if peer.unfinished:
        verbs = ", ".join(left.verb for left in peer.unfinished)
        asked.note(f"canceled unfinished calls of {asked.store}: {verbs}")
    match asked.verb:
        case "routes":
            await show_routes(peer, show)
        case "push":
            asked.first.arrived()  # none is expected
            await peer.push(first if call["metadata"] is None else call["metadata"])
        case "fire":
            asked.first.arrived()
            async for item in _each(asked, data):
                await peer.fire(item, **call)
            await asyncio.sleep(0)  # no answer follows: let the loop write before the connection closes
            if asked.auth_file is not None:
                await _refused(peer)
        case "request":
            wait = 0.0
            async for item in _each(asked, data):
                await asyncio.sleep(wait)
                answer = await peer.request(item, **call)
                asked.first.arrived()
                show.item(answer)
                wait = asked.delay
        case "stream":
            await _read(peer, asked, call, first, show)
        case "channel" if asked.session is not None:
            from afflux.cli.steps import run

            await run(peer, asked.session, _each(asked, data), show, asked.first.arrived)
        case "channel":
            async with peer.channel(_each(asked, data), credit=0, **call) as answer:
                await _consume(answer, asked, show)


async def _read(peer: Any, asked: Asked, call: dict[str, Any], data: bytes, show: Printer) -> None:
    """Print the items of a stream, with --cursor those that have not arrived in an earlier attempt."""
    if asked.reading is not None:
        if asked.reading.complete:
            return  # the connection was lost between the last item and the completion
        call = call | {"cursor": asked.reading.cursor()}
    try:
        async with peer.stream(data, credit=0, **call) as answer:
            await _consume(answer, asked, show)
    except Error as error:
        if asked.reading is None:
            raise
        clearer = await asked.reading.explained(error, lambda head: peer.stream(data, **call | {"cursor": head}))
        if clearer is error:
            raise
        raise clearer from error


async def _go_on(left: Any, asked: Asked, data: list[bytes], show: Printer) -> None:
    """Continue a call of an earlier process and print its remaining items."""
    if asked.verb == "request":
        answer = await left.answer()
        asked.first.arrived()
        show.item(answer)
        return
    from afflux.resume.recovery import skipping

    source = skipping(_each(asked, data), left.sent) if left.sent else None
    async with left.items(credit=0, source=source) as answer:
        await _consume(answer, asked, show)


async def _refused(peer: Any) -> None:
    """Raise the server's refusal of the credentials, if one arrives shortly after a fire, which has no answer."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(peer.wait_closed(), _REFUSAL_S)
    if peer.error is not None:
        raise peer.error


async def _each(asked: Asked, data: list[bytes]) -> AsyncIterator[bytes]:
    """Yield the items to send: those of -D, those of -d, or one empty item."""
    if asked.lines is not None:
        async for lines in asked.first.waiting_for(items(asked.lines)):
            for line in lines:
                yield line
        return
    for item in data or [b""]:
        yield item


async def _consume(answer: Any, asked: Asked, show: Printer) -> None:
    """Print the items as they arrive, and grant credit by the window."""
    window = _Window(answer, asked)
    try:
        window.open()
        async for item in answer:
            asked.first.arrived()
            show.item(item if asked.reading is None else asked.reading.own(item))
            if asked.store is not None:
                sys.stdout.flush()  # consumed items do not arrive again, so they must be printed
            if window.done(item):
                break
            await asyncio.sleep(asked.delay)
            window.refill()
    except asyncio.CancelledError:
        if asked.graph and sys.stderr.isatty():
            sys.stderr.write("\n")  # the terminal shows ^C on this line
        raise
    finally:
        if asked.graph:
            sys.stderr.write("\n".join(window.graph.lines(sys.stderr.encoding or "ascii")) + "\n")


class _Window:
    """Grant credit manually: at most --credit items in flight and at most --take items in total."""

    def __init__(self, answer: Any, asked: Asked) -> None:
        self._answer = answer
        fits = asked.limits.connection_bytes // 4
        self._window = AutoWindow(fits) if asked.credit == "auto" else Window(asked.credit, fits)
        self._take = asked.take
        self._clock = asyncio.get_running_loop().time
        self._size = 0
        self.graph = Graph(self._clock())

    def open(self) -> None:
        """Make the first grant."""
        self._grant(self._window.initial(self._clock()))

    def done(self, item: Payload) -> bool:
        """Record an arrived item; return whether it was the last one wanted."""
        now = self._clock()
        self._size = len(item)
        self._window.arrived(1, now)
        self.graph.item(now)
        return self.graph.used == self._take

    def refill(self) -> None:
        """Grant more once enough of the window is used."""
        self._grant(self._window.consumed(1, self._size, self._clock()))

    def _grant(self, n: int) -> None:
        if self._take is not None:
            n = min(n, self._take - self.graph.granted)
        if n > 0:
            self._answer.request(n)
            self.graph.grant(n, self._clock())
