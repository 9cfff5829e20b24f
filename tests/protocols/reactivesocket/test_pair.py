"""Two engines back to back, as in the generic suite, in the dialects of section 6."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from afflux.core.limits import Limits
from afflux.protocols.reactivesocket import Dialect, Engine
from afflux.protocols.reactivesocket.engine import DEFAULT_MTU
from tests.protocols.generic.test_pair import Pair

from .wire import WIRE


@pytest.mark.repetitive
@pytest.mark.parametrize("words", ["java", "half-close", "java,half-close", "half-close,fragment-requests,codes-0.1"])
def test_two_ends_of_a_dialect(words: str) -> None:
    def make(role: Any, *, limits: Limits, mtu: int = 0) -> Engine:
        return Engine(role, limits=limits, mtu=mtu or DEFAULT_MTU, dialect=Dialect.of(words))

    run_state_machine_as_test(
        lambda: Pair(replace(WIRE, make=make)),  # type: ignore[arg-type]  # anything that makes a machine
        settings=settings(
            max_examples=8, stateful_step_count=8, deadline=None, suppress_health_check=[HealthCheck.too_slow]
        ),
    )
