"""Steps of a session as texts: values as JSON, and choices."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from afflux.sessions import session_type
from afflux.sessions.script import step_of, take
from tests.sessions.link import linked
from tests.sessions.test_chan import SUM, Done, add


async def run(*texts: str) -> int:
    """Take steps at the client of the session, and return what it receives."""
    server, chan = linked(session_type(SUM, {"Done": Done}))
    serving = asyncio.create_task(add(server))
    end: Any = chan
    for text in texts:
        step, used = step_of(text), False
        while not used:
            end, used = await take(end, step)
    end = await (await end.choose(2)).send(Done())
    total, last = await end.recv()
    await last.end()
    await serving
    return int(total)


async def test_values_choose_the_first_branch() -> None:
    assert await run("1", " choose 1 ", "2", "3") == 6


async def test_a_choice_where_a_value_is_expected() -> None:
    _, client = linked(session_type(SUM, {"Done": Done}))
    with pytest.raises(ValueError, match="'choose 1' is a choice, and the session type expects send int"):
        await take(client, step_of("choose 1"))


@pytest.mark.parametrize("text", ["choose", "choose 100", "{", "[" * 100_000])
def test_other_texts(text: str) -> None:
    with pytest.raises(ValueError, match="is neither JSON nor a choice, such as: choose 2"):
        step_of(text)
