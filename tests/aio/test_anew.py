"""A resumable client that is cut before its SETUP has arrived begins anew: by both drivers, over a real socket."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self

import pytest

import afflux
import afflux.sync
from afflux.transports.address import parse

OFTEN = afflux.Limits.server(resume_rate=(1_000, 0.0))
SOON = afflux.Backoff(first=0.01, most=0.01)


class Echo:
    def __init__(self) -> None:
        self.asked: list[bytes] = []

    async def request(self, payload: afflux.Payload) -> bytes:
        self.asked.append(payload.data)
        return payload.data


class Front:
    """Stands before a server. Of the first ``lost`` links nothing reaches it: they break when ``least`` bytes have come
    and ``cut`` is set."""

    def __init__(self, uri: str, *, lost: int = 1, least: int = 1) -> None:
        self._to = parse(uri)
        self._lost, self._least = lost, least
        self.cut = asyncio.Event()
        self.links = 0
        self.came = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server
        self.uri = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        self.uri = str(self._to.at(port=self._server.sockets[0].getsockname()[1]))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def link(self, number: int) -> None:
        """Wait for so many links."""
        async with self.came:
            await self.came.wait_for(lambda: self.links >= number)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        async with self.came:
            self.links += 1
            number = self.links
            self.came.notify_all()
        if number <= self._lost:
            await reader.readexactly(self._least)
            await self.cut.wait()
            writer.transport.abort()
            return
        there, out = await asyncio.open_connection(self._to.host, self._to.port)
        await asyncio.gather(_pipe(reader, out), _pipe(there, writer))


async def _pipe(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await source.read(65_536):
            sink.write(data)
            await sink.drain()
    sink.close()


@pytest.mark.parametrize("lost", [1, 3])
async def test_a_client_whose_setup_was_lost_begins_anew(lost: int) -> None:
    """What is asked meanwhile is answered, once."""
    echo = Echo()
    async with (
        afflux.serve("tcp://127.0.0.1:0", echo, resume=True, limits=OFTEN) as server,
        Front(server.uri, lost=lost) as front,
        afflux.connect(front.uri, resume=SOON, limits=OFTEN) as peer,
    ):
        front.cut.set()
        await front.link(2)
        async with asyncio.timeout(30):
            answers = await asyncio.gather(*(peer.request(b"%d" % n) for n in range(3)))
        assert [answer.data for answer in answers] == [b"0", b"1", b"2"]
        assert sorted(echo.asked) == [b"0", b"1", b"2"]
        assert len(server.connections) == 1


async def test_what_was_sent_with_the_lost_setup_is_not_sent_twice() -> None:
    """It fails, and says that it may have been processed; the connection goes on."""
    echo = Echo()
    async with (
        afflux.serve("tcp://127.0.0.1:0", echo, resume=True, limits=OFTEN) as server,
        Front(server.uri, least=200) as front,
        afflux.connect(front.uri, resume=SOON, limits=OFTEN) as peer,
    ):
        front.cut.set()
        with pytest.raises(afflux.ConnectionClosed, match="the server has no such session") as caught:
            await peer.request(b"first" * 40)
        assert caught.value.may_have_been_processed
        assert (await peer.request(b"second")).data == b"second"
        assert echo.asked == [b"second"]


async def test_a_blocking_client_begins_anew() -> None:
    """It notices when something is asked. That may have been handed to the old link, and then it fails once."""
    echo = Echo()

    def talk(uri: str, cut: asyncio.Event, loop: asyncio.AbstractEventLoop) -> list[bytes]:
        answers = []
        with afflux.sync.connect(uri, resume=SOON, limits=OFTEN) as peer:
            loop.call_soon_threadsafe(cut.set)
            for data in (b"1", b"2", b"3"):
                try:
                    answers.append(peer.request(data, timeout=30).data)
                except afflux.ConnectionClosed as error:
                    assert error.may_have_been_processed
        return answers

    async with (
        afflux.serve("tcp://127.0.0.1:0", echo, resume=True, limits=OFTEN) as server,
        Front(server.uri) as front,
    ):
        answers = await asyncio.to_thread(talk, front.uri, front.cut, asyncio.get_running_loop())
    assert answers[-2:] == [b"2", b"3"]
    assert echo.asked == answers
