"""``afflux serve``: a server on one address, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hmac
import importlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from afflux.cli.exits import INTERRUPTED, usage
from afflux.cli.inputs import duration
from afflux.core.errors import ApplicationError

__all__ = ["GRACE", "Lines", "listen_for_signals", "serve"]

GRACE = 5.0
"Seconds that live streams get to end in after a signal."

MOST_WORKERS = 1024

OPEN_FILES = 10_240
"What a server of 10,000 connections, the default limit, needs: each takes one, and some are the process's own."

LINE_LIMIT = 0x100_0000
"The longest line of --file: 16 MiB."


def serve(
    uri: Annotated[str, typer.Argument(metavar="URI", help="Where to listen; port 0 takes a free one.")],
    demo: Annotated[
        bool, typer.Option("--demo", help="The demo responder: echo, numbered items, real flights.")
    ] = False,
    handler: Annotated[
        str | None, typer.Option("--handler", metavar="MODULE:OBJECT", help="An object with the verbs, or its class.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="PATH", help="A stream of the file's lines, an item each.")
    ] = None,
    journal: Annotated[
        Path | None, typer.Option("--journal", metavar="DIR", help="Keep streams here and serve them by cursor.")
    ] = None,
    lease: Annotated[
        str | None,
        typer.Option("--lease", metavar="N/TIME", help="Grant N requests in every TIME to clients that want leases."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Keep the sessions of clients that may come back.")] = False,
    store: Annotated[
        Path | None,
        typer.Option("--store", metavar="FILE", help="With --resume: keep them in a file, for the server after this."),
    ] = None,
    auth_file: Annotated[
        Path | None, typer.Option("--auth-file", metavar="FILE", help="Let in only who shows these credentials.")
    ] = None,
    workers: Annotated[
        int,
        typer.Option("--workers", metavar="N", min=1, max=MOST_WORKERS, help="Processes that share the address."),
    ] = 1,
    worker: Annotated[int | None, typer.Option("--worker", hidden=True)] = None,
) -> None:
    """Serve one address. Prints `ready URI` when it listens; SIGINT and SIGTERM close it in order."""
    if sum((demo, handler is not None, file is not None)) != 1:
        usage("serve takes exactly one of --demo, --handler MODULE:OBJECT, --file PATH")
    terms = _terms(lease, resume, store, auth_file)
    if auth_file is not None:
        _check_setup(uri, auth_file)
    if workers > 1:
        _refuse_what_is_not_shared({"--journal": journal, "--resume": resume, "--store": store})
        words = _words({"--handler": handler, "--file": file, "--lease": lease, "--auth-file": auth_file})
        stopped_by = _share(uri, workers, ["--demo", *words] if demo else words)
    else:
        chosen = _demo() if demo else _lines(file) if file is not None else _load(handler or "")
        _check_verbs(uri, chosen)
        with asyncio.Runner(loop_factory=_fast_loop()) as runner:
            stopped_by = runner.run(_serve(uri, chosen, journal, terms, worker))
    if stopped_by == signal.SIGINT:
        raise typer.Exit(INTERRUPTED)


_UNSHARED = {
    "--journal": "a journal is one process's",
    "--resume": "a session lives in one process, and its client may come back to another",
    "--store": "its file is one process's",
}


def _refuse_what_is_not_shared(options: Mapping[str, object]) -> None:
    for option, given in options.items():
        if given:
            usage(f"--workers and {option} do not go together: {_UNSHARED[option]}")


def _words(options: Mapping[str, object]) -> list[str]:
    """Those options that were given, as a worker's command line has them."""
    return [f"{option}={value}" for option, value in options.items() if value is not None]


def _share(uri: str, workers: int, words: Sequence[str]) -> signal.Signals:
    from afflux.cli.workers import look_after

    return look_after(uri, workers, words, GRACE)


def _terms(lease: str | None, resume: bool, store: Path | None, auth_file: Path | None) -> dict[str, Any]:
    """Further arguments of afflux.serve."""
    import afflux

    if store is not None and not resume:
        usage("--store keeps sessions that can be resumed: it needs --resume")
    terms: dict[str, Any] = {"resume": resume, "store": store}
    if lease is not None:
        requests, slash, time = lease.partition("/")
        if not slash or not (requests.isascii() and requests.isdigit() and int(requests)):
            usage(f"--lease is N/TIME, such as 100/1s, not {lease!r}")
        try:
            terms["lease"] = afflux.FixedLease(int(requests), duration(time))
        except ValueError as error:
            usage(f"--lease {lease}: {error}")
    if auth_file is not None:
        shown = afflux.auth.read_file(auth_file)
        terms["on_setup"] = afflux.auth.at_setup(lambda credentials, peer: _same(shown, credentials))
    return terms


def _same(wanted: Any, shown: Any) -> Any:
    """The credentials themselves, as who has come in, when they are the ones wanted."""
    same = shown is not None and hmac.compare_digest(wanted.encode(), shown.encode())
    return shown if same else None


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's loop where it is installed, else None: asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _demo() -> object:
    from afflux.demo.responder import Responder

    return Responder()


def _load(spec: str) -> object:
    """The object that MODULE:OBJECT names, made from its class if it is one."""
    module_name, colon, path = spec.partition(":")
    if not colon or not module_name or not path:
        usage(f"--handler is MODULE:OBJECT, not {spec!r}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        usage(f"--handler: {error}")
    for name in path.split("."):
        if not hasattr(found, name):
            usage(f"--handler: {module_name} has no {path}")
        found = getattr(found, name)
    if isinstance(found, type):
        found = found()
    if not _verbs_of(found):
        usage(f"--handler: {spec} has none of {', '.join(_verbs())}")
    return found


def _verbs() -> Sequence[str]:
    from afflux.aio.serving import VERBS

    return VERBS


def _verbs_of(handler: object) -> list[str]:
    made: Any = getattr(handler, "as_handler", lambda: handler)()
    return [verb for verb in _verbs() if hasattr(made, verb)]


def _check_verbs(uri: str, handler: object) -> None:
    """Refuse a handler that no client could ask for anything."""
    from afflux.transports.address import parse

    entry, verbs = parse(uri).entry, _verbs_of(handler)
    offered = entry.offers
    if not set(verbs) & set(offered):
        usage(f"{uri} offers {', '.join(offered)}, and the handler has only {', '.join(verbs)}")


def _check_setup(uri: str, auth_file: Path) -> None:
    """Raise Unsupported where no client could show credentials when it connects."""
    import afflux
    from afflux.calls import terms_of
    from afflux.transports.address import parse

    address, limits = parse(uri), afflux.Limits()
    terms = terms_of(address, limits, [afflux.auth.read_file(auth_file)], None, None, None, None, None)
    address.entry.make("client", terms, limits=limits, decide=False, now=0.0)


class Lines:
    """The handler of --file: ``stream`` gives the file's lines without their ends, whatever the request says."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def stream(self, payload: object) -> AsyncIterator[list[bytes]]:
        """The lines, read as they are asked for, in lists."""
        with self._path.open("rb") as file:
            while lines := await asyncio.to_thread(_some_lines, file):
                yield lines

    # The file is the same from its start each time: a journal may start again and skip what it holds.
    stream.replays = True  # type: ignore[attr-defined]  # an attribute on a function, read by afflux.journal


def _lines(path: Path) -> Lines:
    if not path.is_file():
        usage(f"there is no file {str(path)!r}")
    return Lines(path)


def _some_lines(file: BinaryIO) -> list[bytes]:
    """The next lines, about 64 KiB of them; none at the end."""
    lines: list[bytes] = []
    taken = 0
    while taken < 0x1_0000 and (line := file.readline(LINE_LIMIT + 1)):
        if len(line) > LINE_LIMIT:
            raise ApplicationError(message=f"a line is longer than {LINE_LIMIT:,} bytes")
        taken += len(line)
        lines.append(line.removesuffix(b"\n").removesuffix(b"\r"))
    return lines


async def _serve(
    uri: str, handler: object, journal: Path | None, terms: dict[str, Any], worker: int | None
) -> signal.Signals:
    """Listen until a signal comes, or a worker's parent has gone; return the signal."""
    import afflux

    told: asyncio.Future[signal.Signals] = asyncio.get_running_loop().create_future()
    listen_for_signals(told)
    _allow_open_files()
    async with contextlib.AsyncExitStack() as stack:
        if journal is not None:
            from afflux.journal import Journalled

            journal.mkdir(parents=True, exist_ok=True)  # before "ready": what can not be kept is told now
            handler = await stack.enter_async_context(Journalled(handler, journal))
        server = await stack.enter_async_context(afflux.serve(uri, handler, reuse_port=worker is not None, **terms))
        _spare_collector()
        if worker is None:
            sys.stdout.write(f"ready {server.uri}\n")
            sys.stdout.flush()
        else:
            _answer_to_parent(worker, server.uri, told)
        number = await told
        await server.close(drain=GRACE, keep=terms["store"] is not None)
        return number


def _allow_open_files() -> None:
    """Raise this process's own limit of open files to ``OPEN_FILES``, or as far as it may: 1,024 is usual, and then the
    1,025th client would wait until another one goes."""
    with contextlib.suppress(ImportError, OSError, ValueError):  # not on Windows; a system may know better
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
        if soft != resource.RLIM_INFINITY and soft < most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _spare_collector() -> None:
    """What is there now stays for good: the garbage collector need not walk through it again. And it begins less often,
    because connections that end leave it nothing to do. Making a connection among 10,000 costs a third less so."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


def _answer_to_parent(line: int, uri: str, told: asyncio.Future[signal.Signals]) -> None:
    """Say where this worker listens. Without a parent it ends: in order, or at once if it is ending already."""
    from afflux.cli.workers import Line

    def lost() -> None:
        if told.done():
            os.kill(os.getpid(), signal.SIGKILL)
        told.set_result(signal.SIGTERM)

    parent = Line(line)
    parent.listens(uri)
    parent.watch(lost)


def listen_for_signals(told: asyncio.Future[signal.Signals]) -> None:
    """The first signal is told; the second one of the same kind ends the process at once."""
    loop = asyncio.get_running_loop()

    def tell(number: signal.Signals) -> None:
        loop.remove_signal_handler(number)
        if not told.done():
            told.set_result(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, tell, number)
