"""Implement ``afflux shell``: several requests over one connection, line by line. ``shell_lines.py`` parses the lines,
``shell_prompt.py`` reads them from a terminal; from a pipe they are read as they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import typer

from afflux.calls.listing import ListedRoute
from afflux.cli import inputs
from afflux.cli.exits import DONE, USAGE, code_of, full_output, usage, words
from afflux.cli.limiting import ConnectTimeout, LimitOption
from afflux.cli.looping import run_loop
from afflux.cli.options import AuthFile, DataMime, Leased, MetadataMime, Resumed, ServerUri
from afflux.cli.output import Format, Printer
from afflux.cli.process import was_closed
from afflux.cli.request import Asked, perform
from afflux.cli.routes import routes_of
from afflux.cli.shell_lines import END, Word, parse
from afflux.cli.telling import placed, tell
from afflux.cli.verbose import Verbose, log_shown
from afflux.core.errors import Error

__all__ = ["Shell", "shell"]

ROUTES_WAIT_S = 2.0
"Seconds that completion waits for the server's routes."


def _history() -> Path:
    """Return the file of the history."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "afflux" / "history"


def shell(
    uri: ServerUri,
    mmt: MetadataMime = None,
    dmt: DataMime = None,
    auth_file: AuthFile = None,
    lease: Leased = False,
    resume: Resumed = False,
    limit: LimitOption = None,
    wait: ConnectTimeout = None,
    verbose: Verbose = 0,
    output: Annotated[
        Format | None,
        typer.Option("-o", "--output", help="Output format of requests without -o. [default: text, or ndjson]"),
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option(
            "--history",
            metavar="FILE",
            help="File of the lines of a terminal. [default: ~/.local/state/afflux/history]",
        ),
    ] = None,
) -> None:
    """Send requests over one connection, one on each line: request, stream, channel, fire, push or routes, followed by
    the options of `afflux request`. On a terminal with history and completion: Ctrl-C cancels the running request and
    Ctrl-D ends the shell. Lines from a pipe end with the first that fails, and its exit code."""
    given = {"mmt": mmt, "dmt": dmt, "auth_file": auth_file, "lease": lease, "resume": resume, "output": output}
    defaults: dict[str, Any] = {"limit": limit, "wait": wait, "verbose": verbose, **given}
    defaults = {name: str(value) if isinstance(value, Path) else value for name, value in defaults.items() if value}
    runner = Shell(uri, defaults)
    if sys.stdin.isatty():
        from afflux.cli.shell_prompt import prompt_lines

        code = asyncio.run(runner.converse(prompt_lines(runner, history or _history())))
    else:
        code = run_loop(runner.execute(_piped()))
    if code != DONE:
        raise typer.Exit(code)


async def _piped() -> AsyncIterator[str]:
    """Yield the lines of stdin, as they arrive."""
    if was_closed(0):
        usage("stdin has the lines of the shell, and it is closed")
    async for lines in inputs.items("-"):
        for line in lines:
            yield os.fsdecode(line)


class Shell:
    """One connection, and the requests of lines.

    Args:
        uri: the address of the server.
        defaults: the options of each request that are given once, by the names of ``request``'s parameters.
    """

    def __init__(self, uri: str, defaults: dict[str, Any]) -> None:
        self.uri = uri
        self._defaults = defaults
        self._peer: Any = None
        self._answered = False
        "Whether a request has succeeded: a connection that was never of use is not reported as made again."
        self._routes: list[ListedRoute] | None = None

    async def converse(self, lines: AsyncIterator[str]) -> int:
        """Run the lines of a terminal; failures are printed. Return 0."""
        await self._start()
        try:
            sys.stderr.write(f"connected to {self.uri}; help lists the commands, Ctrl-D ends\n")
            async for line in lines:
                if await self._interruptible(line) is None:
                    break
        finally:
            await self._close()
        return DONE

    async def execute(self, lines: AsyncIterator[str]) -> int:
        """Run the lines of a pipe until one fails; return its exit code."""
        await self._start()
        try:
            number = 0
            async for line in lines:
                number += 1
                with placed(f"line {number}"):
                    code = await self._run(line)
                if code != DONE:
                    return DONE if code is None else code
        finally:
            await self._close()
        return DONE

    async def routes(self) -> list[ListedRoute]:
        """Return the routes of the server for completion, asked for once; none if it does not list them."""
        if self._routes is None:
            self._routes = []
            with contextlib.suppress(Error, OSError):
                async with asyncio.timeout(ROUTES_WAIT_S), self._connected() as peer:
                    self._routes = await routes_of(peer)
        return self._routes

    async def _start(self) -> None:
        """Connect, so that a wrong address ends the shell."""
        async with self._connected():
            pass

    async def _close(self) -> None:
        if self._peer is not None:
            await self._peer.close()

    async def _interruptible(self, line: str) -> int | None:
        """Run a line that SIGINT cancels."""
        running = asyncio.ensure_future(self._run(line))
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, running.cancel)
        try:
            return await running
        except asyncio.CancelledError:
            if not running.cancelled():
                raise
            sys.stderr.write("\nafflux: canceled\n")
            return DONE
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    async def _run(self, line: str) -> int | None:
        """Run a line. Return its exit code, None if the line ends the shell. A failure is printed to stderr."""
        parsed = parse(line, self.uri, self._defaults)
        if isinstance(parsed, Word):
            sys.stderr.write(parsed.text)
            return None if parsed is END else DONE
        if isinstance(parsed, int):
            return parsed
        return await self._call(*parsed)

    async def _call(self, asked: Asked, show: Printer) -> int:
        try:
            with log_shown(asked.verbose):
                await perform(asked, show, self._connected)
        except typer.Exit as exit:  # a mistake that was printed
            return exit.exit_code
        except BrokenPipeError:
            raise
        except (Error, OSError) as error:
            if full_output(error):
                raise
            tell(f"afflux: {words(error)}")
            return code_of(error)
        self._answered = True
        return DONE

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[Any]:
        """Yield the connection; another one if it is lost. It stays open."""
        if self._peer is None or self._peer.closed:
            again = self._peer is not None
            self._peer = await self._open()
            if again and self._answered:
                typer.echo(f"afflux: connected to {self.uri} again", err=True)
        yield self._peer

    async def _open(self) -> Any:
        parsed = parse("request", self.uri, self._defaults)
        if not isinstance(parsed, tuple):
            raise typer.Exit(USAGE)
        return await parsed[0].connecting()
