"""What is known of one live stream. What happens to it is decided in streams.py."""

from __future__ import annotations

from typing import Any

from afflux.core.events import Verb
from afflux.protocols.rsocket.states import REQUESTER, RESPONDER, StreamState

__all__ = ["Stream"]

_COUNTED = ("owed", "allowed", "sent", "columnar", "late", "races", "first_paid")
"What a stream's state has beside its name and its place in the tables."

_IDLE, _RECEIVING = StreamState.IDLE, (StreamState.OPEN, StreamState.OUT_DONE)


class Stream:
    """What is known of one live stream."""

    __slots__ = (
        "allowed",
        "answering",
        "columnar",
        "ended",
        "first_paid",
        "hot",
        "id",
        "late",
        "owed",
        "races",
        "requester",
        "sent",
        "state",
        "table",
        "verb",
    )

    def __init__(self, id: int, verb: Verb, requester: bool) -> None:
        self.id = id
        self.verb: Verb = verb
        self.requester = requester
        self.table = REQUESTER if requester else RESPONDER
        self.state = _IDLE
        self.owed = 0
        "Items the peer may still send."
        self.allowed = 0
        "Items this side may still send; none before the peer has granted some (R-25)."
        self.sent = 0
        "Items that this side has sent; the request of a channel is one, that of any other stream is none."
        self.columnar = False
        self.hot = False
        "Items may take the short path: receiving, not reassembling, and more than the next item is owed."
        self.answering = False
        "The one answer of a request may take the short path: this side asked, and no fragment has come."
        self.late = 0
        "Frames that may be under way since this side gave up; they cost nothing."
        self.races = 0
        "Cancels that came for a half that was over."
        self.ended = False
        "The peer has failed or canceled all of it: it has nothing more to say."
        self.first_paid = verb != "channel" or requester
        "The first item of a channel has been paid for out of the application's demand (D-8)."

    def state_of(self) -> list[Any]:
        """What ``of_state`` takes."""
        return [self.id, self.verb, self.requester, int(self.state), *(getattr(self, name) for name in _COUNTED)]

    @classmethod
    def of_state(cls, state: list[Any]) -> Stream:
        """The stream that was in this state; ``rate`` it."""
        id, verb, requester, standing, *counted = state
        stream = cls(id, verb, requester)
        stream.state = StreamState(standing)
        for name, value in zip(_COUNTED, counted, strict=True):
            setattr(stream, name, value)
        return stream

    def rate(self, reassembling: bool) -> None:
        """Set ``hot`` and ``answering`` by the state."""
        ready = self.owed > 0 and not reassembling and self.state in _RECEIVING
        self.hot = ready and self.verb != "request"
        self.answering = ready and self.verb == "request"
