"""Implement ``afflux capture``: a proxy that records the connections it relays, until a signal."""

from __future__ import annotations

import asyncio
import errno
import signal
import sys
from contextlib import closing, suppress
from io import FileIO
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from afflux.cli.completing import ListenOption, addresses
from afflux.cli.exits import INTERRUPTED
from afflux.cli.inputs import check_address, not_itself, writable
from afflux.cli.serve import fast_loop
from afflux.cli.stopping import listen_for_signals
from afflux.cli.telling import tell

__all__ = ["capture"]


def capture(
    listen: ListenOption,
    to: Annotated[str, typer.Option("--to", metavar="URI", help="Address of the server.", autocompletion=addresses)],
    file: Annotated[str, typer.Option("--write", "-w", metavar="FILE", help="The pcapng file; - for stdout.")],
) -> None:
    """Relay connections to a server and record them as pcapng, for `afflux decode` and Wireshark. Bytes inside TLS are
    recorded unencrypted: the proxy decrypts what it receives and encrypts what it sends. Prints `ready URI` when it
    listens. SIGINT and SIGTERM stop it. If the file cannot be written any more, connections are still relayed."""
    check_address(listen, "--listen", serving=True)
    check_address(to, "--to")
    not_itself(listen, to, "--to")
    if file != "-":
        writable(file, "--write")
    with closing(_Kept(file)) as kept, asyncio.Runner(loop_factory=fast_loop()) as runner:
        stopped_by = runner.run(_capture(listen, to, kept))
    if kept.failed is not None:
        raise typer.Exit(1)
    if stopped_by == signal.SIGINT:
        raise typer.Exit(INTERRUPTED)


class _Kept:
    """Writes the file of a recording. A regular file that cannot be written any more keeps all whole packets.

    Args:
        file: the name of the file; - for stdout.
    """

    def __init__(self, file: str) -> None:
        self._file: BinaryIO | FileIO | None = None
        self._name = "stdout" if file == "-" else file
        self._to_stdout = file == "-"
        self._regular = False
        self._first = b""
        "What was written before the file was opened."
        self._whole = 0
        self.ready = sys.stderr if self._to_stdout else sys.stdout
        "Where the address is printed."
        self.failed: OSError | None = None
        "Why nothing is recorded any more."

    def open(self) -> None:
        """Open the file, which loses its former content, and write what has been written so far. Raises OSError."""
        self._file = sys.stdout.buffer if self._to_stdout else open(self._name, "wb", 0)  # noqa: SIM115
        self._regular = not self._to_stdout and Path(self._name).is_file()
        self.write(self._first)

    def close(self) -> None:
        """Close the file, if it is open."""
        if self._file is not None and not self._to_stdout:
            self._file.close()

    def write(self, data: bytes) -> None:
        """Write whole packets. Raises OSError if the first write fails, or any to what is not a regular file."""
        if self.failed is not None:
            return
        if self._file is None:
            self._first += data
            return
        try:
            view = memoryview(data)
            while view:
                view = view[self._file.write(view) :]
            self._file.flush()
            self._whole += len(data)
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        if not (self._regular and self._whole):
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                error.filename = self._name
            raise error
        self.failed = error
        if self._file is not None:
            with suppress(OSError):
                self._file.truncate(self._whole)
        _report(f"{self._name}: {error.strerror}: recording has ended, and connections are still relayed")


async def _capture(listen: str, to: str, kept: _Kept) -> signal.Signals:
    """Record until a signal arrives; return the signal. Raises as ``_Kept.write``."""
    import afflux
    from afflux.capture.proxy import RecordingProxy
    from afflux.capture.recording import Recording

    stopped: asyncio.Future[signal.Signals] = asyncio.get_running_loop().create_future()
    listen_for_signals(stopped)
    recording = Recording(kept.write, f"afflux {afflux.__version__}")
    async with RecordingProxy(listen, to, recording, report=_report) as proxy:
        kept.open()
        kept.ready.write(f"ready {proxy.uri}\n")
        kept.ready.flush()
        ends: set[asyncio.Future[object]] = {stopped, proxy.failed}  # type: ignore[arg-type]  # of other results
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if proxy.failed.done():
            proxy.failed.result()
        without = f"; without a connection to the server: {proxy.unconnected}" if proxy.unconnected else ""
        what = "recorded" if kept.failed is None else "relayed"
        _report(f"connections {what}: {proxy.connections}{without}")
        return await stopped


def _report(text: str) -> None:
    tell(f"afflux: {text}")
