"""Publishers of every kind, for the rules to be tried on: the same numbers, out of different depths. No tests."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import afflux
from afflux import ApplicationError, Payload, Peer, Publisher, reactive
from tests.reactive.probes import Failure, turns, until

ENDLESS = 1 << 40


class Counts:
    """What the sources of a test have done."""

    def __init__(self) -> None:
        self.made = 0
        self.opened = 0
        self.closed = 0

    async def numbers(self, n: int, error: Exception | None = None) -> AsyncIterator[bytes]:
        """The numbers below ``n``, then perhaps an error."""
        self.opened += 1
        try:
            for i in range(n):
                self.made += 1
                yield b"%d" % i
            if error is not None:
                raise error
        finally:
            self.closed += 1


class Numbers(Sequence[bytes]):
    """The same as a sequence."""

    def __init__(self, counts: Counts, n: int, error: Exception | None) -> None:
        self._counts = counts
        self._n = n
        self._error = error

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, index: Any) -> Any:
        return b"%d" % index

    def __iter__(self) -> Iterator[bytes]:
        self._counts.opened += 1
        try:
            for i in range(self._n):
                self._counts.made += 1
                yield b"%d" % i
            if self._error is not None:
                raise self._error
        finally:
            self._counts.closed += 1


class Serves:
    """The same at the other end of a connection: the request says how many."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts

    def _numbers(self, payload: Payload) -> AsyncIterator[bytes]:
        n, fails = json.loads(payload.data)
        return self._counts.numbers(n, ApplicationError(0x301, "told to fail") if fails else None)

    async def request(self, payload: Payload) -> Payload:
        """Echo."""
        return payload

    def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        """As asked."""
        return self._numbers(payload)

    async def channel(self, items: Any) -> AsyncIterator[bytes]:
        """Echo each."""
        async for item in items:
            yield item.data


class ServesPublisher(Serves):
    """The same, by handlers that return publishers."""

    def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        """As asked."""
        return reactive.serve_publisher(reactive.to_publisher(lambda: self._numbers(payload)))


class Kit:
    """One kind of publisher, and what can be said of it."""

    again = True
    "Each subscriber gets all items; else there is one subscriber, and others are refused."
    exact = True
    "The source makes no more than is demanded, but for ``ahead``."
    ahead = 0
    "Items that are made without demand, to see whether there is an end."
    counted = True
    "The source is an iterator of ours, that tells when it is closed."
    tells = False
    "The end is told without a further request."
    keeps = True
    "What was made before a failure arrives before the error."
    failure: type[Exception] = Failure
    "What a failing source's error comes as."

    def __init__(self, stack: AsyncExitStack) -> None:
        self.counts = Counts()
        self.stack = stack

    async def open(self) -> None:
        """What it takes before there are publishers."""

    def publisher(self, n: int, *, fails: bool = False) -> Publisher[Any]:
        """A publisher of the numbers below ``n``, which then fails or completes."""
        return reactive.to_publisher(lambda: self.counts.numbers(n, Failure() if fails else None))

    async def settle(self) -> None:
        """Everything that was under way has come."""
        await turns(20)

    async def closed(self, n: int = 1) -> None:
        """Wait until ``n`` sources are closed, if that can be seen."""
        if self.counted:
            await until(lambda: self.counts.closed >= n)


class Listed(Kit):
    """A sequence: the end is looked for, one item ahead."""

    exact = False
    tells = True

    def publisher(self, n: int, *, fails: bool = False) -> Publisher[Any]:
        return reactive.to_publisher(Numbers(self.counts, n, Failure() if fails else None))


class Mapped(Kit):
    """Through a Map."""

    again = False

    def publisher(self, n: int, *, fails: bool = False) -> Publisher[Any]:
        stage: reactive.Map[Any, Any] = reactive.Map(lambda item: item)
        super().publisher(n, fails=fails).subscribe(stage)
        return stage


async def _each(items: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for item in items:
        yield item


class Processed(Kit):
    """Through an async generator function, with a small window: the end is seen with the items before it."""

    again = False
    exact = False
    tells = True

    def publisher(self, n: int, *, fails: bool = False) -> Publisher[Any]:
        stage = reactive.processor(_each, credit=3)
        super().publisher(n, fails=fails).subscribe(stage)
        return stage


class Wired(Kit):
    """A peer's stream, over TCP. A server makes one item ahead, so that completing needs no credit."""

    ahead = 1
    tells = True
    failure: type[Exception] = ApplicationError
    handler: Callable[[Counts], object] = Serves
    uri = "tcp://127.0.0.1:0"
    peer: Peer

    async def open(self) -> None:
        server = await self.stack.enter_async_context(afflux.serve(self.uri, type(self).handler(self.counts)))
        self.peer = await self.stack.enter_async_context(afflux.connect(server.uri))

    def publisher(self, n: int, *, fails: bool = False) -> Publisher[Any]:
        return reactive.stream(self.peer, json.dumps([n, fails]))

    async def settle(self) -> None:
        for _ in range(3):
            await self.peer.request(b"")
            await turns(5)


class Served(Wired):
    """A peer's stream, whose handler has a publisher too."""

    handler = ServesPublisher


class ServesNames(Serves):
    """The same where there are only publishers."""

    def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        """As asked; the empty name is the echo."""
        return super().stream(payload) if payload.data else _nothing()


async def _nothing() -> AsyncIterator[bytes]:
    for item in ():
        yield item


class Published(Wired):
    """A publisher of reactive-streams-io: the rules over its own wire."""

    uri = "rsio+tcp://127.0.0.1:0"
    handler = ServesNames

    async def settle(self) -> None:
        for _ in range(3):
            assert [item async for item in self.peer.subscribe("")] == []
            await turns(5)


class PublishedThrough(Published):
    """The same through a processor."""

    again = False

    def publisher(self, n: int, *, fails: bool = False) -> Publisher[Any]:
        stage: reactive.Map[Any, Any] = reactive.Map(lambda item: item)
        super().publisher(n, fails=fails).subscribe(stage)
        return stage


class WiredThrough(Wired):
    """A peer's stream through a processor."""

    again = False

    def publisher(self, n: int, *, fails: bool = False) -> Publisher[Any]:
        stage: reactive.Map[Any, Any] = reactive.Map(lambda item: item)
        super().publisher(n, fails=fails).subscribe(stage)
        return stage


class Channeled(Wired):
    """What a peer echoes of a channel whose source is a publisher."""

    exact = False
    keeps = False
    failure = Failure

    def publisher(self, n: int, *, fails: bool = False) -> Publisher[Any]:
        return reactive.channel(self.peer, Kit.publisher(self, n, fails=fails))


class Observed(Kit):
    """An Observable, whose items wait in a buffer."""

    exact = False
    counted = False
    tells = True

    def publisher(self, n: int, *, fails: bool = False) -> Publisher[Any]:
        import reactivex
        from reactivex import operators

        n = min(n, 6000)
        source = reactivex.from_iterable(range(n)).pipe(operators.map(lambda i: b"%d" % i))
        if fails:
            source = reactivex.concat(source, reactivex.throw(Failure()))
        return reactive.from_observable(source, buffer=max(n, 1))


KITS: dict[str, type[Kit]] = {
    "generator": Kit,
    "list": Listed,
    "map": Mapped,
    "processor": Processed,
    "stream": Wired,
    "served": Served,
    "stream-map": WiredThrough,
    "rsio": Published,
    "rsio-map": PublishedThrough,
    "channel": Channeled,
    "observable": Observed,
}

HUGE = sys.maxsize
"2^63-1."
