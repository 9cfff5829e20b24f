"""Record the state of one id of this side's subscriptions (D-7). subscriptions.py applies the steps.

An id that is used again after a cancel may have several subscriptions on the wire. The publisher answers each subscribe
once, in order: with subscribed, or with onError alone (R-21, R-22, D-8). Two facts show which subscription a message is
for: the number of outstanding answers, and whether the last answered subscription may still send.
"""

from __future__ import annotations

from afflux.core.credit import Credit
from afflux.protocols.rsio.kinds import varint
from afflux.protocols.rsio.states import (
    ANSWERED,
    AnswerAction,
    AnswerInput,
    AnswerState,
    SubscriberInput,
    SubscriberState,
)

__all__ = ["Subscription"]

_FREE = SubscriberState.FREE
_I = SubscriberInput
_SUBSCRIBED, _SUBSCRIBED_BIG, _ERROR = _I.SUBSCRIBED, _I.SUBSCRIBED_BIG, _I.ERROR
_SILENT, _ANSWERED, _ENDED = AnswerState.SILENT, AnswerInput.ANSWERED, AnswerInput.ENDED
_FORGET_SIZE = AnswerAction.FORGET_SIZE


class Subscription:
    """State of one id."""

    __slots__ = (
        "answer",
        "awaiting",
        "columnar",
        "head",
        "id",
        "late",
        "late_bytes",
        "size",
        "state",
        "stream",
        "to_receive",
    )

    def __init__(self, id: int) -> None:
        self.id = id
        self.head = varint(id)
        "The encoded id."
        self.state = _FREE
        self.stream = 0
        "The application's number for the newest subscription."
        self.awaiting = 0
        "Number of subscribes without an answer."
        self.answer = _SILENT
        self.size = 0
        "Bytes of its elements; 0 when each has its own length (R-37, D-10)."
        self.to_receive = Credit()
        "The demand: elements that the publisher may still send."
        self.columnar = False
        self.late = 0
        "Number of messages that arrived after this side canceled."
        self.late_bytes = 0

    def begin(self, stream: int, demand: int, columnar: bool) -> None:
        """Record a subscribe that is sent with this id."""
        self.stream = stream
        self.awaiting += 1
        credit = self.to_receive
        credit.available, credit.used = demand, 0
        self.columnar = columnar

    def answered(self, size: int, too_big: bool) -> SubscriberInput:
        """Classify subscribed: return whether it answers the newest subscribe."""
        self.size = size
        self.answer = ANSWERED.steps[self.answer][_ANSWERED].next
        if self.awaiting > 1:
            self.awaiting -= 1
            return _I.SUBSCRIBED_OLD
        self.awaiting = 0
        return _SUBSCRIBED_BIG if too_big else _SUBSCRIBED

    def ended(self, input: SubscriberInput) -> SubscriberInput:
        """Classify onComplete or onError, given as ``input``: return whether it ends an older subscription."""
        self.answer, action, _ = ANSWERED.steps[self.answer][_ENDED]
        if action is _FORGET_SIZE:
            self.size = 0
        elif input is _ERROR:
            self.awaiting -= 1  # a refusal without subscribed
        else:
            return _I.OLD_ENDED  # ends a subscription that has not begun
        return _I.OLD_ENDED if self.awaiting else input
