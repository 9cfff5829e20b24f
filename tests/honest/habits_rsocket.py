"""Honest habits of RSocket clients: rsocket-java, Spring, rsocket-js, rsocket-cpp, rsocket-go and rsocket-rust."""

from __future__ import annotations

import asyncio
import json

from tests.honest import family
from tests.honest import rsocket as rs
from tests.honest.catalogue import MiB, Place, habit, together
from tests.honest.family import ENDLESS
from tests.honest.link import Framing, Link, Lost
from tests.honest.rsocket import Client

HOUR = b'{"ms": 3600000}'
SLOW = rs.routed(b"slow")
SPRING = rs.setup(metadata_mime=rs.COMPOSITE, data_mime=b"application/cbor")
"SETUP of Spring's RSocketRequester."

JS0 = [
    bytes.fromhex(line)
    for line in (
        "0000000004000001000"
        "00000ea600002bf201c6d6573736167652f782e72736f636b65742e726f7574696e672e763010"
        "6170706c69636174696f6e2f6a736f6e",
        "000000011100000005046563686f6869",
        "0000000318007fffffff7b22636f756e74223a337d",
        "00000005140066",
        "000000071800000000027b22636f756e74223a39397d",
    )
]
"""rsocket-js 0.0.27, recorded: SETUP with routing and JSON, a request to the route echo, a stream of three without
limit, a fire-and-forget, a stream of which two are wanted."""

JS1 = [
    bytes.fromhex(line)
    for line in (
        "00000000040000010000"
        "0000ea60000493e0186170706c69636174696f6e2f6f637465742d73747265616d18"
        "6170706c69636174696f6e2f6f637465742d73747265616d",
        "0000000111000000016d6869",
        "000000031800000000027b22636f756e74223a39397d",
        "00000005140066",
    )
]
"rsocket-js 1.0.0-alpha.3, recorded: SETUP, a request with metadata, a stream of which two are wanted, a fire."

JAVA = bytes.fromhex(
    "0000000004000001000000004e2000015f90126170706c69636174696f6e2f62696e617279126170706c69636174696f6e2f62696e617279"
)
"rsocket-java 1.1, RSocketConnector without options."

both = ("tcp", "ws")


# -- beginnings -------------------------------------------------------------------------------------------------


@habit("rsocket", *both)
async def rsocket_js_0_sends_its_bytes(at: Place) -> None:
    client = await Client.open(at, *JS0)
    client.used(7)
    echo, three = await client.done(1, 3)
    assert (echo.data, echo.metadata) == (b"hi", [b"\x04echo"])
    assert three.items == [b"0", b"1", b"2"]
    assert await client.items(7, 2) == [b"0", b"1"]
    await client.send(rs.cancel(7))


@habit("rsocket", *both)
async def rsocket_js_1_sends_its_bytes(at: Place) -> None:
    client = await Client.open(at, *JS1)
    client.used(5)
    (echo,) = await client.done(1)
    assert (echo.data, echo.metadata) == (b"hi", [b"m"])
    assert await client.items(3, 2) == [b"0", b"1"]
    await client.send(rs.cancel(3), rs.keepalive())


@habit("rsocket", *both)
async def rsocket_java_sends_its_bytes(at: Place) -> None:
    assert rs.setup() == JAVA
    client = await Client.open(at, JAVA)
    await client.echoes([b"", b"x"])
    await client.echoes([b"any"], metadata=b"\x00\xff not composite")


@habit("rsocket", *both)
async def setup_carries_a_payload(at: Place) -> None:
    """Spring's setupRoute and setupData; an empty payload with metadata, as DefaultPayload.create(data, "")."""
    for extra in (
        {"data": b"hello", "metadata": rs.routed(b"connect.shell-client")},
        {"data": b"", "metadata": b""},
        {"data": b"\x01" * 60_000},
    ):
        client = await Client.open(at, rs.setup(metadata_mime=rs.COMPOSITE, **extra))
        await client.works()


@habit("rsocket", *both)
async def intervals_of_any_kind(at: Place) -> None:
    """Integer.MAX_VALUE, as tests of Java clients have it; a lifetime below the interval, as examples in JavaScript
    have it; rsocket-cpp's five and thirty seconds."""
    for keepalive, lifetime in ((rs.MAX, rs.MAX), (1_000_000, 100_000), (5_000, 30_000), (500, 500)):
        client = await Client.open(at, rs.setup(keepalive, lifetime))
        await client.works()


@habit("rsocket", *both)
async def requests_in_the_segment_of_the_setup(at: Place) -> None:
    said = [rs.setup(), *(rs.request(id, b"%d" % id) for id in range(1, 41, 2))]
    client = await Client.open(at, *said)
    client.used(39)
    assert [answer.data for answer in await client.done(*range(1, 41, 2))] == [b"%d" % id for id in range(1, 41, 2)]


@habit("rsocket", *both)
async def a_byte_at_a_time(at: Place) -> None:
    """Small writes without coalescing."""
    link = await at.dial(rs.FRAMING)
    client = Client(link)
    at.clients.append(client)
    said = link.wrapped([rs.setup(), rs.request(1, b"one"), rs.stream(3, b'{"count": 3}'), rs.request(5, b"two")])
    for byte in said:
        await link.write(bytes((byte,)))
        await asyncio.sleep(0)
    client.used(5)
    one, three, two = await client.done(1, 3, 5)
    assert (one.data, three.items, two.data) == (b"one", [b"0", b"1", b"2"], b"two")


@habit("rsocket", *both)
async def segments_end_anywhere(at: Place) -> None:
    link = await at.dial(rs.FRAMING)
    client = Client(link)
    at.clients.append(client)
    ids = range(1, 401, 2)
    said = link.wrapped([rs.setup(), *(rs.request(id, b"%d" % id * 20) for id in ids)])
    for start in range(0, len(said), 1_447):
        await link.write(said[start : start + 1_447])
        await asyncio.sleep(0)
    client.used(399)
    assert [answer.data for answer in await client.done(*ids)] == [b"%d" % id * 20 for id in ids]


@habit("rsocket")
async def cut_before_its_setup_arrived(at: Place) -> None:
    """A client loses its connection inside the SETUP, and begins anew."""
    whole = Link(rs.FRAMING, web=False).wrapped([rs.setup()])
    for size in (1, 3, 9, len(whole) - 1):
        link = await at.dial(rs.FRAMING)
        await link.write(whole[:size])
        link.reset()
    await Client.open(at)


@habit("rsocket", server="resume")
async def a_resumable_client_was_cut_before_its_setup_arrived(at: Place) -> None:
    """It resumes first, as rsocket-java does; it is told that there is nothing to resume, and begins anew with the
    same token."""
    token = b"0123456789abcdef" + bytes((at.in_process,))
    whole = Link(rs.FRAMING, web=False).wrapped([rs.setup(token=token)])
    link = await at.dial(rs.FRAMING)
    await link.write(whole[:-1])
    link.reset()
    link = await at.dial(rs.FRAMING)
    resume = b"\x00\x01\x00\x00" + len(token).to_bytes(2, "big") + token + bytes(16)
    await link.send(rs.frame(0, rs.RESUME, resume))
    refused = rs.parse(await link.frame())
    assert (refused.stream, refused.kind, refused.data[:4]) == (0, rs.ERROR, b"\0\0\0\x04")
    link.close()
    client = await Client.open(at, rs.setup(token=token))
    await client.echoes([b"%d" % n for n in range(300)])


@habit("rsocket", server="resume")
async def a_resumable_client_begins_anew_with_its_token(at: Place) -> None:
    """It cannot know whether its SETUP has arrived."""
    token = b"abcdef0123456789" + bytes((at.in_process,))
    link = await at.dial(rs.FRAMING)
    await link.write(link.wrapped([rs.setup(token=token)])[:-5])
    link.reset()
    await Client.open(at, rs.setup(token=token))


@habit("rsocket", *both, server="lease")
async def leases_are_taken_and_never_given(at: Place) -> None:
    """rsocket-java with leases: it waits for the server's, and sends none of its own."""
    client = await Client.open(at, rs.setup(lease=True))
    while not client.leases:
        await client.turn()
    await client.echoes([b"%d" % n for n in range(50)])


@habit("rsocket", *both, server="lease")
async def leases_are_not_known(at: Place) -> None:
    """A client without leases at a server that has them."""
    await (await Client.open(at)).echoes([b"%d" % n for n in range(300)])


# -- many at once -----------------------------------------------------------------------------------------------


@habit("rsocket", *both)
async def a_thousand_echoes_at_once(at: Place) -> None:
    client = await Client.open(at)
    await client.echoes(b"%d" % n for n in range(1_000))


@habit("rsocket", *both)
async def ten_thousand_echoes_at_once(at: Place) -> None:
    """Flux.range(1, 10_000).flatMap(requester::requestResponse, 10_000)."""
    client = await Client.open(at)
    await client.echoes(b"%d" % n for n in range(10_000))


@habit("rsocket", slow=True, in_process=False)
async def ten_thousand_echoes_of_a_kibibyte_at_once(at: Place) -> None:
    """More than a connection may buffer: the server reads on when it has answered."""
    client = await Client.open(at)
    await client.echoes((b"%d" % n).ljust(1_024, b".") for n in range(10_000))


@habit("rsocket", *both)
async def a_thousand_requests_that_take_a_while(at: Place) -> None:
    """All of them are under way at their client; a server serves some at a time."""
    client = await Client.open(at, SPRING)
    ids = client.ids(1_000)
    await client.send(*(rs.request(id, b'{"ms": 20}', SLOW) for id in ids))
    for answer in await client.done(*ids):
        assert answer.data == b'{"ms": 20}'


@habit("rsocket", *both)
async def ten_thousand_fires_at_once(at: Place) -> None:
    client = await Client.open(at, SPRING)
    before = await _counted(client, "fire")
    await client.send(*(rs.request(id, b"fire", kind=rs.FNF) for id in client.ids(10_000)))
    assert await _counted(client, "fire", before + 10_000) == before + 10_000


async def _counted(client: Client, verb: str, wanted: int = 0) -> int:
    """What the demo responder has counted; asked again until it is what is wanted, for fires have no answer."""
    for _ in range(200):
        id = client.id()
        await client.send(rs.request(id, b"", rs.routed(b"stats")))
        (answer,) = await client.done(id)
        count = int(json.loads(answer.data)[verb])
        if count >= wanted:
            break
    return count


@habit("rsocket", *both)
async def a_thousand_streams_at_once(at: Place) -> None:
    """flatMap over streams: more than the server serves at a time, each with an end."""
    await family.stream_a_thousand_at_once(await Client.open(at), rs)


@habit("rsocket")
async def three_hundred_connections(at: Place) -> None:
    """A proxy, a mesh or a NAT: all of one address."""
    clients = await together(Client.open(at) for _ in range(300))
    await together(client.works() for client in clients)


@habit("rsocket", *both, slow=True, in_process=False, memory=120 * MiB)
async def a_thousand_connections(at: Place) -> None:
    clients = await together(Client.open(at) for _ in range(1_000))
    await together(client.works() for client in clients)


@habit("rsocket", *both)
async def short_connections(at: Place) -> None:
    """A command line or a function: connect, ask, leave, two hundred times; some are killed."""
    for number in range(150):
        client = await Client.open(at)
        await client.works()
        at.clients.remove(client)
        if number % 3:
            client.link.close()
        else:
            client.link.reset()
    await Client.open(at)


@habit("rsocket")
async def a_balancer_looks_whether_it_lives(at: Place) -> None:
    """Health checks connect and leave without a byte."""
    for _ in range(300):
        at.reach().close()
    await Client.open(at)


# -- large ------------------------------------------------------------------------------------------------------


@habit("rsocket", *both)
async def a_mebibyte_in_one_frame(at: Place) -> None:
    """A client without an MTU; so are all of them by default."""
    client = await Client.open(at)
    await client.echoes([bytes(range(256)) * 4_096])


@habit("rsocket", *both, memory=48 * MiB)
async def four_mebibytes_in_one_frame(at: Place) -> None:
    """Exactly as much as a payload may be, three times, with metadata beside it."""
    client = await Client.open(at)
    for metadata in (None, b"", b"a little"):
        await client.echoes([bytes(4 * MiB - len(metadata or b""))], metadata)


@habit("rsocket", *both, memory=48 * MiB)
async def thirty_mebibytes_at_once(at: Place) -> None:
    client = await Client.open(at)
    await client.echoes([bytes((n,)) * MiB for n in range(30)])


@habit("rsocket", *both)
async def fragments_of_64_bytes(at: Place) -> None:
    """rsocket-java's smallest MTU, the length included; a WebSocket has no length, and its messages are 61 bytes."""
    client = await Client.open(at)
    ids = client.ids(20)
    said = [bytes((id,)) * 3_000 for id in ids]
    for id, data in zip(ids, said, strict=True):
        await client.send(*rs.fragments(rs.request(id, data, b"m" * 200), 64))
    for data, answer in zip(said, await client.done(*ids), strict=True):
        assert (answer.data, len(answer.metadata[0] or b"")) == (data, 200)


@habit("rsocket", *both)
async def fragments_of_many_requests_alternate(at: Place) -> None:
    client = await Client.open(at)
    ids = client.ids(32)
    said = {id: bytes((id,)) * 2_000 for id in ids}
    lanes = [list(rs.fragments(rs.request(id, said[id]), 128)) for id in ids]
    await client.send(*(lane[turn] for turn in range(len(lanes[0])) for lane in lanes))
    for id, answer in zip(ids, await client.done(*ids), strict=True):
        assert answer.data == said[id]


@habit("rsocket")
async def a_mebibyte_in_fragments_of_64_bytes(at: Place) -> None:
    """19,000 of them, and beyond the limit of ``fragments``: a request that says so is refused, the connection lives.
    700 KiB go through."""
    client = await Client.open(at)
    id = client.id()
    await client.send(*rs.fragments(rs.request(id, bytes(700 * 1_024)), 64))
    (answer,) = await client.done(id)
    assert len(answer.data) == 700 * 1_024


@habit("rsocket", *both)
async def a_flag_for_metadata_and_none(at: Place) -> None:
    """DefaultPayload.create(data, ""); a payload that is empty altogether."""
    client = await Client.open(at)
    await client.echoes([b"data", b""], metadata=b"")
    id = client.id()
    await client.send(rs.stream(id, b'{"count": 2}', metadata=b""))
    assert (await client.done(id))[0].items == [b"0", b"1"]


@habit("rsocket", *both)
async def metadata_that_is_not_composite(at: Place) -> None:
    """routing.v0, JSON and binary, announced in SETUP: echoed as they came."""
    for mime, metadata in (
        (rs.ROUTING, rs.routing(b"echo")),
        (b"application/json", b'{"route": "orders"}'),
        (rs.BINARY, b"\x00\x01\x02"),
        (b"text/plain", b"orders"),
    ):
        client = await Client.open(at, rs.setup(metadata_mime=mime))
        id = client.id()
        await client.send(rs.request(id, b"data", metadata))
        (answer,) = await client.done(id)
        assert (answer.data, answer.metadata) == (b"data", [metadata]), mime


@habit("rsocket", *both)
async def a_route_in_metadata_of_its_own_type(at: Place) -> None:
    """message/x.rsocket.routing.v0 as the connection's metadata type: RSocket clients before composite metadata."""
    client = await Client.open(at, rs.setup(metadata_mime=rs.ROUTING))
    id = client.id()
    await client.send(rs.request(id, b"", rs.routing(b"stats")))
    assert "request" in json.loads((await client.done(id))[0].data)


# -- streams ----------------------------------------------------------------------------------------------------


@habit("rsocket", *both)
async def two_thousand_times_five_of_an_endless_stream(at: Place) -> None:
    """Flux.take(5): five are asked for, and the stream is cancelled."""
    await family.take_five_of_an_endless_stream(await Client.open(at), rs)


@habit("rsocket")
async def fifty_times_five_of_an_unbounded_stream(at: Place) -> None:
    """The same with REQUEST_N of 2^31 - 1, as Reactor before 3.5 and rsocket-js ask: more is on its way when the
    CANCEL leaves."""
    client = await Client.open(at)
    for id in client.ids(50):
        await client.send(rs.stream(id, ENDLESS))
        assert (await client.items(id, 5))[:5] == [b"0", b"1", b"2", b"3", b"4"]
        await client.send(rs.cancel(id))
        await client.works()
        del client.answers[id]


@habit("rsocket", *both)
async def five_of_five(at: Place) -> None:
    """take(5) of a stream of five: the CANCEL crosses the COMPLETE each time, 1,500 times."""
    client = await Client.open(at)
    for id in client.ids(1_500):
        await client.send(rs.stream(id, b'{"count": 5}', 5))
        assert len(await client.items(id, 5)) == 5
        await client.send(rs.cancel(id))


@habit("rsocket", *both)
async def cancels_behind_answers(at: Place) -> None:
    """A timeout that fires as the answer comes, 1,500 times."""
    client = await Client.open(at)
    for _ in range(30):
        ids = client.ids(100)
        await client.send(*(rs.request(id, b"x") for id in ids))
        await client.done(*ids)
        await client.send(*map(rs.cancel, ids))


@habit("rsocket", *both)
async def grants_behind_the_end(at: Place) -> None:
    """limitRate refills at three quarters: the last REQUEST_N crosses the COMPLETE, 1,500 times."""
    client = await Client.open(at)
    for id in client.ids(1_500):
        await client.send(rs.stream(id, b'{"count": 4}', 4))
        await client.items(id, 3)
        await client.send(rs.grant(id, 3))
        assert len((await client.done(id))[0].items) == 4


@habit("rsocket", *both)
async def grants_without_end(at: Place) -> None:
    """REQUEST_N of 2^31 - 1 again and again: request(Long.MAX_VALUE) of several operators."""
    client = await Client.open(at)
    id = client.id()
    await client.send(rs.stream(id, b'{"count": 3000}', 1), *(rs.grant(id, rs.MAX) for _ in range(20)))
    assert len((await client.done(id))[0].items) == 3_000


@habit("rsocket", *both)
async def a_grant_for_each_item(at: Place) -> None:
    """StepVerifier, a for loop, a bounded queue of one."""
    await family.grant_for_each_item(await Client.open(at), rs)


@habit("rsocket", *both)
async def grants_ahead_one_by_one(at: Place) -> None:
    """An executor that asks for one item in each of its tasks."""
    client = await Client.open(at)
    id = client.id()
    await client.send(rs.stream(id, b'{"count": 300}', 1))
    for _ in range(300):
        await client.send(rs.grant(id, 1))
    assert len((await client.done(id))[0].items) == 300


@habit("rsocket", *both)
async def a_channel_by_credit(at: Place) -> None:
    """rsocket-java: items as they are granted, COMPLETE in a frame of its own."""
    client = await Client.open(at)
    id = client.id()
    await client.send(rs.channel(id, b"0", 16))
    answer, sent = client.of(id), 1
    while sent < 1_000:
        while answer.granted < sent:
            await client.turn()
        await client.send(rs.item(id, b"%d" % sent), rs.grant(id, 1))
        sent += 1
    await client.send(rs.complete(id), rs.grant(id, 16))
    assert (await client.done(id))[0].items == [b"%d" % n for n in range(1_000)]


@habit("rsocket", *both)
async def a_channel_is_cancelled_on_both_sides(at: Place) -> None:
    """A program stops listening and speaking: CANCEL and COMPLETE, 500 times."""
    client = await Client.open(at)
    for id in client.ids(500):
        await client.send(rs.channel(id, b"x", 8))
        await client.items(id, 1)
        await client.send(rs.cancel(id), rs.complete(id))


# -- timeouts ---------------------------------------------------------------------------------------------------


@habit("rsocket", *both)
async def requests_that_time_out_together(at: Place) -> None:
    """256 requests, 256 CANCELs in one write, again and again, with an answered request in between."""
    client = await Client.open(at, SPRING)
    for _ in range(12):
        ids = client.ids(256)
        await client.send(*(rs.request(id, HOUR, SLOW) for id in ids))
        await client.send(*map(rs.cancel, ids))
        await client.works()


@habit("rsocket", *both)
async def a_thousand_time_out_together(at: Place) -> None:
    """More than are served at once: most are cancelled while they wait."""
    client = await Client.open(at, SPRING)
    for _ in range(3):
        ids = client.ids(1_000)
        await client.send(*(rs.request(id, HOUR, SLOW) for id in ids))
        await client.send(*map(rs.cancel, ids))
        await client.works()


@habit("rsocket")
async def the_second_of_two_is_cancelled(at: Place) -> None:
    await family.cancel_the_second_of_two(await Client.open(at), rs)


@habit("rsocket", *both)
async def hedged_requests(at: Place) -> None:
    """Each is asked twice, and the slower one is cancelled when the first is answered, 1,000 times."""
    client = await Client.open(at, SPRING)
    for _ in range(1_000):
        one, two = client.ids(2)
        await client.send(rs.request(one, b"x"), rs.request(two, HOUR, SLOW))
        await client.done(one)
        await client.send(rs.cancel(two))


@habit("rsocket", *both)
async def requests_that_fail(at: Place) -> None:
    """Errors of the application, 2,000 of them: no fault of the peer."""
    client = await Client.open(at, SPRING)
    for _ in range(20):
        ids = client.ids(100)
        await client.send(*(rs.request(id, b"no", rs.routed(b"fail")) for id in ids))
        assert {answer.error for answer in await client.done(*ids)} == {(0x201, b"no")}


# -- liveness ---------------------------------------------------------------------------------------------------


async def _keepalives(at: Place, interval: float, seconds: float, *, respond: bool) -> None:
    client = await Client.open(at, rs.setup(int(interval * 1_000), int(interval * 20_000)))
    loop = asyncio.get_running_loop()
    start, count = loop.time(), 0
    while loop.time() < start + seconds:
        count += 1
        await client.send(rs.keepalive(b"alive", respond=respond))
        if count % 50 == 0:
            await client.works()
        await asyncio.sleep(max(0.0, start + count * interval - loop.time()))
    if respond:
        while len(client.echoed) < count:
            await client.turn()
    else:
        await client.works()
        assert not client.echoed


@habit("rsocket", waits=True)
async def keepalives_every_10_ms(at: Place) -> None:
    """As announced in SETUP; each is answered."""
    await _keepalives(at, 0.01, 1.5, respond=True)


@habit("rsocket", waits=True)
async def keepalives_every_50_ms_for_long(at: Place) -> None:
    await _keepalives(at, 0.05, 6.0, respond=True)


@habit("rsocket", waits=True)
async def keepalives_that_ask_for_nothing(at: Place) -> None:
    """Without the respond flag, at the announced rate."""
    await _keepalives(at, 0.01, 1.5, respond=False)


@habit("rsocket", *both)
async def keepalives_with_positions_and_data(at: Place) -> None:
    """rsocket-cpp counts positions without resumption, too; an answer repeats the data."""
    client = await Client.open(at)
    said = [b"", b"x", bytes(1_000), b"\xff" * 60_000]
    for number, data in enumerate(said):
        await client.send(rs.keepalive(data, position=number * 1_000))
        while len(client.echoed) <= number:
            await client.turn()
    assert client.echoed == said


@habit("rsocket", *both)
async def keepalives_after_a_pause(at: Place) -> None:
    """A process that stood still sends its keepalives in one burst."""
    client = await Client.open(at, rs.setup(1_000, 5_000))
    await client.send(*[rs.keepalive()] * 60)
    while len(client.echoed) < 60:
        await client.turn()


@habit("rsocket", waits=True, memory=32 * MiB)
async def nothing_is_read_for_two_seconds(at: Place) -> None:
    await family.read_nothing(await Client.open(at, receive_buffer=65_536), rs, 2)


@habit("rsocket", waits=True, memory=32 * MiB)
async def a_slow_reader(at: Place) -> None:
    """32 KiB a second, and beside it a quick connection; then the rest."""
    client = await Client.open(at, receive_buffer=16_384)
    quick = await Client.open(at)
    id = client.id()
    await client.send(rs.stream(id, b'{"count": 3000, "size": 1000}'))
    for _ in range(10):
        client.link.pause()
        await asyncio.sleep(0.125)
        await quick.works()
        wanted = client.link.received + 4_096
        client.link.resume()
        while client.link.received < wanted:
            await client.turn()
    assert len((await client.done(id))[0].items) == 3_000


@habit("rsocket", waits=True)
async def a_slow_writer(at: Place) -> None:
    """1 MiB in one frame at 128 KiB a second."""
    client = await Client.open(at)
    id = client.id()
    said = client.link.wrapped([rs.request(id, bytes(MiB))])
    for start in range(0, len(said), 16_384):
        await client.link.write(said[start : start + 16_384])
        await asyncio.sleep(0.125)
    assert len((await client.done(id))[0].data) == MiB


@habit("rsocket")
async def a_half_close_after_the_answers(at: Place) -> None:
    """A client that has all it wanted ends its half; the server ends its own, in order."""
    for _ in range(20):
        client = await Client.open(at)
        await client.works()
        at.clients.remove(client)
        client.link.finish()
        await client.link.end()
        assert client.link.ended == "the server has ended its half"
    await Client.open(at)


@habit("rsocket", *both)
async def a_client_says_that_it_closes(at: Place) -> None:
    """rsocket-cpp and rsocket-java: ERROR with CONNECTION_CLOSE or CONNECTION_ERROR, then the end."""
    for code in (0x102, 0x101):
        client = await Client.open(at)
        await client.works()
        at.clients.remove(client)
        await client.send(rs.frame(0, rs.ERROR, code.to_bytes(4, "big") + b"disposed"))
        await client.link.end()
    await Client.open(at)


@habit("rsocket", *both)
async def ids_with_gaps(at: Place) -> None:
    """rsocket-rust and rsocket-go take ids before a request is sent; some never are."""
    client = await Client.open(at)
    for id in (1, 3, 9, 101, 20_001, 0x7FFFFFF1):
        await client.send(rs.request(id, b"x"))
        assert (await client.done(id))[0].data == b"x"
    client._last = 0x7FFFFFF1


@habit("rsocket", *both)
async def frames_of_later_versions(at: Place) -> None:
    """EXT and unknown frames that may be ignored."""
    client = await Client.open(at)
    for kind in (0x3F, 0x20):
        await client.send(rs.frame(0, kind, b"\0\0\0\x07 something", 0x200))
        await client.works()


@habit("rsocket", *both)
async def pushes_of_metadata(at: Place) -> None:
    """100 METADATA_PUSHes at once: Spring's metadataPush, for a broker's route table."""
    client = await Client.open(at, SPRING)
    before = await _counted(client, "push")
    await client.send(*(rs.frame(0, rs.PUSH, rs.routed(b"table.%d" % n), rs.M) for n in range(100)))
    assert await _counted(client, "push", before + 100) == before + 100


@habit("rsocket")
async def resumption_that_is_not_offered(at: Place) -> None:
    """A SETUP with a token at a server without sessions is refused with a reason; a SETUP without one is served."""
    link = await at.dial(rs.FRAMING)
    await link.send(rs.setup(token=b"0123456789abcdef"))
    found = rs.parse(await link.frame())
    assert (found.kind, found.stream) == (rs.ERROR, 0)
    assert int.from_bytes(found.data[:4], "big") in (2, 3)
    assert len(found.data) > 4
    try:
        await link.frame()
    except Lost:
        pass
    await Client.open(at)


@habit("rsocket", "ws")
async def a_browser(at: Place) -> None:
    """Headers of a browser's WebSocket, compression offered; a token in the query. The page is of another port of the
    same host."""
    headers = (
        "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
        "Origin: http://127.0.0.1:3000",
        "Accept: */*",
        "Accept-Encoding: gzip, deflate, br, zstd",
        "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits",
        "Cache-Control: no-cache",
        "Pragma: no-cache",
        "Cookie: session=" + "0123456789abcdef" * 100,
    )
    for framing in (rs.FRAMING, Framing(3)):
        client = Client(await at.dial(framing, headers=headers, path="/?access_token=x"))
        at.clients.append(client)
        await client.send(*JS0[:2])
        client.used(1)
        assert (await client.done(1))[0].data == b"hi"


@habit("rsocket", "ws")
async def messages_in_parts_and_pings_of_a_proxy(at: Place) -> None:
    """A message of 1 MiB in frames of 16 KiB, pings between them; each is answered."""
    client = await Client.open(at)
    id = client.id()
    await client.link.send_split(rs.request(id, bytes(MiB)), 16_384)
    assert len((await client.done(id))[0].data) == MiB
    assert client.link.pongs == [b"%d" % number for number in range(len(client.link.pongs))]
    assert len(client.link.pongs) == 64


@habit("rsocket", *both)
async def routes_that_do_not_exist(at: Place) -> None:
    """A client of another version asks for what is not there, 2,000 times."""
    client = await Client.open(at, SPRING)
    for _ in range(20):
        ids = client.ids(100)
        await client.send(*(rs.request(id, b"x", rs.routed(b"no.such.route")) for id in ids))
        assert {(answer.error or (0, b""))[0] for answer in await client.done(*ids)} == {0x202}


@habit("rsocket", *both)
async def data_that_is_not_understood(at: Place) -> None:
    """2,000 times what the handler calls invalid."""
    client = await Client.open(at)
    for _ in range(20):
        ids = client.ids(100)
        await client.send(*(rs.stream(id, b"not json") for id in ids))
        assert {(answer.error or (0, b""))[0] for answer in await client.done(*ids)} == {0x204}


@habit("rsocket", *both)
async def large_metadata(at: Place) -> None:
    """A token, a trace and 200 headers; 1 MiB of it."""
    client = await Client.open(at, SPRING)
    entries = [(0x7E, rs.routing(b"echo")), (0x7C, b"\x81" + b"token" * 400)]
    entries += [(0x05, b"header %d" % n) for n in range(200)]
    await client.echoes([b"data"], rs.composite(*entries))
    await client.echoes([b"data"], rs.composite((0x7E, rs.routing(b"echo")), (0x05, bytes(MiB))))


@habit("rsocket", in_process=False)
async def three_hundred_subscriptions_and_requests(at: Place) -> None:
    """A dashboard: streams that wait for events for hours, more than are served at once. Requests go beside them."""
    client = await Client.open(at)
    ids = client.ids(300)
    await client.send(*(rs.stream(id, b'{"count": 9, "delay_ms": 3600000}', 4) for id in ids))
    id = client.id()
    await client.send(rs.request(id, b"beside"))
    (answer,) = await client.done(id)
    assert (answer.error, answer.data) == (None, b"beside")
    assert not any(client.of(id).done for id in ids)
    await client.send(*(rs.cancel(id) for id in ids))
