"""Print the live streams of a server, and why each stands still."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from afflux.aio.server import Server
    from afflux.core.credit import StreamStatus

__all__ = ["on_report_signal", "report"]

_HEAD = ("stream", "verb", "from", "state", "sent", "queued", "received", "waits for")


def on_report_signal(call: Callable[[], object]) -> None:
    """Call ``call`` at every SIGUSR1. No-op on a system without that signal."""
    if hasattr(signal, "SIGUSR1"):
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, call)


def report(server: Server) -> None:
    """Print a table of the live streams of each connection to stderr, in one write."""
    peers = server.connections
    several = len(server.protocols) > 1
    rows = [
        (f"{peer.host or 'a client'}{f' ({peer.protocol})' if several else ''}", list(_rows(peer.streams())))
        for peer in peers
    ]
    count = sum(len(streams) for _, streams in rows)
    connected = _number(len(peers), "connection")
    lines = [f"afflux: process {os.getpid()}, {server.uri}: {connected}, {_number(count, 'live stream')}"]
    table = [_HEAD, *(row for _, streams in rows for row in streams)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for name, streams in rows:
        lines.append(f"{name}: {_number(len(streams), 'live stream')}")
        for row in (_HEAD, *streams) if streams else ():
            lines.append("  " + "  ".join(map(str.ljust, row, widths)).rstrip())
    sys.stderr.write("\n".join(lines) + "\n")
    sys.stderr.flush()


def _rows(streams: list[StreamStatus]) -> Iterator[tuple[str, ...]]:
    for one in streams:
        yield (
            str(one.stream or "-"),
            one.verb,
            "server" if one.requester else "client",
            one.state,
            f"{one.sent}/{one.sent + one.credit}",
            f"{one.queued} B",
            f"{one.received}/{one.granted}",
            one.reason or "-",
        )


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
