"""Buffer what arrives on sessions until the application reads it, then let the peer send more.

Input never waits for an application: unread bytes stay in their inbox, within their ration (R-40). budget.py decides
what may be granted.
"""

from __future__ import annotations

from math import inf

from afflux.core.events import Readable
from afflux.core.limits import REASONS, oversize
from afflux.protocols.jmux.budget import STALLED_S, Rations
from afflux.protocols.jmux.frames import increments
from afflux.protocols.jmux.halves import InboundInput, InboundState
from afflux.protocols.jmux.outbound import Outbound
from afflux.protocols.jmux.session import SOON, Session
from afflux.protocols.jmux.shared import Shared

__all__ = ["EMPTY", "Inboxes"]

EMPTY = 4
"Price of a message without effect: its header, counted as NoOperation."
_OPEN, _LAST = InboundState.OPEN, InboundInput.LAST


class Inboxes:
    """Buffer the unread bytes of the sessions of one connection."""

    __slots__ = ("_fed", "_out", "_shared", "check_at", "rations", "unread")

    def __init__(self, shared: Shared, out: Outbound, rations: Rations) -> None:
        self._shared = shared
        self._out = out
        self.rations = rations
        self.unread = 0
        "Bytes in the inboxes of all sessions."
        self.check_at = inf
        "When to check whether sessions that wait for ration wait for a stalled one; SOON: the next pass sets it."
        self._fed = 0.0
        "When a session that is delivered whole last received bytes."

    def arrive(self, session: Session, data: bytes, last: bool) -> bytes | str | None:
        """Accept bytes of a session (R-34); ``last`` with eof. Return the payload when a session that is delivered
        whole is complete, or a text: why the bytes cannot be stored."""
        size, credit = len(data), session.to_receive
        credit.available -= size
        credit.used += size
        wanted = session.inbound is _OPEN
        if last:
            session.receive(_LAST)
        if session.since is not None:
            session.since = self._shared.now
        if not data and not last:
            self._shared.waste(EMPTY)  # R-16, D-6: allowed, and no more
        elif not wanted:
            return None
        elif session.whole:
            return self._assemble(session, data, last)
        else:
            self._keep(session, data)
            self._report(session, size, last)
        return None

    def _keep(self, session: Session, data: bytes) -> None:
        self.unread += len(data)
        if session.inbox is None:
            session.inbox = bytearray(data)
        else:
            session.inbox += data

    def _report(self, session: Session, size: int, last: bool) -> None:
        """Report Readable: one event for consecutive arrivals."""
        events = self._shared.events
        before = events[-1] if events else None
        if isinstance(before, Readable) and before.stream == session.stream:
            size += before.size
            events.pop()
        events.append(Readable(session.stream, size, last))

    def _assemble(self, session: Session, data: bytes, last: bool) -> bytes | str | None:
        """Add bytes to a session that is delivered whole."""
        inbox, rations = session.inbox, self.rations
        size = len(data) if inbox is None else len(inbox) + len(data)
        limits = self._shared.limits
        if size > limits.payload_bytes:
            return oversize(limits, "payload_bytes", size, more=not last)
        if size >= rations.largest and not last:
            share = f"a session's share of connection_bytes={limits.connection_bytes}"
            return f"{REASONS['payload_bytes']}: more than {size} bytes exceed {share}"
        if not last:
            self._keep(session, data)
            worth = len(data) > 1
            if worth:
                self._fed = self._shared.now
            rations.ask(session, self._shared.now if worth else None)
            return None
        if inbox:
            self.unread -= len(inbox)
            inbox += data
            data = bytes(inbox)
        session.inbox = None
        rations.deliver(session, size)
        return data

    def read(self, session: Session, inbox: bytearray, limit: int | None, refills: bool) -> bytes:
        """Return bytes that have arrived, at most ``limit``; ``refills``: let the peer send more, if a refill is due
        (R-37, R-38)."""
        size = len(inbox) if limit is None else min(limit, len(inbox))
        data = bytes(inbox[:size])
        del inbox[:size]
        self.unread -= size
        if not refills:
            self.rations.shrink(session)
        elif more := self.rations.refill(session):
            self._out.control(increments(session.id, more))
        return data

    def discard(self, session: Session, data: bytes) -> None:
        """Count and drop what arrives after this side has ended the session (D-15, I-13, SI-19)."""
        session.to_receive.spend(len(data))
        if not data:
            self._shared.waste(EMPTY)

    def close(self, session: Session) -> None:
        """Drop unread bytes and what still arrives: they will not be read."""
        self.unread -= session.unread
        session.inbox = None
        self.rations.release(session)

    # -- sessions that wait for ration ----------------------------------------------------------------------

    def give(self) -> None:
        """Grant ration to the sessions that requested it, as far as memory allows; called before writing."""
        for session, more in self.rations.grants():
            self._out.control(increments(session.id, more))
            self._fed = self._shared.now
            self._shared.soon(session, STALLED_S)
        if not self.rations.blocked:
            self.check_at = inf
        elif self.check_at == inf:
            self.check_at = SOON

    def start_timers(self) -> None:
        """Start the timers that were set to SOON since the last pass."""
        self._shared.at(self._shared.now)
        if self.check_at == SOON:
            self.check_at = self._shared.now + STALLED_S

    @property
    def due_at(self) -> float:
        """When ``pass_over_stalled`` is next needed; a timer that is set to SOON does not count."""
        return inf if self.check_at == SOON else self.check_at

    def pass_over_stalled(self) -> list[tuple[Session, str]]:
        """Exclude stalled sessions, so that no other waits for them. Return those to end, and why."""
        shared = self._shared
        if shared.now < self.check_at:
            return []
        stall = shared.limits.session_stall_s
        self.check_at = shared.now + STALLED_S
        for session in self.rations.sustain(shared.now, stall / 4):
            self._out.control(increments(session.id, 1))
        if self.rations.pass_over(shared.now) or shared.now < self._fed + stall:
            return []
        self._fed = shared.now
        return self.rations.stuck()

    def let_go(self) -> None:
        """End the connection's accounts. What has arrived stays readable."""
        self.check_at = inf
        self.rations.let_go()
