"""Provide a timer with a precision of about 50 µs where the system supports it.

Event loops round timers to milliseconds. At 5,000 requests per second each request would start up to a millisecond
late, which would count as latency. On Linux a timerfd wakes the loop precisely; elsewhere the loop's own timer is used.
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
    """Call ``ring`` at a set time. Only one time is set at once; call ``close`` at the end.

    Args:
        clock: returns the current time in seconds.
        ring: the callback; it may set the next time.
        exact: False for the loop's own timer, as in simulated time.
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
        """Ring at ``when``; replaces the time set before."""
        wait = max(0.0, when - self._clock())
        if self._timer is not None:
            self._timer.set(wait)
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._loop.call_later(wait, self._rang)

    def close(self) -> None:
        """Cancel the timer and release it."""
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
    """A Linux timerfd, through ctypes; the module os has it only since Python 3.13."""

    def __init__(self, library: ctypes.CDLL, fd: int) -> None:
        self._library = library
        self._setting = _Setting()
        self.fd = fd

    @classmethod
    def made(cls) -> _Timer | None:
        """Create a timer; None if the system does not support it."""
        if not sys.platform.startswith("linux"):
            return None
        try:
            library = ctypes.CDLL(None)
            fd = library.timerfd_create(_CLOCK_MONOTONIC, _FLAGS)
        except (OSError, AttributeError):
            return None
        return cls(library, fd) if fd >= 0 else None

    def set(self, wait: float) -> None:
        """Make the descriptor readable after ``wait`` seconds."""
        nanoseconds = max(1, int(wait * 1e9))  # zero would disarm the timer
        value = self._setting.value
        value.seconds, value.nanoseconds = divmod(nanoseconds, 1_000_000_000)
        self._library.timerfd_settime(self.fd, 0, ctypes.byref(self._setting), None)

    def rang(self) -> bool:
        """Whether the timer has expired; true once per expiry."""
        try:
            return bool(os.read(self.fd, 8))
        except BlockingIOError:
            return False
