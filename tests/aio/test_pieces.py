"""A read that is longer than a pass may be becomes several passes, unless the rest is small."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import afflux
from afflux import Payload
from afflux.protocols.rsocket import frames
from afflux.testing import VirtualLoop

FRAME = 0x2000
LARGEST = 0x40000 // FRAME
"Frames of the longest pass."
ITEM = frames.PayloadFrame(stream=1, next=True, data=bytes(FRAME - 9)).encode(prefixed=True)


class Silent:
    """Takes a request for items, and sends none: the test does."""

    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""


@pytest.mark.parametrize(
    ("count", "passes"),
    [
        (LARGEST, [LARGEST]),
        (LARGEST + 1, [LARGEST + 1]),  # of a layer that kept the beginning of a message of its last read
        (LARGEST + LARGEST // 8, [LARGEST + LARGEST // 8]),
        (LARGEST + LARGEST // 8 + 1, [LARGEST, LARGEST // 8 + 1]),
        (2 * LARGEST, [LARGEST, LARGEST]),
    ],
)
def test_a_long_read_is_cut_into_passes(count: int, passes: list[int]) -> None:
    async def main() -> None:
        async with afflux.serve("mem://pieces", Silent()) as server, afflux.connect(server.uri) as peer:
            batches = peer.stream(credit=10_000).batches()
            waiting = asyncio.ensure_future(anext(batches))
            await asyncio.sleep(1)
            receive = peer._driver.pump.data_received
            for power in range(LARGEST.bit_length()):  # a pass may be longer after one that was quick
                receive(ITEM * 2**power)
                assert len(await waiting) == 2**power
                waiting = asyncio.ensure_future(anext(batches))
                await asyncio.sleep(1)
            receive(ITEM * count)
            found = []
            while sum(found) < count:
                found.append(len(await waiting))
                waiting = asyncio.ensure_future(anext(batches))
            waiting.cancel()
            assert found == passes

    assert len(ITEM) == FRAME
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())
