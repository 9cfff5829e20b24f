"""Connect a blocking client again: a session that has lost its link, or a client whose connection is over.

For a session, the caller waits until a try is ``due``; for another connection, ``renewed`` waits itself.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from time import monotonic, sleep
from typing import TypeVar

from afflux.core.errors import ConnectFailed, Error
from afflux.core.limits import Limits
from afflux.retry.backoff import Backoff
from afflux.retry.tries import ResumeTries
from afflux.transports.base import Link

__all__ = ["Redial", "renewed"]

_Opened = TypeVar("_Opened")

_LEAST_S = 0.05
"Shortest time limit of a try, in seconds."


class Redial:
    """The tries of one session. ``dial(seconds)`` opens a link within that time."""

    def __init__(self, dial: Callable[[float], Link], limits: Limits, backoff: Backoff, timeout: float) -> None:
        self._dial = dial
        self._timeout = timeout
        self._tries = ResumeTries(limits, backoff, Random())
        self.due: float | None = None
        "The time of the next try; None when no tries are left."
        self.link: Link | None = None
        "The link of the last try. It stays here when a signal handler has interrupted the caller."
        self.error: Error | None = None
        "Why the last try failed."

    def plan(self) -> None:
        """The link is gone, or a try has failed: plan the next try."""
        self.due = self._tries.next(monotonic())

    def succeeded(self) -> None:
        """The session was resumed."""
        self._tries.succeeded()
        self.error = None

    def dial(self, until: float | None) -> None:
        """Try now, until the time ``until`` at most. ``link`` has the link; without one, the next try is planned."""
        now = monotonic()
        self._tries.begin(now)
        seconds = self._timeout if until is None else max(_LEAST_S, min(self._timeout, until - now))
        try:
            self.link = self._dial(seconds)
        except Error as error:
            self.error = error
            self.plan()

    def take(self) -> Link | None:
        """Return the link that was opened, once."""
        link, self.link = self.link, None
        return link


def renewed(opened: Callable[[float], _Opened], backoff: Backoff, seconds: float) -> _Opened:
    """Return what ``opened(seconds)`` returns, after as many tries as ``backoff`` has within its patience.

    Raises:
        ConnectFailed: no try succeeded in that time.
    """
    until, failure = monotonic() + backoff.patience, None
    for wait in backoff.waits(Random()):
        sleep(max(0.0, min(wait, until - monotonic())))
        try:
            return opened(max(_LEAST_S, min(seconds, until - monotonic())))
        except Error as error:
            failure = error
        if monotonic() >= until:
            break
    text = f"the connection did not come back within {backoff.patience:g} s"
    raise ConnectFailed(f"{text}: {failure}" if failure else text) from failure
