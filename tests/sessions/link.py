"""Two ends of a session in memory, each with a monitor. Contains no tests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, Iterable, Iterator
from typing import Any

from afflux.sessions import Chan, Machine, Monitor, SessionType

__all__ = ["Link", "linked"]


class Link:
    """Implements ``Steps``: one end, which sends to its peer's queue."""

    def __init__(self, machine: Machine) -> None:
        self.monitor = Monitor(machine)
        self.sent = 0
        self.peer: Link
        self._arrived: deque[tuple[str, Any]] = deque()
        self._wake = asyncio.Event()

    async def send(self, value: Any) -> None:
        data = self.monitor.send(value)
        self.sent += 1
        self.peer.take(data)

    @property
    def run(self) -> Iterator[Any]:
        """Pairs of a choice and a value are a run; a single value is not, as it is in a driver."""
        while len(self._arrived) > 2 and self._arrived[0] == ("branch", 1):
            self._arrived.popleft()
            yield self._arrived.popleft()[1]

    async def send_each(self, values: Iterable[Any] | AsyncIterable[Any]) -> None:
        assert isinstance(values, Iterable)
        for value in values:
            await self.send(value)

    async def recv_in_loop(self) -> Any:
        if await self.offer() == 1:
            return await self.recv()
        self._arrived.appendleft(("branch", 2))
        raise StopAsyncIteration

    async def choose(self, branch: int) -> None:
        if (item := self.monitor.choice_item(branch)) is not None:
            self.sent += 1
            self.peer.take(item)

    def take(self, data: bytes) -> None:
        received = self.monitor.item(data)
        if received.branch is not None:
            self._arrived.append(("branch", received.branch))
        if received.has_value:
            self._arrived.append(("value", received.value))
        self._wake.set()

    async def recv(self) -> Any:
        return await self._next("value")

    async def offer(self) -> int:
        return int(await self._next("branch"))

    async def _next(self, kind: str) -> Any:
        while not self._arrived:
            self._wake.clear()
            await self._wake.wait()
        found, made = self._arrived.popleft()
        assert found == kind
        return made

    async def end(self) -> None:
        self.monitor.end()


def linked(of: SessionType[Any, Any]) -> tuple[Chan[Any], Chan[Any]]:
    """The first endpoints of both sides: the server's and the client's."""
    server, client = Link(of.server), Link(of.client)
    server.peer, client.peer = client, server
    return of.at_server(server), of.at_client(client)
