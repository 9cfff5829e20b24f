"""Import the asyncio API in a thread where a running loop uses ``connect`` or ``serve`` first: it would stop meanwhile.

The import takes a fifth of a second. Outside of a loop it happens at once, such as in ``from afflux import connect``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from typing import Any

__all__ = ["MODULES", "Starting", "found"]

MODULES = {"connect": "afflux.aio.client", "serve": "afflux.aio.server"}
"The functions that begin something, and their modules."


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
        self._call: Callable[[], Any] = lambda: find(name)(*given, **named)
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


async def _in_thread(work: Callable[[], Any]) -> Any:
    """Do ``work`` in a thread of its own. An executor would have to be imported first, and keeps its threads."""
    import asyncio
    import threading

    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def run() -> None:
        try:
            result, error = work(), None
        except BaseException as raised:
            result, error = None, raised
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
