"""Fixtures of the Limit-Stream conversations: each is told whole and byte by byte."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["whole", "bytewise"])
def mode(request: pytest.FixtureRequest) -> str:
    """How the peer's bytes arrive."""
    return str(request.param)
