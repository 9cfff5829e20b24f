"""Look up host names within a time, in threads that no program waits for at its end. Numeric hosts need none.

A system's resolver may take longer than a connection may take to be made, and cannot be stopped. The loop's own threads
would then hold up the end of the program; uvloop has only four of them.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    import asyncio

__all__ = ["resolved", "resolved_within"]

_Found = Sequence[tuple[Any, ...]]
_Lookup = tuple[str | None, int | None, int]
_MOST: Final = 32
"Lookups of a loop at a time, and of the blocking side; each has a thread."

_running: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[_Lookup, asyncio.Future[_Found]]]
_running = WeakKeyDictionary()


_blocking: dict[_Lookup, _Thread] = {}
"The lookups of the blocking side that are running."
os.register_at_fork(after_in_child=_blocking.clear)


class _Thread(threading.Thread):
    """Looks up a host for ``resolved_within``."""

    def __init__(self, lookup: _Lookup) -> None:
        super().__init__(name="afflux-resolver", daemon=True)
        self._lookup = lookup
        self.found: _Found | OSError = ()

    def run(self) -> None:
        try:
            self.found = _addresses(*self._lookup)
        except OSError as error:
            self.found = error
        _blocking.pop(self._lookup, None)


def resolved_within(host: str | None, port: int | None, seconds: float) -> _Found:
    """Return the addresses of a host, for stream sockets, without an event loop. Calls for the same host at the same
    time share a thread; the thread of a host that is numeric or found has ended.

    Raises:
        socket.gaierror: the host is unknown, or too many lookups do not end.
        TimeoutError: the lookup took longer than ``seconds``.
    """
    with contextlib.suppress(socket.gaierror):
        return _addresses(host, port, socket.AI_NUMERICHOST | socket.AI_NUMERICSERV)
    lookup = (host, port, 0)
    thread = _blocking.get(lookup)
    if thread is None:
        if len(_blocking) >= _MOST:
            raise socket.gaierror(socket.EAI_AGAIN, f"{_MOST} lookups of other hosts have not ended")
        thread = _blocking[lookup] = _Thread(lookup)
        thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TimeoutError
    if isinstance(thread.found, OSError):
        raise thread.found
    return thread.found


async def resolved(host: str | None, port: int | None, flags: int = 0) -> _Found:
    """Return the addresses of a host, for stream sockets. Lookups of the same host at the same time share a thread.

    Raises:
        socket.gaierror: the host is unknown.
    """
    import asyncio

    with contextlib.suppress(socket.gaierror):
        return _addresses(host, port, flags | socket.AI_NUMERICHOST | socket.AI_NUMERICSERV)
    loop, lookup = asyncio.get_running_loop(), (host, port, flags)
    running = _running.setdefault(loop, {})
    while lookup not in running and len(running) >= _MOST:
        await asyncio.wait(running.values(), return_when=asyncio.FIRST_COMPLETED)
    if lookup not in running:
        running[lookup] = _started(loop, running, lookup)
    return await asyncio.shield(running[lookup])


def _addresses(host: str | None, port: int | None, flags: int) -> _Found:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    except UnicodeError as error:  # the encoding of names
        why = "a part is empty or longer than 63 characters" if str(host).isascii() else "not allowed in host names"
        raise socket.gaierror(socket.EAI_NONAME, why) from error


def _started(
    loop: asyncio.AbstractEventLoop, running: dict[_Lookup, asyncio.Future[_Found]], lookup: _Lookup
) -> asyncio.Future[_Found]:
    """Start the thread of a lookup."""
    future: asyncio.Future[_Found] = loop.create_future()

    def end(result: _Found | OSError) -> None:
        del running[lookup]
        if isinstance(result, OSError):
            future.set_exception(result)
            future.exception()  # nobody may be waiting any more, which is no error
        else:
            future.set_result(result)

    def work() -> None:
        result: _Found | OSError
        try:
            result = _addresses(*lookup)
        except OSError as error:
            result = error
        try:
            loop.call_soon_threadsafe(end, result)
        except RuntimeError:  # the loop is closed, and the futures in the dictionary would keep it
            running.clear()

    threading.Thread(target=work, name="afflux-resolver", daemon=True).start()
    return future
