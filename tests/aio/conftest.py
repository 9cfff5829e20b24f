"""What every test of the asyncio driver checks: nothing is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from importlib.util import find_spec

import pytest

_BOTH_LOOPS = ("test_freeing.py", "test_resume_transports.py")
"Modules that run under uvloop, too."


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


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loops of pytest-asyncio's tests."""
    loops: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
    if item.nodeid.partition("::")[0].rpartition("/")[2] in _BOTH_LOOPS and find_spec("uvloop"):
        import uvloop

        loops["uvloop"] = uvloop.new_event_loop
    return loops
