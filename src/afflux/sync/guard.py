"""Keep signals and other threads out of a connection while its state changes.

Python runs a signal handler between any two bytecodes, and the handler of Ctrl-C raises. Inside an engine that would
leave the connection half changed. A verb therefore defers the handlers: they run where it waits for the link, and where
it runs the program's own code (a channel's source), or when the verb ends. An exception of a handler leaves the verb
there, and the verb cancels its stream.

Handlers run only in the main thread, so other threads have nothing to defer. The handlers of the program are replaced
during a verb and restored when it returns.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from _thread import allocate_lock, get_ident
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from afflux.core.errors import ConnectionClosed, Error, LocalProtocolError

__all__ = ["Guard", "Interrupts", "Woken"]

_system: Any = import_module("_signal")
"The C module of ``signal``: the same functions without a detour through enums, which takes 5 µs each."

_NAMES = ("ABRT", "ALRM", "HUP", "QUIT", "TERM", "USR1", "USR2", "INT")
_SIGNALS = [int(getattr(signal, f"SIG{name}")) for name in _NAMES if hasattr(signal, f"SIG{name}")]
"Signals whose handlers may raise. Checking all signals would take a third of the time of a small request."

_DEFERRED = 0
"Handlers are deferred."
_WAITING = 1
"Handlers run; after one that raises they are deferred again, so that its exception is not interrupted."
_POLLING = 2
"As _WAITING, but a handler that does not raise ends the wait, because it may have used the connection."
_OUTSIDE = 3
"The program's own code runs; handlers run as well."
_OUTERMOST = 4
"No verb is at work."
_ELSEWHERE = 5
"Not the main thread: there is nothing to defer."

_process = os.getpid()
"This process. Asking the system in each verb would take longer than the rest of the check."
_main = threading.main_thread().ident or 0
"The main thread of this process."


def _forked() -> None:
    global _process, _main
    _process, _main = os.getpid(), get_ident()


os.register_at_fork(after_in_child=_forked)

_sources: dict[int, list[Callable[[], None]]] = {}
"""Functions to call before something waits inside a source, by thread: one for each source that runs, the innermost
last."""

_Handler = Callable[[int, Any], Any]
_get, _set = _system.getsignal, _system.signal


class Woken(BaseException):
    """A signal handler has run during a poll. Only the poll raises and catches this."""


class Interrupts:
    """The deferred signal handlers of this process. The order of statements matters: a handler that is not deferred
    yet, or not any more, may raise between any two of them. This runs twice for each verb, with cold caches."""

    __slots__ = ("_elsewhere", "_found", "_handle", "_known", "_replaced", "pending", "state", "verbs")

    def __init__(self) -> None:
        self.state = _OUTERMOST
        self.pending: dict[int, _Handler] = {}
        "Handlers to run later, by signal."
        self.verbs = 0
        "Number of verbs that have begun, on all connections."
        self._known: dict[int, _Handler] = {}
        "All handlers that the program has set so far, by signal: it may have saved ours, and set it again."
        self._found: list[Any] = []
        "The handlers at the last check; those to replace are in ``_replaced``."
        self._replaced: list[tuple[int, _Handler]] = []
        self._handle: _Handler = self._arrived
        self._elsewhere = False

    def enter(self) -> int:
        """Defer handlers until ``leave`` is called with the returned token."""
        self.verbs += 1
        if get_ident() != _main or self._elsewhere:
            return _ELSEWHERE
        if self.state != _OUTERMOST:
            state, self.state = self.state, _DEFERRED
            return state
        _sources.pop(_main, None)  # if one was interrupted on its way out
        try:
            found = list(map(_get, _SIGNALS))
            if found != self._found:
                self._look(found)
            handle = self._handle
            for number, _ in self._replaced:
                _set(number, handle)
            self.state = _DEFERRED
        except BaseException as error:
            self._elsewhere = isinstance(error, ValueError) and "main interpreter" in str(error)
            if self._elsewhere:  # in a subinterpreter handlers cannot be set, and do not run
                return _ELSEWHERE
            self._restore()
            raise
        return _OUTERMOST

    def leave(self, token: int) -> None:
        """Restore the state before ``enter``, and run the deferred handlers."""
        if token == _ELSEWHERE:
            return
        self.state = token
        if token == _OUTERMOST:
            self._restore()
        if self.pending and token != _DEFERRED:
            self.run_pending()

    def run_pending(self) -> None:
        """Run the deferred handlers."""
        while self.pending:
            number, handler = self.pending.popitem()
            self._run(number, handler, sys._getframe(2))

    # -- inside -------------------------------------------------------------------------------------------------

    def _look(self, found: list[Any]) -> None:
        """Record the handlers that the program has set."""
        replaced = []
        for number, handler in zip(_SIGNALS, found, strict=True):
            if handler is self._handle:
                replaced.append((number, self._known[number]))
            elif callable(handler):
                self._known[number] = handler
                replaced.append((number, handler))
        self._replaced, self._found = replaced, found

    def _restore(self) -> None:
        """Restore the program's handlers, unless it has set others meanwhile. Idempotent."""
        for number, handler in self._replaced:
            current = _set(number, handler)
            if current is not self._handle and current is not handler:
                _set(number, current)

    def _arrived(self, number: int, frame: Any) -> None:
        """A signal has arrived."""
        if self.state == _OUTERMOST:  # while ``enter`` or ``leave`` runs
            self.pending.pop(number, None)
            self._restore()
        elif self.state == _DEFERRED:
            self.pending[number] = self._known[number]
            return
        self._run(number, self._known[number], frame)

    def _run(self, number: int, handler: _Handler, frame: Any) -> None:
        state = self.state
        if state in (_WAITING, _POLLING):
            self.state = _DEFERRED
        handler(number, frame)
        if state == _POLLING:
            raise Woken
        self.state = state


_INTERRUPTS = Interrupts()


class Guard:
    """``with guard``: one thread runs a verb, undisturbed. The same thread may enter it again.

    Raises:
        ConnectionClosed: the connection belongs to another process.
        LocalProtocolError: another thread runs a verb on it.
    """

    __slots__ = ("_lock", "_open", "_sweep", "_swept", "_token", "_tokens", "pid", "thread")

    def __init__(self, sweep: Callable[[], None], *swept: Sized) -> None:
        """``sweep`` is called at the end of a verb when one of ``swept`` is not empty."""
        self.pid = _process
        "The process that the connection belongs to."
        self.thread = get_ident()
        "The thread of the last verb."
        self._lock = allocate_lock()
        self._token = _OUTERMOST
        self._tokens: list[tuple[int, bool]] = []
        "For each running verb, the state before it."
        self._open = True
        "No verb is running, or it waits."
        self._sweep = sweep
        self._swept = swept

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
        """Whether this thread may begin a verb now, such as in ``__del__``, which any thread may call at any point."""
        return self._open and self.thread == get_ident()

    def __enter__(self) -> None:
        token = _INTERRUPTS.enter()
        if self.pid != _process or not (self._lock.acquire(False) or (self._tokens and self.thread == get_ident())):
            _INTERRUPTS.leave(token)
            raise self._refusal()
        if not self._tokens:
            self.thread = get_ident()
        self._tokens.append((self._token, self._open))
        self._token = token
        self._open = False

    def __exit__(self, *_: object) -> None:
        tokens = self._tokens
        try:
            if len(tokens) == 1 and any(self._swept):
                self._sweep()
        finally:
            token = self._token
            self._token, self._open = tokens.pop()
            if not tokens:
                self._lock.release()
            _INTERRUPTS.leave(token)

    def waiting(self) -> None:
        """The verb waits from now on: signal handlers run, and their exceptions leave the verb. Always call ``resumed``
        afterwards."""
        self._allow(_WAITING)

    def polling(self) -> None:
        """Like ``waiting``, around a poll, which ``Woken`` may end."""
        self._allow(_POLLING)

    def outside(self) -> None:
        """The program's own code runs from now on, signal handlers included. Always call ``resumed`` afterwards."""
        self._allow(_OUTSIDE)

    def wait(self, wait: Callable[[Any], Any], argument: Any) -> Any:
        """Wait, and let the program's signal handlers run meanwhile."""
        try:
            self.waiting()
            return wait(argument)
        finally:
            self.resumed()

    def resumed(self) -> None:
        """The verb continues."""
        if self._token != _ELSEWHERE:
            _INTERRUPTS.state = _DEFERRED
        self._open = False

    @contextmanager
    def source(self, early: Callable[[], None]) -> Iterator[int]:
        """Run a source of a channel, which is the program's own code; yields ``verbs``. ``early`` is called before a
        verb of any connection waits inside the source."""
        thread = get_ident()
        sources = _sources.setdefault(thread, [])
        depth = len(sources)
        try:
            sources.append(early)
            self.outside()
            yield self.verbs
        finally:
            self.resumed()
            del sources[depth:]
            if not depth:
                _sources.pop(thread, None)

    @property
    def around(self) -> list[Callable[[], None]]:
        """Functions to call before a verb of this thread waits; empty unless it is inside a source."""
        return _sources.get(get_ident(), [])

    def _allow(self, state: int) -> None:
        self._open = True
        if self._token != _ELSEWHERE:
            _INTERRUPTS.state = state
            if _INTERRUPTS.pending:
                _INTERRUPTS.run_pending()

    def _refusal(self) -> Error:
        if self.here:
            return LocalProtocolError("another thread is using this connection, which is for one thread at a time")
        text = f"this connection belongs to process {self.pid}, not to {_process}: connect again after a fork"
        error = ConnectionClosed(text)
        error.may_have_been_processed = False
        return error
