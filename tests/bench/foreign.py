"""``python -m tests.bench.foreign``: a server that is not ours, rsocket 0.4.20 of PyPI. It prints its port. No tests.

It echoes requests, streams ``COUNT SIZE``, counts fires, and fails what asks for it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterator
from typing import Any

from rsocket.helpers import create_response
from rsocket.payload import Payload
from rsocket.request_handler import BaseRequestHandler
from rsocket.rsocket_server import RSocketServer
from rsocket.streams.stream_from_generator import StreamFromGenerator
from rsocket.transports.tcp import TransportTCP


class Handler(BaseRequestHandler):  # type: ignore[misc]  # it has no types
    """See above."""

    async def request_response(self, payload: Payload) -> Any:
        if payload.data == b"fail":
            raise RuntimeError("as you wish")
        return create_response(payload.data)

    async def request_fire_and_forget(self, payload: Payload) -> None:
        pass

    async def request_stream(self, payload: Payload) -> Any:
        count, size = map(int, payload.data.split())

        def items() -> Iterator[tuple[Payload, bool]]:
            for number in range(1, count + 1):
                yield Payload(b"." * size), number == count

        return StreamFromGenerator(items)


async def main() -> None:
    """Serve until stdin ends."""
    sessions = []

    def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sessions.append(RSocketServer(TransportTCP(reader, writer, 0x4000), handler_factory=Handler))

    server = await asyncio.start_server(welcome, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(main())
