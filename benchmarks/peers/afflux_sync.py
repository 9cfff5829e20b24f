"""afflux's blocking client, with the asyncio server of afflux_aio. The client has no event loop."""

from __future__ import annotations

import afflux.sync
from benchmarks.peers.afflux_aio import limits, serve
from benchmarks.peers.base import HOST, Count, stream_request
from benchmarks.workloads import REQUEST_BYTES

__all__ = ["Client", "serve"]


class Client:
    """See base.Client."""

    def __init__(self, port: int, loop: str, large: bool) -> None:
        self._connection = afflux.sync.connect(f"tcp://{HOST}:{port}", limits=limits(large))
        self._peer = self._connection.__enter__()

    def request_response(self, n: int, concurrency: int) -> Count:
        """See base.Client: one at a time, because calls block."""
        if concurrency != 1:
            raise ValueError("the blocking client makes one request at a time")
        data, ask, size = bytes(REQUEST_BYTES), self._peer.request, 0
        for _ in range(n):
            size += len(ask(data).data)
        return Count(n, size)

    def stream(self, items: int, size: int, credit: int) -> Count:
        """See base.Client."""
        taken = total = 0
        for item in self._peer.stream(stream_request(items, size), credit=credit):
            taken += 1
            total += len(item.data)
        return Count(taken, total)

    def close(self) -> None:
        """See base.Client."""
        self._connection.__exit__(None, None, None)
