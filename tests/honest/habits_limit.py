"""Honest habits of Limit-Stream clients. No implementation is public; these are what the specification permits."""

from __future__ import annotations

import asyncio
import struct

from tests.honest import limit
from tests.honest.catalogue import MiB, Place, habit, together
from tests.honest.limit import Client

both = ("tcp", "ws")


@habit("limit", *both)
async def limit_all_in_the_segment_of_the_setup(at: Place) -> None:
    client = await Client.open(at)
    await client.link.send(*client.sum(b"\x01", b"\x02"))
    answer = await client.frame()
    assert (answer.id, answer.kind, answer.body) == (10, limit.PAYLOAD, b"\x03")
    end = await client.frame()
    assert (end.id, end.kind, end.body) == (0, limit.END, b"")


@habit("limit", *both)
async def limit_a_byte_at_a_time(at: Place) -> None:
    client = await Client.open(at)
    for byte in client.link.wrapped(client.sum(b"\x05")):
        await client.link.write(bytes((byte,)))
        await asyncio.sleep(0)
    assert await client.until_end() == [b"\x05"]


@habit("limit")
async def limit_a_frame_at_a_time(at: Place) -> None:
    """The client waits between its messages."""
    client = await Client.open(at)
    for frame in client.sum(b"\x01", b"\x02", b"\x03"):
        await client.link.send(frame)
        await asyncio.sleep(0.02)
    assert await client.until_end() == [b"\x06"]


@habit("limit", *both)
async def limit_every_choice_is_sent(at: Place) -> None:
    """CHOOSE 0 is implied by the number after it, and may be sent (R-28)."""
    client = await Client.open(at, limit.setup(b"sum"))
    first = client.value(b"\x01")
    more = [part for number in range(2, 10) for part in (client.choice(0), client.value(bytes((number,))))]
    await client.link.send(first, *more, client.choice(1), client.value(limit.DONE))
    assert await client.until_end() == [b"\x2d"]


@habit("limit", *both)
async def limit_integers_of_every_format(at: Place) -> None:
    """Longer ones than necessary, with and without a sign."""
    client = await Client.open(at)
    forms = ("!Bb", 0xD0), ("!Bh", 0xD1), ("!Bi", 0xD2), ("!Bq", 0xD3)
    signed = [struct.pack(form, head, -1) for form, head in forms]
    unsigned = [
        struct.pack(form, head, 1) for form, head in (("!BB", 0xCC), ("!BH", 0xCD), ("!BI", 0xCE), ("!BQ", 0xCF))
    ]
    await client.link.send(*client.sum(*signed, *unsigned, b"\xff", b"\x01", b"\x2a"))
    assert await client.until_end() == [b"\x2a"]


@habit("limit", *both)
async def limit_metadata_and_frames_that_are_skipped(at: Place) -> None:
    client = await Client.open(at, *limit.SKIPPED)
    await client.link.send(limit.setup(b"sum", b"any data"))
    for number in range(20):
        await client.link.send(client.value(b"\x01", b"item %d" % number), *limit.SKIPPED)
    await client.link.send(client.choice(1), client.value(limit.DONE, b""))
    assert await client.until_end() == [b"\x14"]


@habit("limit")
async def limit_two_thousand_sessions(at: Place) -> None:
    """The numbers continue (R-24)."""
    client = await Client.open(at)
    for _ in range(2_000):
        await client.works()


@habit("limit")
async def limit_the_next_setup_before_the_end(at: Place) -> None:
    """The client knows the end of the type, and does not wait for END (R-29)."""
    client = await Client.open(at)
    for number in range(500):
        await client.link.send(*client.sum(bytes((number % 100,))))
        while (one := await client.frame()).kind == limit.END:
            pass
        assert one.body == bytes((number % 100,))
    assert (await client.frame()).kind == limit.END


@habit("limit")
async def limit_a_session_of_a_hundred_thousand_numbers(at: Place) -> None:
    client = await Client.open(at)
    await client.link.send(*client.sum(*[b"\x01"] * 100_000))
    assert await client.until_end() == [struct.pack("!BI", 0xCE, 100_000)]


@habit("limit", *both)
async def limit_a_thousand_echoes(at: Place) -> None:
    """The server's answers wait until the client has completed its half."""
    client = await Client.open(at)
    for _ in range(5):
        await client.echoed(*(b"%d" % number for number in range(1_000)))


@habit("limit", *both)
async def limit_large_items(at: Place) -> None:
    """200 KiB each."""
    client = await Client.open(at)
    for _ in range(10):
        await client.echoed(b"", *(bytes((number,)) * 204_800 for number in range(4)))


@habit("limit")
async def limit_sessions_that_are_aborted(at: Place) -> None:
    """The user leaves after a few numbers, and returns."""
    client = await Client.open(at)
    for _ in range(50):
        await client.link.send(limit.setup(b"sum"), client.value(b"\x01"), client.abort())
        await client.works()
        await asyncio.sleep(0.02)


@habit("limit", waits=True, memory=32 * MiB)
async def limit_nothing_is_read_for_a_second(at: Place) -> None:
    client = await Client.open(at, receive_buffer=65_536)
    items = [b"%d" % number + bytes(1_000) for number in range(600)]
    client.link.pause()
    await client.link.send(limit.setup(b"plain", items[0]), *map(client.value, items[1:]), client.choice(1))
    await asyncio.sleep(1)
    client.link.resume()
    assert await client.until_end() == items


@habit("limit", waits=True)
async def limit_a_pause_within_a_session(at: Place) -> None:
    """A person types the numbers."""
    client = await Client.open(at)
    *before, last = client.sum(b"\x01", b"\x02")
    for frame in before:
        await client.link.send(frame)
        await asyncio.sleep(1)
    await client.link.send(last)
    assert await client.until_end() == [b"\x03"]


@habit("limit")
async def limit_three_hundred_connections(at: Place) -> None:
    clients = await together(Client.open(at) for _ in range(300))
    await together(client.works() for client in clients)


@habit("limit")
async def limit_leaves_in_order(at: Place) -> None:
    """The connection ends between two sessions, 100 times."""
    for _ in range(100):
        client = await Client.open(at)
        await client.works()
        at.clients.remove(client)
        client.link.close()
        await client.link.end()
    await Client.open(at)
