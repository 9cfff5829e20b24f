"""What the tests of transports share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from importlib.util import find_spec

import pytest

from tests.transports.certificates import Certificates

_BOTH_LOOPS = ("test_admission", "test_check", "test_check_verbs", "test_resets", "test_tls")
"Modules that run under uvloop, too: ``afflux serve`` takes it where it is installed."


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Made once: keys take time."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loops of pytest-asyncio's tests."""
    loops: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
    if item.nodeid.partition("::")[0].rpartition("/")[2].removesuffix(".py") in _BOTH_LOOPS and find_spec("uvloop"):
        import uvloop

        loops["uvloop"] = uvloop.new_event_loop
    return loops
