"""``afflux serve --workers``: processes that share one address, and the one that looks after them.

1. The parent takes the port and holds it, and never listens. Each worker listens there (SO_REUSEPORT); the system
   spreads new connections over them.
2. A line joins each worker to its parent. On it the worker says where it listens. Its end is the end of the other
   side: a worker without a parent closes in order.
3. The first worker comes alone: what is wrong with it is wrong with all, and told once. ``ready`` is printed when all
   of them listen.
4. A worker that ends is replaced, after a wait that grows while they die young. When a place has seen ``MOST_TRIES``
   in a row that did not get to listen, everything ends.
5. The first signal is passed on: all workers close in order, at once. What is left after ``GRACE`` and the time that
   handlers get to end in is killed.
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
from afflux.retry.backoff import Backoff
from afflux.transports.address import parse
from afflux.transports.tcp import require_sharing, reserved

if TYPE_CHECKING:
    from afflux.transports.address import Address

__all__ = ["MOST_TRIES", "Line", "look_after"]

MOST_TRIES = 5
"Workers in a row, at one place, that may end before they listen."

STEADY_S = 10.0
"A worker that has listened for so many seconds has not died young."

WAITS = Backoff(first=0.1, most=10.0, jitter=0.0)
"Seconds before a worker that has ended is replaced."

LATE_S = 7.0
"Seconds beyond the grace after which a worker is killed: more than handlers that were canceled get to end in."

_HEARD = 0x1000


class Line:
    """A worker's end of the line to its parent."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)  # not for what handlers start: the line ends with this process
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(False)

    def listens(self, uri: str) -> None:
        """Tell the parent where this worker listens. One that has gone is heard of by ``watch``."""
        with suppress(OSError):
            self._socket.send(uri.encode())

    def watch(self, lost: Callable[[], None]) -> None:
        """Call ``lost`` when the parent has gone."""
        loop = asyncio.get_running_loop()

        def heard() -> None:
            loop.remove_reader(self._socket)
            lost()

        loop.add_reader(self._socket, heard)  # it says nothing: what can be read is the end


def look_after(uri: str, count: int, words: Sequence[str], grace: float) -> signal.Signals:
    """Run ``count`` workers, each ``afflux serve URI`` and ``words``, until a signal comes; return it.

    Raises:
        AddressError, BindFailed: the address can not be had.
        Unsupported: ports can not be shared here.
        typer.Exit: the workers can not be kept up; none is left.
    """
    address = parse(uri)
    if address.carrier.authority != "host":
        usage(f"--workers share a port, and {address.transport}:// has none: use tcp, tls, ws or wss")
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
    """What became of a worker."""

    listened: float | None
    "When it said that it listens, in monotonic seconds; None if it never did."
    code: int | None
    "Its exit code, below 0 for a signal; None if it was never started."
    how: str
    "How it ended, for people."


class _Crew:
    """The workers, seen from their parent."""

    def __init__(self, address: Address, count: int, words: Sequence[str], grace: float) -> None:
        self._count = count
        self._grace = grace
        self._command = [sys.executable, "-m", "afflux", "serve", str(address), *words]
        self._uri = ""
        "What a client connects to, as the workers say it."
        self._listening = 0
        "Places whose worker has listened, now or before."
        self._changed = asyncio.Event()
        self._places: list[asyncio.Task[None]] = []
        self._alive: dict[asyncio.subprocess.Process, socket.socket] = {}
        "The workers there are, each with the parent's end of its line: that stays open as long as the worker lives."

    async def run(self) -> signal.Signals:
        """Until the first signal, or until there is no use in trying again (typer.Exit)."""
        from afflux.cli.serve import listen_for_signals

        told: asyncio.Future[signal.Signals] = asyncio.get_running_loop().create_future()
        told.add_done_callback(lambda _: self._changed.set())
        listen_for_signals(told)
        try:
            await self._work(told)
            await self._stop()
        except typer.Exit:
            await self._stop()
            raise
        finally:
            for process, line in self._alive.items():  # only when it is cut short, as by a second signal
                line.close()
                with suppress(ProcessLookupError):
                    process.kill()
        return told.result()

    async def _work(self, told: asyncio.Future[signal.Signals]) -> None:
        for wanted in (1, self._count):
            while len(self._places) < wanted:
                place = asyncio.create_task(self._keep())
                place.add_done_callback(lambda _: self._changed.set())
                self._places.append(place)
            while not told.done() and self._listening < wanted:
                await self._change()
        if not told.done():
            sys.stdout.write(f"ready {self._uri}\n")
            sys.stdout.flush()
        while not told.done():
            await self._change()

    async def _change(self) -> None:
        """Wait for something to happen. A place that was given up says so here."""
        for place in self._places:
            if place.done():
                place.result()
        self._changed.clear()
        await self._changed.wait()

    # -- one place ------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        """See to it that one place has a worker.

        Raises:
            typer.Exit: there is no use in another one.
        """
        waits, failures, counted = WAITS.waits(Random()), 0, False
        while True:
            life = await self._live(counted)
            if life.listened is not None:
                counted, failures = True, 0
                if monotonic() - life.listened >= STEADY_S:
                    waits = WAITS.waits(Random())
            elif life.code == USAGE and not self._listening:
                raise typer.Exit(USAGE)  # it has said why
            else:
                failures += 1
            if failures == MOST_TRIES:
                _say(f"{life.how}; {MOST_TRIES} in a row ended before they listened: that is given up")
                raise typer.Exit(FAILED)
            wait = next(waits)
            _say(f"{life.how}; another one starts in {wait:.1f} s")
            await asyncio.sleep(wait)

    async def _live(self, counted: bool) -> _Life:
        """One worker, from its start to its end. ``counted``: this place has had one that listened."""
        try:
            process = await self._start()
        except OSError as error:
            return _Life(None, None, f"a worker can not be started: {error.strerror}")
        line = self._alive[process]
        ended = asyncio.ensure_future(process.wait())
        # Both, because what a handler has forked may hold the line when the worker itself is gone.
        said = asyncio.ensure_future(asyncio.get_running_loop().sock_recv(line, _HEARD))
        try:
            await asyncio.wait((said, ended), return_when=asyncio.FIRST_COMPLETED)
            listened = monotonic() if said.done() and said.result() else None
            if listened is not None and not counted:
                self._uri = said.result().decode()
                self._listening += 1
                self._changed.set()
            code = await ended
        finally:
            said.cancel()
            ended.cancel()
        self._alive.pop(process).close()
        return _Life(listened, code, f"worker {process.pid} {_ended(code)}")

    async def _start(self) -> asyncio.subprocess.Process:
        """A new worker. It is in a group of its own: what is typed on the terminal is for the parent."""
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
        """Every worker closes in order; what does not is killed."""
        for place in self._places:
            place.cancel()
        await asyncio.gather(*self._places, return_exceptions=True)
        ends = {asyncio.ensure_future(process.wait()): process for process in self._alive}
        for process in ends.values():
            with suppress(ProcessLookupError):
                process.terminate()
        while ends:
            done, late = await asyncio.wait(ends, timeout=self._grace + LATE_S)
            for end in done:
                self._alive.pop(ends.pop(end)).close()
            for end in late:
                _say(f"worker {ends[end].pid} did not end in {self._grace + LATE_S:g} s, and was killed")
                ends[end].kill()


def _ended(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _say(text: str) -> None:
    sys.stderr.write(f"afflux: {text}\n")
    sys.stderr.flush()
