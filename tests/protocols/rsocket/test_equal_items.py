"""Items of one size that are sent together are, on the wire, the frames of the same items sent one by one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from afflux.core.payload import Payload, PayloadLike
from afflux.protocols.rsocket import frames
from tests.protocols.rsocket.playbook import responder


def sent(*batches: Sequence[PayloadLike]) -> bytes:
    """The bytes that a server sends for batches of items, of which the last one completes the stream."""
    engine = responder().engine
    request = frames.RequestStream(stream=1, initial_n=10_000, data=b"")
    engine.receive(request.encode(prefixed=True), 0.0)
    for batch in batches[:-1]:
        engine.send(1, batch)
    engine.send(1, batches[-1], complete=True)
    taken = bytearray()
    while data := engine.outgoing(1 << 30):
        taken += data
    return bytes(taken)


@pytest.mark.parametrize("size", [1, 64, 1000])
@pytest.mark.parametrize("count", [4, 5, 128, 2000])
def test_together_and_one_by_one(count: int, size: int) -> None:
    items = [bytes((number % 256,)) * size for number in range(count)]
    expected = sent(*([item] for item in items))
    assert len(expected) == count * (9 + size)
    assert sent(items) == sent([Payload(item) for item in items]) == expected
    assert sent(items, [b"end"]) == sent(*([item] for item in items), [b"end"])


def test_one_of_another_size() -> None:
    items = [b"12345678"] * 50 + [b"1234567"] + [b"12345678"] * 50
    assert sent(items) == sent(*([item] for item in items))
