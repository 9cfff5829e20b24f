"""What every test here checks: nothing is left behind, and nothing was logged that the test does not expect."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from afflux.reactive import pulling
from tests.reactive.kits import KITS, Kit


@pytest.fixture(autouse=True)
async def nothing_is_left(caplog: pytest.LogCaptureFixture) -> AsyncIterator[None]:
    """Every task has ended; no line in a log but those that the test took note of with ``caplog.clear()``."""
    before = asyncio.all_tasks()
    yield
    for _ in range(5):
        await asyncio.sleep(0)
    gc.collect(1)
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    assert not left
    assert not pulling._tasks
    records = caplog.get_records("call") + caplog.records
    assert [record.getMessage() for record in records if record.levelno >= logging.WARNING] == []


@pytest.fixture(params=list(KITS))
async def kit(request: pytest.FixtureRequest, nothing_is_left: None) -> AsyncIterator[Kit]:
    """Each kind of publisher."""
    if request.param == "observable":
        pytest.importorskip("reactivex", reason='Observables need the extra "rx"')
    async with AsyncExitStack() as stack:
        kit = KITS[request.param](stack)
        await kit.open()
        yield kit
