"""Dispatch the events of one blocking connection: ``HANDLERS`` has a function for each kind that has an effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from afflux.core import events
from afflux.core.errors import Rejected

if TYPE_CHECKING:
    from afflux.sync.driver import Driver

__all__ = ["HANDLERS"]


def _arrived(driver: Driver, event: events.Items | events.Block) -> None:
    inbox = driver.inboxes.get(event.stream)
    if inbox is None:
        return
    inbox.arrived.append(event)
    if event.complete:
        inbox.ended = True
        del driver.inboxes[event.stream]


def _readable(driver: Driver, event: events.Readable) -> None:
    if (inbox := driver.inboxes.get(event.stream)) is not None:
        inbox.unread += event.size
        if event.complete:
            inbox.finish(None)  # it stays: the session may still fail


def _completed(driver: Driver, event: events.Completed) -> None:
    if (inbox := driver.inboxes.pop(event.stream, None)) is not None:
        inbox.finish(None)


def _failed(driver: Driver, event: events.Failed) -> None:
    driver.sources.stop(event.stream)
    if (inbox := driver.inboxes.pop(event.stream, None)) is not None:
        inbox.finish(event.error)


def _canceled(driver: Driver, event: events.Canceled) -> None:
    driver.sources.stop(event.stream)


def _opened(driver: Driver, event: events.Opened) -> None:
    driver.engine.consumed(len(event.payload), 1)
    if event.verb != "fire":
        driver.engine.fail(event.stream, Rejected("a blocking client serves nothing"))
    driver.engine.release(event.stream)


def _pushed(driver: Driver, event: events.Pushed) -> None:
    driver.engine.consumed(len(event.metadata))


def _leased(driver: Driver, event: events.Leased) -> None:
    driver.lease_granted = True


def _suspended(driver: Driver, event: events.Suspended) -> None:
    driver.pump.detach()


def _resumed(driver: Driver, event: events.Resumed) -> None:
    if driver.pump.redial is not None:
        driver.pump.redial.succeeded()


def _closed(driver: Driver, event: events.Closed) -> None:
    driver.end(event.error)


HANDLERS: Final[dict[type, Callable[[Driver, Any], None]]] = {
    events.Items: _arrived,
    events.Block: _arrived,
    events.Readable: _readable,
    events.Completed: _completed,
    events.Failed: _failed,
    events.Canceled: _canceled,
    events.Opened: _opened,
    events.Pushed: _pushed,
    events.Leased: _leased,
    events.Suspended: _suspended,
    events.Resumed: _resumed,
    events.Closed: _closed,
}
