"""Supervise the processes of ``afflux serve --workers``, which share one address.

1. The parent reserves the port and never listens. Each worker listens on it (SO_REUSEPORT); the system distributes new
   connections among them.
2. A socket pair connects each worker to its parent. The worker sends its address over it. When the parent closes its
   end, the worker drains and stops.
3. The first worker starts alone, so that a common error is reported once. ``ready`` is printed when all workers listen.
4. A worker that exits is replaced after a delay that grows while workers fail early. When ``MOST_TRIES`` workers in a
   row of one slot exit before they listen, the command ends.
5. SIGUSR1 is passed to all workers that listen: each prints its live streams.
6. Any other signal is passed to all workers once, which drain concurrently. Workers that outlive ``GRACE`` plus
   ``LATE_S`` are killed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from time import monotonic
from typing import TYPE_CHECKING

import typer

from afflux.cli.exits import FAILED, USAGE, usage
from afflux.cli.streams import on_report_signal
from afflux.retry.backoff import Backoff
from afflux.transports.address import parse
from afflux.transports.tcp import require_sharing, reserved

if TYPE_CHECKING:
    from afflux.transports.address import Address

__all__ = ["MOST_TRIES", "Line", "supervise"]

MOST_TRIES = 5
"Consecutive workers of one slot that may exit before they listen."

STEADY_S = 10.0
"Seconds of listening after which a worker's exit resets the backoff."

WAITS = Backoff(first=0.1, most=10.0, jitter=0.0)
"Delays before a worker that has exited is replaced."

LATE_S = 7.0
"Seconds beyond the grace after which a worker is killed; canceled handlers get less than this."

_HEARD = 0x1000


class Line:
    """A worker's connection to its parent."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)  # processes started by handlers must not keep it open
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(False)

    def listens(self, uri: str) -> None:
        """Send the address of this worker to the parent. ``watch`` detects a parent that has exited."""
        with suppress(OSError):
            self._socket.send(uri.encode())

    def watch(self, lost: Callable[[], None]) -> None:
        """Call ``lost`` when the parent exits."""
        loop = asyncio.get_running_loop()

        def readable() -> None:
            loop.remove_reader(self._socket)
            lost()

        loop.add_reader(self._socket, readable)  # the parent sends nothing: readable means closed


def supervise(uri: str, count: int, words: Sequence[str], grace: float) -> signal.Signals:
    """Run ``count`` workers, each ``afflux serve URI`` with ``words``, until a signal arrives; return it.

    Raises:
        AddressError, BindFailed: the address cannot be used.
        Unsupported: this system cannot share ports.
        typer.Exit: workers keep failing; all have been stopped.
    """
    address = parse(uri, serving=True)
    if address.carrier.authority != "host":
        usage(f"--workers requires a port, which {address.transport}:// does not have: use tcp, tls, ws or wss")
    address.carrier.load()
    require_sharing()
    address, held = reserved(address)
    try:
        with asyncio.Runner() as runner:
            return runner.run(_Crew(address, count, words, grace).run())
    finally:
        for sock in held:
            sock.close()


@dataclass(frozen=True, slots=True)
class _Life:
    """The result of one worker process."""

    listened: float | None
    "When it reported its address, in monotonic seconds; None if it never did."
    code: int | None
    "Its exit code, negative for a signal; None if it was never started."
    how: str
    "How it ended, as text."


class _Crew:
    """All workers of one parent."""

    def __init__(self, address: Address, count: int, words: Sequence[str], grace: float) -> None:
        self._count = count
        self._grace = grace
        self._command = [sys.executable, "-m", "afflux", "serve", str(address), *words]
        self._uri = ""
        "Address for clients, as reported by a worker."
        self._listening = 0
        "Slots of which a worker has listened, now or before."
        self._changed = asyncio.Event()
        self._slots: list[asyncio.Task[None]] = []
        self._alive: dict[asyncio.subprocess.Process, socket.socket] = {}
        "Running workers, each with the parent's end of its socket pair, which stays open while the worker runs."
        self._ready: set[asyncio.subprocess.Process] = set()
        "Workers that listen."

    async def run(self) -> signal.Signals:
        """Run until the first signal, or until a slot fails for good (typer.Exit)."""
        from afflux.cli.stopping import listen_for_signals

        stopped: asyncio.Future[signal.Signals] = asyncio.get_running_loop().create_future()
        stopped.add_done_callback(lambda _: self._changed.set())
        listen_for_signals(stopped)
        on_report_signal(self._report)
        try:
            await self._work(stopped)
            await self._stop()
        except typer.Exit:
            await self._stop()
            raise
        finally:
            for process, line in self._alive.items():  # only when interrupted, as by a second signal
                line.close()
                with suppress(ProcessLookupError):
                    process.kill()
        return stopped.result()

    def _report(self) -> None:
        for process in self._ready:  # another one would be ended by the signal
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGUSR1)

    async def _work(self, stopped: asyncio.Future[signal.Signals]) -> None:
        for wanted in (1, self._count):
            while len(self._slots) < wanted:
                slot = asyncio.create_task(self._keep())
                slot.add_done_callback(lambda _: self._changed.set())
                self._slots.append(slot)
            while not stopped.done() and self._listening < wanted:
                await self._change()
        if not stopped.done():
            sys.stdout.write(f"ready {self._uri}\n")
            sys.stdout.flush()
        while not stopped.done():
            await self._change()

    async def _change(self) -> None:
        """Wait for a change. Raises the error of a slot that has failed for good."""
        for slot in self._slots:
            if slot.done():
                slot.result()
        self._changed.clear()
        await self._changed.wait()

    # -- one slot -------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        """Keep a worker running in one slot.

        Raises:
            typer.Exit: the slot has failed for good.
        """
        waits, failures, counted = WAITS.waits(Random()), 0, False
        while True:
            life = await self._live(counted)
            if life.listened is not None:
                counted, failures = True, 0
                if monotonic() - life.listened >= STEADY_S:
                    waits = WAITS.waits(Random())
            elif life.code == USAGE and not self._listening:
                raise typer.Exit(USAGE)  # the worker has printed the reason
            else:
                failures += 1
            if failures == MOST_TRIES:
                _say(f"{life.how}; {MOST_TRIES} in a row ended before they listened; stopping")
                raise typer.Exit(FAILED)
            wait = next(waits)
            _say(f"{life.how}; restarting in {wait:.1f} s")
            await asyncio.sleep(wait)

    async def _live(self, counted: bool) -> _Life:
        """Run one worker to its end. ``counted``: an earlier worker of this slot has listened."""
        try:
            process = await self._start()
        except OSError as error:
            return _Life(None, None, f"cannot start a worker: {error.strerror}")
        line = self._alive[process]
        ended = asyncio.ensure_future(process.wait())
        # Wait for both, because a process forked by a handler may keep the socket open after the worker has exited.
        received = asyncio.ensure_future(asyncio.get_running_loop().sock_recv(line, _HEARD))
        try:
            await asyncio.wait((received, ended), return_when=asyncio.FIRST_COMPLETED)
            listened = monotonic() if received.done() and received.result() else None
            if listened is not None:
                self._ready.add(process)
            if listened is not None and not counted:
                self._uri = received.result().decode()
                self._listening += 1
                self._changed.set()
            code = await ended
        finally:
            received.cancel()
            ended.cancel()
        self._alive.pop(process).close()
        self._ready.discard(process)
        return _Life(listened, code, f"worker {process.pid} {_ended(code)}")

    async def _start(self) -> asyncio.subprocess.Process:
        """Start a worker in its own process group, so that signals from the terminal reach only the parent."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        line = theirs.fileno()
        with theirs:
            try:
                process = await asyncio.create_subprocess_exec(
                    *self._command,
                    f"--worker={line}",
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=(line,),
                    process_group=0,
                )
            except BaseException:
                ours.close()
                raise
        self._alive[process] = ours
        return process

    # -- the end --------------------------------------------------------------------------------------------

    async def _stop(self) -> None:
        """Drain every worker; kill those that do not exit in time."""
        for slot in self._slots:
            slot.cancel()
        await asyncio.gather(*self._slots, return_exceptions=True)
        ends = {asyncio.ensure_future(process.wait()): process for process in self._alive}
        for process in ends.values():
            with suppress(ProcessLookupError):
                process.terminate()
        while ends:
            done, late = await asyncio.wait(ends, timeout=self._grace + LATE_S)
            for end in done:
                self._alive.pop(ends.pop(end)).close()
            for end in late:
                _say(f"worker {ends[end].pid} killed: it did not end within {self._grace + LATE_S:g} s")
                ends[end].kill()


def _ended(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _say(text: str) -> None:
    sys.stderr.write(f"afflux: {text}\n")
    sys.stderr.flush()
