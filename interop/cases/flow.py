"""Cancel, credit, and much at once."""

from __future__ import annotations

import asyncio

from afflux.protocols.rsocket import frames as f
from interop.cases.base import case, echoes
from interop.conversation import Conversation, check
from interop.program import shown
from interop.proxy import Seen


def _items(c: Conversation, stream: int) -> list[Seen]:
    """The items that came back on a stream."""
    return [s for s in c.seen if s.direction == "<" and s.stream == stream and s.type == 0x0A and s.flags & 0x20]


async def _opened(c: Conversation, kind: type) -> int:
    """The id of the stream that was opened last."""
    return [s for s in c.seen if s.direction == ">" and s.type == kind.TYPE][-1].stream  # type: ignore[attr-defined]


@case("cancel.request", "canceling a request ends its handler", smoke=True)
async def _request(c: Conversation) -> None:
    flow = await c.asker.start_request(b"!never a")
    await c.facts.wait("never", tag="a")
    await flow.cancel()
    await c.facts.wait("canceled", tag="a")
    await echoes(c)


@case("cancel.stream", "canceling a stream ends its producer", smoke=True)
async def _stream(c: Conversation) -> None:
    flow = await c.asker.stream(b"!endless a", 5)
    await flow.take(3)
    await flow.cancel()
    await c.facts.wait("canceled", tag="a")
    await echoes(c)


@case("cancel.early", "canceling a stream immediately has no other effect")
async def _early(c: Conversation) -> None:
    for _ in range(10):
        flow = await c.asker.stream(b"!endless early", 1)
        await flow.cancel()
    await echoes(c)


@case("cancel.channel", "a channel canceled by the requester ends in both directions")
async def _channel(c: Conversation) -> None:
    flow = await c.asker.channel([b"!never a"], 5, open=True)
    await c.facts.wait("never", tag="a")
    await flow.cancel()
    await c.facts.wait("canceled", tag="a")
    await echoes(c)


@case("cancel.channel-inbound", "a responder that cancels its input stops only the requester's source (RSocket D-6)")
async def _inbound(c: Conversation) -> None:
    flow = await c.asker.channel([b"!take 2"], 5, endless=True)
    got = await flow.take(1)
    check(got[0].data == shown(b"took 2"), f"got {got}")
    await flow.end()
    await flow.stopped()
    await echoes(c)


@case("cancel.fire", "CANCEL for a fire-and-forget has no effect", audited=False)
async def _fire(c: Conversation) -> None:
    await c.asker.fire(b"done already")
    await c.facts.wait("fired", data=shown(b"done already"))
    c.proxy.link.inject(">", f.Cancel(stream=await _opened(c, f.RequestFnf)).encode())
    await echoes(c)


@case("credit.one", "one item at a time")
async def _one(c: Conversation) -> None:
    flow = await c.asker.stream(b"!count 5 1", 1)
    for i in range(5):
        got = await flow.take(1)
        check(got[0].data == shown(b"%d" % i), f"item {i} is {got}")
        await flow.more(1)
    await flow.end()


@case("credit.exact", "never more than was requested", smoke=True)
async def _exact(c: Conversation) -> None:
    flow = await c.asker.stream(b"!endless a", 3)
    await flow.take(3)
    await echoes(c)
    stream = await _opened(c, f.RequestStream)
    check(len(_items(c, stream)) == 3, f"{len(_items(c, stream))} items for 3")
    await flow.more(2)
    await flow.take(2)
    await echoes(c)
    check(len(_items(c, stream)) == 5, f"{len(_items(c, stream))} items for 5")
    await flow.cancel()


@case("credit.last", "a stream that ends with the last granted item completes without further credit")
async def _last(c: Conversation) -> None:
    flow = await c.asker.stream(b"!count 3 1", 3)
    await flow.take(3)
    await flow.end()


@case("credit.last-channel", "the same for the answers of a channel")
async def _last_channel(c: Conversation) -> None:
    flow = await c.asker.channel([b"one", b"two"], 2)
    await flow.take(2)
    await flow.end()


@case("credit.adds", "credit adds up")
async def _adds(c: Conversation) -> None:
    flow = await c.asker.stream(b"!endless a", 1)
    for n in (2, 3, 4):
        await flow.more(n)
    await flow.take(10)
    await echoes(c)
    check(len(_items(c, await _opened(c, f.RequestStream))) == 10, "not the ten that were asked for")
    await flow.cancel()


@case("credit.big", "the largest grant, twice")
async def _big(c: Conversation) -> None:
    flow = await c.asker.stream(b"!count 1000 4", 0x7FFFFFFF)
    await flow.more(0x7FFFFFFF)
    await flow.take(1000)
    await flow.end()


@case("credit.channel-answers", "a channel's answers, one at a time")
async def _channel_answers(c: Conversation) -> None:
    items = [b"item %d" % i for i in range(5)]
    flow = await c.asker.channel(items, 1)
    for item in items:
        check((await flow.take(1))[0].data == shown(item), "items out of order")
        await flow.more(1)
    await flow.end()


@case("credit.channel-items", "a channel's items, requested one at a time by the responder")
async def _channel_items(c: Conversation) -> None:
    items = [b"!one", *(b"item %d" % i for i in range(20))]
    flow = await c.asker.channel(items, 100)
    got = [item.data for item in await flow.take(len(items))]
    check(got == [shown(item) for item in items], f"got {got}")
    await flow.end()


@case("load.requests", "64 concurrent requests", limit=20, smoke=True)
async def _requests(c: Conversation) -> None:
    got = await asyncio.gather(*(c.asker.request(b"request %d" % i) for i in range(64)))
    check([item and item.data for item in got] == [shown(b"request %d" % i) for i in range(64)], "answers got mixed")


@case("load.streams", "64 concurrent streams", limit=20)
async def _streams(c: Conversation) -> None:
    async def one(i: int) -> None:
        flow = await c.asker.stream(b"!count 20 %d" % (i + 2), 7)
        for step in (7, 7, 6):
            got = await flow.take(step)
            check(all(item.data is not None and len(item.data) == 2 * (i + 2) + 2 for item in got), "items got mixed")
            await flow.more(7)
        await flow.end()

    await asyncio.gather(*(one(i) for i in range(64)))


@case("load.items", "10,000 items, a hundred granted at a time", limit=30)
async def _many(c: Conversation) -> None:
    flow = await c.asker.stream(b"!count 10000 16", 200)
    for start in range(0, 10_000, 100):
        got = await flow.take(100)
        check(got[0].data == shown(str(start).ljust(16, ".").encode()), f"item {start} is {got[0]}")
        await flow.more(100)
    await flow.end()


@case("load.channel", "1,000 items through a channel", limit=30)
async def _channel_many(c: Conversation) -> None:
    items = [b"item %d" % i for i in range(1000)]
    flow = await c.asker.channel(items, 50)
    for start in range(0, 1000, 50):
        got = [item.data for item in await flow.take(50)]
        check(got == [shown(item) for item in items[start : start + 50]], f"items {start} to {start + 49} differ")
        await flow.more(50)
    await flow.end()
