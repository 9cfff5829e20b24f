"""What honest clients of RSocket's family do alike. ``wire`` is the module of their frames."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.honest.catalogue import Place

ENDLESS = b'{"count": 4611686018427387904}'


async def stream_a_thousand_at_once(client: Any, wire: Any, **fields: Any) -> None:
    """More than the server serves at a time, each with an end."""
    ids = client.ids(1_000)
    await client.send(*(wire.stream(id, b'{"count": 5}', 32, **fields) for id in ids))
    for answer in await client.done(*ids):
        assert answer.items == [b"0", b"1", b"2", b"3", b"4"], answer.error


async def take_five_of_an_endless_stream(client: Any, wire: Any) -> None:
    """2,000 times: five are asked for, and the stream is cancelled."""
    for id in client.ids(2_000):
        await client.send(wire.stream(id, ENDLESS, 5))
        assert await client.items(id, 5) == [b"0", b"1", b"2", b"3", b"4"]
        await client.send(wire.cancel(id))
        del client.answers[id]


async def grant_for_each_item(client: Any, wire: Any) -> None:
    id = client.id()
    await client.send(wire.stream(id, b'{"count": 1000}', 1))
    for number in range(1, 1_001):
        await client.items(id, number)
        await client.send(wire.grant(id, 1))
    assert len((await client.done(id))[0].items) == 1_000


async def cancel_the_second_of_two(client: Any, wire: Any) -> None:
    """Two requests in one write and CANCEL of the second right behind, 600 times; then ordinary ones."""
    ones = []
    for _ in range(600):
        one, two = client.ids(2)
        ones.append(one)
        await client.send(wire.request(one, b"one"), wire.request(two, b"two"))
        await client.send(wire.cancel(two))
    assert {answer.data for answer in await client.done(*ones)} == {b"one"}
    await client.echoes([b"%d" % n for n in range(250)])


async def read_nothing(client: Any, wire: Any, seconds: float) -> None:
    """A pause of the client; then it catches up: 20 MB of a stream, and requests behind it."""
    id, *more = client.ids(201)
    await client.send(wire.stream(id, b'{"count": 20000, "size": 1000}'))
    client.link.pause()
    await client.send(*(wire.request(other, b"later") for other in more))
    await asyncio.sleep(seconds)
    client.link.resume()
    items, *answers = await client.done(id, *more)
    assert len(items.items) == 20_000
    assert all(answer.data == b"later" for answer in answers)


async def keep_alive_every_10_ms(at: Place, client: Any, ping: bytes, *, respond: bool) -> None:
    """150 times, as announced, each with the same ``ping``; then the end."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    for count in range(1, 151):
        await client.send(ping)
        await asyncio.sleep(max(0.0, start + count * 0.01 - loop.time()))
    await client.works()
    while len(client.echoed) < (150 if respond else 0):
        await client.turn()
    at.clients.remove(client)  # nothing more is heard of it, so it lives no longer than it announced
    client.link.finish()
    await client.link.end()
