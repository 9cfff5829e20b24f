"""What is known of one id that this side has subscribed with (D-7). What happens to it is decided in subscriptions.py.

An id that is used again behind a cancel may have several subscriptions on the wire. The publisher answers each
subscribe once, in order: with subscribed, or with onError alone (R-21, R-22, D-8). Two things tell whose a message is:
how many answers are outstanding, and whether the subscription that was answered last may still have something to say.
"""

from __future__ import annotations

from afflux.core.credit import Credit
from afflux.protocols.rsio.kinds import varint
from afflux.protocols.rsio.states import SubscriberInput, SubscriberState

__all__ = ["Subscription"]

_ACTIVE, _FREE = SubscriberState.ACTIVE, SubscriberState.FREE
_I = SubscriberInput


class Subscription:
    """One id."""

    __slots__ = (
        "awaiting",
        "columnar",
        "head",
        "hot",
        "id",
        "late",
        "late_bytes",
        "size",
        "state",
        "stream",
        "streaming",
        "to_receive",
    )

    def __init__(self, id: int) -> None:
        self.id = id
        self.head = varint(id)
        "The id as it is written."
        self.state = _FREE
        self.stream = 0
        "The application's number for the newest subscription."
        self.awaiting = 0
        "Subscribes that were not answered yet."
        self.streaming = False
        "The subscription that was answered last has not ended on the wire."
        self.size = 0
        "Bytes of its elements; 0 when each has its own length (R-37, D-10)."
        self.to_receive = Credit()
        "The demand: elements that the publisher may still send."
        self.columnar = False
        self.hot = False
        "Elements may take the short path: active, and more are owed."
        self.late = 0
        "Messages that came since this side canceled."
        self.late_bytes = 0

    def begin(self, stream: int, demand: int, columnar: bool) -> None:
        """A subscribe is sent with this id."""
        self.stream = stream
        self.awaiting += 1
        self.to_receive = Credit(demand)
        self.columnar = columnar

    def rate(self) -> None:
        """Set ``hot`` by the state."""
        self.hot = self.state is _ACTIVE and self.to_receive.available > 0

    def answered(self, size: int, too_big: bool) -> SubscriberInput:
        """subscribed came: which one is it?"""
        self.size = size
        self.streaming = True
        if self.awaiting > 1:
            self.awaiting -= 1
            return _I.SUBSCRIBED_OLD
        self.awaiting = 0
        return _I.SUBSCRIBED_BIG if too_big else _I.SUBSCRIBED

    def ended(self, input: SubscriberInput) -> SubscriberInput:
        """onComplete or onError came, as ``input``: is it that of an older subscription?"""
        if self.streaming:
            self.streaming = False
            self.size = 0
        elif input is _I.ERROR:
            self.awaiting -= 1  # a refusal without subscribed
        else:
            return _I.OLD_ENDED  # it ends what has not begun
        return _I.OLD_ENDED if self.awaiting else input
