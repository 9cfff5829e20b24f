"""How long a round trip to a server takes, by KEEPALIVE or Ping, which every peer answers at once. No load lives here.

It is measured on a connection of its own that asks for nothing, before the load begins. What it tells is the network
and two event loops; the part of a stream's time that is due to credit is worked out from it (see ``meter``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic

from afflux.aio.driver import Driver, Listening
from afflux.bench.plan import Plan
from afflux.calls import terms_of
from afflux.core.errors import Error
from afflux.core.events import Established, Event
from afflux.transports.security import settled

__all__ = ["round_trip"]

_TIMES = 5
_PATIENCE = 2.0
"Seconds until a peer that does not answer is given up."

_PERIOD = 10.0
"Seconds between the keepalives that the connection sends by itself: none within the patience."


class _Breath(Driver):
    """A connection that hears whether anything comes."""

    heard: asyncio.Future[None] | None = None
    greeted = False

    def dispatch(self, events: list[Event]) -> None:
        """Something has come: on a connection that asks for nothing it is the answer, which is no event."""
        if self.heard is not None and not self.heard.done():
            self.heard.set_result(None)
        self.greeted = self.greeted or any(isinstance(event, Established) for event in events)
        super().dispatch(events)


async def round_trip(plan: Plan, clock: Callable[[], float]) -> float | None:
    """Seconds of a round trip: the least of a few. None where it can not be told."""
    if not plan.address.entry.keepalives:
        return None
    try:
        async with asyncio.timeout(_PATIENCE):
            return await _measured(plan, clock)
    except (Error, TimeoutError):
        return None


async def _measured(plan: Plan, clock: Callable[[], float]) -> float:
    address = plan.address
    terms = terms_of(
        address, plan.limits, plan.setup, plan.metadata_mime, plan.data_mime, _PERIOD, plan.limits.lifetime_s, None
    )
    engine = address.entry.make("client", terms, limits=plan.limits, decide=False, now=monotonic())
    driver = _Breath(engine, Listening(), expects=address.protocol)
    try:
        await address.carrier.load().open(address, lambda: driver, settled(None, address))
        if "session" in address.entry.features and not driver.greeted:
            await _heard(driver)  # nothing may be sent before the server's header (Jmux R-1)
        return min([await _breathed(driver, clock) for _ in range(_TIMES)])
    finally:
        driver.close()
        await asyncio.shield(driver.finished)


async def _breathed(driver: _Breath, clock: Callable[[], float]) -> float:
    """Send one KEEPALIVE and wait for its answer."""
    driver.check()
    start = clock()
    driver.run(driver.engine.tick, driver.engine.deadline)
    await _heard(driver)
    return clock() - start


async def _heard(driver: _Breath) -> None:
    """Wait until something comes."""
    driver.heard = asyncio.get_running_loop().create_future()
    await asyncio.wait((driver.heard, driver.closed), return_when=asyncio.FIRST_COMPLETED)
    driver.check()
