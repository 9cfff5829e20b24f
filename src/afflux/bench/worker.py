"""Run one share of a load as a process: ``python -m afflux.bench.worker``. See ``workers`` for the messages."""

from __future__ import annotations

import asyncio
import gc
import pickle
import signal
import sys
from collections.abc import Callable
from typing import Any

from afflux.bench.load import run_share
from afflux.bench.plan import Plan
from afflux.bench.progress import Progress
from afflux.bench.workers import GO, PREFIX, Message, packed
from afflux.core.errors import Error

__all__ = ["fast_loop", "main"]


def fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop factory if it is installed, otherwise None for asyncio's."""
    try:
        import uvloop
    except ImportError:
        return None
    made: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return made


def _send(what: str, value: Any = None) -> None:
    sys.stdout.buffer.write(packed(Message(what, value)))
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
        _send("ready")
        await go.wait()
        gc.collect()
        gc.freeze()  # skip existing objects: a collector pause must not count as server latency

    def tell(progress: Progress) -> None:
        _send("progress", progress)

    try:
        result = await run_share(plan, gate=gate, tell=tell, stop=stop)
        if result.refusal is not None:
            result.refusal = _portable(result.refusal)
        _send("result", result)
    except (Error, OSError) as error:
        _send("error", _portable(error))


def _portable(error: Error | OSError) -> Error | OSError:
    """Return the error if it can be pickled, otherwise an Error with its text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return Error(str(error))
    return error


async def _obey(reader: asyncio.StreamReader, go: asyncio.Event, stop: asyncio.Event, work: asyncio.Task[None]) -> None:
    """Obey the parent's orders, and stop when the parent exits."""
    while order := await reader.read(1):
        if order == GO:
            go.set()
        elif go.is_set():
            stop.set()
        else:
            work.cancel()
    work.cancel()


def main() -> None:
    """Run one share of a plan."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent forwards the interrupt
    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        runner.run(_work())


if __name__ == "__main__":
    main()
