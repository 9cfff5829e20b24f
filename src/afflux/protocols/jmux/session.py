"""Describe one session: its states, its credit in both directions, its queue and its timers.

client.py and server.py, and the tables of states.py and halves.py, decide what happens to a session.
"""

from __future__ import annotations

from collections import deque

from afflux.core.credit import SATURATED, Credit
from afflux.protocols.jmux import halves
from afflux.protocols.jmux.halves import ACKNOWLEDGEMENT, HANDLER, INBOUND, OUTBOUND
from afflux.protocols.jmux.states import SessionState

__all__ = ["SOON", "Account", "Session"]

SOON = -1.0
"A time that is not set yet: verbs have no clock, so the engine's next pass sets it."

_FREE = SessionState.FREE
_NEW, _WANTED, _NO_ACK, _UNKNOWN = OUTBOUND.start, INBOUND.start, ACKNOWLEDGEMENT.start, HANDLER.start


class Account:
    """Account of a session in budget.py; a session within its initial ration has none."""

    __slots__ = ("extra", "moved", "target")

    def __init__(self, target: int) -> None:
        self.target = target
        "Size up to which the inbound ration is filled."
        self.extra = 0
        "Bytes that the session may buffer beyond the initial ration, or that are left of it."
        self.moved = 0.0
        "When it last got ration or Data, if it is delivered whole."


class Session:
    """State of one session, until neither side can send anything about it any more."""

    __slots__ = (
        "account",
        "ack",
        "ack_since",
        "auto_ack",
        "blocked",
        "chunks",
        "handler",
        "id",
        "inbound",
        "inbox",
        "offset",
        "outbound",
        "ready",
        "since",
        "state",
        "stream",
        "to_receive",
        "to_send",
        "waiting",
        "whole",
    )

    def __init__(self, stream: int, whole: bool, outbound: int, inbound: int) -> None:
        self.stream = stream
        "Its number at this engine, which is never reused."
        self.id = -1
        "Its id on the wire; below 0 while it waits for one."
        self.state = _FREE
        self.whole = whole
        "The application gets the request or the response only when it is whole."
        self.auto_ack = True
        "Client: acknowledge the response when it was read to its end."
        self.outbound = _NEW
        self.to_send = Credit(outbound)
        "The outbound ration."
        self.chunks: deque[bytes | memoryview] | None = None
        self.offset = 0
        "Bytes of the first chunk that have left."
        self.waiting = 0
        "Bytes in ``chunks`` that have not left."
        self.ready = 0
        "Bytes of them within the ration, as last counted by outbound.py."
        self.inbound = _WANTED
        self.to_receive = Credit(inbound)
        "The inbound ration."
        self.inbox: bytearray | None = None
        "Bytes that have arrived and were not read; of a session that is delivered whole, its payload so far."
        self.account: Account | None = None
        self.ack = _NO_ACK
        self.handler = _UNKNOWN
        self.since: float | None = None
        "Time of the peer's last progress; None if the session expects none."
        self.blocked: float | None = None
        "Time since which data waits for ration."
        self.ack_since: float | None = None
        "Time since which the Acknowledgment is outstanding."

    @property
    def unread(self) -> int:
        """Bytes in the inbox."""
        return len(self.inbox) if self.inbox else 0

    def out(self, input: halves.OutboundInput) -> None:
        """Apply a step of the outbound half."""
        self.outbound = OUTBOUND.steps[self.outbound][input].next

    def receive(self, input: halves.InboundInput) -> None:
        """Apply a step of the inbound half."""
        self.inbound = INBOUND.steps[self.inbound][input].next

    def acknowledge(self, input: halves.AckInput) -> halves.PartAction:
        """Apply a step of the acknowledgement."""
        self.ack, action, _ = ACKNOWLEDGEMENT.steps[self.ack][input]
        return action

    def handle(self, input: halves.HandlerInput) -> None:
        """Apply a step of the handler."""
        self.handler = HANDLER.steps[self.handler][input].next

    def start_clocks(self, now: float) -> None:
        """Set timers that were started since the last pass to ``now``."""
        if self.since == SOON:
            self.since = now
        if self.blocked == SOON:
            self.blocked = now
        if self.ack_since == SOON:
            self.ack_since = now
        if self.account is not None and self.account.moved == SOON:
            self.account.moved = now

    def take(self, size: int, into: list[bytes | memoryview]) -> None:
        """Move the next ``size`` bytes, queued and within the ration, to the end of ``into``: they leave."""
        chunks, credit = self.chunks, self.to_send
        self.waiting -= size
        self.ready -= size
        if credit.available != SATURATED:
            credit.available -= size
        credit.used += size
        while size:
            first = chunks[0]  # type: ignore[index]  # there are ``size`` bytes
            left = len(first) - self.offset
            if left <= size:
                into.append(first[self.offset :] if self.offset else first)
                chunks.popleft()  # type: ignore[union-attr]
                self.offset = 0
                size -= left
            else:
                if not isinstance(first, memoryview):
                    first = chunks[0] = memoryview(first)  # type: ignore[index]
                into.append(first[self.offset : self.offset + size])
                self.offset += size
                return

    def clear(self) -> None:
        """Drop the queued bytes."""
        self.chunks = None
        self.offset = self.waiting = 0
