"""A channel: items in both directions, each side at its own pace."""

import asyncio
from collections.abc import AsyncIterator

import afflux


class Mean:
    """Answer each number with the mean of all numbers so far."""

    async def channel(self, numbers: AsyncIterator[afflux.Payload]) -> AsyncIterator[str]:
        total = count = 0.0
        async for number in numbers:
            total += float(number.data)
            count += 1
            yield f"{total / count:g}"


async def main() -> None:
    async with (
        afflux.serve("tcp://127.0.0.1:0", Mean()) as server,
        afflux.connect(server.uri) as peer,
        peer.channel([b"1", b"2", b"6"]) as means,
    ):
        async for mean in means:
            print(mean.text)


asyncio.run(main())
