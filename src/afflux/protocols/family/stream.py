"""Store the state of one live stream: its place in the tables, its credit, and what it still expects."""

from __future__ import annotations

from typing import Any

from afflux.core.events import Verb
from afflux.protocols.family.member import Member, Role
from afflux.protocols.family.states import StreamState

__all__ = ["Stream"]

_COUNTED = ("owed", "allowed", "sent", "columnar", "late", "races", "first_paid")
"What a stream's state has beside its name and its place in the tables."

_IDLE, _RECEIVING = StreamState.IDLE, (StreamState.OPEN, StreamState.OUT_DONE)


class Stream:
    """The state of one live stream."""

    __slots__ = (
        "allowed",
        "answering",
        "columnar",
        "ended",
        "endless",
        "first_paid",
        "hot",
        "id",
        "late",
        "owed",
        "races",
        "received",
        "requester",
        "role",
        "sent",
        "state",
        "verb",
    )

    def __init__(self, id: int, verb: Verb, role: Role) -> None:
        self.id = id
        self.verb: Verb = verb
        self.role = role
        self.requester = role.requester
        self.state = _IDLE
        self.owed = 0
        "Items the peer may still send."
        self.received = 0
        "Items that the peer has sent."
        self.allowed = 0
        "Items this side may still send; none before the peer has granted some (R-25)."
        self.sent = 0
        "Items that this side has sent; the request of a channel is one, that of any other stream is none."
        self.columnar = False
        self.hot = 0
        """The word of plain items that may take the short path: the stream receives, nothing of an item is being put
        together, and the next item is owed. 0: none may."""
        self.answering = False
        "The one answer of a request may take the short path: this side asked, and no fragment has come."
        self.late = 0
        "Frames that may be in flight since this side gave up; they cost nothing."
        self.races = 0
        "Cancels that came for a half that was over."
        self.ended = False
        "The peer has failed or canceled all of it, and can send nothing more."
        self.endless = False
        "A subscription: it does not complete."
        self.first_paid = verb != "channel" or role.requester
        "The first item of a channel was paid for out of the application's demand (D-8)."

    def state_of(self) -> list[Any]:
        """What ``of_state`` takes."""
        return [self.id, self.verb, self.requester, int(self.state), *(getattr(self, name) for name in _COUNTED)]

    @classmethod
    def of_state(cls, state: list[Any], member: Member) -> Stream:
        """The stream that was in this state; ``rate`` it."""
        id, verb, requester, standing, *counted = state
        stream = cls(id, verb, member.requester if requester else member.responder)
        stream.state = StreamState(standing)
        for name, value in zip(_COUNTED, counted, strict=True):
            setattr(stream, name, value)
        return stream

    def rate(self, reassembling: bool) -> None:
        """Set ``hot`` and ``answering`` by the state."""
        ready = self.owed > 0 and not reassembling and self.state in _RECEIVING
        self.hot = self.role.takes if ready and self.verb != "request" else 0
        self.answering = ready and self.verb == "request"
