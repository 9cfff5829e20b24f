"""A read that is longer than a pass may be becomes several passes, unless the rest is small."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

import afflux
from afflux import Payload
from afflux.protocols.rsocket import frames
from afflux.testing import VirtualLoop
from afflux.transports import mem
from afflux.transports.address import Address
from afflux.transports.reading import Receiver

FRAME = 0x2000
LARGEST = 0x40000 // FRAME
"Frames of the longest pass."
ITEM = frames.PayloadFrame(stream=1, next=True, data=bytes(FRAME - 9)).encode(prefixed=True)


class Silent:
    """Takes a request for items, and sends none: the test does."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        self.asked.set()
        await asyncio.Event().wait()
        yield b""


class Tapped:
    """A network that gives the client more bytes than its server sends."""

    client: Receiver

    async def reach(self, address: Address) -> Callable[[Receiver, Receiver], object]:
        return self._join

    def _join(self, client: Receiver, server: Receiver) -> None:
        self.client = client
        mem.pair(client, server)


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
        handler, network = Silent(), Tapped()
        mem.networks[asyncio.get_running_loop()] = network
        async with afflux.serve("mem://pieces", handler) as server, afflux.connect(server.uri) as peer:
            batches = peer.stream(credit=10_000).batches()
            first = asyncio.ensure_future(anext(batches))
            await handler.asked.wait()
            network.client.data_received(ITEM)
            found = [len(await first)]
            for power in range(1, LARGEST.bit_length()):  # a pass may be longer after one that was quick
                network.client.data_received(ITEM * 2**power)
                found.append(len(await anext(batches)))
            assert found == [2**power for power in range(LARGEST.bit_length())]
            network.client.data_received(ITEM * count)
            found.clear()
            while sum(found) < count:
                found.append(len(await anext(batches)))
            assert found == passes

    assert len(ITEM) == FRAME
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())
