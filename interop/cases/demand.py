"""More of credit and cancel: odd grants, small steps, the largest; cancels before, within, after and in crowds."""

from __future__ import annotations

import asyncio
from itertools import cycle

from afflux.protocols.rsocket import frames as f
from interop.cases.base import case, echoes
from interop.conversation import Conversation, check
from interop.program import fill, shown
from interop.proxy import Seen

_LARGEST = 0x7FFFFFFF


def _items(c: Conversation, stream: int) -> list[Seen]:
    """The items that came back on a stream."""
    return [s for s in c.seen if s.direction == "<" and s.stream == stream and s.type == 0x0A and s.flags & 0x20]


def _opened(c: Conversation, kind: type) -> int:
    """The id of the stream that was opened last."""
    return [s for s in c.seen if s.direction == ">" and s.type == kind.TYPE][-1].stream  # type: ignore[attr-defined]


@case("credit.one-by-one", "300 items, each requested after the previous one has arrived", limit=20)
async def _one_by_one(c: Conversation) -> None:
    flow = await c.asker.stream(b"!count 300 1", 1)
    for i in range(300):
        got = await flow.take(1)
        check(got[0].data == shown(b"%d" % i), f"item {i} is {got}")
        await flow.more(1)
    await flow.end()


@case("credit.odd", "odd grants: 7, then 1, 3, 13, 31 in rotation; never an item more", limit=20)
async def _odd(c: Conversation) -> None:
    flow = await c.asker.stream(b"!endless odd", 7)
    granted = 7
    await flow.take(7)
    for n in (1, 3, 13, 31, 1, 3, 13, 31):
        await flow.more(n)
        granted += n
        await flow.take(n)
    await echoes(c)
    came = len(_items(c, _opened(c, f.RequestStream)))
    check(came == granted, f"{came} items for {granted}")
    await flow.cancel()
    await c.facts.wait("canceled", tag="odd")


@case("credit.steps", "1,000 items in grants of 3, each given long before the last is used up", limit=20)
async def _steps(c: Conversation) -> None:
    flow = await c.asker.stream(b"!count 1000 4", 3)
    for _ in range(333):
        await flow.more(3)
    got = await flow.take(1000)
    check([item.data for item in got] == [shown(str(i).ljust(4, ".").encode()) for i in range(1000)], "out of order")
    await flow.end()


@case("credit.largest", "one grant of 2³¹ - 1 for 5,000 items", limit=20)
async def _largest(c: Conversation) -> None:
    flow = await c.asker.stream(b"!count 5000 8", _LARGEST)
    got = await flow.take(5000)
    check(got[-1].data == shown(b"4999...."), f"the last is {got[-1]}")
    await flow.end()


@case("credit.largest-channel", "the same for the answers of a channel", limit=20)
async def _largest_channel(c: Conversation) -> None:
    items = [b"item %d" % i for i in range(200)]
    flow = await c.asker.channel(items, _LARGEST)
    got = [item.data for item in await flow.take(200)]
    check(got == [shown(item) for item in items], "items differ")
    await flow.end()


@case("credit.channel-odd", "a channel's answers in odd grants", limit=20)
async def _channel_odd(c: Conversation) -> None:
    items = [b"item %d" % i for i in range(100)]
    flow = await c.asker.channel(items, 5)
    got = await flow.take(5)
    for n in cycle((1, 3, 7)):
        n = min(n, 100 - len(got))
        if not n:
            break
        await flow.more(n)
        got += await flow.take(n)
    check([item.data for item in got] == [shown(item) for item in items], "items differ")
    await flow.more(1)
    await flow.end()


@case("cancel.before-first", "a stream canceled before its first item", smoke=True)
async def _before_first(c: Conversation) -> None:
    flow = await c.asker.stream(b"!never a", 5)
    await c.facts.wait("never", tag="a")
    await flow.cancel()
    await c.facts.wait("canceled", tag="a")
    await echoes(c)


@case("cancel.middle", "a stream canceled with credit left: no item beyond the grant")
async def _middle(c: Conversation) -> None:
    flow = await c.asker.stream(b"!endless a", 100)
    await flow.take(10)
    await flow.cancel()
    await c.facts.wait("canceled", tag="a")
    await echoes(c)
    came = len(_items(c, _opened(c, f.RequestStream)))
    check(10 <= came <= 100, f"{came} items for 100")


@case("cancel.after-end", "CANCEL for a completed request or stream has no effect", audited=False)
async def _after_end(c: Conversation) -> None:
    await echoes(c)
    c.proxy.link.inject(">", f.Cancel(stream=_opened(c, f.RequestResponse)).encode())
    flow = await c.asker.stream(b"!count 3 1", 5)
    await flow.take(3)
    await flow.end()
    await flow.cancel()
    c.proxy.link.inject(">", f.Cancel(stream=_opened(c, f.RequestStream)).encode())
    await echoes(c)


@case("cancel.requests-at-once", "256 requests canceled together end their handlers", limit=30)
async def _requests_at_once(c: Conversation) -> None:
    await _crowd(c, 256, "request")


@case("cancel.streams-at-once", "200 streams, canceled together after one item of each", limit=30)
async def _streams_at_once(c: Conversation) -> None:
    await _crowd(c, 200, "stream")


async def _crowd(c: Conversation, count: int, kind: str) -> None:
    tags = [f"{kind}{i}" for i in range(count)]
    if kind == "request":
        flows = [await c.asker.start_request(f"!never {tag}".encode()) for tag in tags]
        await asyncio.gather(*(c.facts.wait("never", tag=tag) for tag in tags))
    else:
        flows = [await c.asker.stream(f"!endless {tag}".encode(), 3) for tag in tags]
        await asyncio.gather(*(flow.take(1) for flow in flows))
    await asyncio.gather(*(flow.cancel() for flow in flows))
    await asyncio.gather(*(c.facts.wait("canceled", tag=tag) for tag in tags))
    await echoes(c)


@case("cancel.in-a-row", "2,000 endless streams, eight at a time, each canceled after five items", limit=60)
async def _in_a_row(c: Conversation) -> None:
    async def row(name: str) -> None:
        for i in range(250):
            flow = await c.asker.stream(f"!endless {name}{i}".encode(), 5)
            await flow.take(5)
            await flow.cancel()
        await c.facts.wait("canceled", tag=f"{name}249")

    await asyncio.gather(*(row(name) for name in "abcdefgh"))
    await echoes(c)


def _burst(name: str, title: str, count: int, size: int) -> None:
    @case(f"load.{name}", title, limit=60)
    async def body(c: Conversation) -> None:
        told = await c.asker.burst(count, size)
        check(told == {"answered": count, "wrong": 0, "failed": {}}, f"{told}"[:400])
        await echoes(c)


_burst("echoes", "10,000 concurrent echoes", 10_000, 0)
_burst("echoes-1k", "10,000 concurrent echoes of 1 KiB: more than connection_bytes", 10_000, 1_024)
_burst("echoes-64k", "500 of 64 KiB: four times connection_bytes", 500, 65_536)
_burst("echoes-1m", "24 of 1 MiB: three times connection_bytes", 24, 1_048_576)


@case("load.big-items", "eight concurrent streams, each of eight items of 256 KiB, two granted at a time", limit=60)
async def _big_items(c: Conversation) -> None:
    async def one() -> None:
        flow = await c.asker.stream(b"!size 262144 0 8", 2)
        for start in range(0, 8, 2):
            for i, item in enumerate(await flow.take(2)):
                check(item.data == shown(fill(262_144, start + i)), f"item {start + i} differs")
            await flow.more(2)
        await flow.end()

    await asyncio.gather(*(one() for _ in range(8)))
