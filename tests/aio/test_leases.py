"""Leases over real connections: granted, honoured, enforced, waited for."""

# ruff: noqa: SIM117 -- a connection, then what happens on it: the nesting is the story

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

import afflux
from afflux import FixedLease, Lease, Limits, Payload
from afflux.protocols.rsocket import frames
from tests.aio.handlers import Demo

LONG = FixedLease(3, 600.0)


async def test_a_request_without_a_lease_fails_at_once_and_nothing_is_sent(uri: str) -> None:
    demo = Demo()
    async with afflux.serve(uri, demo, lease=LONG) as server:
        async with afflux.connect(server.uri, lease=True) as peer:
            for i in range(3):
                await peer.request(b"%d" % i)
            with pytest.raises(afflux.LeaseExpired, match="no valid lease"):
                await peer.request(b"4")
            with pytest.raises(afflux.LeaseExpired):
                await peer.fire(b"5")
            with pytest.raises(afflux.LeaseExpired):
                async for _ in peer.stream(b"1"):
                    pass
            with pytest.raises(afflux.LeaseExpired):
                async with peer.channel([b"1"]) as items:
                    async for _ in items:
                        pass
            assert peer.lease == Lease(0, 0.0)
    assert demo.fired.empty()


async def test_every_request_costs_one(uri: str) -> None:
    demo = Demo()
    async with afflux.serve(uri, demo, lease=FixedLease(4, 600.0)) as server:
        async with afflux.connect(server.uri, lease=True, mtu=64) as peer:
            await peer.request(b"x" * 1000)  # RSocket R-35: fragments count once
            await peer.fire(b"")
            assert [item.data async for item in peer.stream(b"100")][-1] == b"99"
            async with peer.channel([b"a", b"b"]) as items:
                assert [item.data async for item in items] == [b"a", b"b"]
            assert peer.lease is not None and peer.lease.requests == 0


async def test_waiting_for_a_lease(uri: str) -> None:
    async with afflux.serve(uri, Demo(), lease=FixedLease(2, 0.2)) as server:
        async with afflux.connect(server.uri, lease=True, lease_wait=30.0) as peer:
            answers = await asyncio.gather(*(peer.request(b"%d" % i) for i in range(7)))
            assert [answer.data for answer in answers] == [b"%d" % i for i in range(7)]


async def test_waiting_is_bounded(uri: str) -> None:
    """LE-08: so many wait and no more, and not for ever."""
    limits = Limits.server(lease_queue=2)
    async with afflux.serve(uri, Demo(), lease=FixedLease(0, 600.0)) as server:
        async with afflux.connect(server.uri, lease=True, lease_wait=0.05, limits=limits) as peer:
            results = await asyncio.gather(*(peer.request(b"") for _ in range(3)), return_exceptions=True)
    assert all(isinstance(result, afflux.LeaseExpired) for result in results)
    assert [str(result) for result in results] == [
        "no lease to send a request under came within 0.05 s",
        "no lease to send a request under came within 0.05 s",
        "2 requests wait for a lease already",
    ]


async def test_waiting_callers_get_the_end(uri: str) -> None:
    async with afflux.serve(uri, Demo(), lease=FixedLease(0, 600.0)) as server:
        async with afflux.connect(server.uri, lease=True, lease_wait=30.0) as peer:
            waiting = asyncio.ensure_future(peer.request(b""))
            while [status.reason for status in peer.streams()] != ["lease"]:
                await asyncio.sleep(0)
            await server.close()
            with pytest.raises(afflux.ConnectionClosed):
                await waiting


async def test_a_call_that_waits_is_listed_with_its_verb(uri: str) -> None:
    async with afflux.serve(uri, Demo(), lease=FixedLease(0, 600.0)) as server:
        async with afflux.connect(server.uri, lease=True, lease_wait=600.0) as peer:
            calls: dict[str, Awaitable[object]] = {
                "fire": peer.fire(b""),
                "stream": anext(peer.stream(b"1")),
                "request": peer.request(b""),
                "channel": anext(peer.channel([b"a"])),
                "push": peer.push(b""),
                "extend": peer.extend(7),
            }
            tasks = []
            for call in calls.values():
                tasks.append(asyncio.ensure_future(call))
                while [status.verb for status in peer.streams()] != list(calls)[: len(tasks)]:
                    await asyncio.sleep(0)
            assert {(status.stream, status.state, status.reason) for status in peer.streams()} == {
                (0, "WAITING", "lease")
            }
            (client,) = server.connections
            client.grant(len(calls), 600.0)
            await asyncio.gather(*tasks)
            assert peer.streams() == []


async def test_a_server_grants_by_hand_and_sees_what_is_left(uri: str) -> None:
    async with afflux.serve(uri, Demo(), lease=FixedLease(0, 600.0)) as server:
        async with afflux.connect(server.uri, lease=True, lease_wait=30.0) as peer:
            (guest,) = server.connections
            guest.grant(2, 600.0)
            await peer.request(b"1")
            assert guest.granted is not None and guest.granted.requests == 1
            assert 0 < guest.granted.ttl <= 600
            with pytest.raises(ValueError, match="a lease has"):
                guest.grant(-1, 1.0)


async def test_without_leases_there_are_none(uri: str) -> None:
    async with afflux.serve(uri, Demo()) as server:
        async with afflux.connect(server.uri) as peer:
            assert peer.lease is None and peer.granted is None
            with pytest.raises(afflux.LocalProtocolError, match="not agreed on"):
                peer.grant(1, 1.0)


async def test_a_server_without_a_policy_refuses(uri: str) -> None:
    async with afflux.serve(uri, Demo()) as server:
        with pytest.raises(afflux.SetupRefused, match="leases are not supported") as caught:
            await afflux.connect(server.uri, lease=True)
        assert caught.value.code == 0x002


async def test_the_client_grants_as_well(uri: str) -> None:
    """Both directions: a server may ask only what its client has granted."""

    class Asks:
        async def request(self, payload: Payload) -> bytes:
            peer = afflux.current_peer()
            heard = []
            for _ in range(3):
                try:
                    heard.append((await peer.request(b"?")).data)
                except afflux.LeaseExpired:
                    heard.append(b"none")
            return b" ".join(heard)

    async with afflux.serve(uri, Asks(), lease=LONG) as server:
        async with afflux.connect(server.uri, handler=Demo(), lease=FixedLease(2, 600.0)) as peer:
            assert (await peer.request(b"")).data == b"? ? none"


async def test_a_client_that_ignores_its_lease_is_refused() -> None:
    """RSocket R-42, LE-01, LE-02: enforced by the responder; the handler never runs."""
    demo = Demo()
    async with afflux.serve("tcp://127.0.0.1:0", demo, lease=FixedLease(1, 600.0)) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(server.uri.rsplit(":", 1)[1]))
        said = [
            frames.Setup(lease=True),
            frames.RequestFnf(stream=1, data=b"within"),
            frames.RequestFnf(stream=3, data=b"beyond"),
            frames.RequestResponse(stream=5, data=b"beyond"),
        ]
        writer.write(b"".join(frame.encode(prefixed=True) for frame in said))
        heard: list[Any] = []
        while not heard or heard[-1].stream != 5:
            length = int.from_bytes(await reader.readexactly(3), "big")
            heard.append(frames.decode(await reader.readexactly(length)))
        lease, error = heard
        assert (lease.requests, lease.ttl_ms) == (1, 600_000)
        assert error.code == 0x202 and b"lease" in error.data
        writer.close()
    assert (await demo.fired.get()).data == b"within"
    assert demo.fired.empty()


async def test_a_policy_that_raises_ends_its_connection(uri: str) -> None:
    class Broken:
        def start(self) -> Broken:
            return self

        def grant(self, now: float, used: int) -> Lease:
            raise RuntimeError("a secret")

    async with afflux.serve(uri, Demo(), lease=Broken()) as server:
        with pytest.raises(afflux.ConnectionClosed) as caught:
            await afflux.connect(server.uri, lease=True)
        assert "secret" not in str(caught.value)


async def test_a_protocol_without_leases_reports_it() -> None:
    from dataclasses import replace

    from afflux.protocols.registry import PROTOCOLS

    with pytest.raises(afflux.Unsupported, match='rsocket has no "lease"; it has: nothing beyond its verbs'):
        replace(PROTOCOLS["rsocket"], features=()).require("lease")
