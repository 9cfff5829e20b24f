"""The first half of a turn's answers leaves before the second is produced, where the server waited for the requests, or
the first half took long enough for a write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import afflux
from afflux import Payload
from afflux.protocols.rsocket import frames
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
        assert isinstance(loop, Clock | StoppedClock)
        self.written.append(afflux.current_peer()._driver.output.written)
        loop.worked += self.seconds


def written(verb: str, count: int, seconds: float, waited: float = 0.0) -> list[int]:
    """How many of ``count`` handlers that ran in one turn began before their first answers were written, before the
    next were, and so on. The server has ``waited`` for their requests."""
    handler = Handler(seconds)

    async def main() -> None:
        async with afflux.serve("mem://halves", handler) as server, afflux.connect(server.uri) as peer:

            async def ask() -> None:
                if verb == "request":
                    await peer.request(b"data")
                else:
                    assert [item.data async for item in peer.stream(b"data")] == [b"data"]

            await asyncio.sleep(waited)
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


class StoppedClock(asyncio.SelectorEventLoop):
    """A loop with sockets, whose time only a test moves."""

    def __init__(self) -> None:
        self.worked = 0.0
        super().__init__()

    def time(self) -> float:
        return 1e6 + self.worked  # far from the system's time: every deadline is measured with this


@pytest.mark.parametrize(
    ("verb", "count", "parts"),
    [("request", 16, [8, 8]), ("stream", 16, [8, 8]), ("request", 2, [1, 1]), ("request", 1, [1])],
)
def test_the_first_half_of_quick_answers_leaves_early_if_the_server_waited(
    verb: str, count: int, parts: list[int]
) -> None:
    """Otherwise the client would wait while the server works, and the server while the client works."""
    handler = Handler(0.0)

    async def main(loop: StoppedClock) -> None:
        async with afflux.serve("tcp://127.0.0.1:0", handler) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(server.uri.rpartition(":")[2]))
            ids = range(1, 8 * count, 2)
            asked = [
                frames.RequestResponse(stream=id) if verb == "request" else frames.RequestStream(stream=id, initial_n=9)
                for id in ids
            ]
            writer.write(frames.Setup(keepalive_ms=20_000, lifetime_ms=90_000).encode(prefixed=True))
            for turn in range(4):
                loop.worked += 0.000_2 * (turn % 2)  # the server waits before every other group
                writer.write(b"".join(one.encode(prefixed=True) for one in asked[turn * count :][:count]))
                while len(handler.written) < (turn + 1) * count:
                    await reader.read(0x10000)
            writer.close()

    loop = StoppedClock()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main(loop))
    groups = [handler.written[turn * count :][:count] for turn in range(4)]
    found = [[group.count(size) for size in sorted(set(group))] for group in groups]
    assert found[1:] == [parts, [count], parts]


def test_the_first_half_of_many_quick_answers_leaves_early() -> None:
    assert written("request", 64, 0.0) == [32, 32]


@pytest.mark.parametrize("verb", ["request", "stream"])
def test_one_slow_answer_leaves_at_the_end_of_the_turn(verb: str) -> None:
    assert written(verb, 1, 0.01) == [1]
