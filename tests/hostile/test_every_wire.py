"""Rows that are told alike for Jmux, ReactiveSocket, reactive-streams-io and the extensible draft of RSocket: what any
peer, network or clock may do. What a driver or a listener keeps is told over sockets, with each protocol."""

from __future__ import annotations

import asyncio
import pickle
import random
import socket
import time
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest

import afflux
from afflux import Limits, Payload, auth
from afflux.core import events as ev
from afflux.protocols.registry import PROTOCOLS
from afflux.protocols.rsio import Engine as Rsio
from afflux.testing.world import End, Link, World
from tests.aio.handlers import Demo, turns
from tests.hostile import jmux_peer, limit_peer, reactivesocket_peer, rsio_peer, rsocket_draft_peer
from tests.hostile.hoards import SERVER, TINY, drained
from tests.protocols.generic.wires import Role, Wire
from tests.protocols.jmux.playbook import abort, opening
from tests.protocols.jmux.wire import WIRE as JMUX
from tests.protocols.limit.wire import WIRE as LIMIT
from tests.protocols.reactivesocket.wire import WIRE as REACTIVESOCKET
from tests.protocols.rsio.playbook import ask
from tests.protocols.rsio.playbook import error as failure
from tests.protocols.rsio.wire import WIRE as RSIO
from tests.protocols.rsocket_draft.wire import WIRE as DRAFT

pytestmark = pytest.mark.repetitive

WIRES = (JMUX, LIMIT, REACTIVESOCKET, RSIO, DRAFT)
PEERS: dict[str, Any] = {
    "jmux": jmux_peer,
    "limit": limit_peer,
    "reactivesocket": reactivesocket_peer,
    "rsio": rsio_peer,
    "rsocket-draft": rsocket_draft_peer,
}
GREEDY = {
    "jmux": jmux_peer.frames.ClientConnectionHeader(initial_ration=0).encode() + opening(b"q", eof=True).encode(),
    "limit": limit_peer.GREEDY,
    "reactivesocket": reactivesocket_peer.setup().encode(prefixed=True)
    + reactivesocket_peer.frames.RequestStream(stream=2, initial_n=0x7FFFFFFF).encode(prefixed=True),
    "rsio": rsio_peer.frames.ClientHello().encode() + ask(demand=rsio_peer.UNBOUNDED).encode(),
    "rsocket-draft": DRAFT.hello("server")
    + rsocket_draft_peer.frames.RequestStream(stream=1, initial_n=0x7FFFFFFF).encode(prefixed=True),
}
"What a client says that wants everything."
LONGER = {"limit": b"\0\0\x05", "reactivesocket": b"\0\0\0\x05", "rsocket-draft": b"\0\0\x06\0\0\0\0\0\0"}
"What a client reads before noise, where a server's frame may be longer than the first of a client."
every_wire = pytest.mark.parametrize("wire", WIRES, ids=[wire.name for wire in WIRES])
both_roles = pytest.mark.parametrize("role", ["client", "server"])


def uri_of(wire: Wire) -> str:
    return f"{wire.name}+tcp://127.0.0.1:0"


def place_of(server: afflux.Server) -> tuple[str, int]:
    host, _, port = server.uri.rpartition("/")[2].rpartition(":")
    return host, int(port)


async def works(wire: Wire, peer: afflux.Peer) -> None:
    """One call that is answered."""
    if wire is RSIO:
        assert [item.data async for item in peer.subscribe("3", credit=8)] == [b"0", b"1", b"2"]
    elif wire is LIMIT:
        async with peer.channel([b"x", b"y"]) as items:
            assert [item.data async for item in items] == [b"x", b"y"]
    else:
        assert await peer.request(b"x") == Payload(b"x")


def ended(engine: Any, now: float) -> bool:
    """Whether it is over; who has said goodbye waits for the answer first."""
    if not engine.closed and isinstance(engine, Rsio):
        engine.tick(now + engine.limits.goodbye_s)
    return bool(engine.closed)


# -- 3.1 framing ----------------------------------------------------------------------------------------------


@every_wire
@both_roles
def test_FR_09_garbage_is_found_within_the_first_frame(wire: Wire, role: Role) -> None:
    for seed in range(40):
        noise = random.Random(seed).randbytes(SERVER.first_frame_bytes)
        for data in (noise, bytes(len(noise)), b"\xff" * len(noise)):
            if role == "client":  # a server's frame may be longer
                data = LONGER.get(wire.name, b"") + data
            engine = wire.make(role, limits=SERVER)
            engine.receive(data, 0.0)
            assert ended(engine, 0.0)


@every_wire
def test_FR_05_SL_02_a_byte_each_second(wire: Wire) -> None:
    """The time of a message does not begin anew with each byte."""
    make, message, _ = PEERS[wire.name].LARGEST
    engine = make()
    for second in range(int(SERVER.frame_s)):
        events = engine.receive(message[second : second + 1], float(second))
        events += engine.tick(float(second))
        assert not any(isinstance(event, ev.Closed) for event in events)
        drained(engine)
    engine.tick(SERVER.frame_s)
    assert b"frame-timeout" in drained(engine)
    assert ended(engine, SERVER.frame_s)


@every_wire
async def test_FR_28_a_burst_leaves_turns_to_others(wire: Wire) -> None:
    """A pass over the input ends after about ``loop_ms``; the rest of what was read waits its turn."""
    limits, handler = Limits.server(loop_ms=0.2), Stuck()
    async with (
        afflux.serve(uri_of(wire), handler, limits=limits) as server,
        afflux.connect(server.uri, limits=limits) as peer,
    ):
        if wire in (LIMIT, RSIO):
            asked = peer.channel([b"x"], credit=0x7FFFFFFF) if wire is LIMIT else None
            items = asked or peer.subscribe("stuck", credit=0x7FFFFFFF)
            taking = asyncio.ensure_future(counted(items))
            await handler.entered.get()
            await turns(20)
            guest: Any = peer._driver
        else:
            while not server.connections:
                await asyncio.sleep(0)
            await turns(20)
            guest = server.connections[0]._driver
        taken = 0
        guest.pump.data_received(limit_peer.TO_CLIENT if wire is LIMIT else PEERS[wire.name].BURST[1])
        while guest.input.held:
            taken += 1
            await asyncio.sleep(0)
        assert taken > 2
        assert not guest.state.over
        if wire in (LIMIT, RSIO):
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)


async def counted(items: Any) -> int:
    """Take all that come."""
    count = 0
    async for _ in items:
        count += 1
    return count


class Stuck(Demo):
    """A publisher that has nothing to say."""

    def __init__(self) -> None:
        super().__init__()
        self.entered: asyncio.Queue[str] = asyncio.Queue()

    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        """Wait."""
        await self.entered.put("stream")
        await asyncio.Event().wait()
        yield b""

    channel = stream  # type: ignore[assignment]  # it looks at nothing


# -- 3.2 handshake --------------------------------------------------------------------------------------------


@every_wire
async def test_HS_27_newcomers_are_refused_and_the_others_go_on(wire: Wire) -> None:
    limits = Limits.tiny(connections=3, connections_per_address=2, half_handshakes=2)
    async with afflux.serve(uri_of(wire), Demo(), limits=limits) as server, afflux.connect(server.uri) as one:
        await works(wire, one)
        async with afflux.connect(server.uri) as two:
            await works(wire, two)
            async with afflux.connect(server.uri) as three:
                with pytest.raises(afflux.ConnectionClosed):
                    await works(wire, three)
            assert len(server.connections) == 2
            await works(wire, one)


@every_wire
async def test_HS_27_the_oldest_half_handshake_goes(wire: Wire) -> None:
    limits = Limits.tiny(half_handshakes=2, connections_per_address=None, handshake_s=1)
    async with afflux.serve(uri_of(wire), Demo(), limits=limits) as server:
        silent = [await asyncio.open_connection(*place_of(server)) for _ in range(3)]
        try:
            while await silent[0][0].read(100):
                pass  # a server of reactive-streams-io says hello at once
        except ConnectionResetError:
            pass
        async with afflux.connect(server.uri) as peer:
            await works(wire, peer)
        for _, writer in silent:
            writer.close()


@every_wire
async def test_HS_01_HS_21_a_silent_client_is_closed(wire: Wire) -> None:
    async with afflux.serve(uri_of(wire), Demo(), limits=Limits.server(handshake_s=0.05)) as server:
        for words in (b"", b"\0" if wire is REACTIVESOCKET else b"Jm" if wire is JMUX else b"\x01"):
            reader, writer = await asyncio.open_connection(*place_of(server))
            writer.write(words)
            heard = await reader.read()
            assert len(heard) < 16  # at most a hello
            writer.close()
        while server.connections:
            await asyncio.sleep(0)


@every_wire
async def test_HS_27_what_strangers_cost(wire: Wire) -> None:
    """HS-01, HS-27: 16 KiB each, for sockets that say nothing; the test's own ends are among it."""
    limits = Limits.server(connections_per_address=None, accepts_per_s=10_000)
    count = 100
    async with afflux.serve(uri_of(wire), Demo(), limits=limits) as server:
        loop = asyncio.get_running_loop()
        socks = [socket.socket() for _ in range(count)]
        tracemalloc.start()
        try:
            for sock in socks:
                sock.setblocking(False)
                await loop.sock_connect(sock, place_of(server))
            while len(server.connections) < count:
                await asyncio.sleep(0)
            used, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            for sock in socks:
                sock.close()
    assert used <= count * 16 * 1024


# -- 3.6 time -------------------------------------------------------------------------------------------------


@every_wire
async def test_TM_01_the_clock_on_the_wall_jumps(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour to and fro at each look: nobody is given up, and no lease is over."""
    real, looks = time.time, iter(range(1 << 30))
    monkeypatch.setattr(time, "time", lambda: real() + 3600 * (next(looks) % 3 - 1))
    lease: dict[str, Any] = {"lease": afflux.FixedLease(9, 60.0)} if wire is REACTIVESOCKET else {}
    asked: dict[str, Any] = {"lease": True} if wire is REACTIVESOCKET else {}
    async with afflux.serve(uri_of(wire), Demo(), **lease) as server, afflux.connect(server.uri, **asked) as peer:
        for _ in range(9):
            await works(wire, peer)
        assert not server.connections[0].closed


@every_wire
@both_roles
def test_TM_03_a_process_that_was_stopped(wire: Wire, role: Role) -> None:
    """Two minutes: what can be read is read, and who says nothing then is asked before it is given up."""
    engine = wire.established(role)
    assert engine.tick(120.0) == []
    drained(engine)
    assert engine.deadline is None or engine.deadline > 120.0
    line = PEERS[wire.name].BURST[1][:4] if wire is JMUX else b""
    if wire is REACTIVESOCKET:
        line = reactivesocket_peer.frames.Keepalive().encode(prefixed=True)
        events = engine.receive(line, 120.5)
        assert engine.tick(121.5) == events == []
        drained(engine)
        assert engine.tick(engine.liveness.heard + engine.liveness.lifetime)  # and then it is given up as ever
    assert engine.closed is (wire is REACTIVESOCKET)


@both_roles
def test_TM_03_a_side_that_is_always_late(role: Role) -> None:
    """It asks once in each silence, and not for ever."""
    engine = REACTIVESOCKET.established(role)
    assert engine.tick(120.0) == []
    drained(engine)
    engine.receive(reactivesocket_peer.frames.Keepalive().encode(prefixed=True), 120.5)
    assert engine.tick(300.0) == []  # another silence
    assert engine.tick(500.0)
    assert engine.closed


# -- 3.8 slow and half-open -----------------------------------------------------------------------------------


class Endless:
    """Says what it can, and remembers how much of it waited."""

    def __init__(self) -> None:
        self.most = 0
        self.over = asyncio.Event()

    def _note(self) -> None:
        driver = afflux.current_peer()._driver
        if driver.state.transport is not None:
            self.most = max(self.most, driver.engine.queued + driver.state.transport.get_write_buffer_size())

    async def session(self, session: Any) -> None:
        """Write for ever."""
        try:
            while True:
                await session.write(bytes(4000))
                self._note()
        finally:
            self.over.set()

    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        """The same."""
        try:
            while True:
                yield bytes(4000)
                self._note()
        finally:
            self.over.set()

    channel = stream


async def sipping(sock: socket.socket) -> None:
    """Read a little at a time, for ever."""
    while await asyncio.get_running_loop().sock_recv(sock, 1):
        await asyncio.sleep(0.01)


@every_wire
@pytest.mark.parametrize("sips", [False, True], ids=["nothing", "a little"])
async def test_SL_01_a_peer_that_reads(wire: Wire, sips: bool) -> None:
    """FC-09: no more than O waits, and after ``write_stall_s`` it is given up, also if it reads a byte now and then."""
    endless = Endless()
    async with afflux.serve(uri_of(wire), endless, limits=Limits.server(write_stall_s=0.1)) as server:
        with socket.socket() as sock:
            sock.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(sock, place_of(server))
            await loop.sock_sendall(sock, GREEDY[wire.name])
            while not server.connections:
                await asyncio.sleep(0)
            guest = server.connections[0]
            sipped = asyncio.ensure_future(sipping(sock)) if sips else None
            await guest.wait_closed()
            if sipped is not None:
                sipped.cancel()
                await asyncio.gather(sipped, return_exceptions=True)
        assert "write-stall" in str(guest.error)
        await endless.over.wait()
        assert 0x10000 < endless.most <= 1.1 * SERVER.outbound_high_bytes + 0x20000


@pytest.mark.parametrize(
    "wire", [LIMIT, REACTIVESOCKET, RSIO, DRAFT], ids=["limit", "reactivesocket", "rsio", "rsocket-draft"]
)
async def test_SL_03_a_peer_that_ends_its_half(wire: Wire) -> None:
    """FIN is the end: the handler stops, nothing is left. (A client of Jmux may end its half: test_wire there.)"""
    endless = Endless()
    async with afflux.serve(uri_of(wire), endless) as server:
        reader, writer = await asyncio.open_connection(*place_of(server))
        writer.write(GREEDY[wire.name])
        await reader.readexactly(500)  # the handler has begun
        guest = server.connections[0]
        writer.write_eof()
        while await reader.read(0x10000):
            pass
        await endless.over.wait()
        await guest.wait_closed()
        assert "the peer closed the connection" in str(guest.error)
        assert not guest._driver.engine.queued
        writer.close()


@pytest.mark.parametrize("wire", [JMUX, REACTIVESOCKET], ids=["jmux", "reactivesocket"])
def test_SL_05_a_cable_that_was_pulled(wire: Wire) -> None:
    """Both sides find it out by themselves, with a call under way."""
    world = World()
    link = joined(world, wire, answers=False)
    link.client.engine.open("request", b"1")
    world.run(until=1)
    link.dark = True
    world.run(until=300)
    for end in link.ends:
        assert [type(event) for event in end.events].count(ev.Closed) == 1
        assert end.engine.closed


def test_SL_05_a_cable_that_was_pulled_without_requests() -> None:
    """reactive-streams-io has no keepalive. Who subscribes to nothing is let go; for the others the system asks."""
    world = World()
    link = joined(world, RSIO)
    world.run(until=1)
    link.dark = True
    world.run(until=400)
    assert isinstance(link.server.events[-1], ev.Closed)


@every_wire
async def test_SL_05_the_system_asks_too(wire: Wire) -> None:
    """A dead peer of a silent TCP connection is found out within two minutes, whatever the protocol."""
    async with afflux.serve(uri_of(wire), Demo()) as server, afflux.connect(server.uri) as peer:
        await works(wire, peer)
        for end in (peer, server.connections[0]):
            transport = end._driver.state.transport
            assert transport is not None
            sock = transport.get_extra_info("socket")
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            idle, gap, count = (
                sock.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            )
            assert idle + gap * count <= 120


@every_wire
def test_SL_05_a_network_that_comes_and_goes(wire: Wire) -> None:
    """Five seconds of nothing, two of everything, for five minutes: nobody is given up."""
    world = World()
    link = joined(world, wire)
    for second in range(0, 300, 7):
        world.at(float(second), lambda: reading(link, False))
        world.at(second + 5.0, lambda: reading(link, True))
    for second in range(1, 290, 11):
        world.at(float(second), lambda: link.client.engine.open(*CALL[wire.name][:2], **CALL[wire.name][2]))
    world.run(until=299)
    assert not any(end.engine.closed for end in link.ends)
    done = [event for event in link.client.events if getattr(event, "complete", isinstance(event, ev.Completed))]
    assert len(done) == len(range(1, 290, 11))


def reading(link: Link, reads: bool) -> None:
    for end in link.ends:
        end.reading = reads


# -- 3.9 networks, texts --------------------------------------------------------------------------------------

CALL: dict[str, tuple[str, bytes, dict[str, int]]] = {
    "jmux": ("request", b"5", {}),
    "limit": ("channel", b"5", {"credit": 9, "complete": True}),
    "reactivesocket": ("stream", b"5", {"credit": 9}),
    "rsio": ("stream", b"5", {"credit": 9}),
    "rsocket-draft": ("stream", b"5", {"credit": 9}),
}
"What is asked, and with what."


def asked_at_once(wire: Wire, most: int) -> range:
    """A connection of Limit-Stream has one session at a time."""
    return range(1 if wire is LIMIT else most)


def joined(world: World, wire: Wire, answers: bool = True, **how: Any) -> Link:
    """Two ends; the server answers N with N items, or with N bytes."""

    def react(end: End, event: ev.Event) -> None:
        if isinstance(event, ev.Opened) and answers:
            count = int(event.payload.data)
            items = [b"%d" % count] if event.verb == "request" else [b"%d" % n for n in range(count)]
            end.engine.send(event.stream, items, complete=True)
            end.engine.release(event.stream)

    client, server = (wire.make(role, limits=SERVER) for role in ("client", "server"))
    return world.join(client, server, on_server=react, **how)


def heard(end: End) -> dict[int, bytes]:
    """What came on each stream."""
    found: dict[int, bytes] = {}
    for event in ev.singly(end.events):
        if isinstance(event, ev.Items):
            found[event.stream] = found.get(event.stream, b"") + b"".join(item.data for item in event.payloads)
    return found


@every_wire
@pytest.mark.parametrize("slice", [None, 0, 1, 3])
@pytest.mark.parametrize("jitter", [0.0, 0.5])
def test_TR_15_latency_and_slices(wire: Wire, slice: int | None, jitter: float) -> None:
    world = World(seed=4)
    link = joined(world, wire, latency=0.1, jitter=jitter, slice=slice)
    verb, data, options = CALL[wire.name]
    streams = [link.client.engine.open(verb, data, **options) for _ in asked_at_once(wire, 9)]
    world.run()
    assert heard(link.client) == dict.fromkeys(streams, b"5" if wire is JMUX else b"01234")


@every_wire
@pytest.mark.parametrize("to", ["client", "server"])
def test_TR_15_whatever_the_network_does(wire: Wire, to: str) -> None:
    """It breaks behind any byte: no wrong result, one end for each call and for each side, and no more than C."""
    verb, data, options = CALL[wire.name]
    right = b"5" if wire is JMUX else b"01234"
    tracemalloc.start()
    for place in range(160):
        world = World(seed=place)
        link = joined(world, wire, slice=0)
        link.cut_after(place, link.client if to == "client" else link.server)
        streams = [link.client.engine.open(verb, data, **options) for _ in asked_at_once(wire, 3)]
        world.run()
        world.run(until=1.0)
        if not all(end.engine.closed for end in link.ends):
            link.cut()
        for got in heard(link.client).values():
            assert right.startswith(got)
        ends = [
            event.stream
            for event in ev.singly(link.client.events)
            if isinstance(event, ev.Failed | ev.Completed) or getattr(event, "complete", False)
        ]
        assert sorted(ends) == streams
        for end in link.ends:
            assert [type(event) for event in end.events].count(ev.Closed) == 1
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= SERVER.connection_bytes


@pytest.mark.parametrize("wire", [REACTIVESOCKET, RSIO], ids=["reactivesocket", "rsio"])
async def test_AU_03_who_guesses_waits(wire: Wire) -> None:
    """So many failures a minute and address, then nobody is even looked at; whoever is in goes on."""
    checked: list[object] = []

    def check(credentials: object, peer: afflux.Peer) -> object:
        checked.append(credentials)
        return "ada" if len(checked) == 1 else None

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(0)

    gate = auth.at_setup(check, clock=lambda: 0.0, sleep=sleep)
    limits = Limits.server(auth_failures=4)
    async with (
        afflux.serve(uri_of(wire), Demo(), on_setup=gate, limits=limits) as server,
        afflux.connect(server.uri) as good,
    ):
        await works(wire, good)
        for _ in range(8):
            async with afflux.connect(server.uri) as peer:
                with pytest.raises(afflux.SetupRefused):
                    await works(wire, peer)
        assert len(checked) == 1 + 4
        await works(wire, good)


async def test_AU_03_where_no_hook_could_run() -> None:
    """A connection of Jmux has no setup: a server that wants to decide by one does not start."""
    with pytest.raises(afflux.Unsupported, match="nothing to decide by"):
        await afflux.serve(uri_of(JMUX), Demo(), on_setup=auth.at_setup(lambda credentials, peer: None))


HOSTILE = "\r\n\x1b[31m%s\0{x}"
SAID: dict[str, bytes] = {
    "jmux": abort(detail=HOSTILE).encode(),
    "limit": limit_peer.frames.ErrorFrame(stream=2, code=0x201, data=HOSTILE.encode()).encode(prefixed=True),
    "reactivesocket": reactivesocket_peer.frames.ErrorFrame(stream=2, code=0x21, data=HOSTILE.encode()).encode(
        prefixed=True
    ),
    "rsio": rsio_peer.answer().encode() + failure(HOSTILE).encode(),
    "rsocket-draft": rsocket_draft_peer.frames.ErrorFrame(stream=1, code=0x201, data=HOSTILE.encode()).encode(
        prefixed=True
    ),
}
"How a stream is ended with such a text."


@every_wire
def test_AU_05_texts_of_a_peer_stay_texts(wire: Wire) -> None:
    """The application gets the text; whoever shows the event shows it escaped."""
    engine = wire.established("client")
    verb, data, options = CALL[wire.name]
    engine.open(verb, data, **options)
    drained(engine)
    (event,) = engine.receive(SAID[wire.name], 0.0)
    assert isinstance(event, ev.Failed)
    assert event.error.message == HOSTILE
    assert not set(map(ord, repr(event))) & {*range(32), 127}


@every_wire
async def test_AU_05_no_text_of_an_exception_is_sent(wire: Wire) -> None:
    class Leaky:
        async def request(self, payload: Payload) -> Payload:
            raise ValueError("a secret")

        async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
            raise ValueError("a secret")
            yield b""

        channel = stream

    async with afflux.serve(uri_of(wire), Leaky()) as server, afflux.connect(server.uri) as peer:
        with pytest.raises(afflux.Error) as caught:
            await works(wire, peer)
        assert "secret" not in str(caught.value) and "Traceback" not in str(caught.value)


@every_wire
async def test_AU_06_bytes_stay_bytes(wire: Wire) -> None:
    """A pickle that would be noticed, and the head of a serialised Java object."""

    class Trap:
        def __reduce__(self) -> Any:
            return pytest.fail, ("it was unpickled",)

    told: list[bytes] = []

    class Ears(Demo):
        async def request(self, payload: Payload) -> Payload:
            told.append(payload.data)
            return payload

        async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
            told.append(payload.data)
            yield payload.data

        async def channel(self, items: Any) -> AsyncIterator[bytes]:
            async for item in items:
                told.append(item.data)
                yield item.data

    # A publisher's name is text.
    data = pickle.dumps(Trap(), protocol=0) if wire is RSIO else pickle.dumps(Trap()) + b"\xac\xed\x00\x05"
    async with afflux.serve(uri_of(wire), Ears()) as server, afflux.connect(server.uri) as peer:
        if wire is RSIO:
            assert [item.data async for item in peer.subscribe(data.decode(), credit=1)] == [data]
        elif wire is LIMIT:
            async with peer.channel([data]) as items:
                assert [item.data async for item in items] == [data]
        else:
            assert (await peer.request(data)).data == data
    assert told == [data]


def test_the_wires_are_those_of_the_catalogue() -> None:
    built = set(PROTOCOLS)
    assert built == {wire.name for wire in WIRES} | {"rsocket"}
    assert TINY.connection_bytes < SERVER.connection_bytes
