"""Import the asyncio API in a thread where a running loop uses ``connect`` or ``serve`` first: it would stop meanwhile.

The import takes a fifth of a second. Outside of a loop it happens at once, such as in ``from afflux import connect``.
Threads change more often meanwhile: with the interpreter's interval of 5 ms the loop would get its turn after 20 ms.
"""

from __future__ import annotations

import sys
from _thread import allocate_lock
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from typing import Any

__all__ = ["MODULES", "Starting", "found"]

MODULES = {"connect": "afflux.aio.client", "serve": "afflux.aio.server"}
"The functions that begin something, and their modules."

_INTERVAL_S = 0.0005
"Seconds after which a thread that imports lets the loop run."
_intervals: list[float] = []
"The interval to restore, once for each thread that imports."
_lock = allocate_lock()


def found(name: str, find: Callable[[str], Any]) -> Any:
    """Return ``find(name)``, the function of MODULES; in a running loop that has not imported it yet, a function whose
    result is a Starting."""
    if MODULES[name] not in sys.modules:
        if _loop_runs():
            return partial(Starting, name, find)
        import afflux.protocols.rsocket.engine  # most calls need these three as well
        import afflux.protocols.rsocket.entry
        import afflux.transports.tcp  # noqa: F401
    return find(name)


def _loop_runs() -> bool:
    if (asyncio := sys.modules.get("asyncio")) is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class Starting:
    """What ``connect`` or ``serve`` is to return: ``await`` it, use ``async with``, or call its methods.

    The call is made in a thread when it is entered, so that its errors are raised there. Any other use makes it at
    once.
    """

    __slots__ = ("_call", "_made")

    def __init__(self, name: str, find: Callable[[str], Any], *given: Any, **named: Any) -> None:
        self._call = partial(_made, name, find, given, named)
        self._made: Any = None

    def __await__(self) -> Generator[Any, None, Any]:
        return self._enter().__await__()

    async def _enter(self) -> Any:
        return await (await self._wait())

    async def __aenter__(self) -> Any:
        return await (await self._wait()).__aenter__()

    async def __aexit__(self, *error: Any) -> Any:
        return await self._made.__aexit__(*error)

    def __enter__(self) -> Any:
        return self._now().__enter__()  # raises: ``async with`` is right

    def __exit__(self, *_: object) -> None: ...

    def __iter__(self) -> Any:
        return iter(self._now())  # raises

    def __aiter__(self) -> Any:
        return aiter(self._now())  # raises

    async def start(self) -> Any:
        """Listen, as ``Server.start``."""
        return await (await self._wait()).start()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._now(), name)

    def __repr__(self) -> str:
        return repr(self._now())

    def _now(self) -> Any:
        if self._made is None:
            self._made = self._call()
        return self._made

    async def _wait(self) -> Any:
        if self._made is None:
            self._made = await _in_thread(self._call)
        return self._made


def _made(name: str, find: Callable[[str], Any], given: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Make the call, and import what the first connection needs."""
    from afflux.transports.address import parse

    made = find(name)(*given, **named)
    parse(given[0] if given else named["uri"], serving=name == "serve").carrier.load_first()
    return made


def _hurry() -> None:
    """Let threads change often, because one begins to import."""
    with _lock:
        _intervals.append(_intervals[0] if _intervals else sys.getswitchinterval())
        sys.setswitchinterval(min(_INTERVAL_S, _intervals[0]))


def _relax() -> None:
    """Let threads change as before when the last one has imported."""
    with _lock:
        interval = _intervals.pop()
        if not _intervals:
            sys.setswitchinterval(interval)


async def _in_thread(work: Callable[[], Any]) -> Any:
    """Do ``work`` in a thread of its own. An executor would have to be imported first, and keeps its threads."""
    import asyncio
    import threading

    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def run() -> None:
        _hurry()
        try:
            result, error = work(), None
        except BaseException as raised:
            result, error = None, raised
        _relax()
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, result, error)

    def settle(result: Any, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    threading.Thread(target=run, name="afflux-import", daemon=True).start()
    return await done
