"""A receiver whose channels and commits stop at named points, a process of its own: ``python sinking.py URI DIRECTORY
GATE``. It prints its address, and then a line for each point that is reached: ``staging`` after the first block,
``committing`` before a commit, ``committed`` after it and before its answer. At the point that the file GATE names it
waits until the file is gone."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import afflux
from afflux.core.payload import Payload
from afflux.protocols.rsocket.staging import Commit, staging_of
from afflux.spark import Receiver, receive


class Gated:
    """A receiver with gates."""

    def __init__(self, receiver: Receiver, gate: Path) -> None:
        self._receiver = receiver
        self._gate = gate

    async def _reach(self, point: str) -> None:
        print(point, flush=True)
        while self._gate.exists() and self._gate.read_text() == point:
            await asyncio.sleep(0.01)

    async def channel(self, items: Any) -> AsyncIterator[Payload]:
        await self._reach("staging")
        async for answer in self._receiver.channel(items):
            yield answer

    async def request(self, payload: Payload) -> Payload:
        commits = isinstance(staging_of(payload.metadata), Commit)
        if commits:
            await self._reach("committing")
        answer = await self._receiver.request(payload)
        if commits:
            await self._reach("committed")
        return answer


async def main(uri: str, directory: str, gate: str) -> None:
    async with receive(directory) as receiver, afflux.serve(uri, Gated(receiver, Path(gate))) as server:
        print(server.uri, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
