"""Endpoints: each is used once, and a refused or cancelled step leaves it usable. Rule numbers are Limit-Stream's."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from afflux.sessions import Chan, Monitor, SessionType, SessionTypeError, session_type
from afflux.sessions.chan import type_of
from afflux.sessions.machine import loaded
from tests.sessions.link import Link, linked

SUM = {
    "name": "sum",
    "states": [["recv", "int", 1], ["offer", 0, 2], ["recv", "Done", 3], ["send", "int", 4], ["end"]],
    "types": {"Done": ["struct"]},
}


class Done:
    """The class of the struct."""

    __match_args__ = ()


async def add(chan: Chan[Any]) -> None:
    total = 0
    while True:
        value, choice = await chan.recv()
        total += value
        branch, chan = await choice.offer()
        if branch == 2:
            done, answer = await chan.recv()
            assert isinstance(done, Done)
            await (await answer.send(total)).end()
            return


async def test_the_example() -> None:
    adder = session_type(SUM, {"Done": Done})
    assert repr(adder) == "<SessionType sum: 5 states>"
    server, client = linked(adder)
    serving = asyncio.create_task(add(server))
    chan = await client.send(1)
    chan = await (await chan.choose(1)).send(2)
    assert chan.expected == "choose of branches 1 to 2"
    total, last = await (await (await chan.choose(2)).send(Done())).recv()
    await last.end()
    await serving
    assert total == 3


async def refused(step: Any, *words: str) -> None:
    with pytest.raises(SessionTypeError) as caught:
        await step
    assert all(word in caught.value.message for word in words), caught.value.message


async def test_a_used_endpoint_is_refused() -> None:
    server, client = linked(session_type(SUM))
    await client.send(1)
    await refused(client.send(1), "expects send int (state 0)", "this endpoint was used")
    await server.recv()
    await refused(server.recv(), "this endpoint was used")
    assert server.expected == "recv int"


async def test_two_tasks_cannot_use_one_endpoint() -> None:
    """SI-27."""
    server, client = linked(session_type(SUM))
    waiting = asyncio.create_task(server.recv())
    await asyncio.sleep(0)
    await refused(server.recv(), "this endpoint was used")
    await client.send(5)
    assert (await waiting)[0] == 5


async def test_a_step_that_is_not_of_the_type_is_refused_and_nothing_is_sent() -> None:
    _, client = linked(session_type(SUM))
    link: Link = client._steps  # type: ignore[assignment]  # the test's own
    for step in (client.recv(), client.offer(), client.choose(1), client.end()):
        await refused(step, "expects send int (state 0)")
    await refused(client.send("1"), "expects send int (state 0), not str '1'")
    assert link.sent == 0
    chan = await client.send(1)
    await refused(chan.choose(3), "choose of branches 1 to 2", "branch 3")
    assert link.sent == 1
    await chan.choose(2)


async def test_a_cancelled_step_can_be_taken_again() -> None:
    server, client = linked(session_type(SUM))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await server.recv()
    await client.send(7)
    value, choice = await server.recv()
    assert value == 7
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await choice.offer()
    await refused(choice.recv(), "expects offer of branches 1 to 2")


async def test_a_choice_that_is_not_sent_can_be_made_again() -> None:
    class Full(Link):
        async def choose(self, branch: int) -> None:
            raise TimeoutError

    adder = session_type(SUM)
    link = Full(adder.client)
    link.peer = Link(adder.server)
    chan = await adder.at_client(link).send(1)
    assert chan.kind == "choose"
    for _ in range(2):
        with pytest.raises(TimeoutError):
            await chan.choose(2)


async def test_an_argument_is_a_session_type_or_a_machine() -> None:
    adder = session_type(SUM)
    assert type_of(adder) is adder
    assert type_of(adder.server).client == adder.client
    with pytest.raises(TypeError, match="expected a SessionType"):
        type_of("sum")  # type: ignore[arg-type]  # what a program may pass


async def test_a_session_type_has_both_sides() -> None:
    adder: SessionType[Any, Any] = SessionType(loaded(SUM))
    assert adder.client == adder.server.dual()
    assert Monitor(adder.server).expected == "recv int"
    with pytest.raises(ValueError, match="not a session type"):
        session_type({})


# Loops

ITEMS = session_type(
    {
        "name": "items",
        "states": [["choose", 1, 2], ["send", "int", 0], ["send", "string", 3], ["end"]],
        "types": {},
    }
)


async def test_a_loop_takes_many_steps_at_one_endpoint() -> None:
    server, client = linked(ITEMS)
    sends = server.loop()
    await sends.send_each([1, 2, 3])
    await sends.send_each([])
    await server.loop().send_each(iter([4]))
    last = await server.choose(2)
    await last.send("done")
    values = client.loop().recv_each()
    assert [value async for value in values] == [1, 2, 3, 4]
    branch, chan = await client.offer()
    assert (branch, (await chan.recv())[0]) == (2, "done")
    await refused(anext(values), "this endpoint was used")
    await refused(sends.send_each([1]), "this endpoint was used")
    with pytest.raises(SessionTypeError, match="this endpoint was used"):
        client.loop()


async def test_a_loop_can_be_left_early() -> None:
    server, client = linked(ITEMS)
    await server.loop().send_each([1, 2, 3])
    async for value in client.loop().recv_each():
        assert value == 1
        break
    branch, chan = await client.offer()
    assert branch == 1
    value, chan = await chan.recv()
    assert value == 2
    assert await anext(chan.loop().recv_each()) == 3


async def test_a_value_of_a_loop_that_is_not_of_the_type() -> None:
    """The endpoint remains usable."""
    server, client = linked(ITEMS)
    await refused(server.loop().send_each([1, 2, "3", 4]), "expects send int", "str '3'")
    await server.loop().send_each([5])
    await server.choose(2)
    assert [value async for value in client.loop().recv_each()] == [1, 2, 5]


async def test_steps_that_are_not_a_loop() -> None:
    server, client = linked(session_type(SUM))
    for chan, text in ((client, "send"), (server, "recv")):
        with pytest.raises(SessionTypeError, match=f"expects {text} int .state 0., not a loop"):
            chan.loop()
    choice = await client.send(1)
    inner = await choice.choose(1)
    with pytest.raises(SessionTypeError, match="not a loop"):
        inner.loop()
    assert choice.kind == "choose"


async def test_a_loop_that_returns_to_another_choice() -> None:
    """To one with the same continuations, or with others: then the endpoint could not remain the current one."""
    states = [["choose", 1, 3], ["send", "int", 2], ["choose", 1, 4], ["end"], ["end"]]
    server, client = linked(session_type({"name": "same", "states": states, "types": {}}))
    await server.loop().send_each([1, 2])
    await (await server.choose(2)).end()
    assert [value async for value in client.loop().recv_each()] == [1, 2]
    for last in (["send", "int", 3], ["choose", 3, 3], ["recv", "int", 3]):
        other = session_type({"name": "other", "states": [*states[:4], last], "types": {}})
        with pytest.raises(SessionTypeError, match="not a loop"):
            linked(other)[0].loop()


async def test_one_task_at_a_time_waits_for_the_values_of_a_loop() -> None:
    """SI-27."""
    server, client = linked(ITEMS)
    waiting = asyncio.create_task(anext(client.loop().recv_each()))  # type: ignore[arg-type]  # an awaitable is a coroutine here
    await asyncio.sleep(0)
    await refused(client.offer(), "this endpoint was used")
    await server.loop().send_each([1])
    assert await waiting == 1
