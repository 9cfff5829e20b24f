"""A broker and its clients over tcp: routing, errors and credit. Rule numbers are RSocket's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

import afflux
from afflux.broker import Address, RouteSetup

SERVICE = {"ServiceName": "svc"}
EVERYONE = Address(SERVICE, method="multicast")
ONE = Address(SERVICE)


def id_of(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")


class Worker:
    """A client that answers. What it was asked is noted."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: asyncio.Queue[afflux.Payload] = asyncio.Queue()
        self.go_on = asyncio.Event()
        self.made = 0
        self.ended: asyncio.Queue[str] = asyncio.Queue()

    async def request(self, payload: afflux.Payload) -> str:
        self.asked.put_nowait(payload)
        try:
            if payload.data == b"wait":
                await self.go_on.wait()
            if payload.data == b"fail":
                raise afflux.ApplicationError(0x301, self.name)
            if payload.data == f"all but {self.name} wait".encode():
                return self.name
            if payload.data.endswith(b"wait"):
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.ended.put_nowait("canceled")
            raise
        return self.name

    async def fire(self, payload: afflux.Payload) -> None:
        self.asked.put_nowait(payload)

    async def stream(self, payload: afflux.Payload) -> AsyncIterator[str]:
        self.asked.put_nowait(payload)
        try:
            if payload.data == f"fail at {self.name}".encode():
                raise afflux.ApplicationError(0x302, self.name)
            if payload.data.startswith(b"fail"):
                await asyncio.Event().wait()
            for number in range(1000 if payload.data == b"many" else 3):
                self.made += 1
                yield f"{self.name}{number}"
        finally:
            self.ended.put_nowait("over")

    async def channel(self, items: Any) -> AsyncIterator[str]:
        try:
            async for item in items:
                self.asked.put_nowait(item)
                if item.data == f"fail at {self.name}".encode():
                    raise afflux.ApplicationError(0x303, self.name)
                yield f"{self.name} {item.text}"
        finally:
            self.ended.put_nowait("over")


class World:
    """A broker, three clients that answer, and one that asks."""

    def __init__(self, stack: AsyncExitStack, server: afflux.Server, broker: afflux.Broker) -> None:
        self.stack, self.server, self.broker = stack, server, broker
        self.workers = {name: Worker(name) for name in "abc"}
        self.peers: dict[str, afflux.Peer] = {}

    async def connect(self, **more: Any) -> afflux.Peer:
        """Connect a client, and wait until the broker has let it in: only then it answers."""
        peer = await self.stack.enter_async_context(afflux.connect(self.server.uri, **more))
        with pytest.raises(afflux.Rejected, match="no ADDRESS"):
            await peer.request(b"am I in?")
        return peer

    async def join(self, name: str, handler: Any = None, **tags: str) -> afflux.Peer:
        """Connect a client that answers."""
        return await self.connect(handler=handler or self.workers[name], setup=RouteSetup(id_of(name), "svc", tags))

    async def start(self) -> afflux.Peer:
        """Connect the three, and the one that asks."""
        for name in "abc":
            self.peers[name] = await self.join(name, Own=name)
        return await self.connect()

    async def leave(self, name: str, how: Any) -> None:
        """A client goes; wait until the broker knows, which has waited for the same before."""
        member = self.broker.table.find(id_of(name))
        assert member is not None
        how()
        await member.target.wait_closed()
        assert self.broker.table.find(id_of(name)) is None


@pytest.fixture
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """A broker with the arguments of the test's parameter. Nothing of it is left behind."""
    before = asyncio.all_tasks()
    async with AsyncExitStack() as stack:
        broker = afflux.Broker(**getattr(request, "param", {}))
        server = await stack.enter_async_context(afflux.serve("tcp://127.0.0.1:0", broker, on_setup=broker.on_setup))
        yield World(stack, server, broker)
    assert not asyncio.all_tasks() - before - {asyncio.current_task()}
    assert len(broker.table) == 0


async def test_R_67_one_answers_and_each_has_its_turn(world: World) -> None:
    peer = await world.start()
    assert [(await peer.request(metadata=ONE)).text for _ in range(6)] == ["a", "b", "c", "a", "b", "c"]
    assert [item.text async for item in peer.stream(metadata=ONE)] == ["a0", "a1", "a2"]
    await peer.fire(b"once", metadata=ONE)
    assert (await world.workers["b"].asked.get()).data == b""
    async with peer.channel(iter(["x", "y"]), metadata=Address({"Own": "c"})) as items:
        assert [item.text async for item in items] == ["c x", "c y"]


async def test_R_63_tags_decide_who_is_asked(world: World) -> None:
    peer = await world.start()
    assert (await peer.request(metadata=Address({"ServiceName": "svc", "Own": "b"}))).text == "b"
    for tags in ({"ServiceName": "svc", "Own": "d"}, {"ServiceName": "other"}):
        with pytest.raises(afflux.Rejected, match="no route has the tags ServiceName="):
            await peer.request(metadata=Address(tags))
        with pytest.raises(afflux.Rejected):
            await anext(peer.stream(metadata=Address(tags)))
        with pytest.raises(afflux.Rejected):
            await anext(peer.channel(iter(["x"]), metadata=Address(tags)))


async def test_R_64_a_multicast_fire_goes_to_all(world: World) -> None:
    peer = await world.start()
    await peer.fire(b"news", metadata=EVERYONE)
    assert [(await worker.asked.get()).data for worker in world.workers.values()] == [b"news"] * 3


@pytest.mark.parametrize("first", "abc")
async def test_R_65_the_first_result_answers_and_the_others_are_canceled(world: World, first: str) -> None:
    peer = await world.start()
    assert (await peer.request(f"all but {first} wait", metadata=EVERYONE)).text == first
    for name in "abc".replace(first, ""):
        assert await world.workers[name].ended.get() == "canceled"
    assert world.workers[first].ended.empty()


async def test_R_65_an_error_is_a_result(world: World) -> None:
    peer = await world.start()
    with pytest.raises(afflux.ApplicationError) as caught:
        await peer.request(b"fail", metadata=EVERYONE)
    assert caught.value.code == 0x301
    assert caught.value.message in "abc"


async def test_R_66_a_multicast_stream_merges_all_answers(world: World) -> None:
    peer = await world.start()
    items = [item.text async for item in peer.stream(metadata=EVERYONE)]
    for name in "abc":
        assert [item for item in items if item[0] == name] == [f"{name}{number}" for number in range(3)]
    assert len(items) == 9


async def test_R_66_one_error_cancels_all_streams(world: World) -> None:
    peer = await world.start()
    with pytest.raises(afflux.ApplicationError, match="b"):
        await anext(peer.stream(b"fail at b", metadata=EVERYONE))
    assert [await worker.ended.get() for worker in world.workers.values()] == ["over"] * 3


async def test_R_66_a_multicast_channel_merges_all_answers(world: World) -> None:
    peer = await world.start()
    async with peer.channel(iter(["x", "y"]), metadata=EVERYONE) as items:
        got = sorted([item.text async for item in items])
    assert got == ["a x", "a y", "b x", "b y", "c x", "c y"]


async def test_R_66_one_error_cancels_all_channels(world: World) -> None:
    peer = await world.start()

    async def source() -> AsyncIterator[str]:
        yield "x"
        yield "fail at b"
        await asyncio.Event().wait()

    async with peer.channel(source(), metadata=EVERYONE) as items:
        with pytest.raises(afflux.ApplicationError, match="b") as caught:
            while True:
                await anext(items)
    assert caught.value.code == 0x303
    assert [await worker.ended.get() for worker in world.workers.values()] == ["over"] * 3


async def test_R_66_an_error_of_the_source_reaches_all(world: World) -> None:
    peer = await world.start()

    async def source() -> AsyncIterator[str]:
        yield "x"
        raise afflux.ApplicationError(0x304, "mine")

    async with peer.channel(source(), metadata=EVERYONE) as items:
        with pytest.raises(afflux.ApplicationError, match="mine"):
            while True:
                await anext(items)
    assert [await worker.ended.get() for worker in world.workers.values()] == ["over"] * 3


async def test_R_66_a_receiver_that_takes_no_more_keeps_nothing_from_others(world: World) -> None:
    peer = await world.start()

    class Short:
        async def channel(self, items: Any) -> AsyncIterator[str]:
            yield (await anext(items)).text

    await world.join("d", Short())
    async with peer.channel((str(number) for number in range(500)), metadata=EVERYONE) as items:
        got = [item.text async for item in items]
    assert len(got) == 3 * 500 + 1


async def test_R_69_what_is_forwarded_does_not_change(world: World) -> None:
    peer = await world.start()
    address = Address({"Own": "a"}, wrapped=b"\x00kept\xff")
    sent = afflux.Payload(b"\x01data", afflux.compose([address, ("application/x-own", b"mine")], route="way"))
    await peer.request(sent)
    await peer.fire(sent)
    _ = [item async for item in peer.stream(sent)]
    async with peer.channel(iter([sent, afflux.Payload(b"2", b"m")])) as items:
        _ = [item async for item in items]
    asked = world.workers["a"].asked
    assert [await asked.get() for _ in range(5)] == [*[sent] * 4, afflux.Payload(b"2", b"m")]


@pytest.mark.parametrize("world", [{"unwrap": True}], indirect=True)
async def test_R_69_what_is_wrapped_may_be_handed_over_alone(world: World) -> None:
    peer = await world.start()
    address = Address({"Own": "a"}, wrapped=b"\x00kept\xff")
    await peer.request(b"1", metadata=address)
    async with peer.channel(iter([b"2", afflux.Payload(b"3", b"m")]), metadata=address) as items:
        _ = [item async for item in items]
    await peer.request(b"4", metadata=Address({"Own": "a"}), route="way")
    asked = [await world.workers["a"].asked.get() for _ in range(4)]
    kept = [afflux.Payload(b"1", address.wrapped), afflux.Payload(b"2", address.wrapped), afflux.Payload(b"3", b"m")]
    assert asked[:3] == kept
    assert afflux.entries(asked[3]).route == "way"


async def test_R_60_more_than_one_way_to_choose_is_invalid(world: World) -> None:
    peer = await world.start()
    data = bytearray(ONE.encode())
    data[5] |= 0x40
    with pytest.raises(afflux.Invalid, match="unicast and multicast"):
        await peer.request(metadata=[(Address.MIME, bytes(data))])


async def test_R_68_a_shard_key_without_its_tag_is_invalid(world: World) -> None:
    peer = await world.start()
    with pytest.raises(afflux.Invalid, match="UserId"):
        await peer.request(metadata=Address(SERVICE | {"ShardKey": "UserId"}, method="shard"))
    address = Address(SERVICE | {"ShardKey": "UserId", "UserId": "7"}, method="shard")
    assert len({(await peer.request(metadata=address)).text for _ in range(4)}) == 1


async def test_R_61_a_newer_connection_takes_the_route(world: World) -> None:
    peer = await world.start()
    old = world.peers["a"]
    newer = Worker("new")
    await world.join("a", newer, Own="a")
    assert (await peer.request(metadata=Address({"Own": "a"}))).text == "new"
    await old.wait_closed()
    assert (await peer.request(metadata=Address({"Own": "a"}))).text == "new"
    assert len(world.broker.table) == 3


async def test_R_62_a_client_that_comes_back_is_newer(world: World) -> None:
    peer = await world.start()
    await world.leave("a", world.peers["a"].cut)
    with pytest.raises(afflux.Rejected):
        await peer.request(metadata=Address({"Own": "a"}))
    await world.join("a", Own="a")
    assert (await peer.request(metadata=Address({"Own": "a"}))).text == "a"


async def test_a_client_that_leaves_in_the_middle_is_reported(world: World) -> None:
    peer = await world.start()
    request = asyncio.ensure_future(peer.request(b"wait", metadata=Address({"Own": "a"})))
    await world.workers["a"].asked.get()
    stream = peer.stream(b"many", metadata=Address({"Own": "a"}), credit=1)
    await anext(stream)
    await world.leave("a", world.peers["a"].cut)
    for waiting in (request, _all(stream)):
        with pytest.raises(afflux.Canceled, match="has disconnected"):
            await waiting
    assert len(world.broker.table) == 2


async def _all(stream: Any) -> None:
    async for _ in stream:
        pass


async def test_a_request_that_is_canceled_is_canceled_there(world: World) -> None:
    peer = await world.start()
    for address in (ONE, EVERYONE):
        request = asyncio.ensure_future(peer.request(b"nobody but me: wait", metadata=address))
        asked = [world.workers["a"]] if address is ONE else list(world.workers.values())
        for worker in asked:
            await worker.asked.get()
        request.cancel()
        for worker in asked:
            assert await worker.ended.get() == "canceled"
        with pytest.raises(asyncio.CancelledError):
            await request


@pytest.mark.parametrize("world", [{"credit": 4}], indirect=True)
@pytest.mark.parametrize("address", [Address({"Own": "a"}), EVERYONE], ids=["one", "all"])
async def test_credit_reaches_through_the_broker(world: World, address: Address) -> None:
    peer = await world.start()
    async with peer.stream(b"many", metadata=address, credit=0) as items:
        items.request(6)
        for _ in range(6):
            await anext(items)
        asked = [world.workers[name] for name in ("abc" if address is EVERYONE else "a")]
        await peer.request(metadata=address)  # what was on its way has arrived
        made = sum(worker.made for worker in asked)
    # 6 were taken; each client has its window, an item in two hands, and one that its producer is ahead
    assert 6 <= made <= 6 + len(asked) * (4 + 3)
    assert [await worker.ended.get() for worker in asked] == ["over"] * len(asked)


async def test_a_channel_is_as_fast_as_the_slowest_receiver(world: World) -> None:
    peer = await world.start()
    taken = asyncio.Event()

    class Slow:
        async def channel(self, items: Any) -> AsyncIterator[str]:
            await anext(items)
            taken.set()
            await asyncio.Event().wait()
            yield ""

    await world.join("d", Slow())
    made = 0

    async def source() -> AsyncIterator[str]:
        nonlocal made
        while True:
            made += 1
            yield "x"

    async with peer.channel(source(), metadata=EVERYONE, credit=10_000) as items:
        await taken.wait()
        for _ in range(3 * 200):  # the others take what the slow one's window lets through
            await anext(items)
        for _ in range(20):  # time enough to make more
            await peer.request(metadata=Address({"Own": "a"}))
    # the windows of the broker and of the slow one, an item in two hands, and a turn ahead
    assert made <= 2 * 256 + 8


@pytest.mark.parametrize("world", [{"receivers": 3}], indirect=True)
async def test_a_multicast_reaches_so_many_and_no_more(world: World) -> None:
    peer = await world.start()
    assert (await peer.request(metadata=EVERYONE)).text in "abc"
    await world.join("d", Worker("d"))
    with pytest.raises(afflux.Rejected, match="too-many-receivers: 4 routes match, at most 3"):
        await peer.request(metadata=EVERYONE)
    assert (await peer.request(metadata=ONE)).text in "abcd"


async def test_who_offers_nothing_may_ask_and_a_request_without_an_address_is_rejected(world: World) -> None:
    peer = await world.start()
    assert len(world.broker.table) == 3
    with pytest.raises(afflux.Rejected, match="no ADDRESS"):
        await peer.request(b"whom?", route="way")
    offer = RouteSetup(id_of("a"), "svc")
    with pytest.raises(afflux.Rejected, match="no ADDRESS"):
        await peer.request(metadata=offer)


@pytest.mark.parametrize("mime", ["message/x.rsocket.routing.frame.v0", "message/x.rsocket.forwarding"])
async def test_I_6_older_names_are_read_also_where_all_metadata_is_of_that_type(world: World, mime: str) -> None:
    await world.start()
    peer = await world.connect(metadata_mime=mime)
    assert (await peer.request(afflux.Payload(b"", Address({"Own": "b"}).encode()))).text == "b"


@pytest.mark.parametrize("world", [{"address_metadata": True}], indirect=True)
async def test_D_9_addresses_with_metadata_are_an_option(world: World) -> None:
    peer = await world.start()
    address = Address({"Own": "c"}, metadata={"LBMethod": "any"})
    assert (await peer.request(metadata=address)).text == "c"


async def refused(world: World, setup: Any) -> str:
    async with afflux.connect(world.server.uri, setup=setup) as peer:
        await peer.wait_closed()
        assert isinstance(peer.error, afflux.SetupRefused)
        return peer.error.message


@pytest.mark.parametrize("world", [{"routes": 1}], indirect=True)
async def test_the_table_is_bounded(world: World) -> None:
    await world.join("a")
    assert "too-many-routes" in await refused(world, RouteSetup(id_of("b"), "svc"))
    await world.join("a")


async def test_what_can_not_be_read_is_refused(world: World) -> None:
    assert "cannot be read" in await refused(world, [(RouteSetup.MIME, b"\x00\x00\x00\x01\x04\x00")])


async def test_a_check_comes_before_the_routes() -> None:
    async def check(setup: object, peer: afflux.Peer) -> None:
        raise afflux.Rejected("not you")

    broker = afflux.Broker(on_setup=check)
    async with (
        afflux.serve("tcp://127.0.0.1:0", broker, on_setup=broker.on_setup) as server,
        afflux.connect(server.uri, setup=RouteSetup(id_of("a"), "svc")) as peer,
    ):
        await peer.wait_closed()
        assert "not you" in str(peer.error)
    assert len(broker.table) == 0


async def test_a_choice_of_ones_own() -> None:
    broker = afflux.Broker(pick=lambda found: found[-1])
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(afflux.serve("tcp://127.0.0.1:0", broker, on_setup=broker.on_setup))
        peer = await World(stack, server, broker).start()
        assert [(await peer.request(metadata=ONE)).text for _ in range(2)] == ["c", "c"]


def test_a_window_is_needed() -> None:
    with pytest.raises(ValueError, match="1 or more"):
        afflux.Broker(credit=0)
