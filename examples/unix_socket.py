"""A Unix socket with a blocking client, for scripts and workers."""

import asyncio
import tempfile
from collections.abc import AsyncIterator

import afflux
import afflux.sync


class Squares:
    async def stream(self, payload: afflux.Payload) -> AsyncIterator[str]:
        for i in range(int(payload.data)):
            yield str(i * i)


def ask(uri: str) -> list[str]:
    """Run a stream without an event loop."""
    with afflux.sync.connect(uri) as peer:
        return [item.text for item in peer.stream("5")]


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with afflux.serve(f"unix://{folder}/squares.sock", Squares()) as server:
            print(" ".join(await asyncio.to_thread(ask, server.uri)))


asyncio.run(main())
