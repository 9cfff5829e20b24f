"""Honest habits of ReactiveSocket clients: the implementations of 2015 in Java, Go, C++ and JavaScript."""

from __future__ import annotations

import asyncio

from tests.honest import family
from tests.honest import reactivesocket as r0
from tests.honest.catalogue import MiB, Place, habit, together
from tests.honest.reactivesocket import Client

both = ("tcp", "ws")


@habit("reactivesocket", *both)
async def old_requests_in_the_segment_of_the_setup(at: Place) -> None:
    client = await Client.open(at, r0.setup(), *(r0.request(id, b"%d" % id) for id in range(2, 42, 2)))
    client.used(40)
    assert [answer.data for answer in await client.done(*range(2, 42, 2))] == [b"%d" % id for id in range(2, 42, 2)]


@habit("reactivesocket", *both)
async def old_a_byte_at_a_time(at: Place) -> None:
    client = Client(await at.dial(r0.FRAMING))
    at.clients.append(client)
    for byte in client.link.wrapped([r0.setup(), r0.request(2, b"one"), r0.stream(4, b'{"count": 3}')]):
        await client.link.write(bytes((byte,)))
        await asyncio.sleep(0)
    client.used(4)
    one, three = await client.done(2, 4)
    assert (one.data, three.items) == (b"one", [b"0", b"1", b"2"])


@habit("reactivesocket", *both)
async def old_intervals_of_any_kind(at: Place) -> None:
    """0 is no supervision; the Java implementation's own figures; 2^31 - 1."""
    for keepalive, lifetime in ((0, 0), (0, 10_000), (500, 30_000), (r0.MAX, r0.MAX), (1_000, 500)):
        client = await Client.open(at, r0.setup(keepalive, lifetime))
        await client.works()


@habit("reactivesocket", *both)
async def old_a_thousand_echoes_at_once(at: Place) -> None:
    await (await Client.open(at)).echoes(b"%d" % n for n in range(1_000))


@habit("reactivesocket")
async def old_ten_thousand_echoes_at_once(at: Place) -> None:
    await (await Client.open(at)).echoes(b"%d" % n for n in range(10_000))


@habit("reactivesocket")
async def old_a_thousand_streams_at_once(at: Place) -> None:
    await family.stream_a_thousand_at_once(await Client.open(at), r0)


@habit("reactivesocket", *both, memory=48 * MiB)
async def old_large_frames(at: Place) -> None:
    """A request cannot be fragmented in the text of 2015: 1 MiB and exactly 4 MiB come in one frame."""
    client = await Client.open(at)
    await client.echoes([bytes(range(256)) * 4_096])
    await client.echoes([bytes(4 * MiB)])
    await client.echoes([bytes((n,)) * MiB for n in range(20)])


@habit("reactivesocket", *both)
async def old_a_flag_for_metadata_and_none(at: Place) -> None:
    client = await Client.open(at)
    await client.echoes([b"data"], metadata=b"")
    await client.echoes([b"data"], metadata=b"any bytes \x00\xff")


@habit("reactivesocket", *both)
async def old_two_thousand_times_five_of_an_endless_stream(at: Place) -> None:
    await family.take_five_of_an_endless_stream(await Client.open(at), r0)


@habit("reactivesocket", *both)
async def old_five_of_five(at: Place) -> None:
    """The CANCEL crosses the end, 1,500 times."""
    client = await Client.open(at)
    for id in client.ids(1_500):
        await client.send(r0.stream(id, b'{"count": 5}', 5))
        assert len(await client.items(id, 5)) == 5
        await client.send(r0.cancel(id))


@habit("reactivesocket", *both)
async def old_grants_of_the_java_implementation(at: Place) -> None:
    """Initial N of at most 1,024, N in the flags, refills below 256, and REQUEST_N of 0 now and then."""
    client = await Client.open(at)
    id = client.id()
    await client.send(r0.stream(id, b'{"count": 5000}', 1_024, flags=r0.N))
    for wanted in range(768, 5_000, 768):
        await client.items(id, wanted)
        await client.send(r0.grant(id, 768), r0.grant(id, 0))
    assert len((await client.done(id))[0].items) == 5_000


@habit("reactivesocket", *both)
async def old_a_grant_for_each_item(at: Place) -> None:
    await family.grant_for_each_item(await Client.open(at), r0)


@habit("reactivesocket", *both)
async def old_grants_behind_the_end(at: Place) -> None:
    client = await Client.open(at)
    for id in client.ids(1_500):
        await client.send(r0.stream(id, b'{"count": 4}', 4))
        await client.items(id, 3)
        await client.send(r0.grant(id, 3))
        assert len((await client.done(id))[0].items) == 4


@habit("reactivesocket", *both)
async def old_cancels_behind_answers(at: Place) -> None:
    client = await Client.open(at)
    for _ in range(30):
        ids = client.ids(100)
        await client.send(*(r0.request(id, b"x") for id in ids))
        await client.done(*ids)
        await client.send(*map(r0.cancel, ids))


@habit("reactivesocket", *both)
async def old_streams_that_time_out_together(at: Place) -> None:
    """256 endless streams, 256 CANCELs in one write, again and again."""
    client = await Client.open(at)
    for _ in range(12):
        ids = client.ids(256)
        await client.send(*(r0.stream(id, b'{"count": 9, "delay_ms": 3600000}', 1) for id in ids))
        await client.send(*map(r0.cancel, ids))
        await client.works()


@habit("reactivesocket")
async def old_the_second_of_two_is_cancelled(at: Place) -> None:
    await family.cancel_the_second_of_two(await Client.open(at), r0)


@habit("reactivesocket", *both)
async def old_a_channel_by_credit(at: Place) -> None:
    client = await Client.open(at)
    id = client.id()
    await client.send(r0.channel(id, b"0", 16))
    answer, sent = client.of(id), 1
    while sent < 500:
        while answer.granted < sent:
            await client.turn()
        await client.send(r0.channel(id, b"%d" % sent), r0.grant(id, 1))
        sent += 1
    assert await client.items(id, 500) == [b"%d" % n for n in range(500)]
    await client.send(r0.channel(id, b"", flags=r0.COMPLETE))
    await client.done(id)


@habit("reactivesocket", waits=True)
async def old_keepalives_every_10_ms(at: Place) -> None:
    """As announced; with and without the respond flag."""
    for respond in (True, False):
        client = await Client.open(at, r0.setup(10, 400))
        await family.keep_alive_every_10_ms(at, client, r0.keepalive(b"alive", respond=respond), respond=respond)


@habit("reactivesocket")
async def old_three_hundred_connections(at: Place) -> None:
    clients = await together(Client.open(at) for _ in range(300))
    await together(client.works() for client in clients)


@habit("reactivesocket", waits=True, memory=32 * MiB)
async def old_nothing_is_read_for_a_second(at: Place) -> None:
    await family.read_nothing(await Client.open(at, receive_buffer=65_536), r0, 1)


@habit("reactivesocket", *both)
async def old_frames_that_may_be_ignored(at: Place) -> None:
    """EXT with the ignore flag; a second SETUP; flags that are not assigned."""
    client = await Client.open(at)
    await client.send(r0.frame(7, 0xFFFF, b"something", 0x8000))
    await client.send(r0.request(client.id(), b"x")[:2] + b"\x00\x7f" + r0.request(2, b"x")[4:])
    (answer,) = await client.done(2)
    assert answer.data == b"x"
