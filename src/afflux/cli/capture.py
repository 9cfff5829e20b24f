"""Implement ``afflux capture``: a proxy that records the connections it relays, until a signal."""

from __future__ import annotations

import asyncio
import errno
import signal
import sys
from contextlib import nullcontext
from io import FileIO
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from afflux.cli.completing import ListenOption, addresses
from afflux.cli.exits import INTERRUPTED
from afflux.cli.inputs import writable
from afflux.cli.serve import fast_loop, listen_for_signals

__all__ = ["capture"]


def capture(
    listen: ListenOption,
    to: Annotated[str, typer.Option("--to", metavar="URI", help="Address of the server.", autocompletion=addresses)],
    file: Annotated[str, typer.Option("--write", "-w", metavar="FILE", help="The pcapng file; - for stdout.")],
) -> None:
    """Relay connections to a server and record them as pcapng, for `afflux decode` and Wireshark. Bytes inside TLS are
    recorded unencrypted: the proxy decrypts what it receives and encrypts what it sends. Prints `ready URI` when it
    listens. SIGINT and SIGTERM stop it."""
    if file != "-":
        writable(file, "--write")
    opened = nullcontext(sys.stdout.buffer) if file == "-" else Path(file).open("wb", 0)  # noqa: SIM115
    with opened as target, asyncio.Runner(loop_factory=fast_loop()) as runner:
        try:
            stopped_by = runner.run(_capture(listen, to, target))
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT) and error.filename is None:
                error.filename = "stdout" if file == "-" else file
            raise
    if stopped_by == signal.SIGINT:
        raise typer.Exit(INTERRUPTED)


async def _capture(listen: str, to: str, target: BinaryIO | FileIO) -> signal.Signals:
    """Record until a signal arrives; return the signal. Raises what writing to the file raises."""
    import afflux
    from afflux.capture.proxy import RecordingProxy
    from afflux.capture.recording import Recording

    def write(data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[target.write(view) :]
        target.flush()

    stopped: asyncio.Future[signal.Signals] = asyncio.get_running_loop().create_future()
    listen_for_signals(stopped)
    recording = Recording(write, f"afflux {afflux.__version__}")
    async with RecordingProxy(listen, to, recording, report=_report) as proxy:
        ready = sys.stderr if target is sys.stdout.buffer else sys.stdout
        ready.write(f"ready {proxy.uri}\n")
        ready.flush()
        ends: set[asyncio.Future[object]] = {stopped, proxy.failed}  # type: ignore[arg-type]  # of other results
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if proxy.failed.done():
            proxy.failed.result()
        without = f"; without a connection to the server: {proxy.unconnected}" if proxy.unconnected else ""
        _report(f"connections recorded: {proxy.connections}{without}")
        return await stopped


def _report(text: str) -> None:
    typer.echo(f"afflux: {text}", err=True)
