"""An endless stream in ReactiveSocket, RSocket's predecessor."""

import asyncio
import itertools
from collections.abc import AsyncIterator

import afflux


class Exchange:
    """Sends prices until the subscriber cancels."""

    async def stream(self, payload: afflux.Payload) -> AsyncIterator[str]:
        for price in itertools.count(100):
            yield f"{payload.text} {price}"


async def main() -> None:
    async with (
        afflux.serve("reactivesocket+tcp://127.0.0.1:0", Exchange()) as server,
        afflux.connect(server.uri) as peer,
        peer.subscribe("EUR", credit=2) as prices,
    ):
        async for price in prices:
            print(price.text)
            if price.text.endswith("103"):
                break


asyncio.run(main())
