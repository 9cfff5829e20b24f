"""Honest habits of reactive-streams-io clients. No implementation is public; these are what the text allows."""

from __future__ import annotations

import asyncio

from tests.honest import rsio
from tests.honest.catalogue import MiB, Place, habit, together
from tests.honest.rsio import Client

ENDLESS = b"count:4611686018427387904:8"


@habit("rsio")
async def rsio_subscriptions_in_the_segment_of_the_hello(at: Place) -> None:
    client = await Client.open(at, *(rsio.subscribe(id, b"count:3:1", 5) for id in range(50)))
    ids = client.ids(50)
    assert [one.items for one in await client.done(*ids)] == [[b"0", b"1", b"2"]] * 50


@habit("rsio")
async def rsio_a_byte_at_a_time(at: Place) -> None:
    client = Client(await at.dial(rsio.FRAMING))
    at.clients.append(client)
    (id,) = client.ids(1)
    for byte in rsio.HELLO + rsio.subscribe(id, b"count:3:1", 1) + rsio.request(id, 1) + rsio.request(id, 1):
        await client.link.write(bytes((byte,)))
        await asyncio.sleep(0)
    assert (await client.done(id))[0].items == [b"0", b"1", b"2"]


@habit("rsio")
async def rsio_long_varints(at: Place) -> None:
    """Numbers of a fixed width, as some writers have them."""
    client = await Client.open(at)
    (id,) = client.ids(1)
    name = b"count:3:1"
    await client.send(b"\x03" + rsio.varint(len(name), 3) + name + rsio.varint(id, 4) + rsio.varint(5, 4))
    assert (await client.done(id))[0].items == [b"0", b"1", b"2"]


@habit("rsio")
async def rsio_extensions_that_are_not_known(at: Place) -> None:
    client = Client(await at.dial(rsio.FRAMING))
    at.clients.append(client)
    await client.send(b"\x01\x00\x03" + rsio.varint(77) + rsio.varint(1_000) + rsio.varint(1 << 40))
    await client.works()


@habit("rsio")
async def rsio_a_thousand_subscriptions_at_once(at: Place) -> None:
    client = await Client.open(at)
    ids = client.ids(1_000)
    await client.send(*(rsio.subscribe(id, b"count:5:2", 16) for id in ids))
    for one in await client.done(*ids):
        assert one.items == [b"0.", b"1.", b"2.", b"3.", b"4."]


@habit("rsio")
async def rsio_ten_thousand_subscriptions_at_once(at: Place) -> None:
    client = await Client.open(at)
    ids = client.ids(10_000)
    await client.send(*(rsio.subscribe(id, b"count:1:1", rsio.UNBOUNDED) for id in ids))
    for one in await client.done(*ids):
        assert one.items == [b"0"]


@habit("rsio")
async def rsio_two_thousand_times_five_of_an_endless_stream(at: Place) -> None:
    client = await Client.open(at)
    for id in client.ids(2_000):
        await client.send(rsio.subscribe(id, ENDLESS, 5))
        assert len(await client.items(id, 5)) == 5
        await client.send(rsio.cancel(id))


@habit("rsio")
async def rsio_fifty_times_five_of_an_unbounded_stream(at: Place) -> None:
    client = await Client.open(at)
    for id in client.ids(50):
        await client.send(rsio.subscribe(id, ENDLESS, rsio.UNBOUNDED))
        await client.items(id, 5)
        await client.send(rsio.cancel(id))
        await client.works()


@habit("rsio")
async def rsio_five_of_five(at: Place) -> None:
    """The cancel crosses onComplete, 1,500 times."""
    client = await Client.open(at)
    for id in client.ids(1_500):
        await client.send(rsio.subscribe(id, b"count:5:2", 5))
        await client.items(id, 5)
        await client.send(rsio.cancel(id), rsio.request(id, 5))


@habit("rsio")
async def rsio_ids_are_used_again(at: Place) -> None:
    """The same id after each end, 1,000 times."""
    client = await Client.open(at)
    (id,) = client.ids(1)
    for _ in range(1_000):
        client.of[id] = rsio.Subscription()
        await client.send(rsio.subscribe(id, b"count:2:1", 2))
        assert (await client.done(id))[0].items == [b"0", b"1"]


@habit("rsio")
async def rsio_a_request_for_each_item(at: Place) -> None:
    client = await Client.open(at)
    (id,) = client.ids(1)
    await client.send(rsio.subscribe(id, b"count:1000:4", 0))
    for number in range(1, 1_001):
        await client.send(rsio.request(id, 1))
        await client.items(id, number)
    await client.done(id)


@habit("rsio")
async def rsio_requests_without_end(at: Place) -> None:
    """Long.MAX_VALUE again and again."""
    client = await Client.open(at)
    (id,) = client.ids(1)
    await client.send(rsio.subscribe(id, b"count:3000:8", 1), rsio.request(id, rsio.UNBOUNDED) * 20)
    assert len((await client.done(id))[0].items) == 3_000


@habit("rsio", memory=32 * MiB)
async def rsio_large_items(at: Place) -> None:
    """1 MiB each, and exactly 4 MiB."""
    client = await Client.open(at)
    for name, count, size in ((b"count:20:1048576", 20, MiB), (b"count:3:4194304", 3, 4 * MiB)):
        (id,) = client.ids(1)
        await client.send(rsio.subscribe(id, name, rsio.UNBOUNDED))
        items = (await client.done(id))[0].items
        assert [len(item) for item in items] == [size] * count


@habit("rsio", waits=True, memory=32 * MiB)
async def rsio_nothing_is_read_for_a_second(at: Place) -> None:
    client = await Client.open(at, receive_buffer=65_536)
    one, *more = client.ids(101)
    await client.send(rsio.subscribe(one, b"count:20000:1000", rsio.UNBOUNDED))
    client.link.pause()
    await client.send(*(rsio.subscribe(id, b"count:1:1", 1) for id in more))
    await asyncio.sleep(1)
    client.link.resume()
    found = await client.done(one, *more)
    assert [len(one.items) for one in found] == [20_000] + [1] * 100


@habit("rsio")
async def rsio_three_hundred_connections(at: Place) -> None:
    clients = await together(Client.open(at) for _ in range(300))
    await together(client.works() for client in clients)


@habit("rsio")
async def rsio_says_goodbye(at: Place) -> None:
    """A goodbye is answered, and the connection ends in order, 100 times."""
    for _ in range(100):
        client = await Client.open(at)
        await client.works()
        at.clients.remove(client)
        await client.send(rsio.GOODBYE)
        await client.link.end()
        assert client.link.ended == "the server has ended its half"
    await Client.open(at)
