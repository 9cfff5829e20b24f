"""Run one end of a measurement as a process: ``python -m benchmarks.child server|client PEER LOOP SETTINGS [PORT]``.

Reads commands from standard input, one JSON object per line, and answers each with one line; exits at the end of its
input. First it prints one line with its resource usage, once it listens (with its port) or is connected. A server
answers every command with its resource usage so far. A client does the work of the command and answers with its counts,
the duration and its resource usage. SETTINGS is "large" if payloads may be large, "routed" if
the server is to have a table of routes, or "default". peers/js/child.js and
peers/jeri/Child.java implement the same protocol.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any, cast

from benchmarks.peers import load
from benchmarks.peers.base import Client, Count, Further, loop_factory

__all__ = ["main"]

_METHODS = {
    "request": "request_response",
    "session": "exchange",
    "stream": "stream",
    "metadata": "stream_metadata",
    "routed": "request_routes",
    "short": "short_streams",
    "channel": "channel",
    "many": "many_connections",
}
"""The client's method for each kind of work; the rest of a command are its arguments."""


def main(arguments: list[str]) -> int:
    """Run a server or a client until the input ends."""
    match arguments:
        case ["server", peer, loop, settings]:
            with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
                runner.run(_serve(peer, settings))
        case ["client", peer, loop, settings, port]:
            _work(load(peer).Client(int(port), loop, settings == "large"))
        case _:
            _say({"error": "usage: server PEER LOOP SETTINGS | client PEER LOOP SETTINGS PORT"})
            return 2
    return 0


async def _serve(peer: str, settings: str) -> None:
    """Listen, and report resource usage for each line."""
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    descriptor = sys.stdin.fileno()

    def heard() -> None:
        lines = os.read(descriptor, 0x1000)
        for _ in range(lines.count(b"\n")):
            _say(_used())
        if not lines and not ended.done():
            ended.set_result(None)

    module = load(peer)
    routed = settings == "routed"
    serving = cast("Further", module).serve_routes(0) if routed else module.serve(0, loop, settings == "large")
    async with serving as port:
        _say({**_used(), "port": port})
        loop.add_reader(descriptor, heard)
        try:
            await ended
        finally:
            loop.remove_reader(descriptor)


def _work(client: Client) -> None:
    """Do the work of each line."""
    _say(_used())
    for line in sys.stdin:
        command: dict[str, Any] = json.loads(line)
        work = getattr(client, _METHODS[command.pop("do")])
        busy, start = time.process_time(), time.perf_counter()
        count: Count = work(**command)
        seconds = time.perf_counter() - start
        used = _used()
        _say({**used, "cpu": used["cpu"] - busy, "seconds": seconds, "items": count.items, "bytes": count.bytes})
    client.close()


def _used() -> dict[str, float]:
    """Return CPU seconds of this process, user and system, and its peak memory in bytes."""
    return {"cpu": time.process_time(), "peak": _peak()}


def _peak() -> int:
    """Return the peak resident memory. Not ``ru_maxrss`` if avoidable, because exec inherits the parent's."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
