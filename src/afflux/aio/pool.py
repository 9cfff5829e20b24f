"""Distribute requests over several connections to one address, and repeat a request only when that is safe."""

from __future__ import annotations

import asyncio
from random import Random, getrandbits
from typing import Any

from afflux.aio.client import connect
from afflux.aio.peer import Peer
from afflux.calls.arguments import AsyncOnly, check_type
from afflux.core.errors import ConnectionClosed, Error
from afflux.core.payload import Payload, PayloadLike
from afflux.retry.backoff import Backoff

__all__ = ["Pool"]

_RETRY = Backoff(first=0.05, most=1.0, tries=3)


class Pool(AsyncOnly):
    """Connections to one address, opened on demand. ``async with`` closes them.

    A request that fails is sent again only when the error reports that the request cannot have been processed
    (``may_have_been_processed`` is False): each request is processed at most once.

    Args:
        uri: the address.
        most: maximum number of connections.
        retry: number of tries, and the waits between them; 3 tries if None.
        options: arguments of ``afflux.connect``.
    """

    def __init__(self, uri: str, *, most: int = 4, retry: Backoff | None = None, **options: Any) -> None:
        check_type("uri", uri, str, 'an address, such as "jmux+tcp://host:7000"')
        check_type("most=", most, int, "a whole number of connections")
        if most < 1:
            raise ValueError(f"a pool has 1 connection or more, not {most}")
        self.uri = uri
        "The address of the connections."
        self._most = most
        self._retry = retry or _RETRY
        self._options = options
        self._peers: list[Peer] = []
        self._load: dict[Peer, int] = {}
        self._turn = asyncio.Lock()
        self._random = Random(getrandbits(64))
        self._over = False

    def __repr__(self) -> str:
        return f"<Pool {self.uri:.200}: {len(self.connections)} of {self._most} connections>"

    @property
    def connections(self) -> tuple[Peer, ...]:
        """The open connections."""
        self._peers = [peer for peer in self._peers if not peer.closed]
        return tuple(self._peers)

    async def request(self, data: PayloadLike = b"", **call: Any) -> Payload:
        """Send a request, as ``Peer.request`` does.

        Raises:
            Error: that of the last try; ``may_have_been_processed`` reports whether the request may be sent once more.
        """
        waits = self._retry.waits(self._random)
        while True:
            try:
                return await self._try(data, call)
            except Error as error:
                wait = None if error.may_have_been_processed or self._over else next(waits, None)
                if wait is None:
                    raise
            await asyncio.sleep(wait)

    async def close(self) -> None:
        """Close every connection."""
        self._over = True
        async with self._turn:
            peers, self._peers = self._peers, []
        await asyncio.gather(*(peer.close() for peer in peers))

    async def __aenter__(self) -> Pool:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _try(self, data: PayloadLike, call: dict[str, Any]) -> Payload:
        peer = await self._pick()
        try:
            return await peer.request(data, **call)
        finally:
            self._load[peer] -= 1
            if not self._load[peer]:
                del self._load[peer]

    async def _pick(self) -> Peer:
        """Pick the connection with the fewest requests and count one more on it. Opens another connection when all are
        full."""
        async with self._turn:
            if self._over:
                raise ConnectionClosed.unsent("the pool is closed")
            peers = self.connections
            least = min(peers, key=self._requests, default=None)
            if least is None or (self._requests(least) >= least.limits.sessions and len(peers) < self._most):
                least = await connect(self.uri, **self._options)
                self._peers.append(least)
            self._load[least] = self._requests(least) + 1
            return least

    def _requests(self, peer: Peer) -> int:
        return self._load.get(peer, 0)
