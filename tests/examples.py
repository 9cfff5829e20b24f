"""How many random examples a test tries: a share of those of hypothesis's profile. Contains no tests.

``make test`` runs the profile ``afflux`` of ``tests/conftest.py``, ``make random`` the profile ``long``.
"""

from __future__ import annotations

from hypothesis import settings

__all__ = ["share"]


def share(part: float) -> int:
    """So many times the examples of a test without settings, rounded."""
    return max(1, round(part * settings.get_profile(settings.get_current_profile_name()).max_examples))
