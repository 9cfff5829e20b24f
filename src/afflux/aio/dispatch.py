"""Dispatch the events of one connection to the callers and handlers waiting for them.

``HANDLERS`` has a function for each kind of event. The two most frequent kinds, answers and items, are handled by
``Driver.dispatch`` itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from afflux.core.events import (
    Acknowledged,
    Block,
    Canceled,
    Closed,
    Completed,
    Draining,
    Established,
    Extended,
    Failed,
    Granted,
    Ignored,
    Leased,
    Opened,
    Pushed,
    Readable,
    Requests,
    Resumed,
    Resuming,
    SessionOpened,
    Suspended,
)
from afflux.core.payload import Payload

if TYPE_CHECKING:
    from afflux.aio.driver import Driver

__all__ = ["HANDLERS"]


def _established(driver: Driver, event: Established) -> None:
    driver.leases.agreed = driver.engine.leases is not None
    driver.owner.established(event)


def _completed(driver: Driver, event: Completed) -> None:
    if (future := driver.calls.replies.pop(event.stream, None)) is None:
        driver.streams.completed(event.stream)
    elif not future.done():
        future.set_result(Payload())


def _failed(driver: Driver, event: Failed) -> None:
    if (future := driver.calls.replies.pop(event.stream, None)) is None:
        if not driver.streams.failed(event.stream, event.error):
            driver.owner.canceled(event.stream)
    elif not future.done():
        future.set_exception(event.error)


def _canceled(driver: Driver, event: Canceled) -> None:
    driver.streams.canceled(event)
    if event.final:
        driver.owner.canceled(event.stream)


def _pushed(driver: Driver, event: Pushed) -> None:
    driver.input.consumed_bytes += len(event.metadata)
    driver.owner.pushed(event)


def _extended(driver: Driver, event: Extended) -> None:
    driver.input.consumed_bytes += len(event.body)
    driver.owner.extended(event)


def _draining(driver: Driver, event: Draining) -> None:
    driver.draining = True


def _suspended(driver: Driver, event: Suspended) -> None:
    driver.pump.detach()
    if driver.durable():
        driver.owner.suspended(event)


def _ignored(driver: Driver, event: Ignored) -> None:
    """No-op: the engine has charged the frame to the peer."""


HANDLERS: Final[dict[type, Callable[[Driver, Any], None]]] = {
    Established: _established,
    Opened: lambda driver, event: driver.owner.opened(event),
    Requests: lambda driver, event: driver.owner.requested(event),
    Block: lambda driver, event: driver.streams.block(event),
    Completed: _completed,
    Failed: _failed,
    Canceled: _canceled,
    Granted: lambda driver, event: driver.streams.granted(event),
    Pushed: _pushed,
    SessionOpened: lambda driver, event: driver.owner.session_opened(event),
    Readable: lambda driver, event: driver.streams.readable(event),
    Acknowledged: lambda driver, event: driver.streams.acknowledged(event),
    Leased: lambda driver, event: driver.leases.granted(event),
    Extended: _extended,
    Suspended: _suspended,
    Resuming: lambda driver, event: driver.owner.resuming(event),
    Resumed: lambda driver, event: driver.owner.resumed(),
    Draining: _draining,
    Ignored: _ignored,
    Closed: lambda driver, event: driver.end(event.error),
}
