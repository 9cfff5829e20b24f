"""What is known of one session. What happens to it is decided in sessions.py, client.py and server.py."""

from __future__ import annotations

from collections import deque

from afflux.core.credit import Credit
from afflux.protocols.jmux.states import SessionState

__all__ = ["SOON", "Session"]

SOON = -1.0
"A time that is still to be filled in: verbs do not know what time it is, the next look of the engine does."


class Session:
    """One session, from its opening until nobody can say anything about it any more."""

    __slots__ = (
        "ack_asked",
        "ack_given",
        "ack_since",
        "ack_told",
        "ack_wanted",
        "auto_ack",
        "blocked",
        "chunks",
        "declined",
        "dropping",
        "entered",
        "extra",
        "finishing",
        "hungry",
        "id",
        "in_done",
        "in_ring",
        "inbox",
        "moved",
        "offset",
        "out_done",
        "over",
        "passed",
        "ready",
        "since",
        "state",
        "stream",
        "target",
        "to_receive",
        "to_send",
        "waiting",
        "whole",
        "written",
    )

    # long: a line for each of its fields, and what it is
    def __init__(self, stream: int, whole: bool, outbound: int, inbound: int) -> None:
        self.stream = stream
        "Its number at this engine: it never comes twice, as ids do."
        self.id = -1
        "Its id on the wire; below 0 while it waits for one, and at a client again when it has given it back."
        self.state = SessionState.FREE
        self.whole = whole
        "The application is told of it when the request or the response is whole."
        # What this side sends.
        self.to_send = Credit(outbound)
        "The outbound ration."
        self.chunks: deque[bytes | memoryview] | None = None
        self.offset = 0
        "Bytes of the first chunk that are gone."
        self.waiting = 0
        "Bytes in ``chunks`` that are not gone."
        self.ready = 0
        "How many of them the ration allows, as far as outbound.py has counted."
        self.in_ring = False
        self.hungry = False
        "The application has more to write than the ration allows, and waits."
        self.finishing = False
        "The application has finished: eof goes with the last byte."
        self.ack_wanted = False
        "Server: ask for an Acknowledgment with eof."
        self.written = False
        "Its first message has left: from now on nobody knows what the server has seen of it."
        self.out_done = False
        "Nothing more can be sent: eof has left, or nobody wants it."
        # What it receives.
        self.to_receive = Credit(inbound)
        "The inbound ration."
        self.target = inbound
        "What the inbound ration is filled up to."
        self.extra = 0
        "Bytes that it may hold beyond the initial ration, or that are left of it: in the books of budget.py."
        self.moved = 0.0
        "When it last got ration or Data, if it is told whole."
        self.passed = False
        "It stands still, and others do not wait for it any more: see budget.py."
        self.inbox: bytearray | None = None
        "What has arrived and was not read; of a session that is told whole, its payload so far."
        self.in_done = False
        "The peer's eof has come."
        self.dropping = False
        "Server: nobody wants the rest of the request."
        # What the application knows.
        self.entered = False
        "The application knows it: a handler may run, and may have done something."
        self.over = False
        "It has failed, or the application has given it up."
        # Acknowledgement, and times.
        self.auto_ack = True
        "Client: give it when the response was read to its end."
        self.ack_asked = False
        "The server's ackRequired has been sent, or has come."
        self.ack_given = False
        "The Acknowledgment has come, or has been sent."
        self.ack_told = False
        "Server: the application knows what became of it."
        self.declined = False
        "Client: the application has left without giving it; the server hears that when the request has left."
        self.since: float | None = None
        "When the peer last did what the session waits for; None when it waits for nothing."
        self.blocked: float | None = None
        "Since when data waits for ration."
        self.ack_since: float | None = None
        "Since when the Acknowledgment is missing."

    @property
    def unread(self) -> int:
        """Bytes in the inbox."""
        return len(self.inbox) if self.inbox else 0

    @property
    def ack_owed(self) -> bool:
        """An Acknowledgment was asked for and has not been given."""
        return self.ack_asked and not self.ack_given

    def put(self, data: bytes) -> None:
        """Let bytes wait for their turn."""
        if not data:
            return
        if self.chunks is None:
            self.chunks = deque((data,))
        else:
            self.chunks.append(data)
        self.waiting += len(data)

    def take(self, size: int, into: list[bytes | memoryview]) -> None:
        """Move the next ``size`` bytes, which are there, to the end of ``into``."""
        chunks = self.chunks
        self.waiting -= size
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
        """Forget what waits."""
        self.chunks = None
        self.offset = self.waiting = 0
