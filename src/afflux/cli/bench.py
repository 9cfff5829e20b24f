"""Implement ``afflux bench``: convert options to plans and results to text. See ``afflux.bench`` for the load."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer

from afflux.cli import tables
from afflux.cli.exits import FAILED, INTERRUPTED, THRESHOLD, TIMEOUT, code_of, usage
from afflux.cli.inputs import (
    above_0,
    check_metadata,
    credentials,
    one,
    path_name,
    writable,
)
from afflux.cli.inputs import duration as seconds_of
from afflux.cli.inputs import size as size_of
from afflux.cli.limiting import ConnectTimeout, LimitOption, allow_open_files, connect_timeout, limits_of, name_option
from afflux.cli.options import (
    AuthFile,
    BothWays,
    DataMime,
    ManyItems,
    MetadataMime,
    NoAnswer,
    OneAnswer,
    Route,
    ServerUri,
    data_option,
)
from afflux.cli.output import Format, format_of, output_option
from afflux.cli.telling import tell
from afflux.core import errors
from afflux.core.errors import Error, SetupRefused
from afflux.core.limits import Limits

if TYPE_CHECKING:
    from afflux.bench import Plan, Progress, Result, Threshold
    from afflux.bench.tally import Failure
    from afflux.core.autocredit import Kept

__all__ = ["bench"]

_SIZE = 64
"Default size of a request or an item in bytes."

_MOST_SIZE = 0x100_0000
_CONNECT_S = 10.0
"Seconds of --connect-timeout without the option."
_OUTPUTS = (Format.table, Format.json, Format.ndjson, Format.csv)
_MOST_RUNS = 64
_FIELD = re.compile(r"^invalid (\w+)")
"The field of a plan, in its errors; its option has the same name."
_SHOW_AFTER_S = 1.0
"Seconds before progress is shown."
_SHOW_EVERY_S = 10.0
"Seconds between lines of progress where stderr is not a terminal."


def bench(
    uri: ServerUri,
    requests: Annotated[
        int | None, typer.Option("-n", "--requests", metavar="N", min=1, help="Stop after N requests.")
    ] = None,
    duration: Annotated[
        str | None, typer.Option("-D", "--duration", metavar="TIME", help="Stop after this time. [default: 10s]")
    ] = None,
    connections: Annotated[
        int, typer.Option("-c", "--connections", metavar="N", min=1, help="Number of connections.")
    ] = 1,
    concurrency: Annotated[
        int | None,
        typer.Option(
            "-m", "--concurrency", metavar="N", min=1, help="Streams per connection. [default: 1; 256 with --rate]"
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", metavar="R", help="Open load: start R requests per second, over all connections."),
    ] = None,
    warmup: Annotated[
        str, typer.Option("--warmup", metavar="TIME", help="Run the same load first, without counting it.")
    ] = "0",
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="TIME", help="Fail a request that has no answer after this time.")
    ] = "10s",
    request: OneAnswer = False,
    stream: ManyItems = False,
    channel: BothWays = False,
    fnf: NoAnswer = False,
    route: Route = None,
    data: Annotated[str | None, data_option()] = None,
    size: Annotated[
        str | None,
        typer.Option("--size", metavar="BYTES", help="Size of generated request data: 1000, 64KiB. [default: 64]"),
    ] = None,
    metadata: Annotated[
        str | None, typer.Option("--metadata", metavar="DATA", help="Metadata: text, - for stdin, @FILE.")
    ] = None,
    mmt: MetadataMime = None,
    dmt: DataMime = None,
    items: Annotated[
        int | None,
        typer.Option(
            "--items",
            metavar="N",
            min=1,
            help='Items of a stream, requested as {"count": N, "size": BYTES}; or items that a channel sends.',
        ),
    ] = None,
    take: Annotated[
        int | None, typer.Option("--take", metavar="N", min=1, help="Cancel each stream after N items.")
    ] = None,
    credit: Annotated[
        str | None,
        typer.Option(
            "--credit",
            metavar="N,…",
            help="Window of a stream: N, auto or unbounded; one run for each value. [default: 256]",
        ),
    ] = None,
    workers: Annotated[int, typer.Option("--workers", metavar="N", min=1, help="Processes that share the load.")] = 1,
    auth_file: AuthFile = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if",
            metavar="METRIC>LIMIT",
            help="Exit with 99 if the condition is met: p99>20ms, errors>0, rate<1k, …",
        ),
    ] = None,
    limit: LimitOption = None,
    wait: ConnectTimeout = None,
    hdr: Annotated[
        Path | None,
        typer.Option("--hdr", metavar="FILE", parser=path_name, help="Write the histograms as an HdrHistogram log."),
    ] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Do not show progress.")] = False,
    output: Annotated[
        str | None,
        output_option(*_OUTPUTS),
    ] = None,
) -> None:
    """Measure the latency and throughput of a server under load."""
    from afflux.bench.plan import MOST_WORKERS

    chosen = format_of(output, "bench", *_OUTPUTS)
    if connections < workers <= MOST_WORKERS:
        usage(f"--workers {workers} requires -c {workers} or more: a worker has connections of its own")
    check_metadata(mmt, route, auth_file, dmt)
    verb = _verb(request=request, stream=stream, channel=channel, fire=fnf)
    plans = _plans(
        _windows(credit, verb),
        uri=uri,
        verb=verb,
        requests=requests,
        duration=None if duration is None else above_0(duration, "--duration"),
        connections=connections,
        concurrency=concurrency,
        rate=rate,
        warmup=seconds_of(warmup, "--warmup"),
        timeout=above_0(timeout, "--timeout"),
        route=route,
        data=asyncio.run(_data(verb, data, None if size is None else _size(size), items)),
        metadata=None if metadata is None else asyncio.run(one(metadata, "--metadata")),
        metadata_mime=mmt,
        data_mime=dmt,
        items=items if items is not None and verb == "channel" else 1,
        ends=items is not None,
        take=_take(verb, take),
        setup=_credentials(auth_file),
        limits=limits_of(limit, Limits.trusted(), client=True),
        connect_timeout=connect_timeout(wait) or _CONNECT_S,
        workers=workers,
    )
    _bench(plans, _thresholds(fail_if or [], plans[0]), hdr, quiet, chosen)


def _verb(**chosen: bool) -> Literal["request", "stream", "channel", "fire"]:
    names: list[Any] = [name for name, given in chosen.items() if given]
    if len(names) > 1:
        usage("--request, --stream, --channel and --fnf exclude each other")
    verb: Literal["request", "stream", "channel", "fire"] = names[0] if names else "request"
    return verb


def _size(text: str) -> int:
    """Parse --size into bytes."""
    found = size_of(text, "--size")
    if found > _MOST_SIZE:
        usage(f"invalid --size {found:,}: expected 0 to {_MOST_SIZE:,} bytes")
    return found


async def _data(verb: str, data: str | None, size: int | None, items: int | None) -> bytes:
    """Return the data of each request."""
    from afflux.bench.plan import filler

    if items is not None and verb not in ("stream", "channel"):
        usage(f"--items requires --stream or --channel: --{'fnf' if verb == 'fire' else verb} has one item")
    if data is not None and size is not None:
        usage("-d and --size exclude each other: both give the data to send")
    if verb == "stream" and items is not None:
        if data is not None:
            usage("--items sets the request data itself: omit -d, or use --take")
        return json.dumps({"count": items, "size": _SIZE if size is None else size}).encode()
    if data is not None:
        return await one(data, "-d")
    return b"" if verb == "stream" and size is None else filler(_SIZE if size is None else size)


def _take(verb: str, take: int | None) -> int | None:
    if take is not None and verb not in ("stream", "channel"):
        usage("--take requires --stream or --channel")
    return take


def _credentials(path: Path | None) -> Any:
    if path is None:
        return None

    return [credentials(path)]


def _windows(credit: str | None, verb: str) -> list[Kept]:
    """Parse --credit."""
    if credit is not None and verb not in ("stream", "channel"):
        usage("--credit requires --stream or --channel: a request has one answer")
    windows: list[Kept] = [256] if credit is None else [_window(text) for text in credit.split(",")]
    if len(windows) > _MOST_RUNS:
        usage(f"--credit accepts at most {_MOST_RUNS} values, not {len(windows)}")
    return windows


def _plans(windows: list[Kept], **choices: Any) -> list[Plan]:
    """Return one plan per window."""
    from afflux.bench import Plan

    try:
        return [Plan(credit=window, **choices) for window in windows]
    except ValueError as error:
        usage(_FIELD.sub(lambda found: f"invalid --{found[1].replace('_', '-')}", str(error)))


def _window(text: str) -> Kept:
    from afflux.bench import UNBOUNDED

    text = text.strip()
    if not text:
        usage("--credit contains an empty value: separate values with single commas, such as 1,8,64,auto")
    if text == "unbounded":
        return UNBOUNDED
    if text == "auto":
        return "auto"
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:16]) <= UNBOUNDED):
        usage(f"invalid --credit {text!r}: expected a number of items, auto or unbounded, or several such as 1,8,auto")
    return int(text)


def _thresholds(texts: list[str], plan: Plan) -> list[Threshold]:
    from afflux.bench import Threshold

    found = []
    for text in texts:
        try:
            threshold = Threshold.parse(text)
            threshold.check(plan)
        except ValueError as error:
            usage(f"--fail-if: {error}")
        found.append(threshold)
    return found


def _bench(
    plans: list[Plan], thresholds: list[Threshold], hdr: Path | None, quiet: bool, output: Format | None
) -> None:
    """Measure, print the results and exit with the matching code."""
    from afflux.bench import report
    from afflux.bench.worker import fast_loop

    if hdr is not None:
        writable(str(hdr), "--hdr")
    chosen = output or (Format.table if sys.stdout.isatty() else Format.ndjson)
    results: list[Result] = []
    failure: Error | OSError | None = None
    interrupted = False
    line = _Line(show=not quiet)
    allow_open_files(plans[0].connections)
    try:
        with asyncio.Runner(loop_factory=fast_loop()) as runner:
            for plan in plans:
                results.append(runner.run(_measured(plan, line)))
                if chosen is Format.ndjson:
                    typer.echo(report.as_ndjson(results[-1], thresholds), nl=False)
                if results[-1].interrupted:
                    break
    except (Error, OSError) as error:
        failure = error
    except (KeyboardInterrupt, asyncio.CancelledError):
        interrupted = True
    finally:
        line.clear()
    _print(results, thresholds, chosen)
    if hdr is not None and results:
        hdr.write_text(report.as_hdr_log(results), encoding="utf-8")
    if failure is not None:
        raise failure
    _end(results, thresholds, interrupted)


async def _measured(plan: Plan, line: _Line) -> Result:
    """Run one plan. The first Ctrl-C stops it early; a second one, or one before measuring starts, ends the command."""
    from afflux.bench import run

    stop = asyncio.Event()
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        if line.measuring and not stop.is_set():
            stop.set()
        elif task is not None:
            task.cancel()

    async def settle() -> None:
        gc.collect()
        gc.freeze()  # skip existing objects: a collector pause must not count as server latency
        line.measuring = True

    line.measuring = False
    loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        return await run(plan, tell=line.tell, stop=stop, gate=settle)
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        gc.unfreeze()


class _Line:
    """Show progress on stderr: on a terminal one line that is overwritten, elsewhere a line of its own now and then.
    Does not use rich, which would take milliseconds of the measured loop."""

    def __init__(self, show: bool) -> None:
        self._show = show
        self._terminal = sys.stderr.isatty()
        self._next = monotonic() + _SHOW_AFTER_S
        self._shown = False
        self.measuring = False

    def tell(self, progress: Progress) -> None:
        """Show the progress of the run."""
        now = monotonic()
        if not self._show or now < self._next:
            return
        if self._terminal:
            sys.stderr.write(f"\r\x1b[K{_words(progress)}")
        else:
            sys.stderr.write(f"afflux: {_words(progress)}\n")
            self._next = now + _SHOW_EVERY_S
        sys.stderr.flush()
        self._shown = self._terminal

    def clear(self) -> None:
        """Erase the line."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = False


def _words(progress: Progress) -> str:
    """Return the progress in one line."""
    share = "" if progress.share is None else f"  {progress.share:.0%}"
    start = f"{progress.phase}  {progress.elapsed:.0f} s{share}"
    if progress.phase == "connecting":
        return f"{start}  {progress.done - progress.failed:,} open  {progress.failed:,} refused"
    rate = progress.done / max(progress.elapsed, 0.001)
    items = f"  {progress.items:,} items" if progress.items > progress.done else ""
    return f"{start}  {progress.done:,} done  {rate:,.0f} per second  {progress.failed:,} failed{items}"


def _print(results: list[Result], thresholds: list[Threshold], output: Format) -> None:
    from afflux.bench import report

    if not results:
        return
    match output:
        case Format.json:
            typer.echo(report.as_json(results, thresholds), nl=False)
        case Format.csv:
            typer.echo(report.as_csv(results), nl=False)
        case Format.table:
            from rich.console import Console

            report.show(results, Console(file=sys.stdout, width=tables.width(), highlight=False))
    for text in report.notes(results):
        tell(f"afflux: {text}")


def _end(results: list[Result], thresholds: list[Threshold], interrupted: bool) -> NoReturn:
    """Print what failed, and exit with the matching code."""
    from afflux.bench import report

    crossed = report.crossed(results, thresholds)
    for text in crossed:
        tell(f"afflux: {text}")
    if interrupted or any(result.interrupted for result in results):
        raise typer.Exit(INTERRUPTED)
    empty = [result for result in results if not result.successful]
    for result in empty:
        tell(f"afflux: {_nothing(result)}")
    if crossed:
        raise typer.Exit(THRESHOLD)
    if empty:
        raise typer.Exit(_code(empty[0]))
    lost = any(result.lost or result.tally.connections_lost or result.tally.refused for result in results)
    raise typer.Exit(FAILED if lost else 0)


def _nothing(result: Result) -> str:
    """Return the message for a run without success, with its reason."""
    first = result.failures[0] if result.failures else None
    what = "was sent" if result.plan.verb == "fire" else "succeeded"
    came = f"; {result.tally.items:,} items received, but no stream completed" if result.tally.items else ""
    why = "" if first is None else f"; {_times(first.count)} {first.kind}: {_advised(first)}"
    return f"nothing {what}{came}{why}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _advised(failure: Failure) -> str:
    """Return the text of a failure, with the option of the limit that it names."""
    error: Error = getattr(errors, failure.kind, Error)(message=failure.example)
    name_option(error)
    return "; ".join((failure.example, *getattr(error, "__notes__", ())))


def _code(result: Result) -> int:
    """Return the exit code of a run without success: that of the most frequent failure."""
    first = result.failures[0] if result.failures else None
    if first is None:
        return FAILED
    if first.kind in ("Timeout", "NotStarted"):
        return TIMEOUT
    kind: Callable[..., Error] = SetupRefused if first.kind == "SetupRefused" else Error
    return code_of(kind(first.example, code=first.code))
