"""Honest habits of Jmux clients: the Java original, and what its programs do."""

from __future__ import annotations

import asyncio

from tests.honest import jmux
from tests.honest.catalogue import MiB, Place, habit, together
from tests.honest.jmux import Client


@habit("jmux")
async def jmux_a_hundred_calls_at_once(at: Place) -> None:
    client = await Client.open(at)
    assert await client.ask(*(b"%d" % n for n in range(100))) == [b"%d" % n for n in range(100)]


@habit("jmux")
async def jmux_opens_with_nothing(at: Place) -> None:
    """An application that reads its response first: an empty Data opens, the request follows."""
    client = await Client.open(at)
    call = jmux.Call(client._free.popleft(), b"request", True)
    client.calls[call.id] = call
    call.opened = True
    await client.link.write(jmux.data(call.id, b"", jmux.OPEN))
    await client.works()
    await client.link.write(b"".join(call.next()))
    assert await client.done(call) == [b"request"]


@habit("jmux")
async def jmux_a_byte_at_a_time(at: Place) -> None:
    client = Client(await at.dial(jmux.FRAMING))
    at.clients.append(client)
    for byte in jmux.HELLO:
        await client.link.write(bytes((byte,)))
        await asyncio.sleep(0)
    await client.greeted()
    calls = [jmux.Call(client._free.popleft(), b"request %d" % n, True) for n in range(5)]
    client.calls |= {call.id: call for call in calls}
    for byte in b"".join(said for call in calls for said in call.next()):
        await client.link.write(bytes((byte,)))
        await asyncio.sleep(0)
    assert await client.done(*calls) == [b"request %d" % n for n in range(5)]


@habit("jmux")
async def jmux_ten_thousand_calls_by_128(at: Place) -> None:
    """As many at once as there are ids; the next call takes the lowest id that is free."""
    client = await Client.open(at)
    for round in range(40):
        said = [b"%d.%d" % (round, n) for n in range(128)]
        assert await client.ask(*said) == said


@habit("jmux", memory=48 * MiB)
async def jmux_128_answers_of_200_kb(at: Place) -> None:
    client = await Client.open(at)
    assert {len(answer) for answer in await client.ask(*[b"gen 200000"] * 128)} == {200_000}


@habit("jmux", memory=48 * MiB)
async def jmux_40_answers_of_100_kb(at: Place) -> None:
    client = await Client.open(at)
    for _ in range(3):
        assert {len(answer) for answer in await client.ask(*[b"gen 100000"] * 40)} == {100_000}


@habit("jmux", memory=48 * MiB)
async def jmux_four_large_echoes(at: Place) -> None:
    """1.5 MB each, both ways."""
    client = await Client.open(at)
    said = [bytes((n,)) * 1_500_000 for n in range(4)]
    assert await client.ask(*said) == said


@habit("jmux", memory=48 * MiB)
async def jmux_an_answer_of_four_mebibytes(at: Place) -> None:
    client = await Client.open(at)
    for _ in range(3):
        (answer,) = await client.ask(b"gen %d" % (4 * MiB))
        assert len(answer) == 4 * MiB


@habit("jmux", memory=48 * MiB)
async def jmux_40_requests_of_100_kb(at: Place) -> None:
    client = await Client.open(at)
    said = [bytes((n,)) * 100_000 for n in range(40)]
    assert await client.ask(*said) == said


@habit("jmux")
async def jmux_127_sessions_stand_still(at: Place) -> None:
    """Programs that do not read their response yet: the 128th call is served, and the others when they read."""
    client = await Client.open(at)
    still = await client.begin_all([b"gen 50000"] * 127, reading=False)
    for number in range(20):
        assert await client.ask(b"%d" % number) == [b"%d" % number]
    for call in still:
        await client.read(call)
    assert {len(answer) for answer in await client.done(*still)} == {50_000}


@habit("jmux")
async def jmux_127_sessions_stand_still_on_more_than_fits(at: Place) -> None:
    """12.7 MB of answers: the 128th call is served at the latest when the others read."""
    client = await Client.open(at)
    still = await client.begin_all([b"gen 100000"] * 127, reading=False)
    last = await client.begin(b"last")
    for call in still:
        await client.read(call)
    assert await client.done(last) == [b"last"]
    assert {len(answer) for answer in await client.done(*still)} == {100_000}


@habit("jmux")
async def jmux_127_requests_stand_still(at: Place) -> None:
    """Programs that write half of their request and think."""
    client = await Client.open(at)
    calls = []
    for number in range(127):
        call = jmux.Call(client._free.popleft(), b"", True)
        client.calls[call.id], call.opened = call, True
        calls.append(call)
        await client.link.write(jmux.data(call.id, b"%d," % number * 100, jmux.OPEN))
    await client.works()
    for call in calls:
        await client.link.write(b"".join(call.next()))
    assert await client.done(*calls) == [b"%d," % number * 100 for number in range(127)]


@habit("jmux")
async def jmux_calls_that_are_given_up(at: Place) -> None:
    """Abort, and the id is free when the server has answered: 1,500 times, an answered call after each ten."""
    client = await Client.open(at)
    for _ in range(15):
        calls = await client.begin_all([b"gen 1000000"] * 100, reading=False)
        for call in calls:
            await client.abort(call)
        for call in calls:
            while not call.done:
                await client.turn()
        await client.works()


@habit("jmux")
async def jmux_noops_and_empty_data(at: Place) -> None:
    """Keepalives of old routers: NoOperation once in a while, and Data of nothing."""
    client = await Client.open(at)
    await client.link.write(jmux.noop() * 200 + jmux.noop(100))
    call = jmux.Call(client._free.popleft(), b"", True)
    client.calls[call.id], call.opened = call, True
    await client.link.write(jmux.data(call.id, b"", jmux.OPEN) + jmux.data(call.id) * 50)
    await client.link.write(b"".join(call.next()))
    assert await client.done(call) == [b""]


@habit("jmux")
async def jmux_pings_of_a_client(at: Place) -> None:
    """Ping is answered with its cookie, in order: before each of 60 calls."""
    client = await Client.open(at)
    for cookie in range(60):
        await client.link.write(jmux.message(0x04, 0, cookie))
        await client.works()
    assert client.pongs == list(range(60))


@habit("jmux")
async def jmux_ends_its_half(at: Place) -> None:
    """A client that has asked all it wanted: its responses are finished, then the server closes."""
    client = await Client.open(at)
    at.clients.remove(client)
    calls = await client.begin_all([b"gen 20000"] * 20, reading=False)
    client.link.finish()
    assert {len(answer) for answer in await client.done(*calls)} == {20_000}
    await client.link.end()
    await Client.open(at)


@habit("jmux")
async def jmux_three_hundred_connections(at: Place) -> None:
    """A client without a pool: a connection for each thread."""
    clients = await together(Client.open(at) for _ in range(300))
    await together(client.works() for client in clients)


@habit("jmux", waits=True)
async def jmux_a_slow_reader(at: Place) -> None:
    """32 KiB a second of each of ten answers, a quick connection beside it; then the rest."""
    client, quick = await Client.open(at, receive_buffer=16_384), await Client.open(at)
    calls = await client.begin_all([b"gen 300000"] * 10)
    for _ in range(8):
        client.link.pause()
        await asyncio.sleep(0.125)
        await quick.works()
        wanted = client.link.received + 4_096
        client.link.resume()
        while client.link.received < wanted:
            await client.turn()
    assert {len(answer) for answer in await client.done(*calls)} == {300_000}


@habit("jmux", waits=True)
async def jmux_nothing_is_read_for_a_second(at: Place) -> None:
    client = await Client.open(at, receive_buffer=16_384)
    client.link.pause()
    calls = await client.begin_all([b"gen 30000"] * 128)
    await asyncio.sleep(1)
    client.link.resume()
    assert {len(answer) for answer in await client.done(*calls)} == {30_000}


@habit("jmux")
async def jmux_short_connections(at: Place) -> None:
    """A call for each connection; some are killed."""
    for number in range(150):
        client = await Client.open(at)
        await client.works()
        at.clients.remove(client)
        if number % 3:
            client.link.close()
        else:
            client.link.reset()
    await Client.open(at)


@habit("jmux", slow=True, in_process=False, memory=48 * MiB)
async def jmux_killed_with_calls_under_way(at: Place) -> None:
    """Clients that are killed while large answers are on their way, 20 of them: their memory is free again."""
    for _ in range(20):
        client = await Client.open(at, receive_buffer=16_384)
        at.clients.remove(client)
        await client.begin_all([b"gen 1000000"] * 100)
        for _ in range(20):
            await client.turn()
        client.link.reset()
    await Client.open(at)


@habit("jmux")
async def jmux_headers_of_other_makes(at: Place) -> None:
    """A ration without end, the smallest and the largest; the bit by which the Java original negotiates."""
    for header in (b"Jmux\x01\x00\x00\x00", b"Jmux\x01\x00\x01\x00", b"Jmux\x01\xff\xff\x00", b"Jmux\x01\x00\x80\x01"):
        client = Client(await at.dial(jmux.FRAMING))
        at.clients.append(client)
        await client.link.write(header)
        await client.greeted()
        await client.works()
