"""A proxy that does what bad networks do: cuts bytes into slices, stops, breaks in the middle. For TCP and Unix."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

from afflux.transports.address import parse


class Proxy:
    """Stands between a client and the server at ``uri``: ``async with Proxy(…) as proxy: connect(proxy.uri)``.

    Args:
        folder: where the file of a Unix socket may be.
        slices: pieces of at most so many bytes, by chance.
        cut_after: break both sides when so many bytes have gone to the client.
    """

    def __init__(self, uri: str, folder: Path, *, slices: int = 0, cut_after: int | None = None) -> None:
        self._to = parse(uri)
        self._slices = slices
        self._left = cut_after
        self._random = Random(7)
        self._file = folder / "proxy.sock"
        self._open = asyncio.Event()
        self._open.set()
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server
        self.uri = ""

    def stop(self) -> None:
        """Take nothing from either side."""
        self._open.clear()

    def go_on(self) -> None:
        """Take what comes."""
        self._open.set()

    def cut(self) -> None:
        """Break every connection; what is under way is lost."""
        for writer in self._writers:
            writer.transport.abort()

    async def __aenter__(self) -> Self:
        if self._to.transport == "unix":
            self._server = await asyncio.start_unix_server(self._join, self._file)
            self.uri = f"unix://{self._file}"
        else:
            self._server = await asyncio.start_server(self._join, self._to.host, 0)
            self.uri = str(self._to.at(port=self._server.sockets[0].getsockname()[1]))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self.go_on()
        self.cut()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._server.wait_closed()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._to.transport == "unix":
            far_reader, far_writer = await asyncio.open_unix_connection(self._to.path)
        else:
            far_reader, far_writer = await asyncio.open_connection(self._to.host, self._to.port)
        self._writers += [writer, far_writer]
        for work in (self._carry(reader, far_writer, False), self._carry(far_reader, writer, True)):
            task = asyncio.get_running_loop().create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, counts: bool) -> None:
        with suppress(OSError):
            while data := await reader.read(0x4000):
                await self._open.wait()
                while data:
                    size = self._random.randint(1, self._slices) if self._slices else len(data)
                    if counts and self._left is not None:
                        size = min(size, self._left)
                        self._left -= size
                    writer.write(data[:size])
                    await writer.drain()
                    data = data[size:]
                    if counts and self._left == 0:
                        # Everything is with the system: a close, not an abort, lets it arrive. Then both break.
                        writer.close()
                        await writer.wait_closed()
                        self.cut()
                        return
            if not writer.is_closing():
                writer.write_eof()
