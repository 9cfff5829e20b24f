"""Open the streams that an application requests: on first use, with the credit granted by then."""

from __future__ import annotations

from afflux.aio.driver import Driver
from afflux.aio.flow import Inbound, ItemStream
from afflux.core.autocredit import Kept, check_kept
from afflux.core.entry import ProtocolEntry
from afflux.core.events import Verb
from afflux.core.payload import Payload

__all__ = ["cancel_stream", "new_inbound", "new_items"]


def new_items(driver: Driver, protocol: ProtocolEntry, verb: Verb, payload: Payload, credit: Kept) -> ItemStream:
    """Return the items of a request; the stream opens on first use."""
    inbound = new_inbound(driver, protocol, verb, credit)
    inbound.asked = len(payload)

    def opener(n: int) -> None:
        driver = inbound.driver
        driver.state.check()
        credit = inbound.first_grant(n)
        try:
            stream = inbound.id = driver.open(verb, payload, credit)
        except BaseException:
            inbound.take_back(credit)
            raise
        driver.streams.inbounds[stream] = inbound
        driver.output.flush_soon()

    return ItemStream(inbound, opener=opener, stop=lambda: cancel_stream(inbound))


def new_inbound(driver: Driver, protocol: ProtocolEntry, verb: str, credit: Kept) -> Inbound:
    """Return the inbound half of a stream that is not open yet.

    Raises:
        Unsupported: the protocol does not have the verb.
        ConnectionClosed: the connection is over, and no other will follow.
    """
    check_kept(credit)
    protocol.check(verb)
    if driver.renew is None:
        driver.state.check()
    return Inbound(driver, credit)


def cancel_stream(inbound: Inbound) -> None:
    """Cancel a stream that this side has opened, if it is live."""
    driver = inbound.driver
    if inbound.id is not None and driver.streams.inbounds.pop(inbound.id, None) is not None:
        driver.cancels.cancel(inbound.id)
