"""A server over WebSocket, for browsers and networks that allow only HTTP."""

import asyncio
from collections.abc import AsyncIterator

import afflux


class Clock:
    async def stream(self, payload: afflux.Payload) -> AsyncIterator[str]:
        for second in range(3):
            yield f"tick {second}"


async def main() -> None:
    async with (
        afflux.serve("ws://127.0.0.1:0/clock", Clock()) as server,
        afflux.connect(server.uri) as peer,
    ):
        async for tick in peer.stream():
            print(tick.text)


asyncio.run(main())
