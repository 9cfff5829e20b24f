"""``python -m afflux.bench.worker``: one process of a load that several share. What it says is in ``workers``."""

from __future__ import annotations

import asyncio
import gc
import pickle
import signal
import sys
from collections.abc import Callable
from typing import Any

from afflux.bench.load import Progress, run
from afflux.bench.plan import Plan
from afflux.bench.workers import GO, PREFIX, Said, packed
from afflux.core.errors import Error

__all__ = ["fast_loop", "main"]


def fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's loop where it is installed, else None: asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    made: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return made


def _say(what: str, value: Any = None) -> None:
    sys.stdout.buffer.write(packed(Said(what, value)))
    sys.stdout.buffer.flush()


async def _work() -> None:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    size = int.from_bytes(await reader.readexactly(PREFIX), "big")
    plan: Plan = pickle.loads(await reader.readexactly(size))
    go, stop = asyncio.Event(), asyncio.Event()
    working = asyncio.ensure_future(_measure(plan, go, stop))
    orders = asyncio.ensure_future(_obey(reader, go, stop, working))
    try:
        await asyncio.wait((working,))
    finally:
        orders.cancel()


async def _measure(plan: Plan, go: asyncio.Event, stop: asyncio.Event) -> None:
    async def gate() -> None:
        _say("ready")
        await go.wait()
        gc.collect()
        gc.freeze()  # what was made before is looked at no more: a pause of the collector is not the server's

    def tell(progress: Progress) -> None:
        _say("progress", progress)

    try:
        _say("result", await run(plan, gate=gate, tell=tell, stop=stop))
    except (Error, OSError) as error:
        _say("error", _portable(error))


def _portable(error: Exception) -> Exception:
    """The error, if it survives the pipe, else its text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return Error(str(error))
    return error


async def _obey(reader: asyncio.StreamReader, go: asyncio.Event, stop: asyncio.Event, work: asyncio.Task[None]) -> None:
    """Do what is said, and end with whoever says it."""
    while order := await reader.read(1):
        if order == GO:
            go.set()
        elif go.is_set():
            stop.set()
        else:
            work.cancel()
    work.cancel()


def main() -> None:
    """Do one part of a plan."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever has started it tells it
    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        runner.run(_work())


if __name__ == "__main__":
    main()
