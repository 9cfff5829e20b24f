"""Resumption over every transport, under both loops: what one loses, another of its kind goes on with."""

# ruff: noqa: SIM117 -- a connection, then what happens on it: the nesting is the story

from __future__ import annotations

import asyncio
import gc
import logging
import os
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path
from time import monotonic

import pytest

import afflux
import afflux.asgi
from afflux import Backoff, Limits, Payload
from afflux.aio.driver import Driver
from afflux.testing import Faults, Proxy
from tests.aio.handlers import Demo, Waits
from tests.transports.certificates import Certificates
from tests.transports.check import KINDS, Kind, Place

LIMITS = Limits.server(resume_rate=(1_000_000, 0.0))
SOON = Backoff(first=0.001, most=0.001, jitter=0.0)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Made once: keys take time."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def place(request: pytest.FixtureRequest, tmp_path: Path, certificates: Certificates) -> Place:
    """Each transport in turn."""
    kind: Kind = request.param
    return Place(kind, tmp_path, certificates)


@pytest.fixture(autouse=True)
def no_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Client and server have one clock here: tries need not be further apart than the server demands."""
    monkeypatch.setattr("afflux.retry.tries._MARGIN_S", 0.0)


async def turns(until: object) -> None:
    """Let the loop turn until a condition holds."""
    assert callable(until)
    while not until():
        await asyncio.sleep(0)


async def test_a_stream_survives_cuts_from_both_sides(place: Place) -> None:
    class Numbers:
        async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
            for i in range(2000):
                yield b"%d" % i

    async with place.serve(Numbers(), resume=True, limits=LIMITS) as server:
        async with place.connect(server.uri, resume=SOON, limits=LIMITS) as peer:
            expected = 0
            async for item in peer.stream(b"", credit=16):
                assert int(item.data) == expected
                expected += 1
                if expected % 100 == 0:
                    (guest,) = (guest for guest in server.connections if guest.setup is not None)
                    (peer if expected % 200 else guest).cut()
                    await turns(lambda: peer.suspended)
            assert expected == 2000
            await turns(lambda: len(server.connections) == 1)


async def test_a_session_whose_setup_was_lost_begins_anew_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """The first connection is cut within the handshake of the WebSocket, the SETUP, or what follows."""
    outcomes = set()
    async with afflux.serve("ws://127.0.0.1:0", Demo(), resume=True, limits=LIMITS) as server:
        for size in range(150, 450, 24):
            faults = [Faults(cut_after=size), Faults()]
            async with Proxy(server.uri, plan=lambda number, f=faults: (f[number > 0], Faults())) as proxy:
                try:
                    async with afflux.connect(proxy.uri, resume=SOON, limits=LIMITS) as peer:
                        outcomes.add((await peer.request(b"x")).data)
                except (afflux.ConnectFailed, afflux.ConnectionClosed) as error:
                    outcomes.add(type(error))
    assert outcomes == {b"x", afflux.ConnectFailed, afflux.ConnectionClosed}
    assert not [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


async def test_every_interaction_goes_on(place: Place) -> None:
    demo = Demo()
    async with place.serve(demo, resume=True, limits=LIMITS) as server:
        async with place.connect(server.uri, resume=SOON, limits=LIMITS, mtu=128) as peer:
            large = bytes(range(256)) * 20
            for _ in range(5):
                asked = asyncio.ensure_future(peer.request(Payload(large, b"meta")))
                await asyncio.sleep(0)
                peer.cut()
                assert (await asked).data == large
                await peer.fire(b"fired")
                peer.cut()
                assert (await demo.fired.get()).data == b"fired"
                async with peer.channel([b"%d" % i for i in range(30)], credit=3) as items:
                    taken = []
                    async for item in items:
                        taken.append(item.data)
                        if len(taken) == 10:
                            peer.cut()
                    assert taken == [b"%d" % i for i in range(30)]
    assert demo.fired.empty()


async def test_a_transport_that_only_the_client_knows_is_lost(place: Place) -> None:
    """RE-14: the newer transport wins at once, although the older looks open, and nothing goes to that any more."""
    waits = Waits()
    async with place.serve(waits, resume=True, limits=LIMITS) as server:
        async with place.connect(server.uri, resume=SOON, limits=LIMITS) as peer:
            asked = asyncio.ensure_future(peer.request(b"x"))
            await waits.entered.get()
            (guest,) = server.connections
            older = peer._driver.pump.release()[0]  # a cable is pulled: nobody tells the server
            assert older is not None
            silent = Silent()
            older.set_protocol(silent)
            peer._driver.state.away = True
            events = peer._driver.engine.receive_eof(monotonic())
            peer._driver.dispatch(events)
            assert peer.suspended and not guest.suspended
            theirs = guest._driver.state.transport
            await turns(lambda: guest._driver.state.transport not in (theirs, None))
            waits.go.set()
            async with asyncio.timeout(LIMITS.handshake_s / 2):
                assert (await asked).data == b"x"
                await silent.lost
            assert not silent.heard
            await turns(lambda: server.connections == (guest,))
            assert server._clients.gate.admitted == 1 and sum(server._clients.gate.hosts.values()) == 1


class Silent(asyncio.Protocol):
    """Remembers what came."""

    def __init__(self) -> None:
        self.heard = b""
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        """Remember."""
        self.heard += data

    def connection_lost(self, exc: Exception | None) -> None:
        """The end."""
        self.lost.set_result(None)


async def test_many_cuts_leave_nothing_behind(place: Place) -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    def drivers() -> int:
        gc.collect()
        return sum(isinstance(thing, Driver) for thing in gc.get_objects())

    async with place.serve(Demo(), resume=True, limits=LIMITS) as server:
        async with place.connect(server.uri, resume=SOON, limits=LIMITS) as peer:
            await peer.request(b"")
            tasks, files, before = len(asyncio.all_tasks()), open_files(), drivers()
            for i in range(200 if place.kind.name == "tcp" else 40):
                (guest,) = (guest for guest in server.connections if guest.setup is not None)
                (guest if i % 2 else peer).cut()
                await turns(lambda: peer.suspended)
                assert (await peer.request(b"%d" % i)).data == b"%d" % i
            await turns(lambda: len(server.connections) == 1)
            await turns(lambda: len(asyncio.all_tasks()) <= tasks)
            await turns(lambda: open_files() <= files)
            assert drivers() <= before
            assert server._clients.gate.admitted == 1
            assert sum(server._clients.gate.hosts.values()) == 1
            assert not server._clients.gate.handshakes
            assert len(server.connections) == 1
    assert server._clients.gate.admitted == 0 and not server._clients.gate.hosts and not server.connections


async def test_a_blocking_client_goes_on(place: Place) -> None:
    if not place.kind.blocking:
        pytest.skip(f"{place.kind.name} has no blocking side")
    async with place.serve(Demo(), resume=True, limits=LIMITS) as server:

        def run() -> list[int]:
            found = []
            with place.dial(server.uri, resume=SOON, limits=LIMITS) as peer:
                for item in peer.stream(b"300", credit=8):
                    found.append(int(item.data))
                    if len(found) % 50 == 0:
                        asyncio.run_coroutine_threadsafe(cut(), loop).result(10)
                assert peer.request(b"x" * 300_000).data == b"x" * 300_000
            return found

        async def cut() -> None:
            for guest in server.connections:
                guest.cut()

        loop = asyncio.get_running_loop()
        assert await asyncio.to_thread(run) == list(range(300))


@pytest.mark.skipif(find_spec("uvicorn") is None, reason="uvicorn is not installed")
async def test_inside_a_web_framework() -> None:
    from tests.transports.test_asgi import running

    app = afflux.asgi.app(Demo(), resume=True, lease=afflux.FixedLease(10_000, 600.0), limits=LIMITS)
    async with running(app) as uri:
        async with afflux.connect(uri, resume=SOON, lease=True, lease_wait=600.0, limits=LIMITS) as peer:
            expected = 0
            async for item in peer.stream(b"500", credit=16):
                assert int(item.data) == expected
                expected += 1
                if expected % 50 == 0:
                    (guest,) = (guest for guest in app.server.connections if guest.setup is not None)
                    (peer if expected % 100 else guest).cut()
                    await turns(lambda: peer.suspended)
            assert expected == 500
            assert (await peer.request(b"x")).data == b"x"
            await turns(lambda: len(app.server.connections) == 1)
            assert app.server._clients.gate.admitted == 1
        await app.close()
        assert (
            not app.server._clients.gate.admitted and not app.server._clients.gate.hosts and not app.server.connections
        )
