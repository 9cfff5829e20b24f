"""Every honest habit is served: all is answered rightly, the connection lives, an ordinary request works afterwards,
and the server's memory stays within what the habit may take. Tried against ``afflux serve --demo`` with its default
limits, and against ``afflux.serve`` in this process."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import afflux
from afflux.demo.responder import Responder
from tests.cli.running import Server
from tests.honest import (  # noqa: F401  they enter theirs
    habits_jmux,
    habits_limit,
    habits_reactivesocket,
    habits_rsio,
    habits_rsocket,
    habits_rsocket_draft,
)
from tests.honest.catalogue import HABITS, Habit, Place

SERVERS = {"demo": (), "resume": ("--resume",), "lease": ("--lease", "100000/60s")}
"Name to further options of ``afflux serve --demo``."
PATIENCE = 30.0
LATER = 10.0
"Seconds: for a habit, and for an ordinary request after it."
SLOWER = 60.0


@pytest.fixture(scope="session")
def demos() -> Iterator[dict[tuple[str, str, str], Server]]:
    """Server processes, each started when it is first needed."""
    with contextlib.ExitStack() as stack:
        found = _Demos(stack)
        yield found
        dead = [key for key, server in found.items() if server.process.poll() is not None]
        assert not dead, f"these servers have ended: {dead}"


class _Demos(dict[tuple[str, str, str], Server]):
    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack

    def __missing__(self, key: tuple[str, str, str]) -> Server:
        wire, transport, server = key
        uri = f"{wire}+{transport}://127.0.0.1:0"
        self[key] = started = self._stack.enter_context(Server("--demo", *SERVERS[server], uri=uri, fresh=True))
        return started


def place_of(habit: Habit, transport: str, uri: str, *, in_process: bool = False) -> Place:
    host, _, port = uri.rpartition("//")[2].partition("?")[0].rpartition(":")
    return Place(habit.wire, transport, host, int(port.partition("/")[0]), in_process)


def cases(*, in_process: bool) -> list[object]:
    """The catalogue as parameters."""
    found = []
    for habit in (habit for habit in HABITS if not habit.waits):
        for transport in habit.transports:
            if in_process and (transport != "tcp" or not habit.in_process):
                continue
            marks = [pytest.mark.slow] if habit.slow else []
            if transport != habit.transports[0] or (habit.slow and in_process):
                marks.append(pytest.mark.long)
            if habit.fails:
                marks.append(pytest.mark.xfail(strict=True, reason=habit.fails))
            found.append(pytest.param(habit, transport, marks=marks, id=f"{habit.wire}-{transport}-{habit.name}"))
    return found


async def run(habit: Habit, place: Place) -> None:
    """The habit itself; then each of its clients is still served."""
    try:
        async with asyncio.timeout(SLOWER if habit.slow else PATIENCE):
            await habit.script(place)
        async with asyncio.timeout(LATER):
            for client in place.clients:
                await client.works()
    finally:
        for link in place.links:
            await link.gone()


@pytest.mark.parametrize(("habit", "transport"), cases(in_process=False))
async def test_a_demo_server_serves_it(habit: Habit, transport: str, demos: _Demos) -> None:
    server = demos[habit.wire, transport, habit.server]
    with bounded(server.process.pid, habit.memory):
        await run(habit, place_of(habit, transport, server.uri))


@pytest.mark.parametrize(("habit", "transport"), cases(in_process=True))
async def test_a_server_of_a_program_serves_it(habit: Habit, transport: str) -> None:
    async with serving(habit, transport) as uri:
        await run(habit, place_of(habit, transport, uri, in_process=True))


@pytest.mark.slow
async def test_habits_that_wait() -> None:
    waiting = [habit for habit in HABITS if habit.waits]
    assert all(habit.transports == ("tcp",) and not habit.fails for habit in waiting)

    async def tried(habit: Habit, server: Server) -> None:
        with bounded(server.process.pid, habit.memory):
            await run(habit, place_of(habit, "tcp", server.uri))

    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(Server("--demo", *SERVERS[habit.server], uri=f"{habit.wire}+tcp://127.0.0.1:0"))
            for habit in waiting
        ]
        ends = await asyncio.gather(*map(tried, waiting, servers), return_exceptions=True)
    failed = [error for error in ends if isinstance(error, Exception)]
    for habit, error in zip(waiting, ends, strict=True):
        if error is not None:
            error.add_note(f"the habit {habit.name}")
    if failed:
        raise ExceptionGroup("habits that were not served", failed)


@contextlib.asynccontextmanager
async def serving(habit: Habit, transport: str) -> AsyncIterator[str]:
    lease = afflux.FixedLease(100_000, 60.0) if habit.server == "lease" else None
    uri = f"{habit.wire}+{transport}://127.0.0.1:0"
    async with afflux.serve(uri, Responder(), lease=lease, resume=habit.server == "resume") as server:
        yield server.uri


@contextlib.contextmanager
def bounded(pid: int, most: int) -> Iterator[None]:
    """The resident memory of a process grows by at most so much at its peak, where ``/proc`` tells it."""
    proc = Path("/proc") / str(pid)
    if not (proc / "clear_refs").exists() or not os.access(proc / "clear_refs", os.W_OK):
        yield
        return
    (proc / "clear_refs").write_text("5")
    before = _peak(proc)
    yield
    grown = _peak(proc) - before
    assert grown <= most, f"the server has grown by {grown / 2**20:.1f} MiB"


def _peak(proc: Path) -> int:
    """The high-water mark of resident memory since it was last cleared."""
    for line in (proc / "status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1_024
    raise RuntimeError("no VmHWM")
