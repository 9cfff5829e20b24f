"""Dispatch the events of one blocking connection: ``HANDLERS`` has a function for each kind that has an effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from afflux.core.errors import Rejected
from afflux.core.events import (
    Block,
    Canceled,
    Closed,
    Completed,
    Failed,
    Items,
    Leased,
    Opened,
    Pushed,
    Readable,
    Resumed,
    Suspended,
)

if TYPE_CHECKING:
    from afflux.sync.driver import Driver

__all__ = ["HANDLERS"]


def _arrived(driver: Driver, event: Items | Block) -> None:
    inbox = driver.inboxes.get(event.stream)
    if inbox is None:
        return
    inbox.arrived.append(event)
    if event.complete:
        inbox.ended = True
        del driver.inboxes[event.stream]


def _readable(driver: Driver, event: Readable) -> None:
    if (inbox := driver.inboxes.get(event.stream)) is not None:
        inbox.unread += event.size
        if event.complete:
            inbox.finish(None)  # it stays: the session may still fail


def _completed(driver: Driver, event: Completed) -> None:
    if (inbox := driver.inboxes.pop(event.stream, None)) is not None:
        inbox.finish(None)


def _failed(driver: Driver, event: Failed) -> None:
    driver.sources.stop(event.stream)
    if (inbox := driver.inboxes.pop(event.stream, None)) is not None:
        inbox.finish(event.error)


def _canceled(driver: Driver, event: Canceled) -> None:
    driver.sources.stop(event.stream)


def _opened(driver: Driver, event: Opened) -> None:
    driver.engine.consumed(len(event.payload), 1)
    if event.verb != "fire":
        driver.engine.fail(event.stream, Rejected("a blocking client serves nothing"))
    driver.engine.release(event.stream)


def _pushed(driver: Driver, event: Pushed) -> None:
    driver.engine.consumed(len(event.metadata))


def _leased(driver: Driver, event: Leased) -> None:
    driver.lease_granted = True


def _suspended(driver: Driver, event: Suspended) -> None:
    driver.pump.detach()


def _resumed(driver: Driver, event: Resumed) -> None:
    if driver.pump.redial is not None:
        driver.pump.redial.succeeded()


def _closed(driver: Driver, event: Closed) -> None:
    driver.end(event.error)


HANDLERS: Final[dict[type, Callable[[Driver, Any], None]]] = {
    Items: _arrived,
    Block: _arrived,
    Readable: _readable,
    Completed: _completed,
    Failed: _failed,
    Canceled: _canceled,
    Opened: _opened,
    Pushed: _pushed,
    Leased: _leased,
    Suspended: _suspended,
    Resumed: _resumed,
    Closed: _closed,
}
