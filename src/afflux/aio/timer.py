"""Call an engine's ``tick`` when its deadline has come."""

from __future__ import annotations

import asyncio

from afflux.aio.state import State

__all__ = ["EngineTimer"]


class EngineTimer:
    """One timer of the loop. A timer that fires early is armed again; one that is due late is replaced."""

    __slots__ = ("_due", "_handle", "_state")

    def __init__(self, state: State) -> None:
        self._state = state
        self._due = 0.0
        self._handle: asyncio.TimerHandle | None = None

    def arm(self) -> None:
        """Make sure that ``tick`` is called at the engine's deadline."""
        state = self._state
        deadline = state.engine.deadline
        if deadline is None or state.lost:
            return
        if self._handle is not None:
            if self._due <= deadline:
                return
            self._handle.cancel()
        self._due = deadline
        self._handle = state.loop.call_later(max(0.0, deadline - state.now()), self._tick)

    def stop(self) -> None:
        """Cancel the timer."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _tick(self) -> None:
        self._handle = None
        state, now = self._state, self._state.now()
        deadline = state.engine.deadline
        if deadline is not None and deadline <= now:
            state.driver.dispatch(state.engine.tick(now))
        else:
            self.arm()
