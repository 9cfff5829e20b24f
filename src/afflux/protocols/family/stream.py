"""Store the state of one live stream: its state in the tables, its credit, and the items that it still expects."""

from __future__ import annotations

from typing import Any

from afflux.core.credit import Credit
from afflux.core.events import Verb
from afflux.protocols.family.member import Member, Role
from afflux.protocols.family.states import StreamState

__all__ = ["Stream"]

_ONE, _NONE = Credit(1), Credit()
"The credit of every request: its only item ends it, so nothing is counted and the objects are shared."

_IDLE, _RECEIVING = StreamState.IDLE, (StreamState.OPEN, StreamState.OUT_DONE)


class Stream:
    """The state of one live stream."""

    __slots__ = (
        "answering",
        "columnar",
        "ended",
        "endless",
        "first_paid",
        "hot",
        "id",
        "late",
        "races",
        "requester",
        "role",
        "state",
        "to_receive",
        "to_send",
        "verb",
    )

    def __init__(self, id: int, verb: Verb, role: Role, to_receive: int = 0, to_send: int = 0) -> None:
        self.id = id
        self.verb: Verb = verb
        self.role = role
        self.requester = requester = role.requester
        self.state = _IDLE
        request = verb == "request"
        self.to_receive = Credit(to_receive) if not request else _ONE if requester else _NONE
        "The credit of the peer, in items."
        self.to_send = Credit(to_send) if not request else _NONE if requester else _ONE
        """The credit of this side, in items; 0 before the peer's first grant (R-25). The request of a channel counts as
        one item, any other request does not count."""
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
        self.first_paid = requester or verb != "channel"
        "The application's demand has been reduced by the first item of a channel (D-8)."

    def state_of(self) -> list[Any]:
        """The state that ``of_state`` reads."""
        to_receive, to_send = self.to_receive, self.to_send
        counted = [to_receive.available, to_send.available, to_send.used]
        counted += [self.columnar, self.late, self.races, self.first_paid, to_receive.used]
        return [self.id, self.verb, self.requester, int(self.state), *counted]

    @classmethod
    def of_state(cls, state: list[Any], member: Member) -> Stream:
        """Restore a stream from its state; ``rate`` must follow."""
        id, verb, requester, standing, to_receive, to_send, sent, columnar, late, races, first_paid, *received = state
        stream = cls(id, verb, member.requester if requester else member.responder, to_receive, to_send)
        stream.state = StreamState(standing)
        stream.columnar, stream.late, stream.races, stream.first_paid = columnar, late, races, first_paid
        if verb != "request":
            stream.to_send.used = sent
            stream.to_receive.used = received[0] if received else 0  # files of earlier versions have none
        return stream

    def rate(self, reassembling: bool) -> None:
        """Compute ``hot`` and ``answering`` from the state."""
        ready = self.to_receive.available > 0 and not reassembling and self.state in _RECEIVING
        self.hot = self.role.takes if ready and self.verb != "request" else 0
        self.answering = ready and self.verb == "request"
