"""Provide a server of the demo to the tests of commands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.running import Server


@pytest.fixture(scope="module")
def uri() -> Iterator[str]:
    """The address of a server of the demo."""
    with Server("--demo") as server:
        yield server.uri
