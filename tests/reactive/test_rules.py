"""The rules of Reactive Streams 1.0.4 are 43, and each has a test that bears its number."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent.parent / "docs" / "reactive-streams.md"
RULES = {f"{section}.{rule}" for section, most in ((1, 11), (2, 13), (3, 17), (4, 2)) for rule in range(1, most + 1)}


def test_each_rule_has_a_test_of_its_number() -> None:
    named = [
        f"{int(section)}.{int(rule)}"
        for path in HERE.glob("test_*_rules.py")
        for section, rule in re.findall(r"^(?:async )?def test_rule_(\d+)_(\d+)_", path.read_text(), re.MULTILINE)
    ]
    assert len(RULES) == 43
    assert set(named) == RULES


def test_each_rule_has_a_line_on_the_page() -> None:
    listed = re.findall(r"^\| (\d\.\d+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert set(listed) == RULES
