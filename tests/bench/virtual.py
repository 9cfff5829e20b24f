"""A loop whose time is made up: it never waits, and a second of it is over as soon as nothing is left to do. No tests.

Client and server run in it together, over mem://. So a load of seconds is done in an instant, and to the same figures
each time.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import afflux
from afflux.bench import Plan, Result, run

__all__ = ["measured", "virtually"]

T = TypeVar("T")
START = 1000.0


class _Selector(selectors.DefaultSelector):
    """Says at once that nothing came, and that the time is over."""

    now = START

    def select(self, timeout: float | None = None) -> Any:
        found = super().select(0)
        if not found:
            if timeout is None:
                raise RuntimeError("nothing will ever happen again")
            self.now += timeout
        return found


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._made_up = _Selector()
        super().__init__(self._made_up)

    def time(self) -> float:
        return self._made_up.now


def virtually(work: Coroutine[Any, Any, T]) -> T:
    """Run it in made-up time."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(work)


def measured(handler: object, prepare: Callable[[], None] = lambda: None, **choices: Any) -> Result:
    """A load on a handler, in made-up time."""

    async def main() -> Result:
        loop = asyncio.get_running_loop()
        prepare()
        async with afflux.serve("mem://bench", handler) as server:
            return await run(Plan(uri=server.uri, **choices), clock=loop.time)

    return virtually(main())
