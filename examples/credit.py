"""Manual back-pressure: a stream sends only what its receiver has requested."""

import asyncio
from collections.abc import AsyncIterator

import afflux


class Counter:
    """An endless stream. It makes one number more than requested, because that is how afflux detects the end."""

    made = 0

    async def stream(self, payload: afflux.Payload) -> AsyncIterator[bytes]:
        while True:
            self.made += 1
            yield b"%d" % self.made


async def main() -> None:
    counter = Counter()
    async with (
        afflux.serve("mem://counter", counter) as server,
        afflux.connect(server.uri) as peer,
        peer.stream(credit=0) as numbers,
    ):
        for wanted in (1, 2, 3):
            numbers.request(wanted)
            got = [(await anext(numbers)).text for _ in range(wanted)]
            print(f"requested {wanted}, received {', '.join(got)}; waits for: {numbers.limited_by()}")
        print(f"{counter.made} numbers were made")


asyncio.run(main())
