"""What an attacker may cost a server beside an honest client: what ``connection_bytes`` allows, and an answer's size.

Each flood is measured as ``make bench-floods`` measures it, only shorter.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.floods import measure

from tests.examples import short

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc"),
]

TWICE = 20.0
"MiB: twice ``connection_bytes``, for what is received and what is answered, and what the allocator keeps."
ANSWER = 24.0
"MiB: an answer of 16 MiB is made before it can wait."


@pytest.mark.parametrize(
    ("flood", "most"),
    short(
        [
            ("answers", TWICE),
            ("answers-later", TWICE),
            ("requests", TWICE),
            ("fragments", TWICE),
            ("old-echoes", TWICE),
            ("jmux-answers", ANSWER),
            ("jmux-resets", TWICE),
            ("rsio", TWICE),
        ],
        smoke=[("answers", TWICE), ("old-echoes", TWICE), ("jmux-answers", ANSWER), ("rsio", TWICE)],
    ),
)
def test_what_an_attacker_costs(flood: str, most: float) -> None:
    found = measure(flood, 1.0, 2)
    assert found["growth_per_attacker_mib"] <= most
    assert found["flooded"]["n"] > 0
