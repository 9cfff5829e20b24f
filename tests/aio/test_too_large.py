"""Items that are larger than a client can receive, on each wire: the error says so, and other errors do not."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import afflux
from afflux import Limits, Payload

WIRES = ("tcp", "ws", "rsocket-draft+tcp", "reactivesocket+tcp", "rsio+tcp", "limit+tcp")
SMALL = Limits.server()
SIZES = {
    "a payload": (2_000, SMALL.replace(payload_bytes=1_000, frame_bytes=0x10_0000)),
    "a frame": (100_000, SMALL.replace(payload_bytes=70_000, frame_bytes=70_100)),
    "fragments": (300_000, SMALL.replace(payload_bytes=200_000, frame_bytes=200_100)),
}
"The size of the item, and what the client takes."


class Large:
    """Sends an item of the requested size after two small ones, or fails."""

    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        yield b"a"
        yield b"b"
        yield bytes(int(payload.data))

    async def channel(self, items: AsyncIterator[Payload]) -> AsyncIterator[bytes]:
        size = int((await anext(items)).data)
        yield b"a"
        yield b"b"
        yield bytes(size)

    subscribe = stream


def answers(peer: afflux.Peer, wire: str, asked: bytes) -> AsyncIterator[Payload]:
    if wire == "limit+tcp":
        return peer.channel([asked])
    return peer.stream(asked)


CASES = [(wire, case) for wire in WIRES for case in SIZES if (wire, case) != ("limit+tcp", "a payload")]
"A value of Limit-Stream is one frame, and frame_bytes is its bound."


@pytest.mark.parametrize(("wire", "case"), CASES)
async def test_the_error_says_so(wire: str, case: str) -> None:
    size, limits = SIZES[case]
    async with (
        afflux.serve(f"{wire}://127.0.0.1:0", Large(), limits=Limits.trusted()) as server,
        afflux.connect(server.uri, limits=limits) as peer,
    ):
        with pytest.raises(afflux.Error) as caught:
            async for _ in answers(peer, wire, b"%d" % size):
                pass
    assert caught.value.too_large


@pytest.mark.parametrize("wire", WIRES)
async def test_other_errors_do_not(wire: str) -> None:
    async with (
        afflux.serve(f"{wire}://127.0.0.1:0", Large()) as server,
        afflux.connect(server.uri) as peer,
    ):
        with pytest.raises(afflux.Error) as caught:
            async for _ in answers(peer, wire, b"no number"):
                pass
    assert not caught.value.too_large
