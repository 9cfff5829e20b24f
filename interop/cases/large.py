"""Define cases with large payloads: in fragments if the peer makes them, and whole, in single frames.

afflux fragments payloads above 16 KiB in the cases "fragments", and above its default of 128 KiB in the others.
"""

from __future__ import annotations

import asyncio

from interop.cases.base import case
from interop.conversation import Conversation, check
from interop.program import digest, fill, read, shown
from interop.responder import expected_sum

MTU = 16_384


async def _up(c: Conversation, size: int, meta: int) -> None:
    data, metadata = b"!digest " + fill(size, 3), fill(meta, 4) if meta else None
    expected = f"{len(data)} {digest(data)} "  # how no metadata is told is the business of request.no-metadata
    if metadata is not None:
        expected += f"{len(metadata)} {digest(metadata)}"
    item = await c.asker.request(data, metadata)
    arrived = (read(item.data) or b"").decode() if item is not None else ""
    check(arrived.startswith(expected), f"arrived as {arrived!r}, not {expected!r}")


async def _down(c: Conversation, size: int, meta: int) -> None:
    item = await c.asker.request(b"!size %d %d" % (size, meta))
    check(item is not None and item.data == shown(fill(size, 1)), f"the data came as {item and item.data}")
    check(not meta or (item is not None and item.metadata == shown(fill(meta, 2))), f"the metadata: {item}")


def _sized(name: str, size: int, meta: int) -> None:
    """The four cases of one size."""
    data = f"{size:,} bytes"
    about = data + (f" and {meta:,} of metadata" if meta else "")

    async def up(c: Conversation) -> None:
        await _up(c, size, meta)

    async def down(c: Conversation) -> None:
        await _down(c, size, 0)

    short = name == "100k"
    case(f"fragments.up-{name}", f"a request of {about}, fragmented", limit=20, mtu=MTU, smoke=short)(up)
    case(f"fragments.down-{name}", f"an answer of {data}, fragmented", limit=20, mtu=MTU, smoke=short)(down)
    case(f"whole.up-{name}", f"a request of {about}, in the peer's own frames", limit=20)(up)
    case(f"whole.down-{name}", f"an answer of {data}, in the peer's own frames", limit=20)(down)


_sized("100k", 100_000, 1000)
_sized("1m", 1_000_000, 100_000)
_sized("4m", 4_000_000, 0)


@case("fragments.metadata-up", "100,000 bytes of metadata and little data, fragmented", limit=20, mtu=MTU)
async def _metadata_up(c: Conversation) -> None:
    await _up(c, 10, 100_000)


@case("fragments.metadata-down", "the same as an answer", limit=20, mtu=MTU)
async def _metadata_down(c: Conversation) -> None:
    await _down(c, 10, 100_000)


@case("whole.metadata-down", "an answer with 100,000 bytes of metadata, in the peer's own frames", limit=20)
async def _whole_metadata(c: Conversation) -> None:
    await _down(c, 1000, 100_000)


@case("fragments.stream", "twenty items of 100,000 bytes", limit=20, mtu=MTU)
async def _stream(c: Conversation) -> None:
    flow = await c.asker.stream(b"!size 100000 0 20", 21)
    for i, item in enumerate(await flow.take(20)):
        check(item.data == shown(fill(100_000, i)), f"item {i} is {item.data}")
    await flow.end()


@case("fragments.channel", "large items in both directions of one channel do not mix", limit=20, mtu=MTU)
async def _channel(c: Conversation) -> None:
    items = [fill(60_000 + i, i) for i in range(12)]
    flow = await c.asker.channel(items, 100)
    for i, item in enumerate(await flow.take(len(items))):
        check(item.data == shown(items[i]), f"item {i} came back as {item.data}")
    await flow.end()


@case("fragments.channel-up", "a channel of large items, with a checksum", limit=20, mtu=MTU)
async def _channel_up(c: Conversation) -> None:
    items = [b"!sum", *(fill(100_000, i) for i in range(8))]
    flow = await c.asker.channel(items, 2)
    check((await flow.take(1))[0].data == shown(expected_sum(items)), "another sum")
    await flow.end()


@case("fragments.at-once", "four concurrent large requests and answers", limit=20, mtu=MTU)
async def _at_once(c: Conversation) -> None:
    await asyncio.gather(*(_up(c, 200_000 + i, 500) for i in range(2)), *(_down(c, 200_000, 0) for _ in range(2)))


@case("fragments.fire", "a fire-and-forget of 100,000 bytes", limit=20, mtu=MTU)
async def _fire(c: Conversation) -> None:
    await c.asker.fire(fill(100_000, 9), fill(300, 8))
    await c.facts.wait("fired", data=shown(fill(100_000, 9)), metadata=shown(fill(300, 8)))
