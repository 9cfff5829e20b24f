"""Connections that the server refuses: each is counted with its cause, none is tried again, and the others work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import afflux
from afflux.bench import Plan, Progress, Result, run
from tests.bench.virtual import virtually

FULL = "too-many-connections: connections=3"


class Echo:
    async def request(self, payload: afflux.Payload) -> afflux.Payload:
        return payload


def loaded(told: list[Progress] | None = None, on_setup: Any = None, **choices: Any) -> tuple[Result, dict[str, int]]:
    """A load on a server of three connections, and what the server has refused, in virtual time."""

    async def main() -> tuple[Result, dict[str, int]]:
        loop, limits = asyncio.get_running_loop(), afflux.Limits.server(connections=3, connections_per_address=None)
        async with afflux.serve("mem://small", Echo(), limits=limits, on_setup=on_setup) as server:
            tell = None if told is None else told.append
            result = await run(Plan(uri=server.uri, **choices), clock=loop.time, tell=tell)
            return result, server.refused

    return virtually(main())


def hold(number: int, until: Callable[[], Any]) -> Any:
    """Let every client in but the one of this number, for which ``until`` is awaited."""
    clients = 0

    async def on_setup(setup: object, peer: afflux.Peer) -> None:
        nonlocal clients
        clients += 1
        if clients == number:
            await until()

    return on_setup


async def test_every_protocol_counts_them(protocol: str) -> None:
    limits = afflux.Limits.server(connections=3, connections_per_address=None)
    async with afflux.serve(f"{protocol}+tcp://127.0.0.1:0", Echo(), limits=limits) as server:
        result = await run(Plan(uri=server.uri, connections=10, requests=50))
        refused = server.refused
    assert (result.connections_open, result.tally.refused, refused) == (3, 7, {"connections": 7})
    assert (result.requests, result.tally.succeeded) == (50, 50)
    assert [(failure.count, FULL in failure.example) for failure in result.refusals] == [(7, True)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every protocol that has requests."""
    from afflux.protocols.registry import PROTOCOLS

    if "protocol" in metafunc.fixturenames:
        metafunc.parametrize("protocol", [name for name, entry in PROTOCOLS.items() if "request" in entry.verbs])


def test_they_are_not_tried_again() -> None:
    result, refused = loaded(connections=10, duration=20.0, rate=10.0)
    assert (result.connections_open, result.tally.refused, refused) == (3, 7, {"connections": 7})
    assert (result.requests, result.tally.succeeded, result.lost) == (200, 200, None)
    record = result.record()
    assert (record["connections"], record["connections_open"], record["connections_refused"]) == (10, 3, 7)


def test_a_connection_without_an_answer_is_not_waited_for() -> None:
    """The first is that of the round trip."""
    result, _ = loaded(on_setup=hold(3, lambda: asyncio.sleep(3600)), connections=3, requests=9, connect_timeout=1.0)
    assert (result.connections_open, result.tally.refused, result.tally.succeeded) == (2, 1, 9)
    assert [failure.example for failure in result.refusals] == ["no answer within 1 s"]


def test_a_late_answer_is_waited_for_and_seen_in_the_progress() -> None:
    told: list[Progress] = []
    late = hold(3, lambda: asyncio.sleep(0.9))
    result, _ = loaded(told, on_setup=late, connections=4, requests=9, connect_timeout=1.0)
    assert (result.connections_open, result.tally.refused, result.tally.succeeded) == (3, 1, 9)
    seen = [(progress.done, progress.failed, progress.share) for progress in told if progress.phase == "connecting"]
    assert (seen[0], seen[-2:]) == ((0, 0, 0.0), [(3, 1, 0.75), (4, 1, 1.0)])


def test_a_server_without_answers_to_keepalives_is_used_as_it_is() -> None:
    """Its round trip is unknown, and a connected socket has to do."""
    result, _ = loaded(on_setup=hold(1, lambda: asyncio.sleep(3)), connections=2, requests=9)
    assert (result.trip, result.connections_open, result.tally.succeeded) == (None, 2, 9)


async def test_a_process_without_a_connection_leaves_the_others_to_work() -> None:
    """Of two processes with a connection each one is refused."""
    refused = 0

    async def on_setup(setup: Any, peer: afflux.Peer) -> None:
        nonlocal refused
        if setup.keepalive_ms > 10_000 and not refused:  # the connections of the round trip have 10 s
            refused += 1
            raise afflux.SetupRefused("no entry", code=3)

    async with afflux.serve("tcp://127.0.0.1:0", Echo(), on_setup=on_setup) as server:
        result = await run(Plan(uri=server.uri, connections=2, workers=2, requests=20))
    assert (result.connections_open, result.tally.refused, result.tally.succeeded) == (1, 1, 10)
    assert str(result.refusal) == "no entry"
