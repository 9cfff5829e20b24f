"""Subscribers of every kind, for the rules to be tried on, each with a publisher that is moved by hand. No tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from afflux import Subscriber, reactive
from tests.reactive.probes import Manual, Probe, turns

CREDIT = 4


class Side:
    """One kind of subscriber, and who takes items from it.

    ``attach`` subscribes it, ``start`` makes it want all there is, ``leave`` makes it want nothing more.
    """

    at_once = False
    "Items are passed on within on_next."
    starts = True
    "It can be subscribed before anything is wanted."

    def __init__(self, manual: Manual) -> None:
        self.manual = manual
        self.received: list[Any] = []
        self.error: Exception | None = None
        self.ended: str | None = None

    def make(self) -> Subscriber[Any]:
        """One more subscriber of this kind."""
        raise NotImplementedError

    def attach(self) -> None:
        raise NotImplementedError

    def start(self) -> None:
        raise NotImplementedError

    def leave(self) -> None:
        raise NotImplementedError

    async def stop(self) -> None:
        """Leave nothing behind."""
        self.leave()
        await turns()


class Iterating(Side):
    """``async for item in from_publisher(...)``."""

    starts = False

    def __init__(self, manual: Manual) -> None:
        super().__init__(manual)
        self.items = reactive.from_publisher(manual, credit=CREDIT)
        self._task: asyncio.Task[None] | None = None

    def make(self) -> Subscriber[Any]:
        from afflux.reactive.subscribing import Inbox

        return Inbox(CREDIT)

    def start(self) -> None:
        self._task = asyncio.create_task(self._take())

    async def _take(self) -> None:
        try:
            async for item in self.items:
                self.received.append(item)
        except Exception as error:
            self.error = error
            self.ended = "on_error"
        else:
            self.ended = "on_complete"

    def leave(self) -> None:
        self.items.cancel()

    async def stop(self) -> None:
        await super().stop()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task


class Probing(Side):
    """A processor, with a probe behind it."""

    def __init__(self, manual: Manual) -> None:
        super().__init__(manual)
        self.stage: Any = self.make()
        self.probe = Probe()
        self.received = self.probe.items
        self.stage.subscribe(self.probe)

    def attach(self) -> None:
        self.manual.subscribe(self.stage)

    def start(self) -> None:
        self.probe.request(1 << 20)
        if not self.manual.subscribers:
            self.attach()

    def leave(self) -> None:
        self.probe.cancel()

    @property  # type: ignore[override]
    def ended(self) -> str | None:
        return self.probe.ended

    @ended.setter
    def ended(self, value: str | None) -> None:
        """The probe knows."""

    @property  # type: ignore[override]
    def error(self) -> Exception | None:
        return self.probe.error

    @error.setter
    def error(self, value: Exception | None) -> None:
        """The probe knows."""


class Mapping(Probing):
    """A Map."""

    at_once = True

    def make(self) -> Any:
        return reactive.Map(lambda item: item)


async def _each(items: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for item in items:
        yield item


class Generating(Probing):
    """A processor that runs a generator."""

    def make(self) -> Any:
        return reactive.processor(_each, credit=CREDIT)


class Feeding(Side):
    """An Observable."""

    at_once = True
    starts = False

    def __init__(self, manual: Manual) -> None:
        super().__init__(manual)
        self.observable = reactive.to_observable(manual, credit=CREDIT)
        self._disposable: Any = None

    def make(self) -> Subscriber[Any]:
        from reactivex.observer import Observer

        from afflux.reactive.rx import _Feeding

        return _Feeding(Observer(), CREDIT, None)

    def start(self) -> None:
        self._disposable = self.observable.subscribe(self.received.append, self._failed, self._completed)

    def _failed(self, error: Exception) -> None:
        self.error = error
        self.ended = "on_error"

    def _completed(self) -> None:
        self.ended = "on_complete"

    def leave(self) -> None:
        if self._disposable is not None:
            self._disposable.dispose()


SIDES: dict[str, type[Side]] = {
    "from_publisher": Iterating,
    "map": Mapping,
    "processor": Generating,
    "to_observable": Feeding,
}
