"""Publisher and Subscriber: one item is requested at a time."""

import asyncio
from collections.abc import AsyncIterator

import afflux


class Numbers:
    async def stream(self, payload: afflux.Payload) -> AsyncIterator[str]:
        for i in range(5):
            yield f"number {i}"


class Printing(afflux.Subscriber[afflux.Payload]):
    done = asyncio.Event()

    def on_subscribe(self, subscription: afflux.Subscription) -> None:
        self.subscription = subscription
        subscription.request(1)

    def on_next(self, item: afflux.Payload) -> None:
        print(item.text)
        self.subscription.request(1)

    def on_error(self, error: Exception) -> None:
        print(f"failed: {error}")
        self.done.set()

    on_complete = done.set


async def main() -> None:
    async with afflux.serve("mem://numbers", Numbers()) as server, afflux.connect(server.uri) as peer:
        afflux.reactive.stream(peer).subscribe(Printing())
        await Printing.done.wait()


asyncio.run(main())
