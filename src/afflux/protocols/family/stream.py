"""Store the state of one live stream: its state in the tables, its credit, and the items that it still expects."""

from __future__ import annotations

from typing import Any

from afflux.core.events import Verb
from afflux.protocols.family.member import Member, Role
from afflux.protocols.family.states import StreamState

__all__ = ["Stream"]

_COUNTED = ("owed", "allowed", "sent", "columnar", "late", "races", "first_paid", "received")
"The attributes of a stream's state, in addition to its name and its state in the tables."

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
        "Items that the peer may still send."
        self.received = 0
        "Items that the peer has sent."
        self.allowed = 0
        "Items that this side may still send; 0 before the peer's first grant (R-25)."
        self.sent = 0
        "Items that this side has sent. The request of a channel counts as one, any other request does not count."
        self.columnar = False
        self.hot = 0
        """The word of plain items that may take the short path: the stream receives, no item is being reassembled, and
        the peer has credit for one more. 0: no item may."""
        self.answering = False
        "The answer may take the short path: this side sent the request, and no fragment has arrived."
        self.late = 0
        "Frames that may be in flight since this side canceled; they are free."
        self.races = 0
        "Cancels that came for a half that had ended."
        self.ended = False
        "The peer has failed or canceled the whole stream, and can send nothing more."
        self.endless = False
        "A subscription: it does not complete."
        self.first_paid = verb != "channel" or role.requester
        "The application's demand has been reduced by the first item of a channel (D-8)."

    def state_of(self) -> list[Any]:
        """The state that ``of_state`` reads."""
        return [self.id, self.verb, self.requester, int(self.state), *(getattr(self, name) for name in _COUNTED)]

    @classmethod
    def of_state(cls, state: list[Any], member: Member) -> Stream:
        """Restore a stream from its state; ``rate`` must follow."""
        id, verb, requester, standing, *counted = state
        stream = cls(id, verb, member.requester if requester else member.responder)
        stream.state = StreamState(standing)
        for name, value in zip(_COUNTED, counted, strict=False):  # files of earlier versions have fewer
            setattr(stream, name, value)
        return stream

    def rate(self, reassembling: bool) -> None:
        """Compute ``hot`` and ``answering`` from the state."""
        ready = self.owed > 0 and not reassembling and self.state in _RECEIVING
        self.hot = self.role.takes if ready and self.verb != "request" else 0
        self.answering = ready and self.verb == "request"
