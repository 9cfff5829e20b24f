"""Implement ``afflux relay``: store remote streams in a journal and serve them by cursor, until a signal."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from afflux.cli.completing import ListenOption, addresses
from afflux.cli.exits import INTERRUPTED, usage
from afflux.cli.inputs import check_address, check_cursors, check_reach, credentials, not_itself, one, path_name
from afflux.cli.limiting import LimitOption, limits_of
from afflux.cli.options import AuthFile, MetadataOption, Resumed, data_option
from afflux.cli.origins import Origins, origins_of
from afflux.cli.serve import fast_loop
from afflux.cli.steps import session_type
from afflux.cli.stopping import GRACE, Stopped, listen_for_signals, unless_stopped
from afflux.cli.storing import JOURNAL, JournalBytes, Keep, storage_of
from afflux.cli.streams import on_report_signal, report
from afflux.core.errors import Unsupported

if TYPE_CHECKING:
    from afflux.core.limits import Limits
    from afflux.gateway import Origin, Relay, ShardStatus
    from afflux.sessions import Machine

__all__ = ["relay"]

_PROGRESS_S = 1.0


def relay(
    remotes: Annotated[
        list[str],
        typer.Option(
            "--from",
            metavar="URI",
            help="Address of a remote stream. Repeatable: each is a shard.",
            autocompletion=addresses,
        ),
    ],
    journal: Annotated[str, JOURNAL],
    listen: ListenOption,
    journal_bytes: JournalBytes = None,
    keep: Keep = None,
    channel: Annotated[bool, typer.Option("--channel", help="Open a channel: send -d, store what it returns.")] = False,
    subscribe: Annotated[
        bool, typer.Option("--subscribe", help="Subscribe: REQUEST_SUB, or a publisher (reactive-streams-io).")
    ] = False,
    framing: Annotated[
        str | None,
        typer.Option("--framing", metavar="NAME", help="Cut sessions of bytes into items: lines, u8, u16, u24 or u32."),
    ] = None,
    session: Annotated[
        Path | None,
        typer.Option(
            "--session",
            metavar="FILE.lstr",
            parser=path_name,
            help="Session types: store the values that channel -r receives in a loop. Each line of -d is a step of "
            'this side: a value as JSON, or "choose N".',
        ),
    ] = None,
    route: Annotated[
        list[str] | None,
        typer.Option("-r", "--route", metavar="ROUTE", help="Route to call; one for all --from, or one for each."),
    ] = None,
    data: Annotated[list[str] | None, data_option("; as --route")] = None,
    metadata: MetadataOption = None,
    auth_file: AuthFile = None,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="POINTER", help="Distribute JSON items by this value, such as /carrier."),
    ] = None,
    shards: Annotated[
        int | None, typer.Option("--shards", metavar="N", min=1, help="The number of shards, with --key.")
    ] = None,
    replays: Annotated[
        bool, typer.Option("--replays", help="The stream always begins with its first item: skip those stored.")
    ] = False,
    resume: Resumed = False,
    origin: Origins = None,
    limit: LimitOption = None,
    moved: Annotated[bool, typer.Option("--moved", help="The stream of this journal had another address.")] = False,
) -> None:
    """Store remote streams durably and serve them by cursor, so that any number of readers can replay them. Prints
    `ready URI` when it listens. It connects again when a remote is lost, continues where the remote can, and records a
    gap where it cannot. SIGINT and SIGTERM stop it; SIGUSR1 prints its readers to stderr."""
    if sum((channel or session is not None, subscribe, framing is not None)) > 1:
        usage("--channel (or --session), --subscribe and --framing exclude each other")
    for uri in remotes:
        check_address(uri, "--from")
    check_address(listen, "--listen", serving=True)
    _check_framing(framing, remotes, channel or subscribe)
    _check_key(key, shards, remotes, limits := limits_of(limit))
    if listen.startswith("auto+"):
        usage("--listen requires one protocol: readers with a cursor need tcp://… (RSocket)")
    check_cursors(listen, "--listen")
    verb = "channel" if channel else "subscribe" if subscribe else "session" if framing else None
    calls = [
        {
            "route": a_route or None,
            "data": some_data,
            "verb": verb,
            "framing": framing,
            "session": None if session is None else _type_of(session, a_route),
            "replays": replays,
            "resume": resume,
        }
        for a_route, some_data in zip(_each(route, remotes, "--route"), _each(data, remotes, "--data"), strict=True)
    ]
    for uri in (*remotes, listen):
        check_reach(uri)
    for uri in remotes:
        not_itself(listen, uri, "--from")
    storage = storage_of(journal, journal_bytes, keep or [], limits) or {}
    given: dict[str, Any] = {"allowed_origins": origins_of(listen, origin)}
    given |= {"listen": listen, "key": key, "shards": shards, "moved": moved, "journal": journal}
    given |= {"limits": storage["limits"], "keep": storage["keep"]}
    with _logging(), asyncio.Runner(loop_factory=fast_loop()) as runner:
        try:
            stopped_by = runner.run(_relay(remotes, calls, metadata, auth_file, given))
        except Stopped as stopped:
            stopped_by = stopped.number
    if stopped_by == signal.SIGINT:
        raise typer.Exit(INTERRUPTED)


def _check_framing(framing: str | None, remotes: Sequence[str], other: bool) -> None:
    """Refuse an unknown --framing, one for a remote without sessions of bytes, and none for a remote that has nothing
    else, unless ``other`` options say how it is read."""
    from afflux.gateway.framing import FRAMINGS
    from afflux.transports.address import parse

    names = ", ".join(FRAMINGS)
    if framing is not None and framing not in FRAMINGS:
        usage(f"invalid --framing {framing[:64]!r}: expected one of {names}")
    for uri in remotes:
        entry = parse(uri).entry
        if framing is not None and "session" not in entry.features:
            usage(f"--framing cuts sessions of bytes, which {entry.name} at {uri} does not have: omit it")
        if not (framing or other or "stream" in entry.verbs or "channel" in entry.verbs):
            usage(f"--from {uri} is a stream of bytes: choose its framing with --framing, one of {names}")


def _check_key(key: str | None, shards: int | None, remotes: Sequence[str], limits: Limits) -> None:
    """Refuse a --key that is no JSON pointer, or without --shards, or for several remotes, and too many --shards."""
    if (key is None) != (shards is None):
        usage("--key and --shards require each other: items are distributed to N shards by the value of a key")
    if key is None or shards is None:
        return
    if shards > limits.partitions:
        usage(f"invalid --shards {shards:,}: the most are {limits.partitions:,}; raise it with --limit partitions=…")
    if len(remotes) > 1:
        usage("--key distributes the items of one --from, not of several")
    if not key.startswith("/"):
        usage(f"invalid --key {key[:64]!r}: expected a JSON pointer, such as /carrier")


def _type_of(file: Path, route: str | None) -> Machine:
    if not route:
        usage("--session requires -r CHANNEL")
    return session_type(file, route)


def _each(values: Sequence[str] | None, remotes: Sequence[str], option: str) -> Sequence[str | None]:
    """Return a value for each remote."""
    if not values:
        return [None] * len(remotes)
    if len(values) == 1:
        return list(values) * len(remotes)
    if len(values) != len(remotes):
        usage(f"{len(values)} times {option} do not fit {len(remotes)} times --from: give one for all, or one for each")
    return values


async def _relay(
    remotes: Sequence[str],
    calls: Sequence[dict[str, Any]],
    metadata: str | None,
    auth_file: Path | None,
    given: dict[str, Any],
) -> signal.Signals:
    """Relay until a signal arrives; return the signal. Raises as ``Relay.failed`` does."""
    import afflux

    stopped: asyncio.Future[signal.Signals] = asyncio.get_running_loop().create_future()
    listen_for_signals(stopped)
    setup = None if auth_file is None else [credentials(auth_file)]
    shared = None if metadata is None else await one(metadata, "-m")
    try:
        origins = []
        for uri, call in zip(remotes, calls, strict=True):
            sent = b"" if call["data"] is None else await one(call["data"], "-d")
            origins.append(_origin(uri, **{**call, "data": sent}, metadata=shared, setup=setup))
        starting = afflux.relay(origins, **given)
    except ValueError as error:
        usage(str(error))
    running = await unless_stopped(stopped, starting)
    progress = asyncio.create_task(_progress(running)) if sys.stderr.isatty() else None
    failed = asyncio.create_task(running.failed())
    try:
        on_report_signal(lambda: report(running.server))
        sys.stdout.write(f"ready {running.uri}\n")
        sys.stdout.flush()
        ends: set[asyncio.Future[Any]] = {stopped, failed}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if failed.done():
            failed.result()
        return await stopped
    finally:
        failed.cancel()
        if progress is not None:
            progress.cancel()
            sys.stderr.write("\n")
        await running.close(drain=GRACE)


def _origin(uri: str, **given: Any) -> Origin:
    """Declare a remote stream. Exits with a usage error if the protocol does not have what it needs."""
    from afflux.gateway import Origin

    try:
        return Origin(uri, **given)
    except Unsupported as error:
        if given["session"] is not None:
            raise
        usage(f"--from {uri}: {error.message}")


async def _progress(running: Relay) -> None:
    """Rewrite a line on the terminal every second."""
    loop = asyncio.get_running_loop()
    last, then = sum(shard.head for shard in running.status()), loop.time()
    while True:
        await asyncio.sleep(_PROGRESS_S)
        shards, now = running.status(), loop.time()
        stored = sum(shard.head for shard in shards)
        sys.stderr.write(f"\r\x1b[K{_line(shards, (stored - last) / (now - then))}")
        sys.stderr.flush()
        last, then = stored, now


def _line(shards: Sequence[ShardStatus], rate: float) -> str:
    stored, waiting = sum(shard.head for shard in shards), sum(shard.waiting for shard in shards)
    room = min(shard.room for shard in shards) >> 20
    gaps = sum({shard.uri: shard.gaps for shard in shards}.values())
    sealed = sum(shard.sealed for shard in shards)
    connected = f"{sum(shard.connected for shard in shards)}/{len(shards)} connected, {sealed} complete"
    return (
        f"{stored:,} items stored, {rate:,.0f}/s, {waiting:,} not durable, {room:,} MiB room, {gaps} gaps, {connected}"
    )


@contextlib.contextmanager
def _logging() -> Any:
    """Print the log of relay and journal to stderr, each record on a line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("afflux: %(message)s"))
    loggers = [logging.getLogger(name) for name in ("afflux.relay", "afflux.journal")]
    for logger in loggers:
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
            logger.setLevel(logging.NOTSET)
