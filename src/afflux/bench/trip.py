"""Measure the round trip to a server with KEEPALIVE or Ping, which every peer answers immediately.

Uses a separate, otherwise idle connection before the load starts. The result includes the network and two event loops;
``meter`` uses it to compute the time that streams wait for credit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from afflux.aio.driver import Driver
from afflux.aio.owner import Owner
from afflux.bench.plan import Plan
from afflux.calls import terms_of
from afflux.core.errors import Error
from afflux.core.events import Established, Event
from afflux.transports.clock import now
from afflux.transports.security import settled

__all__ = ["TRIP_S", "Trip", "round_trip"]

_TIMES = 5
TRIP_S = 2.0
"Seconds to wait for an answer."

_PERIOD = 10.0
"Keepalive interval of the connection, longer than the timeout so that it sends none by itself."


class _Probe(Driver):
    """A connection that signals when anything arrives."""

    arrival: asyncio.Future[None] | None = None
    greeted = False

    def dispatch(self, events: list[Event]) -> None:
        """Signal an arrival: on an idle connection it is the answer, which is not an event."""
        if self.arrival is not None and not self.arrival.done():
            self.arrival.set_result(None)
        self.greeted = self.greeted or any(isinstance(event, Established) for event in events)
        super().dispatch(events)


class Trip(NamedTuple):
    """A measured round trip."""

    seconds: float | None
    "The minimum of several; None if it could not be measured."
    answered: bool = True
    "False if the server took the connection and did not answer."


async def round_trip(plan: Plan, clock: Callable[[], float]) -> Trip:
    """Measure the round trip."""
    if not plan.address.entry.keepalives:
        return Trip(None)
    try:
        async with asyncio.timeout(TRIP_S):
            return Trip(await _measured(plan, clock))
    except Error:
        return Trip(None)
    except TimeoutError:
        return Trip(None, answered=False)


async def _measured(plan: Plan, clock: Callable[[], float]) -> float:
    address = plan.address
    terms = terms_of(
        address, plan.limits, plan.setup, plan.metadata_mime, plan.data_mime, _PERIOD, plan.limits.lifetime_s, None
    )
    engine = address.entry.make("client", terms, limits=plan.limits, decide=False, now=now())
    driver = _Probe(engine, Owner(), expects=address)
    try:
        await address.carrier.load().open(address, lambda: driver.pump, settled(None, address))
        if "session" in address.entry.features and not driver.greeted:
            await _arrived(driver)  # nothing may be sent before the server's header (Jmux R-1)
        return min([await _probed(driver, clock) for _ in range(_TIMES)])
    finally:
        driver.close()
        await asyncio.shield(driver.finished)


async def _probed(driver: _Probe, clock: Callable[[], float]) -> float:
    """Measure one KEEPALIVE and its answer."""
    driver.state.check()
    start = clock()
    driver.state.run(driver.engine.tick, driver.engine.deadline)
    await _arrived(driver)
    return clock() - start


async def _arrived(driver: _Probe) -> None:
    """Wait until anything arrives."""
    driver.arrival = asyncio.get_running_loop().create_future()
    await asyncio.wait((driver.arrival, driver.closed), return_when=asyncio.FIRST_COMPLETED)
    driver.state.check()
