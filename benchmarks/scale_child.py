"""Run one end of a measurement: ``python -m benchmarks.scale_child server|client LOOP PAYLOAD STREAMS [PORT]``.

Reads commands from standard input, one JSON object per line, and answers each with one line; exits at the end of its
input. A server first prints its port. ``mark`` records the resource usage so far; ``used`` returns the usage since then
and the peak memory above it. Any other command is work for a client.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from benchmarks.scale_work import AsyncWork, SyncWork, limits_for, serve

__all__ = ["main"]

_PROC = Path("/proc/self")


class Meter:
    """The resource usage of this process."""

    def __init__(self) -> None:
        self.mark()

    def mark(self) -> dict[str, float]:
        """Start counting."""
        gc.collect()
        try:
            (_PROC / "clear_refs").write_text("5")  # the high-water mark of memory begins anew
        except OSError:
            pass
        self._memory = _memory("VmRSS:") or _peak()
        self._cpu = time.process_time()
        return {}

    def used(self) -> dict[str, float]:
        """Return CPU seconds, user and system, and bytes of memory above the mark."""
        return {"cpu": time.process_time() - self._cpu, "peak": max(0, _peak() - self._memory)}


def main(arguments: list[str]) -> int:
    """Run a server or a client until the input ends."""
    match arguments:
        case ["server", loop, payload, streams]:
            with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
                runner.run(_serve(int(payload), int(streams)))
        case ["client", loop, payload, streams, port]:
            limits = limits_for(int(payload), int(streams))
            if loop == "sync":
                _work(SyncWork(int(port), limits))
            else:
                _work(AsyncWork(int(port), loop_factory(loop), limits))
        case _:
            _say({"error": "usage: server LOOP PAYLOAD STREAMS | client LOOP PAYLOAD STREAMS PORT"})
            return 2
    return 0


def loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return the event loop factory: "asyncio" or "uvloop"."""
    if name == "uvloop":
        return cast("Callable[[], asyncio.AbstractEventLoop]", import_module(name).new_event_loop)
    return asyncio.new_event_loop


async def _serve(payload: int, streams: int) -> None:
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    descriptor, meter = sys.stdin.fileno(), Meter()

    def heard() -> None:
        lines = os.read(descriptor, 0x1000)
        for line in lines.splitlines():
            _say(getattr(meter, json.loads(line)["do"])())
        if not lines and not ended.done():
            ended.set_result(None)

    async with serve(limits_for(payload, streams)) as port:
        _say({"port": port})
        loop.add_reader(descriptor, heard)
        try:
            await ended
        finally:
            loop.remove_reader(descriptor)


def _work(client: AsyncWork | SyncWork) -> None:
    meter = Meter()
    for line in sys.stdin:
        command: dict[str, Any] = json.loads(line)
        what = command.pop("do")
        if what in ("mark", "used"):
            _say(getattr(meter, what)())
        else:
            _say(client.do(what, **command))
    client.close()


def _peak() -> int:
    """Return the peak resident memory. Not ``ru_maxrss`` if avoidable, because exec inherits the parent's."""
    if found := _memory("VmHWM:"):
        return found
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def _memory(name: str) -> int:
    try:
        lines = (_PROC / "status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name)), 0)


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
