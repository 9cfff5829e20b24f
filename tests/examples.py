"""What ``make test`` leaves to ``make long`` and ``make random``. Contains no tests.

The profiles of random examples are in ``tests/conftest.py``: ``make test`` runs ``smoke``, ``make random`` runs
``long``, and pytest alone ``afflux``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest
from hypothesis import settings

__all__ = ["share", "short"]


def share(part: float) -> int:
    """So many times the examples of a test without settings, rounded."""
    return max(1, round(part * settings.get_profile(settings.get_current_profile_name()).max_examples))


def short(values: Iterable[Any], smoke: Collection[Any]) -> list[Any]:
    """Parameters of a test, of which ``make test`` tries those in ``smoke`` and ``make long`` the others.

    A parameter may be a tuple of values. Raises ValueError if one of ``smoke`` is not a parameter.
    """
    every = list(values)
    if missing := [each for each in smoke if each not in every]:
        raise ValueError(f"no parameters of the test: {missing}")
    return [each if each in smoke else _long(each) for each in every]


def _long(each: Any) -> Any:
    return pytest.param(*(each if isinstance(each, tuple) else (each,)), marks=pytest.mark.long)
