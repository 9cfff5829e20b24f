"""Rations: how much the peer may still send on each session, when it gets more, and what all of it can cost.

The books. Each id has a reservation, the initial ration: whoever opens a session can count on it. What a session may
hold beyond it (``extra``), what is left of it after its id is free, and payloads that were handed over and not
consumed, is ``spent`` of one purse. The purse is what C leaves beside the reservations, so everything together stays
within ``connection_bytes`` (FC-18). A ration that was given can not be taken back, so growth is given with care (D-16):

1. Sessions of bytes grow while their reader keeps up, and shrink again as they are read when memory is tight.
2. A session that is told whole asks for more when half of its ration is used, and has to get it when all of it is. Who
   can not get it now waits, in the order of asking; its peer waits as well. Nothing is ended for lack of memory.
3. A grant has to be safe: afterwards the session that holds most could still become a payload of the greatest size
   (``largest``) with what nobody holds. So what all the others hold together is at most the ``slack``: what the purse
   leaves beside one such payload. The one that holds most may always go on; it ends, its memory is free, and the next
   one goes on. Hence no waiting for each other, whatever the sizes and the order (the banker's algorithm, with one
   claim for all).
4. A session that has ration and sends nothing, while others wait, stands still: after ``PATIENCE_S`` it is passed over.
   What it holds is counted out until it goes on; where the rest is not enough for the greatest payload, one session at
   a time may take all of it, and the others get a little, up to half of it together.
5. What is wrong with 4 is that those who stood still go on: two that are larger than the rest could then wait for each
   other. When nothing has moved for ``session_stall_s`` and somebody waits, sessions.py ends one of them.
6. A peer may give up a session that gets no ration (``session_stall_s``): who waits for long gets a byte from time to
   time.

So many large payloads take turns, and small ones need none. More of them move at a time with more ``connection_bytes``,
or fewer or smaller rations: the slack is C - ``payload_bytes`` - (``sessions`` - 1) x ``ration_bytes``.
"""

from __future__ import annotations

from afflux.core.limits import Limits
from afflux.protocols.jmux.session import SOON, Account, Session

__all__ = ["LARGEST_RATION", "MOST_OFFERED", "PATIENCE_S", "Rations"]

LARGEST_RATION = 0x7FFFFFFF
"The most that a ration may come to (R-35)."
MOST_OFFERED = 0xFFFF00
"The most that a header can offer (R-5)."
PATIENCE_S = 1.0
"Seconds that others wait for a session that could send and does not."
_STEP = 256
_COMFORTS = 32
"Bytes for each session that are kept back: see 6."
_WORTH_IT = 1024
"A grant of less is not worth a message, if more is wanted."


class Rations:
    """The inbound rations of one connection. ``assembles``: some of its sessions are told whole."""

    __slots__ = (
        "_comforts",
        "_goal",
        "_growing",
        "_most",
        "_passed",
        "assembles",
        "changed",
        "delivered",
        "initial",
        "largest",
        "purse",
        "spent",
        "waiting",
    )

    def __init__(self, limits: Limits, sessions: int, assembles: bool) -> None:
        self._comforts = sessions * _COMFORTS
        beside = limits.connection_bytes - limits.payload_bytes - _STEP - self._comforts
        fitting = beside // max(1, sessions - 1) // _STEP * _STEP
        self.initial = max(_STEP, min(limits.ration_bytes, MOST_OFFERED, fitting))
        "What each new session begins with: a multiple of 256, never 0 (R-5, D-2); small enough for ``largest``."
        self._most = max(limits.ration_max_bytes, self.initial)
        self.purse = max(0, limits.connection_bytes - sessions * self.initial)
        self.largest = min(limits.payload_bytes + _STEP, self.initial + max(0, self.purse - self._comforts))
        "What a session that is told whole may come to: a little more than a payload, so that one too large is seen."
        self._goal = self.largest - self.initial
        self.assembles = assembles
        self.spent = 0
        self.delivered = 0
        "Bytes of payloads that were handed over and not consumed; part of ``spent``."
        self.changed = False
        "Something is different: ``grants`` may find more than the last time."
        self._growing: dict[Session, None] = {}
        "Sessions that are told whole and have got more than the initial ration."
        self._passed: set[Session] = set()
        "Those of them that stand still, and for which the others do not wait any more."
        self.waiting: dict[Session, None] = {}
        "Those that have asked for more and not got it, in order."

    @property
    def overdrawn(self) -> bool:
        """Whether no session should be taken on."""
        return self.spent > self.purse

    # -- sessions of bytes ------------------------------------------------------------------------------------

    def refill(self, session: Session) -> int:
        """A session of bytes was read: how much to add to its ration now. 0 while more than half of it is left or waits
        to be read, else up to the target (R-37, R-38)."""
        ration, account = session.to_receive, session.account
        have = ration.available + session.unread
        target = self.initial if account is None else account.target
        if 2 * have > target:
            return 0
        allowance = self.purse - self._comforts - self._goal if self.assembles else self.purse
        if self.blocked or self.spent > allowance:
            target = self.initial
        elif not session.unread:
            larger = min(2 * target, max(self._most, target))
            if self.spent + larger - target <= allowance:
                target = larger
        more = max(0, target - have)
        extra = max(0, have + more - self.initial)
        if extra or account is not None or target > self.initial:
            self._account(session).target = target
            self._hold(session, extra)
        ration.add(more)
        return more

    # -- sessions that are told whole ---------------------------------------------------------------------------

    def ask(self, session: Session, moved: float | None) -> None:
        """More of a payload has come, at ``moved`` if it was worth it: let the session wait for more ration if half of
        it is used (R-37, R-38)."""
        account, ration = self._account(session), session.to_receive
        if moved is not None:
            account.moved = moved
        self._passed.discard(session)
        if 2 * ration.available <= account.target and ration.available + session.unread < self.largest:
            self.waiting[session] = None
            self.changed = True

    @property
    def blocked(self) -> bool:
        """Whether somebody can not go on without more."""
        return any(not session.to_receive.available for session in self.waiting)

    def grants(self) -> list[tuple[Session, int]]:
        """What can be given now, the first who asked first: sessions, and how much each of them gets."""
        self.changed = False
        given: list[tuple[Session, int]] = []
        blocked = False
        top = max((session for session in self._growing if session not in self._passed), key=_extra, default=None)
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
        self.spent += more
        self._growing[session] = None

    def _fitting(self, session: Session, account: Account) -> int:
        """How much of what a session wants it can get; 0 for too little to be of use."""
        active = passed = top = 0
        for other in self._growing:
            extra = _extra(other)
            if other in self._passed:
                passed += extra
            elif other is not session:
                active += extra
                top = max(top, extra)
        own, ration = account.extra, session.to_receive.available
        purse = self.purse - self._comforts
        rest = purse - passed - (self.spent - self.delivered - passed - active - own)
        tight = rest < self._goal
        slack = max(0, rest) // 2 if tight else rest - self._goal
        leads = active <= (0 if tight else slack) or own >= top
        if ration and not (own and leads) and (active or passed or own):
            return 0  # it can wait until it has to get more
        target = min(2 * account.target, max(self._most, account.target))
        if not own:
            target = min(target, max(ration + _WORTH_IT, ration + slack))
        wanted = min(target - ration, self.largest - ration - session.unread)
        if passed:  # more of them may stand still: begin with little
            wanted = min(wanted, max(self.initial // 4, own))
        more = min(wanted, purse - self.spent)
        if not leads:
            more = min(more, slack - (active + own - top))
            if tight:
                more = min(more, self.initial // 2 - own)
        if more < min(wanted, _WORTH_IT):
            return 0
        account.target = max(account.target, target)
        return more

    def pass_over(self, now: float) -> bool:
        """Count out those that have ration and have sent nothing for a while; whether there are any new ones."""
        found = [
            session
            for session in self._growing
            if session.to_receive.available and session not in self._passed and self._still(session, now, PATIENCE_S)
        ]
        for session in found:
            self._passed.add(session)
            self.changed = True
            self.waiting.pop(session, None)
        return bool(found)

    def comfort(self, now: float, seconds: float) -> list[Session]:
        """A byte more for each that has waited for so long, so that its peer does not give it up."""
        found = [
            session
            for session in self.waiting
            if not session.to_receive.available and self._still(session, now, seconds)
        ]
        found = found[: max(0, self.purse - self.spent)]
        for session in found:
            self._give(session, 1)
            self._account(session).moved = now
        return found

    def stuck(self) -> list[tuple[Session, str]]:
        """Which session to end when nothing moves any more, and why: the one that stands still with most, else the
        newest of those that wait."""
        standing = sorted((session for session in self._growing if session in self._passed), key=_extra)
        if standing:
            return [(standing[-1], "session-stall")]
        return [(session, "buffer-full") for session in sorted(self.waiting, key=_number)[-1:]]

    def _still(self, session: Session, now: float, seconds: float) -> bool:
        return now >= self._account(session).moved + seconds

    def _account(self, session: Session) -> Account:
        account = session.account
        if account is None:
            account = session.account = Account(self.initial)
        return account

    def deliver(self, session: Session, size: int) -> None:
        """A whole payload was handed over."""
        self.release(session)
        self.delivered += size
        self.spent += size

    def consumed(self, size: int) -> None:
        """The application has taken payloads."""
        size = min(size, self.delivered)
        self.delivered -= size
        self.spent -= size
        self.changed = self.changed or bool(self.waiting)

    # -- endings ------------------------------------------------------------------------------------------------

    def left_over(self, session: Session) -> None:
        """The reservation goes to another: what is still unread is paid for."""
        if session.inbox or session.account is not None:
            self._hold(session, session.unread)

    def shrink(self, session: Session) -> None:
        """Some of what is left was read, and nothing more will come."""
        if session.account is not None:
            self._hold(session, min(session.account.extra, session.unread))

    def release(self, session: Session) -> None:
        """Nothing of it is left."""
        if session.account is not None:
            self._hold(session, 0)
            self.waiting.pop(session, None)
            self._growing.pop(session, None)
            self._passed.discard(session)

    def let_go(self) -> None:
        """The connection is over."""
        self.waiting.clear()
        self._growing.clear()
        self._passed.clear()

    def _hold(self, session: Session, extra: int) -> None:
        """Enter what a session holds beyond its initial ration; a session without an account has held nothing."""
        account = self._account(session)
        self.changed = True
        self.spent += extra - account.extra
        account.extra = extra


def _extra(session: Session) -> int:
    return 0 if session.account is None else session.account.extra


def _number(session: Session) -> int:
    return session.stream
