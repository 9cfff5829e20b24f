"""Check the timeouts of one connection: handshake, unfinished messages and elements, idleness, the answer to goodbye.

Time during which this side does not read does not count for the peer's timeouts.
"""

from __future__ import annotations

from afflux.core.errors import Violation
from afflux.core.limits import REASONS
from afflux.protocols.rsio.farewell import Farewell
from afflux.protocols.rsio.inbound import Inbound
from afflux.protocols.rsio.publications import Publications
from afflux.protocols.rsio.shared import Shared
from afflux.protocols.rsio.states import ConnectionInput, ConnectionState
from afflux.protocols.rsio.subscriptions import Subscriptions

__all__ = ["Clock"]

_S, _I = ConnectionState, ConnectionInput
_UNDECIDED = (_S.WAIT, _S.LEAVING, _S.DECIDING)
_ENDING = (_S.CLOSING, _S.FINISHING)


class Clock:
    """Check the timeouts of one connection."""

    __slots__ = ("_born", "_farewell", "_idle_s", "_in", "_publications", "_shared", "_subscriptions", "idle_since")

    def __init__(
        self,
        shared: Shared,
        client: bool,
        inbound: Inbound,
        subscriptions: Subscriptions,
        publications: Publications,
        farewell: Farewell,
    ) -> None:
        self._shared = shared
        self._in = inbound
        self._subscriptions = subscriptions
        self._publications = publications
        self._farewell = farewell
        self._idle_s = None if client else shared.limits.idle_s
        "Seconds after which a server ends an idle client."
        self._born = shared.now
        self.idle_since: float | None = shared.now
        "Time since which nothing is live and nothing arrived; None while a subscription is live."

    @property
    def live(self) -> bool:
        """Whether a subscription of either side is live."""
        return bool(self._subscriptions.live or self._publications.live)

    def hold(self, now: float) -> None:
        """Restart the timeouts: this side did not read until ``now``."""
        if self.idle_since is not None:
            self.idle_since = now
        self._in.hold(now)
        self._subscriptions.parts.hold(now)

    @property
    def due(self) -> float | None:
        """When ``look`` is next needed, in a state that is not CLOSED."""
        shared, limits = self._shared, self._shared.limits
        if shared.state in _UNDECIDED:
            return self._born + limits.handshake_s
        if shared.state in _ENDING:
            return self._farewell.reply_by
        times = []
        if not self.live:
            if self.idle_since is None:
                return shared.now  # the next look detects that nothing is live any more
            if self._idle_s is not None:
                times.append(self.idle_since + self._idle_s)
        if self._in.incomplete_since is not None:
            times.append(self._in.incomplete_since + limits.frame_s)
        if oldest := self._subscriptions.parts.oldest():
            times.append(oldest[1] + limits.reassembly_s)
        return min(times, default=None)

    def look(self) -> tuple[ConnectionInput, Violation | None] | None:
        """Return the input of a timeout for the connection's table; end elements that were not completed in time.

        Raises:
            Violation: a message has been unfinished for too long.
        """
        shared, limits = self._shared, self._shared.limits
        now = shared.now
        if self.idle_since is None and not self.live:
            self.idle_since = now  # idle since this check, or slightly longer
        due = self.due
        if due is None or now < due:
            return None
        if shared.state in _UNDECIDED:
            return _I.SILENT, Violation(REASONS["handshake_s"], rule="handshake_s")
        if shared.state is _S.FINISHING and shared.out.size:
            self._farewell.wait()  # what the last subscriptions have queued precedes it
            return None
        if shared.state in _ENDING:
            return _I.REPLY_LATE, None
        since = self._in.incomplete_since
        if since is not None and now >= since + limits.frame_s:
            raise Violation(REASONS["frame_s"], rule="frame_s")
        self._subscriptions.expire(now)
        idle = None if self._idle_s is None or self.idle_since is None else self.idle_since + self._idle_s
        if idle is not None and now >= idle and not self.live:
            return _I.APP_CLOSE, Violation(REASONS["idle_s"], rule="idle_s")
        return None
