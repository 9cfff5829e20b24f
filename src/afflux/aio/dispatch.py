"""Dispatch the events of one connection to the callers and handlers waiting for them.

``HANDLERS`` has a function for each kind of event. The most frequent kinds, answers, items and new streams, are handled
by ``Driver.dispatch`` itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from afflux.core import events
from afflux.core.payload import Payload

if TYPE_CHECKING:
    from afflux.aio.driver import Driver

__all__ = ["HANDLERS"]


def _established(driver: Driver, event: events.Established) -> None:
    driver.leases.agreed = driver.engine.leases is not None
    driver.owner.established(event)


def _completed(driver: Driver, event: events.Completed) -> None:
    if (future := driver.calls.replies.pop(event.stream, None)) is None:
        driver.streams.completed(event.stream)
    elif not future.done():
        future.set_result(Payload())


def _failed(driver: Driver, event: events.Failed) -> None:
    if (future := driver.calls.replies.pop(event.stream, None)) is None:
        if not driver.streams.failed(event.stream, event.error):
            driver.owner.canceled(event.stream)
    elif not future.done():
        future.set_exception(event.error)


def _canceled(driver: Driver, event: events.Canceled) -> None:
    driver.streams.canceled(event)
    if event.final:
        driver.owner.canceled(event.stream)


def _pushed(driver: Driver, event: events.Pushed) -> None:
    driver.input.consumed_bytes += len(event.metadata)
    driver.owner.pushed(event)


def _extended(driver: Driver, event: events.Extended) -> None:
    driver.input.consumed_bytes += len(event.body)
    driver.owner.extended(event)


def _draining(driver: Driver, event: events.Draining) -> None:
    driver.draining = True


def _suspended(driver: Driver, event: events.Suspended) -> None:
    driver.pump.detach()
    if driver.saving is None or driver.saving.durable():
        driver.owner.suspended(event)


def _ignored(driver: Driver, event: events.Ignored) -> None:
    """No-op: the engine has charged the frame to the peer."""


HANDLERS: Final[dict[type, Callable[[Driver, Any], None]]] = {
    events.Established: _established,
    events.Requests: lambda driver, event: driver.owner.requested(event),
    events.Block: lambda driver, event: driver.streams.block(event),
    events.Completed: _completed,
    events.Failed: _failed,
    events.Canceled: _canceled,
    events.Granted: lambda driver, event: driver.streams.granted(event),
    events.Pushed: _pushed,
    events.SessionOpened: lambda driver, event: driver.owner.session_opened(event),
    events.Readable: lambda driver, event: driver.streams.readable(event),
    events.Acknowledged: lambda driver, event: driver.streams.acknowledged(event),
    events.Leased: lambda driver, event: driver.leases.granted(event),
    events.Extended: _extended,
    events.Suspended: _suspended,
    events.Resuming: lambda driver, event: driver.owner.resuming(event),
    events.Resumed: lambda driver, event: driver.owner.resumed(),
    events.Draining: _draining,
    events.Ignored: _ignored,
    events.Closed: lambda driver, event: driver.end(event.error),
}
