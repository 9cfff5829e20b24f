"""Every rule and decision of the specification supplement is cited by the code that keeps it and by a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import afflux.protocols.rsio

RULES = [*(f"R-{number}" for number in range(1, 47)), *(f"D-{number}" for number in range(1, 14))]


def cited(folder: Path) -> set[str]:
    """The rules that the modules of a folder cite, in words or in the names of tests."""
    found = set()
    for path in folder.glob("*.py"):
        if path.name != Path(__file__).name:
            pairs = re.findall(r"(?<![\w-])([RD])-(\d+)(?![\w-])|test_([RD])_(\d+)_", path.read_text(encoding="utf-8"))
            found |= {f"{kind or named}-{number or of}" for kind, number, named, of in pairs}
    return found


CODE = cited(Path(str(afflux.protocols.rsio.__file__)).parent)
TESTS = cited(Path(__file__).parent)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_has_code_and_a_test(rule: str) -> None:
    assert rule in CODE, f"no line of afflux.protocols.rsio cites {rule}"
    assert rule in TESTS, f"no test of reactive-streams-io cites {rule}"


def test_nothing_cites_what_is_no_rule() -> None:
    assert (CODE | TESTS) - set(RULES) == set()
