"""A connection is cut within a stream, and no item is lost."""

import asyncio
from collections.abc import AsyncIterator

import afflux


class Numbers:
    async def stream(self, payload: afflux.Payload) -> AsyncIterator[bytes]:
        for i in range(1000):
            yield b"%d" % i


async def main() -> None:
    soon = afflux.Backoff(first=0.01)
    async with (
        afflux.serve("tcp://127.0.0.1:0", Numbers(), resume=True) as server,
        afflux.connect(server.uri, resume=soon) as peer,
    ):
        numbers = []
        async for item in peer.stream(credit=10):
            numbers.append(int(item.data))
            if len(numbers) == 500:
                peer.cut()  # simulates a lost connection
        print(f"{len(numbers)} numbers, in order, without duplicates: {numbers == list(range(1000))}")


asyncio.run(main())
