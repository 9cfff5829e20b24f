"""Loads in virtual time: client and server run in one loop over mem://, so that seconds of load give the same figures
each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import afflux
from afflux.bench import Plan, Result, run
from afflux.testing import run as virtually

__all__ = ["measured", "virtually"]


def measured(handler: object, prepare: Callable[[], None] = lambda: None, **choices: Any) -> Result:
    """A load on a handler, in virtual time."""

    async def main() -> Result:
        loop = asyncio.get_running_loop()
        prepare()
        async with afflux.serve("mem://bench", handler) as server:
            return await run(Plan(uri=server.uri, **choices), clock=loop.time)

    return virtually(main())
