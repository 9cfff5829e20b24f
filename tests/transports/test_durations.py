"""Times in messages: in the unit that a person reads."""

from __future__ import annotations

import pytest

from afflux.transports.durations import in_words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (10, "10 s"),
        (90.0, "90 s"),
        (120.4, "120 s"),
        (999.4, "999 s"),
        (86_400, "86,400 s"),
        (0.25, "0.25 s"),
        (0.01, "0.01 s"),
        (0.0069, "6.9 ms"),
        (0.001, "1 ms"),
        (0.000_25, "250 µs"),
        (1e-6, "1 µs"),
        (1e-8, "less than 1 µs"),
    ],
)
def test_a_duration(seconds: float, text: str) -> None:
    assert in_words(seconds) == text
