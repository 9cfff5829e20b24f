"""Keep signals and other threads out of a connection while its state changes.

Python runs a signal handler between any two bytecodes, and the handler of Ctrl-C raises. In the middle of an engine
that would leave the connection half changed. A verb therefore defers the handlers: they run where it waits for the
link, and where it runs the program's own code (a channel's source), or when the verb ends. What they raise leaves the
verb from there, and the verb gives up what it had begun.

Handlers run in the main thread only, so other threads have nothing to defer. The handlers of the program are replaced
while a verb is at work and are back when it has returned.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from _thread import allocate_lock, get_ident
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from afflux.core.errors import ConnectionClosed, LocalProtocolError

__all__ = ["Guard", "Interrupts", "Woken"]

_system: Any = import_module("_signal")
"What the module signal is made of: the same functions without a detour through enums, which takes 5 µs each."

_NAMES = ("ABRT", "ALRM", "CHLD", "CONT", "HUP", "PROF", "QUIT", "TERM", "USR1", "USR2", "VTALRM", "WINCH", "INT")
_SIGNALS = [int(getattr(signal, f"SIG{name}")) for name in _NAMES if hasattr(signal, f"SIG{name}")]
"The signals that programs have handlers for. SIGINT is the last: what is done first is done while it is deferred."

_DEFERRED = 0
"Handlers wait."
_WAITING = 1
"Handlers run; after one that raises they are deferred again, so that its way out is not disturbed."
_POLLING = 2
"The same, and one that does not raise ends the wait: it may have used the connection."
_OUTSIDE = 3
"The program's own code runs, and so do handlers."
_OUTERMOST = 4
"A verb began that is not inside another one."
_ELSEWHERE = 5
"Not the main thread: there is nothing to defer."

_process = os.getpid()
"This process. To ask the system for each verb takes longer than all the rest of the check."


def _forked() -> None:
    global _process
    _process = os.getpid()


os.register_at_fork(after_in_child=_forked)

_sources: dict[int, int] = {}
"How many sources of channels are at work, one inside the other, by thread."

_Handler = Callable[[int, Any], Any]


class Woken(BaseException):
    """A handler of a signal has run in the middle of a poll. Nobody but the one who polls sees it."""


class Interrupts:
    """The deferred signal handlers of this process. The order of statements matters: a handler that is not deferred
    yet, or not any more, may raise between any two of them."""

    __slots__ = ("_found", "_handle", "_inside", "_known", "_pending", "_replaced", "_state", "_wanted", "verbs")

    def __init__(self) -> None:
        self._inside = False
        "A verb is at work."
        self._state = _DEFERRED
        self._replaced: dict[int, _Handler] = {}
        "The program's handlers, by signal."
        self._known: dict[int, _Handler] = {}
        "The same, of all times: the program may have kept the one that stood for them, and set it again."
        self._found: list[Any] = []
        "What the handlers were at the last look, and which of them are to be replaced."
        self._wanted: list[tuple[int, _Handler]] = []
        self._pending: dict[int, _Handler] = {}
        "Handlers to run later, by signal."
        self._handle: _Handler = self._arrived
        self.verbs = 0
        "How many have begun, of all connections."

    def enter(self) -> int:
        """Defer handlers until ``leave`` is called with what this returns."""
        self.verbs += 1
        if get_ident() != threading.main_thread().ident:
            return _ELSEWHERE
        if self._inside:
            state, self._state = self._state, _DEFERRED
            return state
        self._state = _DEFERRED
        _sources.pop(get_ident(), None)  # if one was interrupted on its way out
        try:
            self._replace()
        except BaseException:
            self._inside = False
            self._restore()
            raise
        return _OUTERMOST

    def leave(self, token: int) -> None:
        """Go back to what was before ``enter``, and run the handlers that have waited."""
        if token == _ELSEWHERE:
            return
        if token == _OUTERMOST:
            self._inside = False  # from here on a signal runs its own handler
            self._restore()
        else:
            self._state = token
        if token != _DEFERRED:
            self._run_pending()

    def allow(self, state: int) -> None:
        """Let handlers run from here on, those that have waited at once."""
        self._state = state
        self._run_pending()

    def defer(self) -> None:
        """Handlers wait again."""
        self._state = _DEFERRED

    # -- inside -------------------------------------------------------------------------------------------------

    def _replace(self) -> None:
        found = list(map(_system.getsignal, _SIGNALS))
        if found != self._found:
            self._look(found)
        for number, handler in self._wanted:
            self._replaced[number] = handler
            _system.signal(number, self._handle)
        self._inside = True

    def _look(self, found: list[Any]) -> None:
        """The program has set other handlers."""
        wanted = []
        for number, handler in zip(_SIGNALS, found, strict=True):
            if handler is self._handle:
                wanted.append((number, self._known[number]))
            elif callable(handler):
                self._known[number] = handler
                wanted.append((number, handler))
        self._wanted, self._found = wanted, found

    def _restore(self) -> None:
        """Give the program its handlers back, unless it has set others meanwhile."""
        for number in list(self._replaced):
            handler = self._replaced.get(number)
            if handler is not None and _system.getsignal(number) is self._handle:
                _system.signal(number, handler)
            self._replaced.pop(number, None)

    def _arrived(self, number: int, frame: Any) -> None:
        """A signal has come."""
        handler = self._replaced.get(number, self._known[number])
        if not self._inside:  # between two steps of the beginning or the end
            self._pending.pop(number, None)
            self._restore()
        elif self._state == _DEFERRED:
            self._pending[number] = handler
            return
        self._run(number, handler, frame)

    def _run(self, number: int, handler: _Handler, frame: Any) -> None:
        state = self._state
        if state in (_WAITING, _POLLING):
            self._state = _DEFERRED
        handler(number, frame)
        if state == _POLLING:
            raise Woken
        self._state = state

    def _run_pending(self) -> None:
        while self._pending:
            number, handler = self._pending.popitem()
            self._run(number, handler, sys._getframe(2))


_INTERRUPTS = Interrupts()


class Guard:
    """``with guard``: one thread is at work on a connection, undisturbed. It may be entered again by the same thread.

    Raises:
        ConnectionClosed: the connection belongs to another process.
        LocalProtocolError: another thread is at work on it.
    """

    __slots__ = ("_lock", "_open", "_sweep", "_tokens", "pid", "thread")

    def __init__(self, sweep: Callable[[], None]) -> None:
        self.pid = _process
        "The process that the connection belongs to."
        self.thread = get_ident()
        "The thread that was at work last."
        self._lock = allocate_lock()
        self._tokens: list[tuple[int, bool]] = []
        self._open = True
        "No verb is at work, or it waits."
        self._sweep = sweep

    @property
    def verbs(self) -> int:
        """A number that changes when a verb of any connection begins."""
        return _INTERRUPTS.verbs

    @property
    def here(self) -> bool:
        """Whether this is the process that the connection belongs to."""
        return self.pid == _process

    @property
    def idle(self) -> bool:
        """Whether this thread may begin a verb in passing, such as in ``__del__``, which may be called in the middle of
        anything and by any thread."""
        return self._open and self.thread == get_ident()

    def __enter__(self) -> None:
        token = _INTERRUPTS.enter()
        try:
            self._take()
        except BaseException:
            _INTERRUPTS.leave(token)
            raise
        self._tokens.append((token, self._open))
        self._open = False

    def __exit__(self, *_: object) -> None:
        try:
            if len(self._tokens) == 1:
                self._sweep()
        finally:
            token, self._open = self._tokens.pop()
            if not self._tokens:
                self._lock.release()
            _INTERRUPTS.leave(token)

    def waiting(self) -> None:
        """The verb waits from here on: handlers of signals run, and what they raise leaves it. ``resumed`` follows in
        any case."""
        self._allow(_WAITING)

    def polling(self) -> None:
        """The same around a poll, which ``Woken`` may leave."""
        self._allow(_POLLING)

    def outside(self) -> None:
        """The program's own code runs from here on, handlers of signals among it. ``resumed`` follows in any case."""
        self._allow(_OUTSIDE)

    @contextmanager
    def source(self) -> Iterator[int]:
        """Around a source of a channel, which is the program's own code; gives ``verbs``."""
        thread = get_ident()
        depth = _sources.get(thread, 0)
        try:
            _sources[thread] = depth + 1
            self.outside()
            yield self.verbs
        finally:
            self.resumed()
            _sources[thread] = depth
            if not depth:
                del _sources[thread]

    @property
    def nested(self) -> bool:
        """Whether a source is at work in this thread, and waits."""
        return get_ident() in _sources

    def resumed(self) -> None:
        """The verb goes on."""
        if self._tokens[-1][0] != _ELSEWHERE:
            _INTERRUPTS.defer()
        self._open = False

    def _allow(self, state: int) -> None:
        self._open = True
        if self._tokens[-1][0] != _ELSEWHERE:
            _INTERRUPTS.allow(state)

    def _take(self) -> None:
        if not self.here:
            text = f"this connection belongs to process {self.pid}, not to {_process}: connect again after a fork"
            error = ConnectionClosed(text)
            error.may_have_been_processed = False
            raise error
        if self._tokens and self.thread == get_ident():
            return
        if not self._lock.acquire(False):
            raise LocalProtocolError("another thread is using this connection, which is for one thread at a time")
        self.thread = get_ident()
