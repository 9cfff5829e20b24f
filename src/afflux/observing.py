"""Sample the state of a server at an interval: connections, live streams, what they wait for, and totals.

A sample is made by the server's own event loop, in a small part of each turn, and is read by any thread: exporters of
metrics run in threads of their own.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, get_args

from afflux.aio.traffic import Traffic
from afflux.calls.arguments import check_type, wrong
from afflux.core.credit import Bound, Unit

if TYPE_CHECKING:
    from afflux.aio.peer import Peer
    from afflux.aio.server import Server

__all__ = ["CAUSES", "EVERY", "WIDE", "Sample", "Watched", "distinct", "sample", "watched"]

CAUSES: Final = tuple(bound for bound in get_args(Bound) if bound != "producer")
"""The causes of a stall. ``producer`` is none: there is credit and room, and the application has nothing to send."""
EVERY: Final = 10.0
"Seconds between two samples, unless others are chosen."
WIDE: Final = 0x7FFF_FFFF
"Credit from which on a stream counts as unlimited: what a peer grants that wants everything."
_LEAST_S: Final = 0.002
"Seconds that a sample may take in any turn of the loop."
_SHARE: Final = 0.25
"The share of the turn before that a sample may take if that is more, so that a busy loop is sampled in time."

Progress = dict[tuple["Peer", int], tuple[int, int]]
"Items sent and received of each live stream."


@dataclass(slots=True)
class Sample:
    """The state of a server at one moment."""

    connections: int = 0
    "Connected clients, and sessions that wait for their client."
    live: int = 0
    "Live streams."
    credit: int = 0
    "Items that the clients permit, in all; ``WIDE`` or more for no limit."
    stalled: Counter[str] = field(default_factory=Counter)
    "Live streams that have moved no item since the sample before, by cause: one of ``CAUSES``."
    traffic: Traffic = field(default_factory=Traffic)
    "Totals since the server was made."
    refused: Counter[str] = field(default_factory=Counter)
    "Refused connections since the server was made, by the name of the limit."
    progress: Progress = field(default_factory=dict)
    "What the next sample is compared with."


async def sample(server: Server, before: Sample | None = None) -> Sample:
    """Return the state of a server. Without ``before``, no stream counts as stalled."""
    found, progress = Sample(), {} if before is None else before.progress
    now = asyncio.get_running_loop().time
    begun, permitted = now(), _LEAST_S
    for peer in server.connections:
        if now() - begun > permitted:
            paused = now()
            await asyncio.sleep(0)
            begun = now()
            permitted = max(_LEAST_S, (begun - paused) * _SHARE)
        if peer.closed:
            continue
        found.connections += 1
        for status in peer.streams():
            key, moved = (peer, status.stream), (status.sent, status.received)
            found.live += 1
            found.credit += status.credit if status.unit is Unit.ITEMS else 0
            found.progress[key] = moved
            if status.reason is not None and status.reason in CAUSES and progress.get(key) == moved:
                found.stalled[status.reason] += 1
    found.traffic, found.refused = server.traffic(), Counter(server.refused)
    return found


class Watched:
    """A server and its last sample."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.last = Sample()

    @property
    def uri(self) -> str:
        """The address that the server listens on."""
        return self.server.uri

    async def refresh(self) -> Sample:
        """Sample the server now; return the sample, which is ``last`` from now on."""
        self.last = await sample(self.server, self.last)
        return self.last


def distinct(watched: Iterable[Watched]) -> list[Watched]:
    """Return one of each server: a server that is watched twice counts once."""
    return list({id(one.server): one for one in tuple(watched)}.values())


@asynccontextmanager
async def watched(server: Server, seconds: float) -> AsyncIterator[Watched]:
    """Sample a server that has started now, and then every ``seconds``.

    Raises:
        TypeError: ``server`` is not a server, or ``seconds`` is not a number.
        ValueError: ``seconds`` is not above 0.
    """
    if not callable(getattr(server, "traffic", None)):
        raise wrong("server", server, "a server of afflux.serve, such as in async with afflux.serve(…) as server")
    check_type("every=", seconds, (int, float), "a number of seconds")
    if not seconds > 0:
        raise ValueError(f"every={seconds!r}: expected seconds above 0")
    found = Watched(server)
    await found.refresh()
    task = asyncio.get_running_loop().create_task(_refresh(found, seconds))
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def _refresh(found: Watched, seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        await found.refresh()
