"""What every test of the asyncio driver checks: nothing is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest


@pytest.fixture(params=["tcp://127.0.0.1:0", "mem://here"], ids=["tcp", "mem"])
def uri(request: pytest.FixtureRequest) -> str:
    """Where to listen."""
    return str(request.param)


@pytest.fixture(autouse=True)
async def no_orphans() -> AsyncIterator[None]:
    """Everything that was started has ended."""
    before = asyncio.all_tasks()
    yield
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    assert not left
