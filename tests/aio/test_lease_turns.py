"""Who waits for a lease: in order of arrival, across cuts, and whatever the others do."""

# ruff: noqa: SIM117 -- a connection, then what happens on it: the nesting is the story

from __future__ import annotations

import asyncio

import pytest

import afflux
from afflux import Backoff, FixedLease, Lease, Limits, Payload
from tests.aio.handlers import Demo

LIMITS = Limits.server(resume_rate=(1_000_000, 0.0))
SOON = Backoff(first=0.001, most=0.001, jitter=0.0)
NONE = FixedLease(0, 600.0)


class Order(Demo):
    """Remembers what was asked, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[bytes] = []

    async def request(self, payload: Payload) -> Payload:
        """Echo."""
        self.asked.append(payload.data)
        return payload


async def waiting(peer: afflux.Peer, count: int) -> None:
    """Return when ``count`` requests wait for a lease."""
    while [status.reason for status in peer.streams()].count("lease") != count:
        await asyncio.sleep(0)


async def test_the_order_of_arrival_is_kept(uri: str) -> None:
    """Nobody who comes when the lease comes is served before those who wait for it."""
    order = Order()
    async with afflux.serve(uri, order, lease=NONE) as server:
        async with afflux.connect(server.uri, lease=True, lease_wait=600.0) as peer:
            (guest,) = server.connections

            async def late() -> None:
                while not (peer.lease and peer.lease.requests):
                    await asyncio.sleep(0)
                await peer.request(b"late")

            tasks = [asyncio.ensure_future(late())]
            for i in range(4):
                tasks.append(asyncio.ensure_future(peer.request(b"%d" % i)))
                await waiting(peer, i + 1)
            guest.grant(2, 600.0)
            await asyncio.gather(*tasks[1:3])
            await waiting(peer, 3)
            guest.grant(3, 600.0)
            await asyncio.gather(*tasks)
    assert order.asked == [b"0", b"1", b"2", b"3", b"late"]


async def test_who_gives_up_leaves_the_lease_to_the_next(uri: str) -> None:
    order = Order()
    async with afflux.serve(uri, order, lease=NONE) as server:
        async with afflux.connect(server.uri, lease=True, lease_wait=600.0) as peer:
            (guest,) = server.connections
            tasks = [asyncio.ensure_future(peer.request(b"%d" % i)) for i in range(3)]
            await waiting(peer, 3)
            guest.grant(1, 600.0)
            while not (peer.lease and peer.lease.requests):
                await asyncio.sleep(0)
            tasks[0].cancel()  # its turn has come, and it does not know yet
            await tasks[1]
            with pytest.raises(asyncio.CancelledError):
                await tasks[0]
            assert not tasks[2].done()
            guest.grant(1, 600.0)
            await tasks[2]
    assert order.asked == [b"1", b"2"]


async def test_those_who_wait_are_served_by_the_next_transport() -> None:
    """RSocket R-43: leasing begins anew, and the session's requests wait on."""

    class Second:
        """None at first, enough for the next transport."""

        def __init__(self) -> None:
            self.grants = 0

        def start(self) -> Second:
            return self

        def grant(self, now: float, used: int) -> Lease:
            self.grants += 1
            return Lease(0 if self.grants == 1 else 10, 600.0)

    async with afflux.serve("tcp://127.0.0.1:0", Order(), lease=Second(), resume=True, limits=LIMITS) as server:
        async with afflux.connect(server.uri, lease=True, lease_wait=600.0, resume=SOON, limits=LIMITS) as peer:
            tasks = [asyncio.ensure_future(peer.request(b"%d" % i)) for i in range(5)]
            await waiting(peer, 5)
            peer.cut()
            assert [answer.data for answer in await asyncio.gather(*tasks)] == [b"%d" % i for i in range(5)]


async def test_a_policy_that_fails_when_a_client_is_back() -> None:
    """Its session is over, the client hears it, and the server counts nobody who is not there."""

    class Once:
        def __init__(self) -> None:
            self.grants = 0

        def start(self) -> Once:
            return self

        def grant(self, now: float, used: int) -> Lease:
            self.grants += 1
            if self.grants > 1:
                raise RuntimeError("a secret")
            return Lease(10, 600.0)

    async with afflux.serve("tcp://127.0.0.1:0", Order(), lease=Once(), resume=True, limits=LIMITS) as server:
        async with afflux.connect(server.uri, lease=True, resume=SOON, limits=LIMITS) as peer:
            await peer.request(b"1")
            peer.cut()
            with pytest.raises(afflux.Error) as caught:
                await peer.request(b"2")
                await peer.wait_closed()
                raise peer._driver.state.reason()
            assert "secret" not in str(caught.value)
            while server.connections:
                await asyncio.sleep(0)
            assert not server._clients.gate.admitted and not server._clients.gate.hosts and not server.connections
