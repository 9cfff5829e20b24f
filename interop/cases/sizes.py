"""Sizes × MTU × metadata, under the default limits: each payload goes to the other side and comes back.

The MTU holds for both sides where both can be told one; without one a peer sends as it does by default, most often
everything in one frame.
"""

from __future__ import annotations

from interop.cases.base import case
from interop.conversation import Conversation, check
from interop.program import fill, shown

_SIZES = (1, 65_536, 1_048_576, 0)
_MTUS: dict[str, int | None] = {"whole": None, "64": 64, "1500": 1500, "16k": 16_384}
_METADATA = {"no": None, "empty": b"", "some": fill(100, 4), "large": fill(70_000, 5)}
_FOUR = 4_194_304


async def _echo(c: Conversation, size: int, metadata: bytes | None) -> None:
    data = fill(size, 3)
    item = await c.asker.request(data, metadata)
    check(item is not None, f"{size:,} bytes: no answer")
    assert item is not None
    check(item.data == shown(data), f"{size:,} bytes came back as {item.data}")
    wanted = ("h:", None) if metadata is None else (shown(metadata),)  # none: the business of request.no-metadata
    check(item.metadata in wanted, f"{size:,} bytes: the metadata came back as {item.metadata}")


def _sized(mtu: str, kind: str) -> None:
    """Every size with one MTU and one kind of metadata."""
    name = {"no": "without metadata", "empty": "with empty metadata", "some": "with metadata"}.get(kind)
    about = name or "with 70,000 bytes of metadata"
    cut = "in the peer's own frames" if mtu == "whole" else f"in frames of at most {_MTUS[mtu]:,} bytes"
    sizes = tuple(size for size in _SIZES if mtu != "64" or size < 100_000)
    named = ", ".join(f"{size:,}" for size in sorted(sizes))

    async def body(c: Conversation) -> None:
        for size in sizes:
            await _echo(c, size, _METADATA[kind])

    smoke = mtu == "1500" and kind == "some"
    case(f"sizes.{mtu}-{kind}", f"{named} bytes {about}, {cut}", limit=30, mtu=_MTUS[mtu], smoke=smoke)(body)


for _mtu in _MTUS:
    for _kind in _METADATA:
        _sized(_mtu, _kind)


@case("sizes.4m-request", "a request of 4 MiB, as the peer sends it by default", limit=30)
async def _four_up(c: Conversation) -> None:
    item = await c.asker.request(b"!digest " + fill(_FOUR - 8, 3))
    check(item is not None, "no answer")


@case("sizes.4m-echo", "4 MiB echoed", limit=30)
async def _four(c: Conversation) -> None:
    await _echo(c, _FOUR, None)


@case("sizes.1m-items", "eight items of 1 MiB, as the peer sends them by default", limit=30)
async def _items(c: Conversation) -> None:
    flow = await c.asker.stream(b"!size 1048576 0 8", 3)
    for i in range(8):
        check((await flow.take(1))[0].data == shown(fill(1_048_576, i)), f"item {i} differs")
        await flow.more(1)
    await flow.end()
