"""A handler that fails, for ``afflux serve --handler``. No tests."""

from __future__ import annotations


class Failing:
    """Raises at every request."""

    async def request(self, payload: object) -> bytes:
        """Fail."""
        raise KeyError("a bug")
