"""Number the messages of one connection (3.3).

The number of a message is that of its sender's step; the receiver's step has the next number (R-14, R-20, D-2). It is
unique among those of its sender, and 0 is the connection (R-13). Each side
counts its own steps in ``own`` and the peer's in ``peer``, over all sessions of the connection (R-24). SETUP, END and
ERROR have no number (R-23, D-7).
"""

from __future__ import annotations

from typing import Final

from afflux.core.errors import LimitExceeded, Violation

__all__ = ["LARGEST_CLIENT", "LARGEST_SERVER", "Numbers", "Reused"]

LARGEST_CLIENT: Final = 0x7FFFFFFD
"The largest id of a client's message (R-22): the id of the server's step would not fit after a larger one (D-3)."
LARGEST_SERVER: Final = 0x7FFFFFFE
"The largest id of a server's message (R-22)."


class Reused(Violation):
    """A message with an id that is in use, where ids may be used again: the connection goes on (R-19, D-6)."""


class Numbers:
    """The numbers of one side.

    Args:
        client: which side this is.
        reuse: whether ids begin again after the largest (R-17).
    """

    __slots__ = (
        "_first",
        "_first_peer",
        "_heard_from",
        "_last_peer",
        "_sent_from",
        "heard",
        "last",
        "own",
        "peer",
        "reuse",
        "sent",
    )

    def __init__(self, client: bool, reuse: bool = False) -> None:
        self._first, self._first_peer = (1, 2) if client else (2, 1)
        self.last, self._last_peer = (LARGEST_CLIENT, LARGEST_SERVER) if client else (LARGEST_SERVER, LARGEST_CLIENT)
        "``last``: the largest id of this side."
        self.reuse = reuse
        self.own = self._first - 2
        "This side's last step."
        self.peer = self._first_peer - 2
        "The peer's last step."
        self.heard = 0
        "The id of the last message received; 0 before the first."
        self.sent = 0
        "The id of the last message sent; 0 before the first."
        self._sent_from = 0
        self._heard_from = 0

    def begin(self) -> None:
        """Begin a session: the ids of the former one are free."""
        self._sent_from = self._heard_from = 0

    def next(self) -> int:
        """Return the id of the next message of this side.

        Raises:
            LimitExceeded: all ids are used up (R-16), or those after the wrap are in use (R-17).
        """
        id = self.own + 2
        if id > self.last:
            if not self.reuse:
                raise LimitExceeded("all message ids are used up: open another connection", rule="R-16")
            id = self._first
        if id == self._sent_from:
            raise LimitExceeded("all message ids are in use by this session: open another connection", rule="R-17")
        return id

    def sends(self, id: int) -> None:
        """Record that this side has sent a message."""
        self.sent_to(id, id)

    def sent_to(self, first: int, id: int) -> None:
        """Record that this side has sent the messages from ``first`` to ``id``."""
        self.sent = self.own = id
        self.peer = id + 1
        self._sent_from = self._sent_from or first

    @property
    def expected(self) -> int:
        """The id of the peer's next message (R-21); 0 when it has used up its ids."""
        id = self.peer + 2
        return id if id <= self._last_peer else self._first_peer if self.reuse else 0

    @property
    def left(self) -> int:
        """How many messages the peer may still number without a wrap."""
        return (self._last_peer - self.peer) // 2

    def receives(self, id: int) -> None:
        """Record the id of a message of the peer.

        Raises:
            Reused: the id is in use, and ids may be used again.
            Violation: it is another id than the next.
        """
        expected = self.expected
        if id != expected or id == self._heard_from:
            if self.reuse and self._is_in_use(id):
                raise Reused(f"id {id} is in use", rule="R-19", stream=id)
            raise Violation(f"the next message has id {expected}, not {id}", rule="R-21")
        self.received(id, 1)

    def received(self, id: int, count: int) -> None:
        """Record ``count`` messages of the peer, of which ``id`` is the first and the expected one."""
        last = id + 2 * (count - 1)
        self.heard = self.peer = last
        self.own = last + 1
        self._heard_from = self._heard_from or id

    def _is_in_use(self, id: int) -> bool:
        first, last = self._heard_from, self.heard
        if not first or id % 2 != first % 2:
            return False
        return first <= id <= last if first <= last else id >= first or 0 < id <= last

    @property
    def answer(self) -> int:
        """The id of an ERROR about the last message received: one above it, or this side's first id (3.2)."""
        return self.heard + 1 if self.heard else self._first
