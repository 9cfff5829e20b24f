"""The first half of a turn's answers leaves before the second is produced, where that took long enough for a write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import afflux
from afflux import Payload
from afflux.testing import VirtualLoop


class Clock(VirtualLoop):
    """A loop in which handlers take time."""

    def __init__(self) -> None:
        super().__init__()
        self.worked = 0.0

    def time(self) -> float:
        """The virtual time, and that of the handlers."""
        return super().time() + getattr(self, "worked", 0.0)


class Handler:
    """Handlers that take the same time each, and note how many bytes their server had written before."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.written: list[int] = []

    async def request(self, payload: Payload) -> Payload:
        """Echo."""
        self._work()
        return payload

    async def stream(self, payload: Payload) -> AsyncIterator[Payload]:
        """Echo."""
        self._work()
        yield payload

    def _work(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Clock)
        self.written.append(afflux.current_peer()._driver.output.written)
        loop.worked += self.seconds


def written(verb: str, count: int, seconds: float) -> list[int]:
    """How many of ``count`` handlers that ran in one turn began before their first answers were written, before the
    next were, and so on."""
    handler = Handler(seconds)

    async def main() -> None:
        async with afflux.serve("mem://halves", handler) as server, afflux.connect(server.uri) as peer:

            async def ask() -> None:
                if verb == "request":
                    await peer.request(b"data")
                else:
                    assert [item.data async for item in peer.stream(b"data")] == [b"data"]

            await asyncio.gather(*(ask() for _ in range(count)))

    with asyncio.Runner(loop_factory=Clock) as runner:
        runner.run(main())
    return [handler.written.count(size) for size in sorted(set(handler.written))]


@pytest.mark.parametrize("verb", ["request", "stream"])
def test_the_first_half_of_slow_answers_leaves_early(verb: str) -> None:
    assert written(verb, 16, 50e-6) == [8, 8]


@pytest.mark.parametrize("verb", ["request", "stream"])
def test_quick_answers_leave_together(verb: str) -> None:
    """A write costs as much as some of them."""
    assert written(verb, 16, 1e-6) == [16]


def test_the_first_half_of_many_quick_answers_leaves_early() -> None:
    assert written("request", 64, 0.0) == [32, 32]


@pytest.mark.parametrize("verb", ["request", "stream"])
def test_one_slow_answer_leaves_at_the_end_of_the_turn(verb: str) -> None:
    assert written(verb, 1, 0.01) == [1]
