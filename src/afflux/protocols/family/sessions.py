"""List the sessions of a server that wait for their client, by token.

A session is the engine of a connection with resumption (resuming.py). The drivers look one up and end those that are
crowded out.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING

from afflux.core.limits import Limits
from afflux.protocols.family.states import ConnectionState

if TYPE_CHECKING:
    from afflux.protocols.family.connection import Connection
    from afflux.protocols.family.resuming import Resuming

__all__ = ["Sessions"]


class Sessions:
    """The resumable sessions of one server, by token. Nothing stored reveals a token (RE-13).

    No method iterates over all sessions: a thousand simultaneous losses of transports cost a thousand steps.
    """

    def __init__(self, limits: Limits, *, asks: bool = False) -> None:
        self._limits = limits
        self.asks = asks
        """A request for a missing session is an event as well: Resuming without a session, for the driver to refuse it
        after a delay of its own (RE-13)."""
        self._sessions: dict[bytes, Connection] = {}
        self._away: OrderedDict[bytes, Connection] = OrderedDict()
        "Sessions that have lost their transport, the longest away first; some may have been resumed since."
        self.size = 0
        "The total size of all sessions when they were last weighed."

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def full(self) -> bool:
        """Whether the number of sessions is at its limit, and none of them is away."""
        return len(self._sessions) >= self._limits.resume_sessions and self._longest_away() is None

    def find(self, token: bytes) -> Connection | None:
        """Return the session of a token. The duration reveals nothing of the token: digests are compared."""
        wanted = sha256(token).digest()
        session = self._sessions.get(wanted)
        if session is None or not compare_digest(wanted, _digest(session)):
            return None
        return session

    def add(self, session: Connection) -> None:
        """Add a session. Call ``crowd_out`` soon after."""
        self._sessions[_digest(session)] = session
        _part_of(session).weight = 0

    def remove(self, session: Connection) -> None:
        """Remove a session that has ended."""
        part = _part_of(session)
        if part.weight is not None:
            self.size -= part.weight
            part.weight = None
            del self._sessions[_digest(session)]
            self._away.pop(_digest(session), None)

    def away(self, session: Connection) -> None:
        """Record that the session has lost its transport, now the last of all that are away. Call ``crowd_out``
        soon."""
        if _part_of(session).weight is not None:
            self._away[_digest(session)] = session
            self._away.move_to_end(_digest(session))

    def weigh(self, session: Connection) -> None:
        """Update the total after the size of a session has changed."""
        part = _part_of(session)
        if part.weight is not None:
            size = part.size + session.scheduler.size + session.stream_table.reassembly.size
            self.size += size - part.weight
            part.weight = size

    def crowd_out(self) -> list[Connection]:
        """Remove the disconnected sessions beyond ``resume_sessions`` and ``resume_process_bytes``, the longest away
        first (RE-18). The caller ends them."""
        limits = self._limits
        gone: list[Connection] = []
        while len(self._sessions) > limits.resume_sessions or self.size > limits.resume_process_bytes:
            session = self._longest_away()
            if session is None:
                break
            self.remove(session)
            gone.append(session)
        return gone

    def _longest_away(self) -> Connection | None:
        while self._away:
            session = next(iter(self._away.values()))
            if session.state is ConnectionState.SUSPENDED:
                return session
            del self._away[_digest(session)]
        return None


def _part_of(session: Connection) -> Resuming:
    return session.resuming  # type: ignore[return-value]  # a session has one


def _digest(session: Connection) -> bytes:
    """Return the key of a session, which does not reveal its token."""
    return sha256(session.setup.token or b"").digest()
