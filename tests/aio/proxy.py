"""A TCP proxy that cuts connections, for tests of what survives that. No tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Cutter:
    """Passes bytes on to a server, and cuts a connection when one of its directions has carried so many.

    ``budgets()`` is asked for each new connection: (bytes to the server, bytes to the client), None for no end.
    """

    def __init__(self, port: int, budgets: Callable[[], tuple[int | None, int | None]]) -> None:
        self.port = port
        "Where the server is."
        self._budgets = budgets
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.connections = 0

    async def __aenter__(self) -> Cutter:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.uri = f"tcp://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def cut(self) -> None:
        """Cut every connection now."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        there, back = self._budgets()
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.port)
        pair = {writer, far_writer}
        self._writers |= pair
        try:
            await asyncio.gather(
                self._pipe(reader, far_writer, there, pair), self._pipe(far_reader, writer, back, pair)
            )
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._writers -= pair
            self._tasks.discard(task)
            for each in pair:
                each.transport.abort()

    async def _pipe(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        budget: int | None,
        pair: set[asyncio.StreamWriter],
    ) -> None:
        while data := await reader.read(0x10000):
            if budget is not None:
                data, budget = data[:budget], budget - len(data)
            if data:
                writer.write(data)
                await writer.drain()
            if budget is not None and budget <= 0:
                # what was passed on has arrived; the rest never will
                for each in pair:
                    each.close() if each is writer else each.transport.abort()
                return
        writer.close()
