"""All interactions at once, by a seed: what each case shows alone has to hold in a crowd, and over breaks too."""

from __future__ import annotations

import asyncio
from random import Random

from interop.cases.base import case, echoes, fails
from interop.cases.sessions import RATE
from interop.conversation import Conversation, check
from interop.program import fill, shown
from interop.responder import expected_sum

_SEED = 7
_MANY = 60


async def _echo(c: Conversation, random: Random) -> None:
    data = fill(random.choice((1, 50, 300, 5_000, 40_000)), 3)
    item = await c.asker.request(data)
    check(item is not None and item.data == shown(data), f"the echo of {len(data)} bytes differs")


async def _stream(c: Conversation, random: Random) -> None:
    count, first = random.randint(1, 200), random.randint(1, 20)
    flow = await c.asker.stream(b"!count %d 9" % count, first)
    left, granted = count, first
    while left:
        taken = await flow.take(min(granted, left))
        start = count - left
        wanted = [shown(str(start + i).ljust(9, ".").encode()) for i in range(len(taken))]
        check([item.data for item in taken] == wanted, f"a stream of {count} differs after {start}")
        left -= len(taken)
        granted = random.randint(1, 20)
        await flow.more(granted)
    await flow.end()


async def _channel(c: Conversation, random: Random) -> None:
    items = [b"item %d" % i * random.choice((1, 1, 100)) for i in range(random.randint(1, 60))]
    flow = await c.asker.channel(items, 5)
    got = []
    while len(got) < len(items):
        got += [item.data for item in await flow.take(min(5, len(items) - len(got)))]
        await flow.more(5)
    await flow.end()
    check(got == [shown(item) for item in items], "a channel's items differ")


async def _sum(c: Conversation, random: Random) -> None:
    items = [b"!sum", *(fill(random.choice((5, 3_000)), i) for i in range(random.randint(1, 60)))]
    flow = await c.asker.channel(items, 10)
    check((await flow.take(1))[0].data == shown(expected_sum(items)), "another sum")
    await flow.end()


async def _given_up(c: Conversation, random: Random) -> None:
    tag = f"tag{random.getrandbits(40)}"
    flow = await c.asker.start_request(f"!never {tag}".encode())
    await c.facts.wait("never", tag=tag)
    await flow.cancel()
    await c.facts.wait("canceled", tag=tag)


async def _enough(c: Conversation, random: Random) -> None:
    tag = f"tag{random.getrandbits(40)}"
    flow = await c.asker.stream(f"!endless {tag}".encode(), random.randint(1, 50))
    await flow.take(1)
    await flow.cancel()
    await c.facts.wait("canceled", tag=tag)


async def _failed(c: Conversation, random: Random) -> None:
    await fails(c.asker.request(b"!fail no"), 0x201, "no")


async def _crowd(c: Conversation) -> None:
    random = Random(_SEED)
    kinds = (_echo, _stream, _channel, _sum, _given_up, _enough, _failed)
    await asyncio.gather(*(random.choice(kinds)(c, Random(random.random())) for _ in range(_MANY)))


@case("load.mixed", "sixty concurrent interactions of every kind", limit=30, mtu=1500)
async def _mixed(c: Conversation) -> None:
    await _crowd(c)
    await echoes(c)


@case("resume.mixed", "the same over three breaks", resume=True, limits=RATE, limit=30)
async def _broken(c: Conversation) -> None:
    await echoes(c)
    crowd = asyncio.ensure_future(_crowd(c))
    for _ in range(3):
        frames = len(c.seen)
        await c.proxy.wait(lambda frames=frames: crowd.done() or len(c.seen) > frames + 100)  # type: ignore[misc]
        links = len(c.proxy.links)
        c.proxy.link.cut()
        await c.proxy.wait(lambda links=links: len(c.proxy.links) > links)  # type: ignore[misc]
    await crowd
    await echoes(c)
