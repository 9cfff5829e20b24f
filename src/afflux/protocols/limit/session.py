"""Record one session at one side: its steps, its credit, and what its application has finished."""

from __future__ import annotations

from typing import Any

from afflux.core.credit import SATURATED, Credit, StreamStatus
from afflux.core.events import Items
from afflux.core.payload import Payload
from afflux.protocols.limit.states import SessionState
from afflux.protocols.limit.steps import Steps, Turn

__all__ = ["Session"]

_S = SessionState
_SENDS = (_S.SENDING, _S.FREE)
_RECEIVES = (_S.RECEIVING, _S.FREE)


class Session:
    """State of one session.

    The wire has no credit: a side may send while the type says so. ``to_send`` is therefore unbounded, and
    ``to_receive`` is what the application here has asked for; messages beyond it stay in the receive buffer, and this
    side stops reading (D-16).
    """

    __slots__ = (
        "_opening",
        "batch",
        "early",
        "early_bytes",
        "end_due",
        "inbound_over",
        "last",
        "outbound_over",
        "sent_before",
        "state",
        "steps",
        "stream",
        "to_receive",
        "to_send",
        "turn",
        "unwanted",
    )

    def __init__(self, stream: int, steps: Steps, *, opening: bool, sent_before: int, end_due: bool) -> None:
        self.stream = stream
        "The application's number: sessions are counted from 1."
        self.steps = steps
        self.state = _S.START
        self.turn: Turn | None = None
        "The turn that the state reflects."
        self.to_send = Credit(SATURATED)
        self.to_receive = Credit()
        self._opening = opening
        "The payload of SETUP is the first item here; it is part of the first grant (D-16)."
        self.inbound_over = False
        "The application knows that no more items come."
        self.outbound_over = False
        "The application has nothing more to send."
        self.unwanted = False
        "The application has canceled the peer's items: they are checked and dropped."
        self.sent_before = sent_before
        "The id of the last message that this side sent in a former session; 0 for none."
        self.end_due = end_due
        "END of the former session may still come."
        self.early: list[Payload] = []
        "Payloads of a Plain channel that wait for this side's turn."
        self.early_bytes = 0
        self.batch: list[Payload] | None = None
        "The items of the newest event."
        self.last: Items | None = None
        "The newest event with items, to which more are added if no other followed it."

    def complete_outbound(self) -> None:
        """The application has nothing more to send."""
        self.outbound_over = True
        self.to_send.available = 0

    def add(self, events: list[Any], items: list[Payload]) -> None:
        """Add items to the events of a pass. The list is theirs."""
        if self.batch is not None and events and events[-1] is self.last:
            self.batch += items
        else:
            self.batch = items
            self.last = Items(self.stream, self.batch)
            events.append(self.last)

    def grant(self, n: int) -> None:
        """The application asks for ``n`` more items."""
        if self._opening and n > 0:
            self._opening = False
            n -= 1
        self.to_receive.add(n)

    @property
    def takes_runs(self) -> bool:
        """Whether consecutive values of the peer are taken together."""
        steps = self.steps
        return (steps.opaque or steps.runs is not None) and self.state in _RECEIVES and not self.unwanted

    @property
    def sends_runs(self) -> bool:
        """Whether consecutive values of this side are taken together."""
        steps = self.steps
        return (steps.opaque or steps.runs is not None) and self.state in _SENDS and not self.outbound_over

    @property
    def holds(self) -> bool:
        """Whether messages of the peer wait for the application."""
        return self.to_receive.available == 0 and self.state in _RECEIVES and not self.unwanted

    def status(self, client: bool, room: int, reads: bool) -> StreamStatus:
        """Return the status. ``room`` bytes may be queued; ``reads`` is False if the memory budget is used up."""
        bounds = []
        if self.state in _SENDS:
            bounds.append(self.to_send.sending(queued=0, room=room))
        if self.state in _RECEIVES:
            bounds.append(self.to_receive.receiving(memory=reads))
        return StreamStatus.of(
            self.stream,
            "channel",
            self.state.name,
            requester=client,
            to_send=self.to_send,
            to_receive=self.to_receive,
            bounds=bounds,
            queued=self.early_bytes,
        )
