"""Sessions that outlive their process: real processes, killed without a word, over TCP. Every item is taken exactly
once and in order, as counted by an application that notes what it takes."""

# ruff: noqa: SIM117 -- a server, then who connects to it: the nesting is the story

from __future__ import annotations

import asyncio
import json
import random
import socket
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import afflux
import afflux.transports.address
from afflux import Limits, Payload
from afflux.resume.recovery import plain, replays_of, skipping
from tests.aio.handlers import Demo
from tests.resume import nursery as nurseries
from tests.resume.lives import LIMITS, SOON
from tests.resume.nursery import Child, Nursery

KILLED = -9


@pytest.fixture(scope="module")
def parent() -> Iterator[subprocess.Popen[bytes]]:
    """The process whose children die."""
    with nurseries.process() as process:
        yield process


@pytest.fixture
async def nursery(parent: subprocess.Popen[bytes]) -> AsyncIterator[Nursery]:
    """Starts processes that die."""
    async with nurseries.Nursery(parent) as nursery:
        yield nursery


class Place:
    """A test's files."""

    def __init__(self, path: Path) -> None:
        self.store = str(path / "sessions.db")
        self.notes = str(path / "notes")

    @property
    def noted(self) -> list[str]:
        """What the application has taken."""
        return Path(self.notes).read_text().split()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Where to keep things."""
    return Place(tmp_path)


def once(noted: list[str], deaths: list[int]) -> list[str]:
    """What was taken, without what was taken again: the last item before a death, and nothing else."""
    taken: list[str] = []
    again = []
    for number, line in enumerate(noted, 1):
        if taken and line == taken[-1]:
            again.append(number - 1)
        else:
            taken.append(line)
    assert set(again) <= set(deaths)
    return taken


# -- a client dies --------------------------------------------------------------------------------------------


class Counting(Demo):
    """Notes what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[bytes] = Counter()
        self.heard: list[int] = []

    async def request(self, payload: Payload) -> Payload:
        """Echo."""
        self.asked[payload.data] += 1
        return payload

    async def channel(self, items: Any) -> AsyncIterator[bytes]:
        """Echo each."""
        async for item in items:
            self.heard.append(int(item.data))
            yield item.data


async def lives(nursery: Nursery, life: str, *arguments: Any) -> list[int]:
    """One process after the other, until one ends in order: how each of them ended."""
    ends = []
    while not ends or ends[-1] == KILLED:
        ends.append(await (await nursery.start(life, *arguments)).ended())
    return ends


@pytest.mark.parametrize("credit", [1, 3, 64])
async def test_a_client_dies_at_chosen_items_of_a_stream(nursery: Nursery, place: Place, credit: int) -> None:
    """At the first item, the last, in between, twice in a row, and when the end is there."""
    deaths = [1, 2, 20, 21, 90, 300, 406, 407, 408]
    async with afflux.serve("tcp://127.0.0.1:0", Counting(), resume=True, limits=LIMITS) as server:
        ends = await lives(nursery, "streams", server.uri, place.store, place.notes, deaths, credit)
        assert ends[:-1] == [KILLED] * (len(ends) - 1)
        assert ends[-1] == 0
        assert len(ends) in (len(deaths), len(deaths) + 1)
        taken = once(place.noted, deaths)
        assert taken == [*map(str, range(400)), "end"]


async def test_a_client_dies_at_chosen_items_of_a_channel(nursery: Nursery, place: Place) -> None:
    demo = Counting()
    deaths = [1, 7, 8, 60, 118, 126]
    async with afflux.serve("tcp://127.0.0.1:0", demo, resume=True, limits=LIMITS) as server:
        ends = await lives(nursery, "channels", server.uri, place.store, place.notes, deaths, 5)
        assert ends[-1] == 0
        assert once(place.noted, deaths) == [*map(str, range(120)), "end"]
        assert demo.heard == list(range(120))


@pytest.mark.parametrize("at_once", [1, 5])
async def test_a_client_dies_at_chosen_answers(nursery: Nursery, place: Place, at_once: int) -> None:
    """Each request is handled once, and each answer is taken."""
    demo = Counting()
    deaths = [1, 2, 30, 31, 58]
    async with afflux.serve("tcp://127.0.0.1:0", demo, resume=True, limits=LIMITS) as server:
        ends = await lives(nursery, "requests", server.uri, place.store, place.notes, deaths, at_once)
        assert ends == [KILLED] * len(deaths) + [0]
        noted = Counter(place.noted)
        assert set(noted) == set(map(str, range(60)))
        assert sum(noted.values()) <= 60 + len(deaths) * at_once
        if at_once == 1:
            assert max(demo.asked.values()) == 1


async def test_a_client_dies_by_chance(nursery: Nursery, place: Place) -> None:
    """Wherever it is: between a write to its file and one to its notes, in the handshake, at work."""
    dice = random.Random(7)
    async with afflux.serve("tcp://127.0.0.1:0", Counting(), resume=True, limits=LIMITS) as server:
        for _ in range(12):
            child = await nursery.start("streams", server.uri, place.store, place.notes, [], 8)
            if (await child.line()).startswith("connected"):
                for _ in range(dice.randrange(40)):
                    await asyncio.sleep(0)
                child.kill()
            assert await child.ended() in (KILLED, 0)
        await lives(nursery, "streams", server.uri, place.store, place.notes, [], 8)
        noted = place.noted
        assert once(noted, list(range(len(noted)))) == [*map(str, range(400)), "end"]


async def test_what_was_fired_comes_once(nursery: Nursery, place: Place) -> None:
    demo = Counting()
    async with afflux.serve("tcp://127.0.0.1:0", demo, resume=True, limits=LIMITS) as server:
        for _ in range(2):
            child = await nursery.start("fires", server.uri, place.store, [1, 2, 3])
            assert await child.ended() == KILLED
        fired = [int((await demo.fired.get()).data) for _ in range(6)]
        assert fired == [1, 2, 3, 1, 2, 3]
        assert demo.fired.empty()
        assert len(server.connections) == 1


class Slow(Counting):
    """A request that waits until it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self.ended: asyncio.Queue[str] = asyncio.Queue()

    async def request(self, payload: Payload) -> Payload:
        """Echo, or wait."""
        if payload.data == b"wait":
            await self._wait("request")
        return payload

    async def channel(self, items: Any) -> AsyncIterator[bytes]:
        """Echo, and note the end."""
        try:
            async for item in items:
                yield item.data
            await self.ended.put("channel completed")
        except afflux.ApplicationError:
            await self.ended.put("channel failed")
        except asyncio.CancelledError:
            await self.ended.put("channel canceled")
            raise

    async def _wait(self, verb: str) -> None:
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            await self.ended.put(f"{verb} canceled")
            raise


async def test_what_is_unfinished_can_be_taken_up(nursery: Nursery, place: Place) -> None:
    slow = Slow()
    async with afflux.serve("tcp://127.0.0.1:0", slow, resume=True, limits=LIMITS) as server:
        assert await (await nursery.start("open_all", server.uri, place.store)).ended() == KILLED
        async with afflux.connect(server.uri, resume=SOON, store=place.store, limits=LIMITS) as peer:
            asked, stream, channel = peer.unfinished
            assert [left.verb for left in peer.unfinished] == ["request", "stream", "channel"]
            assert [left.stream for left in peer.unfinished] == [1, 3, 5]
            assert (asked.route, asked.payload.data, asked.taken) == ("asked", b"wait", 0)
            assert (stream.route, stream.payload.data, stream.taken, stream.sent) == (None, b"8", 2, 0)
            assert (channel.payload.data, channel.taken, channel.sent) == (b"first", 0, 1)
            assert repr(stream) == "<Unfinished stream 3, 2 taken>"
            assert [int(item.data) async for item in stream.items(credit=2)] == [2, 3, 4, 5, 6, 7]
            async with channel.items(source=[b"second", [b"third"]]) as items:
                assert [item.data async for item in items] == [b"first", b"second", b"third"]
            assert await slow.ended.get() == "channel completed"
            slow.go.set()
            assert (await asked.answer()).data == b"wait"
            await peer.request(b"x")
            with pytest.raises(afflux.LocalProtocolError, match="stream 1 was claimed before"):
                await asked.answer()
            with pytest.raises(afflux.LocalProtocolError, match="stream 3 was claimed before"):
                stream.items()
            with pytest.raises(afflux.LocalProtocolError, match="stream 1 is a request"):
                asked.items()
            with pytest.raises(afflux.LocalProtocolError, match="stream 3 is a stream"):
                await stream.answer()


@pytest.mark.parametrize("by_hand", [True, False])
async def test_unwanted_streams_are_canceled(nursery: Nursery, place: Place, by_hand: bool) -> None:
    """One by one, or all that is left when the connection is closed."""
    slow = Slow()
    async with afflux.serve("tcp://127.0.0.1:0", slow, resume=True, limits=LIMITS) as server:
        assert await (await nursery.start("open_all", server.uri, place.store)).ended() == KILLED
        async with afflux.connect(server.uri, resume=SOON, store=place.store, limits=LIMITS) as peer:
            if by_hand:
                for left in peer.unfinished:
                    await left.cancel()
                    await left.cancel()
            else:
                await peer.close(drain=True)
            assert {await slow.ended.get() for _ in range(2)} == {"request canceled", "channel canceled"}
        async with afflux.connect(server.uri, resume=SOON, store=place.store, limits=LIMITS) as peer:
            assert peer.unfinished == ()


async def test_who_waits_for_an_answer_may_give_up(nursery: Nursery, place: Place) -> None:
    slow = Slow()
    async with afflux.serve("tcp://127.0.0.1:0", slow, resume=True, limits=LIMITS) as server:
        assert await (await nursery.start("open_all", server.uri, place.store)).ended() == KILLED
        async with afflux.connect(server.uri, resume=SOON, store=place.store, limits=LIMITS) as peer:
            task = asyncio.ensure_future(peer.unfinished[0].answer())
            await asyncio.sleep(0)
            task.cancel()
            assert await slow.ended.get() == "request canceled"
            with pytest.raises(asyncio.CancelledError):
                await task
            async with peer.unfinished[1].items(credit=0) as items:
                assert (await anext(items)).data == b"2"
                items.request(1)
            async with peer.unfinished[2].items(source=endless()) as items:
                assert (await anext(items)).data == b"first"
            assert await slow.ended.get() == "channel canceled"


async def endless() -> AsyncIterator[bytes]:
    """Nothing, and no end."""
    await asyncio.get_running_loop().create_future()
    yield b""


async def test_a_source_that_fails_ends_the_channel(nursery: Nursery, place: Place) -> None:
    async def fails() -> AsyncIterator[bytes]:
        raise ValueError("no more")
        yield b""

    slow = Slow()
    async with afflux.serve("tcp://127.0.0.1:0", slow, resume=True, limits=LIMITS) as server:
        assert await (await nursery.start("open_all", server.uri, place.store)).ended() == KILLED
        async with afflux.connect(server.uri, resume=SOON, store=place.store, limits=LIMITS) as peer:
            items = peer.unfinished[2].items(source=fails())
            with pytest.raises(ValueError, match="no more"):
                assert [item async for item in items] == [Payload(b"first")]
            assert await slow.ended.get() == "channel failed"


async def test_closing_in_order_ends_the_session(place: Place) -> None:
    async with afflux.serve("tcp://127.0.0.1:0", Demo(), resume=True, limits=LIMITS) as server:
        for _ in range(2):
            async with afflux.connect(server.uri, resume=SOON, store=place.store, limits=LIMITS) as peer:
                assert peer.unfinished == ()
                assert (await peer.request(b"x")).data == b"x"
                assert [item.data async for item in peer.stream(b"3")] == [b"0", b"1", b"2"]
                with pytest.raises(afflux.ApplicationError):
                    [item async for item in peer.stream(b"not a number")]


# -- a session that is over -----------------------------------------------------------------------------------


async def left_behind(nursery: Nursery, uri: str, place: Place) -> None:
    """A process dies, and its session is in the file."""
    assert await (await nursery.start("open_all", uri, place.store)).ended() == KILLED


async def test_a_server_that_has_forgotten_is_reported_once(nursery: Nursery, place: Place) -> None:
    """RE-25."""
    async with afflux.serve("tcp://127.0.0.1:0", Slow(), resume=True, limits=LIMITS) as server:
        uri = server.uri
        await left_behind(nursery, uri, place)
    async with afflux.serve(uri, Demo(), resume=True, limits=LIMITS) as server:
        with pytest.raises(afflux.SetupRefused, match=r"no such session.*3 unfinished streams are lost") as caught:
            await afflux.connect(uri, resume=SOON, store=place.store, limits=LIMITS)
        assert caught.value.code == 0x004
        assert place.store in str(caught.value)
        async with afflux.connect(uri, resume=SOON, store=place.store, limits=LIMITS) as peer:
            assert peer.unfinished == ()
            assert (await peer.request(b"x")).data == b"x"


async def test_a_client_that_reconnects_begins_anew(nursery: Nursery, place: Place) -> None:
    async with afflux.serve("tcp://127.0.0.1:0", Slow(), resume=True, limits=LIMITS) as server:
        uri = server.uri
        await left_behind(nursery, uri, place)
    async with afflux.serve(uri, Demo(), resume=True, limits=LIMITS):
        async with afflux.connect(uri, resume=SOON, reconnect=SOON, store=place.store, limits=LIMITS) as peer:
            asked, stream, _ = peer.unfinished
            with pytest.raises(afflux.SetupRefused, match="no such session"):
                await asked.answer()
            items = stream.items()
            assert (await anext(items)).data == b"2"
            with pytest.raises(afflux.SetupRefused, match="no such session"):
                [item async for item in items]
            assert (await peer.request(b"x")).data == b"x"


@pytest.mark.parametrize("reconnects", [True, False])
async def test_a_session_that_is_too_old(nursery: Nursery, place: Place, reconnects: bool) -> None:
    old = LIMITS.replace(resume_s=0.0)
    async with afflux.serve("tcp://127.0.0.1:0", Slow(), resume=True, limits=LIMITS) as server:
        await left_behind(nursery, server.uri, place)
        if not reconnects:
            with pytest.raises(afflux.SetupRefused, match=r"left more than 0 s ago \(3 unfinished"):
                await afflux.connect(server.uri, resume=SOON, store=place.store, limits=old)
        connecting = afflux.connect(
            server.uri, resume=SOON, reconnect=SOON if reconnects else False, store=place.store, limits=LIMITS
        )
        if reconnects:
            connecting._plan = connecting._plan.__class__(  # only the age is judged by other limits
                **{name: getattr(connecting._plan, name) for name in connecting._plan.__slots__} | {"limits": old}
            )
        async with connecting as peer:
            assert peer.unfinished == ()


async def test_no_server_is_there_for_now(nursery: Nursery, place: Place) -> None:
    """The session stays in the file for the next try."""
    demo = Slow()
    server = await afflux.serve("tcp://127.0.0.1:0", demo, resume=True, limits=LIMITS)
    await left_behind(nursery, server.uri, place)
    uri = server.uri
    listener: Any = server._listener
    listener.close()
    with pytest.raises(afflux.ConnectFailed):
        await afflux.connect(uri, resume=SOON, store=place.store, limits=LIMITS)
    with socket.create_server(("127.0.0.1", int(uri.rsplit(":", 1)[1]))):
        with pytest.raises(afflux.ConnectFailed, match=r"within 0\.05 s"):
            await afflux.connect(uri, resume=SOON, store=place.store, limits=LIMITS, timeout=0.05)
    server._listener = await server._transport.listen(
        afflux.transports.address.parse(uri), server, server._welcome, None
    )
    async with afflux.connect(uri, resume=SOON, store=place.store, limits=LIMITS) as peer:
        assert len(peer.unfinished) == 3
    await server.close()


# -- a server dies --------------------------------------------------------------------------------------------


async def ready(nursery: Nursery, uri: str, place: Place, handler: str, *more: Any) -> tuple[Child, str]:
    """A server in a process of its own, and its address."""
    child = await nursery.start("serve", uri, place.store, handler, *more)
    word, _, address = (await child.line()).partition(" ")
    assert word == "ready", address
    return child, address


@pytest.mark.parametrize("batch", [1, 7])
async def test_a_server_dies_twenty_times_under_a_stream(nursery: Nursery, place: Place, batch: int) -> None:
    child, uri = await ready(nursery, "tcp://127.0.0.1:0", place, "Replaying", False, batch)
    expected = deaths = 0
    async with afflux.connect(uri, resume=SOON, limits=LIMITS) as peer:
        async for item in peer.stream(b"10000", credit=100):
            assert int(item.data) == expected
            expected += 1
            if expected % 490 == 7 and deaths < 20:
                child.kill()
                await child.ended()
                child, _ = await ready(nursery, uri, place, "Replaying", True, batch)
                deaths += 1
    assert (expected, deaths) == (10_000, 20)


async def test_what_replays_is_called_again(nursery: Nursery, place: Place) -> None:
    child, uri = await ready(nursery, "tcp://127.0.0.1:0", place, "Replaying")
    async with afflux.connect(uri, resume=SOON, limits=LIMITS) as peer:
        asked = asyncio.ensure_future(peer.request(b"wait"))
        await peer.fire(b"fired")
        assert {await child.line(), await child.line()} == {"request wait", "fire fired"}
        child.kill()
        await child.ended()
        child, _ = await ready(nursery, uri, place, "Replaying", True)
        assert (await asked).data == b"WAIT"
        assert {await child.line(), await child.line()} == {"request wait", "fire fired"}
        child.kill()
        await child.ended()
        child, _ = await ready(nursery, uri, place, "Replaying", True)
        assert (await peer.request(b"y")).data == b"Y"
        assert await child.line() == "request y"


async def test_what_does_not_replay_may_have_happened(nursery: Nursery, place: Place) -> None:
    """DR-11: Canceled, not Rejected; and what the server had asked itself is canceled."""
    told: asyncio.Queue[str] = asyncio.Queue()

    class Answers:
        async def request(self, payload: Payload) -> bytes:
            await told.put(payload.data.decode())
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                await told.put("canceled")
                raise
            return b""

    child, uri = await ready(nursery, "tcp://127.0.0.1:0", place, "Once")
    async with afflux.connect(uri, handler=Answers(), resume=SOON, limits=LIMITS) as peer:
        asked = [asyncio.ensure_future(peer.request(data)) for data in (b"wait", b"ask back")]
        items = peer.stream(b"")
        assert (await anext(items)).data == b"first"
        channel = peer.channel(endless_after(b"one"))
        assert (await anext(channel)).data == b"one"
        await peer.fire(b"fired")
        assert await told.get() == "from the server"
        heard = {await child.line() for _ in range(3)}
        assert heard == {"request wait", "request ask back", "fire fired"}
        child.kill()
        await child.ended()
        child, _ = await ready(nursery, uri, place, "Once")
        text = "the server was restarted: processing may have begun"
        for waits in (*asked, anext(items), anext(channel)):
            with pytest.raises(afflux.Canceled, match=text):
                await waits
        assert await told.get() == "canceled"
        assert (await peer.request(b"y")).data == b"Y"
        assert await child.line() == "request y"


async def endless_after(first: bytes) -> AsyncIterator[bytes]:
    """One item, and no end."""
    yield first
    await asyncio.get_running_loop().create_future()


async def test_both_die_again_and_again(nursery: Nursery, place: Place, tmp_path: Path) -> None:
    dice = random.Random(3)
    server, uri = await ready(nursery, "tcp://127.0.0.1:0", place, "Replaying")
    store = str(tmp_path / "client.db")
    code = KILLED
    while code == KILLED:
        client = await nursery.start("streams", uri, store, place.notes, list(range(37, 500, 61)), 16)
        while (line := await client.line()) not in ("taking", ""):
            pass
        if line and dice.random() < 0.7:
            server.kill()
            await server.ended()
            server, _ = await ready(nursery, uri, place, "Replaying", True)
        code = await client.ended()
    noted = place.noted
    assert code == 0
    assert once(noted, list(range(37, 500, 61))) == [*map(str, range(400)), "end"]


# -- servers in this process ----------------------------------------------------------------------------------


class Numbers:
    """A stream that begins again with the same items, when it is called again."""

    replays = True

    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        """The numbers."""
        for i in range(int(payload.data)):
            yield b"%d" % i


async def test_a_server_may_leave_and_another_come(place: Place) -> None:
    """close(keep=True): the sessions stay in the file."""
    uri = "tcp://127.0.0.1:0"
    peer = None
    for number in range(3):
        server = await afflux.serve(uri, Numbers(), resume=True, store=place.store, limits=LIMITS)
        uri = server.uri
        if peer is None:
            peer = await afflux.connect(uri, resume=SOON, limits=LIMITS)
            items = peer.stream(b"300", credit=10)
        for i in range(100):
            assert int((await anext(items)).data) == number * 100 + i
        assert [guest.uri for guest in server.connections] == [uri]
        if number < 2:
            await server.close(keep=True)
    assert peer is not None
    assert [item async for item in items] == []
    await peer.close()
    await server.close()


async def test_a_server_that_closes_ends_its_sessions(place: Place) -> None:
    server = await afflux.serve("tcp://127.0.0.1:0", Numbers(), resume=True, store=place.store, limits=LIMITS)
    peer = await afflux.connect(server.uri, resume=SOON, limits=LIMITS)
    assert (await anext(peer.stream(b"300", credit=10))).data == b"0"
    await server.close()
    async with afflux.serve(server.uri, Numbers(), resume=True, store=place.store, limits=LIMITS) as server:
        assert server.connections == ()
    await peer.close()


async def test_who_is_let_in_is_decided_anew(place: Place) -> None:
    decided: list[Any] = []
    allowed = True

    async def decide(setup: Any, peer: afflux.Peer) -> None:
        decided.append(setup.data)
        peer.principal = "me"
        if not allowed:
            raise afflux.Rejected("not any more")

    def serve(uri: str) -> afflux.Server:
        return afflux.serve(uri, Numbers(), on_setup=decide, resume=True, store=place.store, limits=LIMITS)

    server = await serve("tcp://127.0.0.1:0")
    peer = await afflux.connect(server.uri, resume=SOON, limits=LIMITS, setup=b"it is me")
    items = peer.stream(b"100", credit=2)
    assert (await anext(items)).data == b"0"
    await server.close(keep=True)
    async with serve(server.uri) as server:
        (guest,) = server.connections
        assert guest.suspended
        assert guest.principal is None
        assert (await anext(items)).data == b"1"
        for i in range(2, 8):
            assert int((await anext(items)).data) == i
        assert guest.principal == "me"
        await server.close(keep=True)
    allowed = False
    async with serve(server.uri) as server:
        with pytest.raises(afflux.SetupRefused, match="no such session"):
            async for _ in items:
                pass
    assert decided == [b"it is me"] * 3
    await peer.close()


async def test_sessions_that_are_too_old_or_too_many_are_not_taken_over(place: Place) -> None:
    server = await afflux.serve("tcp://127.0.0.1:0", Numbers(), resume=True, store=place.store, limits=LIMITS)
    peers = [await afflux.connect(server.uri, resume=SOON, limits=LIMITS) for _ in range(3)]
    for peer in peers:
        assert (await anext(peer.stream(b"300", credit=10))).data == b"0"
    await server.close(keep=True)
    for peer in peers:
        await peer.close()
    few = LIMITS.replace(resume_sessions=2)
    server = await afflux.serve(server.uri, Numbers(), resume=True, store=place.store, limits=few)
    while len(server.connections) > 2:
        await asyncio.sleep(0)
    await server.close(keep=True)
    old = Limits.server(resume_s=0.0)
    async with afflux.serve(server.uri, Numbers(), resume=True, store=place.store, limits=old) as server:
        assert server.connections == ()


async def test_an_address_that_is_taken_leaves_the_sessions(place: Place) -> None:
    server = await afflux.serve("tcp://127.0.0.1:0", Numbers(), resume=True, store=place.store, limits=LIMITS)
    peer = await afflux.connect(server.uri, resume=SOON, limits=LIMITS)
    items = peer.stream(b"30", credit=2)
    assert (await anext(items)).data == b"0"
    await server.close(keep=True)
    async with afflux.serve("tcp://127.0.0.1:0", Demo()) as other:
        with pytest.raises(afflux.BindFailed):
            await afflux.serve(other.uri, Numbers(), resume=True, store=place.store, limits=LIMITS)
    async with afflux.serve(server.uri, Numbers(), resume=True, store=place.store, limits=LIMITS):
        assert [int(item.data) async for item in items] == list(range(1, 30))
    await peer.close()


# -- handlers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("handler", ["Replaying", "Once"])
async def test_a_client_that_serves_dies(nursery: Nursery, place: Place, handler: str) -> None:
    """It serves as a server does."""
    answers: asyncio.Queue[Any] = asyncio.Queue()

    class Asks:
        async def fire(self, payload: Payload) -> None:
            try:
                await answers.put((await afflux.current_peer().request(b"wait")).data)
            except afflux.Canceled as error:
                await answers.put(error.message)

    async with afflux.serve("tcp://127.0.0.1:0", Asks(), resume=True, limits=LIMITS) as server:
        child = await nursery.start("answers", server.uri, place.store, handler, False)
        assert await child.line() == "request wait"
        child.kill()
        assert await child.ended() == KILLED
        child = await nursery.start("answers", server.uri, place.store, handler, True)
        expected: Any = b"WAIT" if handler == "Replaying" else "the client was restarted: processing may have begun"
        assert await answers.get() == expected


def test_which_handlers_begin_again() -> None:
    router = afflux.Router()

    @router.stream("numbers")
    async def numbers(payload: Payload) -> AsyncIterator[bytes]:
        yield b""

    @router.stream("news")
    async def news(payload: Payload) -> AsyncIterator[bytes]:
        yield b""

    numbers.replays = True  # type: ignore[attr-defined]
    asked = {route: Payload(b"", afflux.compose([afflux.Route(route)])) for route in ("numbers", "news", "nobody's")}
    replays = replays_of(router)
    assert [replays("stream", asked[route]) for route in asked] == [True, False, False]
    assert not replays("stream", Payload(b"", b"\xff not composite"))
    whole = replays_of(Numbers())
    assert [whole(verb, Payload()) for verb in ("stream", "request", "channel")] == [True, False, False]
    assert not replays_of(Demo())("stream", Payload())
    assert not replays_of(None)("fire", Payload())


@pytest.mark.parametrize("count", range(9))
@pytest.mark.parametrize("lists", [True, False])
async def test_items_that_were_sent_are_skipped(count: int, lists: bool) -> None:
    source = [[0, 1, 2], 3, [], [4, 5], 6] if lists else list(range(7))

    async def later() -> AsyncIterator[Any]:
        for item in source:
            yield item

    for items in (source, later()):
        left: list[int] = []
        async for item in skipping(items, count):
            left += item if isinstance(item, list) else [item]
        assert left == list(range(7))[count:]


def test_a_certificate_in_a_file_is_the_same() -> None:
    shown = {"subject": ((("commonName", "me"),),), "version": 3}
    assert plain(shown) == json.loads(json.dumps(shown))
    assert plain(plain(shown)) == plain(shown)
    assert plain(None) is None


async def test_a_hook_that_fails_lets_no_client_back(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    fails = False

    async def decide(setup: Any, peer: afflux.Peer) -> None:
        if fails:
            raise ValueError("a secret")

    def serve(uri: str) -> afflux.Server:
        return afflux.serve(uri, Numbers(), on_setup=decide, resume=True, store=place.store, limits=LIMITS)

    server = await serve("tcp://127.0.0.1:0")
    peer = await afflux.connect(server.uri, resume=SOON, limits=LIMITS)
    items = peer.stream(b"100", credit=2)
    assert (await anext(items)).data == b"0"
    await server.close(keep=True)
    fails = True
    async with serve(server.uri):
        with pytest.raises(afflux.SetupRefused, match="no such session"):
            async for _ in items:
                pass
    assert "on_setup raised" in caplog.text
    await peer.close()
