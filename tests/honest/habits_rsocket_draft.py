"""Honest habits of clients of the extensible draft. No other implementation speaks it: these follow its text."""

from __future__ import annotations

import asyncio
from secrets import token_bytes

from tests.honest import family
from tests.honest import rsocket as rs
from tests.honest import rsocket_draft as rx
from tests.honest.catalogue import MiB, Place, habit, together
from tests.honest.family import ENDLESS
from tests.honest.rsocket_draft import Client

both = ("tcp", "ws")
OWN = (rx.entry(b"trace", b"0123456789abcdef"), rx.entry(b"tenant", b"abcd"), rx.entry(0x30, b""))
"Entries that the server does not understand and may ignore."


@habit("rsocket-draft", *both)
async def draft_requests_in_the_segment_of_the_setup(at: Place) -> None:
    client = await Client.open(at, rx.setup(), *(rx.request(id, b"%d" % id) for id in range(1, 41, 2)))
    client.used(39)
    assert [answer.data for answer in await client.done(*range(1, 41, 2))] == [b"%d" % id for id in range(1, 41, 2)]


@habit("rsocket-draft", *both)
async def draft_a_byte_at_a_time(at: Place) -> None:
    client = Client(await at.dial(rs.FRAMING))
    at.clients.append(client)
    first = [rx.setup(rx.alive()), rx.request(1, b"one", entries=OWN), rx.stream(3, b'{"count": 3}', entries=OWN)]
    for byte in client.link.wrapped(first):
        await client.link.write(bytes((byte,)))
        await asyncio.sleep(0)
    client.used(3)
    one, three = await client.done(1, 3)
    assert (one.data, three.items) == (b"one", [b"0", b"1", b"2"])


@habit("rsocket-draft", *both)
async def draft_setups_of_any_kind(at: Place) -> None:
    """MIME types by number and by name, a payload, ignored entries, no entries, keepalive without a length."""
    for hello in (
        rx.setup(),
        rx.setup(data_mime=0x05, metadata_mime=0x7F),
        rx.setup(data_mime=b"application/json", metadata_mime=b"x/y", data=b"hello"),
        rx.setup(rx.alive(flags=0)),
        rx.setup(*OWN, rx.alive(), rx.entry(b"last")),
        rx.setup(rx.entry(b"keepalive", bytes.fromhex("00004e2000015f90"))),
        rx.setup(rx.alive(10, rs.MAX)),
    ):
        client = await Client.open(at, hello)
        await client.works()


@habit("rsocket-draft", *both)
async def draft_a_setup_that_is_acknowledged(at: Place) -> None:
    """By the frame's flag, or by an entry's: nothing is sent before SETUP_OK."""
    for hello in (
        rx.setup(ack=True),
        rx.setup(rx.alive(), ack=True),
        rx.setup(rx.alive(flags=rx.IGNORABLE | rx.ACKNOWLEDGE)),
        rx.setup(rx.alive(), *OWN, ack=True),
    ):
        client = await Client.open(at, hello)
        assert (await client.turn()).kind == rx.SETUP_OK
        await client.works()


@habit("rsocket-draft", *both)
async def draft_entries_on_every_frame_that_may_have_them(at: Place) -> None:
    client = await Client.open(at)
    for _ in range(50):
        one, two, three = client.ids(3)
        await client.send(
            rx.request(one, b"one", entries=OWN),
            rx.stream(two, b'{"count": 9}', 2, OWN),
            rx.request(three, b"", kind=rs.FNF, entries=OWN),
            rx.grant(two, 3, *OWN),
        )
        assert [answer.data for answer in await client.done(one)] == [b"one"]
        await client.items(two, 5)
        await client.send(rx.cancel(two, *OWN))


@habit("rsocket-draft", *both)
async def draft_a_thousand_echoes_at_once(at: Place) -> None:
    client = await Client.open(at)
    await client.echoes(b"%d" % n for n in range(1_000))
    ids = client.ids(1_000)
    await client.send(*(rx.request(id, b"%d" % id, entries=OWN) for id in ids))
    for id, answer in zip(ids, await client.done(*ids), strict=True):
        assert answer.data == b"%d" % id


@habit("rsocket-draft", *both)
async def draft_metadata_and_entries(at: Place) -> None:
    client = await Client.open(at)
    await client.echoes([b"data"], metadata=b"")
    await client.echoes([b"data"], metadata=b"any bytes \x00\xff")
    id = client.id()
    await client.send(rx.request(id, b"data", b"metadata", entries=OWN))
    (answer,) = await client.done(id)
    assert answer.data == b"data"


@habit("rsocket-draft")
async def draft_a_thousand_streams_at_once(at: Place) -> None:
    await family.stream_a_thousand_at_once(await Client.open(at), rx, entries=OWN)


@habit("rsocket-draft", *both, memory=48 * MiB)
async def draft_large_payloads(at: Place) -> None:
    client = await Client.open(at)
    await client.echoes([bytes(range(256)) * 4_096])
    await client.echoes([bytes((n,)) * MiB for n in range(20)])


@habit("rsocket-draft", *both)
async def draft_two_thousand_times_five_of_an_endless_stream(at: Place) -> None:
    await family.take_five_of_an_endless_stream(await Client.open(at), rx)


@habit("rsocket-draft", *both)
async def draft_a_grant_for_each_item(at: Place) -> None:
    await family.grant_for_each_item(await Client.open(at), rx)


@habit("rsocket-draft", *both)
async def draft_entries_of_its_own_on_EXT(at: Place) -> None:
    """Now and then, beside requests."""
    client = await Client.open(at)
    for _ in range(20):
        await client.send(rx.ext(*OWN))
        await client.works()
        await asyncio.sleep(0.05)


@habit("rsocket-draft", waits=True)
async def draft_keepalives_every_10_ms(at: Place) -> None:
    """As announced; with and without the respond flag."""
    for respond in (True, False):
        client = await Client.open(at, rx.setup(rx.alive(10, 400)))
        await family.keep_alive_every_10_ms(at, client, rx.ping(b"alive", respond=respond), respond=respond)


@habit("rsocket-draft", waits=True)
async def draft_no_keepalives_where_none_are_agreed(at: Place) -> None:
    """There are no timers then; the legacy KEEPALIVE is answered."""
    client = await Client.open(at, rx.setup())
    await client.send(rs.keepalive(b"legacy"))
    await asyncio.sleep(2)
    await client.works()
    assert client.echoed == [b"legacy"]


@habit("rsocket-draft", server="resume")
async def draft_sessions_that_are_never_resumed(at: Place) -> None:
    """A token, streams that opt in, and goodbye without a word."""
    for _ in range(30):
        session = rx.entry(rx.RESUME, b"\0\x10" + token_bytes(16))
        client = await Client.open(at, rx.setup(rx.alive(), session))
        await client.send(rx.stream(client.id(), ENDLESS, 3, [rx.entry(rx.RESUME, b"", rx.IGNORABLE | rx.MARK)]))
        at.clients.remove(client)
        client.link.finish()
        await client.link.end()
    await Client.open(at)


@habit("rsocket-draft")
async def draft_three_hundred_connections(at: Place) -> None:
    clients = await together(Client.open(at) for _ in range(300))
    await together(client.works() for client in clients)
