"""Strangers who guess tokens are slowed (RE-13), and thieves of tokens refused (RE-10)."""

# ruff: noqa: SIM117 -- a connection, then what happens on it: the nesting is the story

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import afflux
from afflux import Backoff, Limits
from afflux.protocols.rsocket.frames import Resume, decode
from afflux.retry.throttle import ResumeThrottle
from tests.aio.handlers import Demo
from tests.aio.test_resume import port_of
from tests.transports.certificates import Certificates

SOON = Backoff(first=0.001, most=0.001, jitter=0.0)
LIMITS = Limits.server(resume_rate=(1_000_000, 0.0))


class Clock:
    """Time that passes when someone sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Let it pass."""
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


def guess(token: bytes = b"?" * 32, server_position: int = 0) -> bytes:
    """The first words of who wants a session."""
    frame = Resume(token=token, last_received_server_position=server_position, first_available_client_position=0)
    return frame.encode(prefixed=True)


async def answer(server: afflux.Server, words: bytes) -> bytes:
    """What the server says to it, as an error's text."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server.uri))
    writer.write(words)
    error: Any = decode(await reader.read(), 3)
    writer.close()
    assert error.code == 0x004
    return bytes(error.data)


async def test_an_address_may_guess_so_often_and_then_waits() -> None:
    clock = Clock()
    guesses = ResumeThrottle(LIMITS, clock=clock, sleep=clock.sleep)
    for _ in range(10):
        assert not guesses.wait("192.0.2.1")
        guesses.add("192.0.2.1")
    assert guesses.wait("192.0.2.1") == pytest.approx(6.0)
    assert not guesses.wait("192.0.2.2") and not guesses.wait("")
    clock.now += 2
    assert await guesses.turn("192.0.2.1")
    assert clock.slept == [pytest.approx(4.0)]


async def test_a_client_that_would_wait_too_long_is_refused_late() -> None:
    clock = Clock()
    guesses = ResumeThrottle(LIMITS, clock=clock, sleep=clock.sleep)
    for _ in range(11):
        guesses.add("192.0.2.1")
    assert not await guesses.turn("192.0.2.1")
    assert clock.slept == [LIMITS.handshake_s / 2]


async def test_many_who_wait_have_one_turn_after_the_other() -> None:
    clock = Clock()
    guesses = ResumeThrottle(Limits.server(auth_failures=60, handshake_s=10), clock=clock, sleep=clock.sleep)
    for _ in range(60):
        guesses.add("192.0.2.1")

    async def attempt() -> bool:
        looked_at = await guesses.turn("192.0.2.1")
        if looked_at:
            guesses.add("192.0.2.1")
        return looked_at

    began = clock.now
    looked_at = sum(await asyncio.gather(*(attempt() for _ in range(50))))
    assert 0 < looked_at <= clock.now - began  # one in a second


async def test_a_client_without_a_host_is_never_slowed() -> None:
    guesses = ResumeThrottle(Limits.server(auth_failures=0))
    guesses.add("")
    assert not guesses.wait("")


async def test_after_wrong_guesses_the_right_one_waits_too() -> None:
    clock = Clock()
    limits = LIMITS.replace(auth_failures=20)
    async with afflux.serve("tcp://127.0.0.1:0", Demo(), resume=True, limits=limits) as server:
        server._clients.throttle = ResumeThrottle(limits, clock=clock, sleep=clock.sleep)
        async with afflux.connect(server.uri, resume=SOON, limits=LIMITS) as peer:
            await peer.request(b"1")
            for _ in range(20):
                assert await answer(server, guess()) == b"there is no such session"
            assert not clock.slept
            peer.cut()
            assert (await peer.request(b"2")).data == b"2"
            assert clock.slept == [pytest.approx(3.0)]


async def test_a_client_that_guesses_too_often_is_not_checked_and_harms_no_other() -> None:
    limits = LIMITS.replace(auth_failures=1, handshake_s=0.3)
    async with afflux.serve("tcp://127.0.0.1:0", Demo(), resume=True, limits=limits) as server:
        async with afflux.connect(server.uri, resume=SOON, limits=LIMITS) as peer:
            await peer.request(b"1")
            assert await answer(server, guess()) == b"there is no such session"
            assert await answer(server, guess()) == b"auth-rate"
            token = peer._driver.engine.setup.token  # type: ignore[attr-defined]
            assert await answer(server, guess(token)) == b"auth-rate"
            assert (await peer.request(b"2")).data == b"2"  # the owner is untouched


async def test_who_hangs_up_while_waiting_leaves_nothing_behind() -> None:
    limits = LIMITS.replace(auth_failures=1)
    async with afflux.serve("tcp://127.0.0.1:0", Demo(), resume=True, limits=limits) as server:
        await answer(server, guess())
        _, writer = await asyncio.open_connection("127.0.0.1", port_of(server.uri))
        writer.write(guess())
        while not any(peer._serving.deciding for peer in server.connections):  # type: ignore[attr-defined]
            await asyncio.sleep(0)
        writer.transport.abort()
        while server.connections:
            await asyncio.sleep(0)
        assert not server._clients.gate.admitted and not server.connections


async def test_positions_that_do_not_fit_are_no_guess() -> None:
    limits = LIMITS.replace(auth_failures=1)
    async with afflux.serve("tcp://127.0.0.1:0", Demo(), resume=True, limits=limits) as server:
        async with afflux.connect(server.uri, resume=SOON, limits=LIMITS) as peer:
            await peer.request(b"1")
            token = peer._driver.engine.setup.token  # type: ignore[attr-defined]
            for _ in range(3):
                assert b"not retained" in await answer(server, guess(token, 10**9))


async def test_a_stolen_token_is_good_only_with_its_certificate(tmp_path_factory: pytest.TempPathFactory) -> None:
    """RE-10; and the owner comes back with its principal."""
    certificates = Certificates(tmp_path_factory.mktemp("certificates"))
    mine, other = certificates.client, certificates.issue("thief.example")

    def check(credentials: object, peer: afflux.Peer) -> str:
        assert peer.certificate is not None
        return str(peer.certificate["subjectAltName"][0][1])

    class Who:
        async def request(self, payload: afflux.Payload) -> str:
            return str(afflux.auth.current_principal())

    to_serve = afflux.Tls(cert=certificates.server, client_ca=certificates.ca)
    async with afflux.serve(
        "tls://127.0.0.1:0", Who(), resume=True, limits=LIMITS, tls=to_serve, on_setup=afflux.auth.at_setup(check)
    ) as server:
        owner = await afflux.connect(
            server.uri, resume=SOON, limits=LIMITS, tls=afflux.Tls(ca=certificates.ca, cert=mine)
        )
        thief = await afflux.connect(
            server.uri, resume=SOON, limits=LIMITS, tls=afflux.Tls(ca=certificates.ca, cert=other)
        )
        assert (await owner.request(b"")).data == b"client.example"
        assert (await thief.request(b"")).data == b"thief.example"
        thief._driver.engine.setup.token = owner._driver.engine.setup.token  # type: ignore[attr-defined]
        thief.cut()
        with pytest.raises(afflux.SetupRefused, match="there is no such session") as caught:
            await thief.request(b"")
        assert caught.value.code == 0x004
        for _ in range(3):
            owner.cut()
            assert (await owner.request(b"")).data == b"client.example"
        await owner.close()
        await thief.close()
