"""A pass: its events, and the prices of a peer's faults."""

from __future__ import annotations

import pytest

from afflux.core.errors import Violation
from afflux.core.events import Ignored
from afflux.core.limits import Limits
from afflux.core.passes import Pass


def test_a_fault_is_reported_and_charged_until_the_bucket_is_empty() -> None:
    """DR-1."""
    part = Pass(Limits.server(glitch_bucket=(10, 1)), 0.0)
    part.charge(10, 3, "DR-1", "late")
    assert part.events == [Ignored(3, "DR-1", "late", 10)]
    with pytest.raises(Violation, match="protocol-abuse"):
        part.charge(1, 3, "DR-1", "late")
    part.now = 1.0
    part.charge(1, 3, "DR-1", "late")


def test_cancels_are_counted() -> None:
    limits = Limits.server(cancel_bucket=(2, 1))
    part = Pass(limits, 0.0)
    for _ in range(limits.most_cancels):
        part.count_cancel()
    with pytest.raises(Violation, match="cancel-flood"):
        part.count_cancel()
