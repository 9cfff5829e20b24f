"""A timer that is exact to about 50 µs where the system allows it. Who wants to be woken when is decided elsewhere.

The timers of event loops count whole milliseconds. That is no use for a load of 5,000 requests a second: each would
start up to a millisecond late, and be told as that much slower. Linux has timers that are files, and a loop waits for
those exactly; elsewhere the loop's own timer has to do.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
from collections.abc import Callable

__all__ = ["Alarm"]

_CLOCK_MONOTONIC = 1
_FLAGS = os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0)


class Alarm:
    """Calls ``ring`` at a moment. One moment is set at a time; ``close`` it in the end.

    Args:
        clock: what moments are told by, in seconds.
        ring: what to call; it may set the next moment.
        exact: False for the loop's own timer, as for a loop whose time is made up.
    """

    def __init__(self, clock: Callable[[], float], ring: Callable[[], None], *, exact: bool = True) -> None:
        self._clock = clock
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.Handle | None = None
        self._timer = _Timer.made() if exact else None
        if self._timer is not None:
            self._loop.add_reader(self._timer.fd, self._read)

    def set(self, when: float) -> None:
        """Ring at ``when``, and not at what was set before."""
        wait = max(0.0, when - self._clock())
        if self._timer is not None:
            self._timer.set(wait)
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._loop.call_later(wait, self._rang)

    def close(self) -> None:
        """Ring no more."""
        if self._timer is not None:
            self._loop.remove_reader(self._timer.fd)
            os.close(self._timer.fd)
            self._timer = None
        if self._handle is not None:
            self._handle.cancel()

    def _read(self) -> None:
        if self._timer is not None and self._timer.rang():
            self._ring()

    def _rang(self) -> None:
        self._handle = None
        self._ring()


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Setting(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class _Timer:
    """A timer of Linux (timerfd). The module os has it from Python 3.13 on."""

    def __init__(self, library: ctypes.CDLL, fd: int) -> None:
        self._library = library
        self._setting = _Setting()
        self.fd = fd

    @classmethod
    def made(cls) -> _Timer | None:
        """One, or None where there is none."""
        if not sys.platform.startswith("linux"):
            return None
        try:
            library = ctypes.CDLL(None)
            fd = library.timerfd_create(_CLOCK_MONOTONIC, _FLAGS)
        except (OSError, AttributeError):
            return None
        return cls(library, fd) if fd >= 0 else None

    def set(self, wait: float) -> None:
        """Be readable after so many seconds."""
        nanoseconds = max(1, int(wait * 1e9))  # nothing at all would stop it
        value = self._setting.value
        value.seconds, value.nanoseconds = divmod(nanoseconds, 1_000_000_000)
        self._library.timerfd_settime(self.fd, 0, ctypes.byref(self._setting), None)

    def rang(self) -> bool:
        """Whether the time has come; reading says so once."""
        try:
            return bool(os.read(self.fd, 8))
        except BlockingIOError:
            return False
