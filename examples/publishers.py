"""Named publishers, over a protocol that carries only Reactive Streams (reactive-streams-io)."""

import asyncio
from collections.abc import AsyncIterator

import afflux


class Station:
    """Temperatures have a fixed size of two bytes and are packed; reports have any length."""

    def element_size(self, publisher: str) -> int:
        return 2 if publisher == "temperatures" else 0

    async def stream(self, payload: afflux.Payload) -> AsyncIterator[bytes | str]:
        if payload.text == "temperatures":
            for degrees in range(10, 20):
                yield degrees.to_bytes(2, "big")
        elif payload.text == "reports":
            yield "warm"
            yield "warmer still"
        else:
            raise afflux.Rejected("unknown-publisher")


async def main() -> None:
    async with afflux.serve("rsio+tcp://127.0.0.1:0", Station()) as server, afflux.connect(server.uri) as peer:
        print(*[int.from_bytes(item.data, "big") async for item in peer.subscribe("temperatures")])
        print([item.text async for item in peer.subscribe("reports", credit=1)])
        try:
            await anext(peer.subscribe("winds"))
        except afflux.Rejected as error:
            print(f"refused: {error}")


asyncio.run(main())
