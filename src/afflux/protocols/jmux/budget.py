"""Compute rations: how much the peer may still send on each session, when it gets more, and the memory bound on all.

Accounts. Each id has a reservation, the initial ration, which every new session can use. Three quantities are charged
to ``shared_used``: what a session has been granted beyond its reservation (``extra``), what is still unread after its
id is free, and payloads that were delivered and not consumed. ``shared_used`` is bounded by ``shared_limit``, which is
C minus the reservations, so the total stays within ``connection_bytes`` (FC-18). A granted ration cannot be revoked, so
growth is bounded (D-16):

1. Sessions of bytes grow while their reader keeps up, and shrink as they are read when memory is short.
2. A session that is delivered whole requests more when half of its ration is used, and needs it when all is used. A
   session that cannot get more waits, in FIFO order, and so does its peer. No session is ended for lack of memory.
3. A grant must be safe: afterwards the session with the largest ration can still grow to a payload of the greatest size
   (``largest``) with the unassigned memory. So all other sessions together hold at most the ``slack``: the shared limit
   minus one such payload. The largest session can always continue; it ends, its memory is free, and the next one
   continues. This excludes deadlock for every size and order (the banker's algorithm, with one claim for all).
4. A session that has ration and sends nothing while others wait is stalled: after ``STALLED_S`` it is passed over. Its
   memory is excluded until it continues; where the rest is too small for the greatest payload, one session at a time
   may take all of it, and the others get a little, up to half of it together.
5. Rule 4 alone can deadlock: if stalled sessions continue, two that exceed the rest may wait for each other. When
   nothing has moved for ``session_stall_s`` and a session waits, sessions.py ends one of them.
6. A peer may abort a session that gets no ration (``session_stall_s``), so a session that waits for long is granted one
   byte from time to time.

Large payloads therefore take turns, and small ones do not wait. More of them move concurrently with a larger
``connection_bytes``, or fewer or smaller rations: the slack is C - ``payload_bytes`` - (``sessions`` - 1) x
``ration_bytes``.
"""

from __future__ import annotations

from afflux.core.limits import Limits
from afflux.protocols.jmux.session import SOON, Account, Session

__all__ = ["LARGEST_RATION", "MOST_OFFERED", "STALLED_S", "Rations"]

LARGEST_RATION = 0x7FFFFFFF
"Greatest ration that a session may have (R-35)."
MOST_OFFERED = 0xFFFF00
"Greatest ration that a header can offer (R-5)."
STALLED_S = 1.0
"Seconds that others wait for a session that has ration and sends nothing."
_STEP = 256
_RESERVE = 32
"Reserved bytes for each session: see 6."
_MIN_GRANT = 1024
"A smaller grant is not worth a message, if more is requested."


class Rations:
    """Compute the inbound rations of one connection. ``assembles``: some of its sessions are delivered whole."""

    __slots__ = (
        "_goal",
        "_growing",
        "_most",
        "_reserved",
        "_stalled",
        "assembles",
        "changed",
        "delivered",
        "initial",
        "largest",
        "shared_limit",
        "shared_used",
        "waiting",
    )

    def __init__(self, limits: Limits, sessions: int, assembles: bool) -> None:
        self._reserved = sessions * _RESERVE
        unreserved = limits.connection_bytes - limits.payload_bytes - _STEP - self._reserved
        fitting = unreserved // max(1, sessions - 1) // _STEP * _STEP
        self.initial = max(_STEP, min(limits.ration_bytes, MOST_OFFERED, fitting))
        "Initial ration of a session: a multiple of 256, never 0 (R-5, D-2); small enough for ``largest``."
        self._most = max(limits.ration_max_bytes, self.initial)
        self.shared_limit = max(0, limits.connection_bytes - sessions * self.initial)
        self.largest = min(limits.payload_bytes + _STEP, self.initial + max(0, self.shared_limit - self._reserved))
        "Bound on a session that is delivered whole: slightly above a payload, so that an oversized one is detected."
        self._goal = self.largest - self.initial
        self.assembles = assembles
        self.shared_used = 0
        self.delivered = 0
        "Bytes of payloads that were delivered and not consumed; part of ``shared_used``."
        self.changed = False
        "True when ``grants`` may find more than at the last call."
        self._growing: dict[Session, None] = {}
        "Sessions delivered whole that have more than the initial ration."
        self._stalled: set[Session] = set()
        "Those of them that are stalled; the others no longer wait for them."
        self.waiting: dict[Session, None] = {}
        "Sessions that requested more and have not got it, in FIFO order."

    @property
    def overdrawn(self) -> bool:
        """Whether new sessions must be refused."""
        return self.shared_used > self.shared_limit

    # -- sessions of bytes ------------------------------------------------------------------------------------

    def refill(self, session: Session) -> int:
        """Return how much to add to the ration of a session of bytes that was read: 0 while more than half of it is
        left or waits to be read, else up to the target (R-37, R-38)."""
        ration, account = session.to_receive, session.account
        have = ration.available + session.unread
        target = self.initial if account is None else account.target
        if 2 * have > target:
            return 0
        allowance = self.shared_limit - self._reserved - self._goal if self.assembles else self.shared_limit
        if (self.waiting and self.blocked) or self.shared_used > allowance:
            target = self.initial
        elif not session.unread:
            larger = min(2 * target, max(self._most, target))
            if self.shared_used + larger - target <= allowance:
                target = larger
        more = max(0, target - have)
        extra = max(0, have + more - self.initial)
        if extra or account is not None or target > self.initial:
            account = account or self._account(session)
            account.target = target
            self._hold(account, extra)
        ration.add(more)
        return more

    # -- sessions that are delivered whole ----------------------------------------------------------------------

    def ask(self, session: Session, moved: float | None) -> None:
        """Account for more of a payload, which arrived at ``moved`` if it was substantial: the session waits for more
        ration if half of it is used (R-37, R-38)."""
        account, ration = self._account(session), session.to_receive
        if moved is not None:
            account.moved = moved
        self._stalled.discard(session)
        if 2 * ration.available <= account.target and ration.available + session.unread < self.largest:
            self.waiting[session] = None
            self.changed = True

    @property
    def blocked(self) -> bool:
        """Whether a session cannot continue without more ration."""
        return any(not session.to_receive.available for session in self.waiting)

    def grants(self) -> list[tuple[Session, int]]:
        """Return what can be granted now, in FIFO order: sessions and the size of each grant."""
        self.changed = False
        given: list[tuple[Session, int]] = []
        blocked = False
        top = max((session for session in self._growing if session not in self._stalled), key=_extra, default=None)
        for session in list(self.waiting):
            if blocked and session is not top:
                continue
            more = self._fitting(session, self._account(session))
            if not more:
                blocked = blocked or not session.to_receive.available
                continue
            given.append((session, more))
            self._give(session, more)
            del self.waiting[session]
        return given

    def _give(self, session: Session, more: int) -> None:
        account = self._account(session)
        account.extra += more
        account.moved = SOON
        session.to_receive.add(more)
        self.shared_used += more
        self._growing[session] = None

    def _fitting(self, session: Session, account: Account) -> int:
        """Return how much of its request a session can get; 0 if that is too little to be useful."""
        active = stalled = top = 0
        for other in self._growing:
            extra = _extra(other)
            if other in self._stalled:
                stalled += extra
            elif other is not session:
                active += extra
                top = max(top, extra)
        own, ration = account.extra, session.to_receive.available
        usable = self.shared_limit - self._reserved
        rest = usable - stalled - (self.shared_used - self.delivered - stalled - active - own)
        tight = rest < self._goal
        slack = max(0, rest) // 2 if tight else rest - self._goal
        leads = active <= (0 if tight else slack) or own >= top
        if ration and not (own and leads) and (active or stalled or own):
            return 0  # it can wait until it needs more
        target = min(2 * account.target, max(self._most, account.target))
        if not own:
            target = min(target, max(ration + _MIN_GRANT, ration + slack))
        wanted = min(target - ration, self.largest - ration - session.unread)
        if stalled:  # more of them may stall: begin with little
            wanted = min(wanted, max(self.initial // 4, own))
        more = min(wanted, usable - self.shared_used)
        if not leads:
            more = min(more, slack - (active + own - top))
            if tight:
                more = min(more, self.initial // 2 - own)
        if more < min(wanted, _MIN_GRANT):
            return 0
        account.target = max(account.target, target)
        return more

    def pass_over(self, now: float) -> bool:
        """Exclude sessions that have ration and have sent nothing for a while; return whether there are new ones."""
        found = [
            session
            for session in self._growing
            if session.to_receive.available and session not in self._stalled and self._idle(session, now, STALLED_S)
        ]
        for session in found:
            self._stalled.add(session)
            self.changed = True
            self.waiting.pop(session, None)
        return bool(found)

    def sustain(self, now: float, seconds: float) -> list[Session]:
        """Return each session that has waited for ``seconds``: a grant of one byte prevents its peer from aborting
        it."""
        found = [
            session
            for session in self.waiting
            if not session.to_receive.available and self._idle(session, now, seconds)
        ]
        found = found[: max(0, self.shared_limit - self.shared_used)]
        for session in found:
            self._give(session, 1)
            self._account(session).moved = now
        return found

    def stuck(self) -> list[tuple[Session, str]]:
        """Return the session to end when nothing moves any more, and the reason: the largest stalled session, else the
        newest waiting one."""
        stalled = sorted((session for session in self._growing if session in self._stalled), key=_extra)
        if stalled:
            return [(stalled[-1], "session-stall")]
        newest = sorted(self.waiting, key=lambda session: session.stream)[-1:]
        return [(session, "buffer-full") for session in newest]

    def _idle(self, session: Session, now: float, seconds: float) -> bool:
        return now >= self._account(session).moved + seconds

    def _account(self, session: Session) -> Account:
        account = session.account
        if account is None:
            account = session.account = Account(self.initial)
        return account

    def deliver(self, session: Session, size: int) -> None:
        """Account for a whole payload that was delivered."""
        self.release(session)
        self.delivered += size
        self.shared_used += size

    def consumed(self, size: int) -> None:
        """Account for payloads that the application has consumed."""
        size = min(size, self.delivered)
        self.delivered -= size
        self.shared_used -= size
        self.changed = self.changed or bool(self.waiting)

    # -- endings ------------------------------------------------------------------------------------------------

    def left_over(self, session: Session) -> None:
        """Pass the reservation on to another session; what is still unread is charged."""
        if session.inbox or session.account is not None:
            self._hold(self._account(session), session.unread)

    def shrink(self, session: Session) -> None:
        """Account for a read of what is left; nothing more will arrive."""
        if session.account is not None:
            self._hold(session.account, min(session.account.extra, session.unread))

    def release(self, session: Session) -> None:
        """Account for a session of which nothing is left."""
        if session.account is not None:
            self._hold(session.account, 0)
            self.waiting.pop(session, None)
            self._growing.pop(session, None)
            self._stalled.discard(session)

    def let_go(self) -> None:
        """Drop all accounts: the connection is over."""
        self.waiting.clear()
        self._growing.clear()
        self._stalled.clear()

    def _hold(self, account: Account, extra: int) -> None:
        """Record the ration of a session beyond its initial one."""
        self.changed = True
        self.shared_used += extra - account.extra
        account.extra = extra


def _extra(session: Session) -> int:
    return 0 if session.account is None else session.account.extra
