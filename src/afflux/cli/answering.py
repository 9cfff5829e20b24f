"""Bound the wait for the first answer of a server: ``--timeout``. Later items may take as long as they want."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from afflux.core.errors import Error
from afflux.transports.address import parse
from afflux.transports.durations import in_words

if TYPE_CHECKING:
    from afflux.aio.peer import Peer

__all__ = ["DEFAULT", "FirstAnswer"]

DEFAULT = "10s"
"The default of --timeout."

_DAY = 86_400.0
_T = TypeVar("_T")


class FirstAnswer:
    """Limits the time from entering it to the first ``arrived``; 0 ``seconds`` are no limit. The wait for a lease may
    take ``allowed`` seconds more. ``stored``: the request reads a stored stream, whose server may wait for new items or
    for its journal.

    Leaving it raises TimeoutError if nothing came in time. The connection is then over at once, because a peer that is
    silent would not let it be closed in order.
    """

    def __init__(self, uri: str, seconds: float, allowed: float = 0.0, *, stored: bool = False) -> None:
        self._uri = uri
        self._stored = stored
        self._seconds = seconds + allowed if seconds else 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[object] | None = None
        self._peer: Peer | None = None
        self._expired = False
        self._arrived = False

    @property
    def connecting(self) -> float:
        """Seconds that connecting may take: more than this limit, which is to end first. Also for a later attempt, of
        which no first answer is awaited."""
        return self._seconds + 1 if self._seconds else _DAY

    async def __aenter__(self) -> FirstAnswer:
        self._task, self._peer, self._expired = asyncio.current_task(), None, False
        self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        if not self._expired or self._task is None or not isinstance(error, (asyncio.CancelledError, Error)):
            return
        if self._task.uncancel() == 0:  # otherwise something else has canceled the task as well
            raise TimeoutError(self._reason()) from None

    def connected(self, peer: Peer) -> None:
        """The connection is made."""
        self._peer = peer

    def arrived(self) -> None:
        """The first answer has arrived, or none is expected: the limit ends."""
        if not self._arrived:
            self._arrived = True
            self._stop()

    async def waiting_for(self, items: AsyncIterator[_T]) -> AsyncIterator[_T]:
        """Yield ``items``. The clock stands while one is awaited, and starts anew with each."""
        try:
            self._stop()
            async for item in items:
                self._start()
                yield item
                self._stop()
        finally:
            self._start()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self) -> None:
        self._stop()
        if self._seconds and not (self._arrived or self._expired):
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._expire)

    def _expire(self) -> None:
        self._expired = True
        if self._task is not None:
            self._task.cancel()
        if self._peer is not None:
            self._peer.cut()

    def _reason(self) -> str:
        time = f"within {in_words(self._seconds)} (--timeout, 0 for no limit)"
        if self._peer is None:
            return f"cannot connect to {self._uri} {time}"
        protocol = parse(self._uri).protocol
        if self._stored:
            return (
                f"no items from {self._uri} {time}: nothing is stored from there on yet, or the servers of its journal "
                f"are away; if neither, does it speak {protocol}?"
            )
        return f"no answer from {self._uri} {time}; does it speak {protocol}?"
