"""Implement ``afflux request``: parse the options, send the request and print the answer with ``output``."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from afflux.cli import answering, inputs
from afflux.cli.exits import usage
from afflux.cli.graph import Graph
from afflux.cli.inputs import duration, items, one
from afflux.cli.output import Format, Printer, printer
from afflux.core.autocredit import AutoWindow, Kept
from afflux.core.credit import Window
from afflux.core.errors import ConnectionClosed, Error, RemoteProtocolError
from afflux.core.limits import Limits
from afflux.core.payload import Payload

if TYPE_CHECKING:
    from afflux.sessions import Machine

__all__ = ["request"]

_REFUSAL_S = 0.5
_LEASE_WAIT_S = 10.0
"Seconds that --lease waits without --max-time."

Verb = Literal["request", "stream", "channel", "fire", "push"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
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


def request(
    uri: Annotated[str, typer.Argument(metavar="URI", help="Address of the server.")],
    response: Annotated[bool, typer.Option("--request", help="One request, one answer. [default]")] = False,
    stream: Annotated[bool, typer.Option("--stream", help="One request, many items.")] = False,
    channel: Annotated[bool, typer.Option("--channel", help="Many items in both directions.")] = False,
    fnf: Annotated[bool, typer.Option("--fnf", help="Fire and forget: no answer.")] = False,
    push: Annotated[bool, typer.Option("--push", help="Push metadata (-m, or else the data).")] = False,
    route: Annotated[str | None, typer.Option("-r", "--route", metavar="ROUTE", help="Route to call.")] = None,
    data: Annotated[
        list[str] | None,
        typer.Option("-d", "--data", metavar="DATA", help="Text, - for stdin, @FILE; repeatable with --channel."),
    ] = None,
    lines: Annotated[
        str | None, typer.Option("-D", metavar="-|@FILE", help="One item per line, from stdin (-) or a file.")
    ] = None,
    metadata: Annotated[
        str | None, typer.Option("-m", "--metadata", metavar="DATA", help="Metadata: text, - for stdin, @FILE.")
    ] = None,
    mmt: Annotated[str | None, typer.Option("--mmt", metavar="MIME", help="MIME type of metadata.")] = None,
    dmt: Annotated[str | None, typer.Option("--dmt", metavar="MIME", help="MIME type of data.")] = None,
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
    lease: Annotated[bool, typer.Option("--lease", help="Wait for a lease before sending.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the session after a lost connection.")] = False,
    store: Annotated[
        Path | None,
        typer.Option(
            "--store",
            metavar="FILE",
            help="With --resume: store the session in FILE, so that the same command can continue after a crash.",
        ),
    ] = None,
    auth_file: Annotated[
        Path | None,
        typer.Option(
            "--auth-file", metavar="FILE", help="File with credentials: bearer TOKEN, or simple USER PASSWORD."
        ),
    ] = None,
    session: Annotated[
        Path | None,
        typer.Option(
            "--session",
            metavar="FILE",
            help='With --channel: session types. Each item is a value as JSON, or "choose N"; -r names the channel.',
        ),
    ] = None,
    output: Annotated[
        Format | None,
        typer.Option("-o", "--output", help="Output format. [default: text, or ndjson in a pipe]"),
    ] = None,
) -> None:
    """Send a request and print the answer."""
    inputs.check_metadata(mmt, route, auth_file)
    inputs.check_source(lines)
    inputs.check_reach(uri)
    verb = _verb(request=response, stream=stream, channel=channel, fire=fnf, push=push)
    _check_store(store, resume, verb, lines)
    type = None
    if session is not None:
        if verb != "channel" or route is None:
            usage("--session requires --channel and -r CHANNEL")
        from afflux.cli import steps

        type = steps.session_type(session, route)
    limit = None if max_time is None else duration(max_time)
    asked = _Asked(
        uri=uri,
        verb=verb,
        route=route,
        data=_data(verb, data or [], lines),
        lines=lines,
        metadata=metadata,
        metadata_mime=mmt,
        data_mime=dmt,
        credit=inputs.credit(credit),
        take=take,
        delay=duration(delay),
        max_time=limit,
        graph=graph,
        lease=lease,
        resume=resume,
        store=store,
        auth_file=auth_file,
        session=type,
        first=answering.FirstAnswer(uri, duration(timeout), (limit or _LEASE_WAIT_S) if lease else 0.0),
    )
    show = printer(output, single=verb == "request" and lines is None)
    asyncio.run(_run(asked, show))


def _verb(**chosen: bool) -> Verb:
    names: list[Any] = [name for name, given in chosen.items() if given]
    if len(names) > 1:
        usage("--request, --stream, --channel, --fnf and --push exclude each other")
    verb: Verb = names[0] if names else "request"
    return verb


def _check_store(store: Path | None, resume: bool, verb: Verb, lines: str | None) -> None:
    if store is None:
        return
    if not resume:
        usage("--store requires --resume")
    if store.is_dir():
        usage(f"--store: {str(store)!r} is a directory, not a file")
    if verb not in ("request", "stream", "channel") or (verb == "request" and lines is not None):
        usage("--store requires --stream, --channel or a single --request")


def _data(verb: Verb, given: list[str], lines: str | None) -> list[str]:
    if lines is not None and given:
        usage("-d and -D exclude each other")
    if lines is not None and verb in ("stream", "push"):
        usage(f"-D reads many items, but --{verb} sends one: use -d")
    if len(given) > 1 and verb != "channel":
        usage("several -d require --channel")
    return given


async def _run(asked: _Asked, show: Printer) -> None:
    """Connect and send the request, within --max-time."""
    import afflux
    from afflux.transports.address import parse

    credentials = None if asked.auth_file is None else afflux.auth.read_file(asked.auth_file)
    connecting = afflux.connect(
        asked.uri,
        metadata_mime=asked.metadata_mime,
        data_mime=asked.data_mime,
        setup=None if credentials is None else [credentials],
        lease=asked.lease,
        timeout=asked.first.connecting,
        lease_wait=(asked.max_time or _LEASE_WAIT_S) if asked.lease else None,
        resume=asked.resume,
        store=asked.store,
    )
    try:
        async with asyncio.timeout(asked.max_time) as limit:
            metadata = None if asked.metadata is None else await one(asked.metadata)
            call = {"route": asked.route, "metadata": metadata}
            first = [await one(text) for text in asked.data]
            async with asked.first, connecting as peer:
                asked.first.connected(peer)
                await _ask(peer, asked, call, first, show)
    except TimeoutError as error:
        if limit.expired() and not str(error):
            raise TimeoutError(f"timed out after {asked.max_time:g} s (--max-time)") from None
        raise
    except Error as error:
        if not show.items and _maybe_other_protocol(error):
            error.add_note(f"does {asked.uri} speak {parse(asked.uri).protocol}?")
        raise
    finally:
        show.end()


def _maybe_other_protocol(error: Error) -> bool:
    """Whether the server may speak another protocol: it sent invalid bytes, or closed without an error code."""
    root = error.__cause__ or error
    if isinstance(root, RemoteProtocolError):
        return not root.in_handshake  # that error already names the peer's protocol
    return type(root) is ConnectionClosed and root.code is None


async def _ask(peer: Any, asked: _Asked, call: dict[str, Any], data: list[bytes], show: Printer) -> None:
    first = data[0] if data else b""
    for left in peer.unfinished:
        if left.verb == asked.verb:
            await _go_on(left, asked, data, show)
            return
    if peer.unfinished:
        verbs = ", ".join(left.verb for left in peer.unfinished)
        typer.echo(f"afflux: canceled unfinished calls of {asked.store}: {verbs}", err=True)
    match asked.verb:
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
            async with peer.stream(first, credit=0, **call) as answer:
                await _consume(answer, asked, show)
        case "channel" if asked.session is not None:
            from afflux.cli.steps import run

            await run(peer, asked.session, _each(asked, data), show, asked.first.arrived)
        case "channel":
            async with peer.channel(_each(asked, data), credit=0, **call) as answer:
                await _consume(answer, asked, show)


async def _go_on(left: Any, asked: _Asked, data: list[bytes], show: Printer) -> None:
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


async def _each(asked: _Asked, data: list[bytes]) -> AsyncIterator[bytes]:
    """Yield the items to send: those of -D, those of -d, or one empty item."""
    if asked.lines is not None:
        async for lines in asked.first.waiting_for(items(asked.lines)):
            for line in lines:
                yield line
        return
    for item in data or [b""]:
        yield item


async def _consume(answer: Any, asked: _Asked, show: Printer) -> None:
    """Print the items as they arrive, and grant credit by the window."""
    window = _Window(answer, asked)
    try:
        window.open()
        async for item in answer:
            asked.first.arrived()
            show.item(item)
            if asked.store is not None:
                sys.stdout.flush()  # consumed items do not arrive again, so they must be printed
            if window.done(item):
                break
            await asyncio.sleep(asked.delay)
            window.refill()
    finally:
        if asked.graph:
            sys.stderr.write("\n".join(window.graph.lines()) + "\n")


class _Window:
    """Grant credit manually: at most --credit items in flight and at most --take items in total."""

    def __init__(self, answer: Any, asked: _Asked) -> None:
        self._answer = answer
        fits = Limits().connection_bytes // 4
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
