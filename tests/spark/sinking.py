"""A receiver whose channels and commits stop at named points, a process of its own.

``python sinking.py URI DIRECTORY`` prints its address, and then a line for each point that is reached: ``staging``
after the first block, ``committing`` before a commit, ``committed`` after it and before its answer. A line on its
standard input names the point at which it stops, and lets go what has stopped at another one; an empty line names none.
The answer is the line ``stops at POINT``.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import afflux
from afflux.core.payload import Payload
from afflux.protocols.rsocket.staging import Commit, staging_of
from afflux.spark import Receiver, receive


class Gated:
    """A receiver with gates."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._closed = ""
        self._opens = asyncio.Event()

    def obey(self) -> None:
        """Read a line of the standard input."""
        line = sys.stdin.readline()
        if not line:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            return
        self._closed = line.strip()
        self._opens.set()
        self._opens = asyncio.Event()
        print(f"stops at {self._closed}", flush=True)

    async def _reach(self, point: str) -> None:
        print(point, flush=True)
        if point == self._closed:
            await self._opens.wait()

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


async def main(uri: str, directory: str) -> None:
    async with receive(directory) as receiver:
        gated = Gated(receiver)
        async with afflux.serve(uri, gated) as server:
            print(server.uri, flush=True)
            asyncio.get_running_loop().add_reader(sys.stdin.fileno(), gated.obey)
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
