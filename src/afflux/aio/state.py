"""Share the state of one connection among the parts of its driver: engine and timer, transport, how far it has ended.

Parts refer to each other inward only: a driver to its parts, the parts to this state. ``driver`` is the only reference
that points outward. It is deleted when the connection has left, so that no garbage collector is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any

from afflux.aio.idle import Idle
from afflux.core.engine import Engine
from afflux.core.errors import ConnectionClosed, Error
from afflux.core.events import Event
from afflux.transports.clock import clock_of
from afflux.watching import HANDLERS, Watch, end_of

if TYPE_CHECKING:
    from afflux.aio.driver import Driver

__all__ = ["State"]


class State:
    """The shared state of one connection."""

    __deletable__ = ["driver"]  # noqa: RUF012 -- for mypyc, which requires a list

    __slots__ = (
        "_due",
        "_logged",
        "_timer",
        "_unlogged",
        "away",
        "driver",
        "engine",
        "error",
        "idle",
        "left",
        "loop",
        "lost",
        "now",
        "over",
        "scheduler",
        "transport",
        "watch",
    )

    def __init__(self, engine: Engine, driver: Driver, watch: Watch | None = None) -> None:
        self.engine = engine
        self.scheduler = engine.scheduler
        "Shares the connection among streams; None where the protocol has no scheduler."
        self.driver = driver
        "Receives the events that the parts report."
        self.watch = watch
        "Logs the connection; None while that is not logged."
        self.loop = asyncio.get_running_loop()
        self.now = clock_of(self.loop)
        "The clock of every deadline."
        self.idle = Idle.of(self.loop)
        self.transport: asyncio.Transport | None = None
        self.error: Error | None = None
        "Why the connection ended; None for an orderly end."
        self.over = False
        "The connection has ended; the transport may still exist."
        self.lost = False
        "The transport is gone, and no other will come."
        self.left = False
        "The transport is gone, and every task has ended: nothing is reported to the driver any more."
        self.away = False
        "The session has no transport for now."
        self._logged = -inf
        self._unlogged = 0
        "Failures since the last line of the log."
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def resumable(self) -> bool:
        """Whether the session can outlive its transport."""
        resumption = self.engine.resumption
        return resumption is not None and resumption.resumable

    def check(self) -> None:
        """Raise unless the connection can be used."""
        if self.over:
            raise self.unsent()

    def reason(self) -> Error:
        """Return the error for calls after the end."""
        return ConnectionClosed("the connection is closed") if self.error is None else self.error.again()

    def unsent(self) -> Error:
        """Return the error for requests that were never sent: it is safe to try again."""
        error = self.reason()
        error.may_have_been_processed = False
        return error

    def reasons(self) -> Callable[[int], Error]:
        """Return a function that gives the error of a live stream: where nothing was written it is safe to try
        again."""
        reason, safe, unsent = self.reason(), self.unsent(), self.engine.unsent
        return lambda stream: safe if unsent(stream) else reason

    def run(self, verb: Callable[..., list[Event]], *arguments: Any, **keywords: Any) -> None:
        """Call a method of the engine that returns events, such as accept, refuse or close, and dispatch them."""
        self.driver.dispatch(verb(*arguments, **keywords))

    # -- the engine's deadline ----------------------------------------------------------------------------------

    def arm_timer(self) -> None:
        """Make sure that the engine's ``tick`` is called at its deadline. A timer that fires early is armed again; one
        that is due late is replaced."""
        deadline = self.engine.deadline
        if deadline is None or self.lost:
            return
        if self._timer is not None:
            if self._due <= deadline:
                return
            self._timer.cancel()
        self._due = deadline
        self._timer = self.loop.call_later(max(0.0, deadline - self.now()), self._tick)

    def stop_timer(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._timer = None
        deadline, now = self.engine.deadline, self.now()
        if deadline is not None and deadline <= now:
            self.driver.dispatch(self.engine.tick(now))
        else:
            self.arm_timer()

    # -- the log ------------------------------------------------------------------------------------------------

    @property
    def far(self) -> str:
        """The address of the peer's socket, for a line of the log."""
        return "gone" if self.transport is None else end_of(self.transport.get_extra_info("peername"))

    def log_failure(self, text: str, error: BaseException | None = None) -> None:
        """Log a failure that is not an error on the wire; at most one line a second (DR-12). Failures without a line
        are counted: the next line has their number, or ``log_rest``."""
        now = self.now()
        if now - self._logged < 1.0:
            self._unlogged += 1
            return
        self._logged = now
        left_out = f" ({self._unlogged} more since the last line)" if self._unlogged else ""
        self._unlogged = 0
        HANDLERS.error("%s%s", text, left_out, exc_info=error)

    def log_rest(self) -> None:
        """The connection ends: log the number of failures that no line has counted."""
        if self._unlogged:
            left_out = f"{self._unlogged} more failure{'s' * (self._unlogged > 1)}"
            HANDLERS.error("afflux: %s since the last line: peer %s", left_out, self.far)
            self._unlogged = 0
