"""Jmux over real sockets: requests and sessions by aio and sync, how calls fail, and the pool."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import afflux
from afflux.aio.pool import Pool
from afflux.core.errors import (
    ApplicationError,
    Canceled,
    ConnectFailed,
    ConnectionClosed,
    Error,
    LimitExceeded,
    LocalProtocolError,
    Rejected,
    Unsupported,
)
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.demo.responder import Responder
from afflux.protocols.jmux.errors import SessionAborted, SessionLost, SessionRejected
from afflux.retry.backoff import Backoff
from tests.aio.handlers import Waits

from .playbook import HELLO, WELCOME, abort, bye, data

HERE = "jmux+tcp://127.0.0.1:0"


class Sessions:
    """A handler of sessions: ``talk`` is what it does with each."""

    def __init__(self, talk: Callable[[Any], Awaitable[None]]) -> None:
        self._talk = talk

    async def session(self, session: Any) -> None:
        await self._talk(session)


async def echo(session: Any) -> None:
    while some := await session.read():
        await session.write(some)
    session.finish()


async def said(writer: asyncio.StreamWriter, *messages: Any) -> None:
    for message in messages:
        writer.write(message.encode())
    await writer.drain()


# -- requests -------------------------------------------------------------------------------------------------


@pytest.mark.repetitive
@pytest.mark.parametrize("uri", [HERE, "jmux+ws://127.0.0.1:0/j", "jmux+mem://jmux-requests"])
async def test_requests(uri: str) -> None:
    async with afflux.serve(uri, Responder()) as server, afflux.connect(server.uri) as peer:
        assert (await peer.request(b"hello")).data == b"hello"
        assert (await peer.request(b"")).data == b""
        assert (await peer.request(b"gen 100000")).data == b"." * 100_000
        large = bytes(range(256)) * 4096
        assert (await peer.request(large)).data == large
        answers = await asyncio.gather(*(peer.request(b"%d" % number) for number in range(600)))
        assert [answer.data for answer in answers] == [b"%d" % number for number in range(600)]
        with pytest.raises(SessionAborted, match="gen N"):
            await peer.request(b"gen x")


async def test_unix_sockets(tmp_path: Any) -> None:
    async with afflux.serve(f"jmux+unix://{tmp_path}/s", Responder()) as server, afflux.connect(server.uri) as peer:
        assert (await peer.request(b"hello")).data == b"hello"


async def decided(setup: object, peer: afflux.Peer) -> None:
    """Nothing is ever decided."""


async def test_what_there_is_not() -> None:
    async with afflux.serve(HERE, Responder()) as server, afflux.connect(server.uri) as peer:
        with pytest.raises(Unsupported, match='no "fire"; it offers: request'):
            await peer.fire(b"")
        with pytest.raises(Unsupported, match="no metadata"):
            await peer.request(b"", route="x")
    with pytest.raises(Unsupported, match="no setup"):
        await afflux.connect(server.uri, setup=b"x")
    with pytest.raises(Unsupported, match="no setup"):
        async with afflux.serve(HERE, Responder(), on_setup=decided):
            pass
    for option in ("keepalive=0", "mtu=63", "mtu=65536"):
        with pytest.raises(afflux.AddressError):
            afflux.connect(f"jmux+tcp://127.0.0.1:1?{option}")
    async with (
        afflux.serve("tcp://127.0.0.1:0", Responder()) as server,
        afflux.connect(server.uri) as peer,
    ):
        with pytest.raises(Unsupported, match="session"):
            await peer.session()


async def test_small_messages() -> None:
    async with (
        afflux.serve(HERE, Responder()) as server,
        afflux.connect(f"{server.uri}?mtu=64&keepalive=5") as peer,
    ):
        assert (await peer.request(b"x" * 1000)).data == b"x" * 1000


async def test_a_handler_that_fails() -> None:
    class Failing:
        async def request(self, payload: Payload) -> Payload:
            raise ApplicationError(message="no " + payload.text)

    async with afflux.serve(HERE, Failing()) as server, afflux.connect(server.uri) as peer:
        with pytest.raises(SessionAborted, match="no way") as caught:
            await peer.request(b"way")
        assert caught.value.may_have_been_processed


async def test_what_no_handler_takes_is_safe_to_try_again() -> None:
    """JA-06: a handler that ran may have processed something, also if it says that it refuses."""

    class Fires:
        async def fire(self, payload: Payload) -> None: ...

    class Refuses:
        async def request(self, payload: Payload) -> Payload:
            raise Rejected("not today")

    for handler, text, kind in ((Fires(), "no handler", SessionRejected), (Refuses(), "not today", SessionAborted)):
        async with afflux.serve(HERE, handler) as server, afflux.connect(server.uri) as peer:
            with pytest.raises(kind, match=text) as caught:
                await peer.request(b"x")
            assert caught.value.may_have_been_processed is (kind is SessionAborted)


async def test_canceling_a_request_ends_its_handler() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    class Slow:
        async def request(self, payload: Payload) -> Payload:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            return payload

    async with afflux.serve(HERE, Slow()) as server, afflux.connect(server.uri) as peer:
        asking = asyncio.create_task(peer.request(b""))
        await begun.wait()
        asking.cancel()
        await ended.wait()


def test_sync_requests() -> None:
    with running(Responder()) as uri, afflux.sync.connect(uri) as peer:
        assert peer.request(b"hello", timeout=10).data == b"hello"
        assert len(peer.request(b"gen 1000000", timeout=10)) == 1_000_000
        with pytest.raises(Unsupported, match='no "stream"'):
            peer.stream(b"")


# -- sessions -------------------------------------------------------------------------------------------------


async def test_a_session_talks_both_ways() -> None:
    async with afflux.serve(HERE, Sessions(echo)) as server, afflux.connect(server.uri) as peer:
        async with await peer.session(b"one ") as session:
            assert session.id == 0
            assert await session.read() == b"one "
            await session.write("two")
            assert await session.read(1) == b"t"
            session.finish()
            assert await session.read_all() == b"wo"
        assert (await peer.request(b"as a request")).data == b"as a request"


async def test_a_session_of_a_megabyte() -> None:
    """Both ways at once, far beyond every ration."""
    body = bytes(range(256)) * 4096
    async with (
        afflux.serve(HERE, Sessions(echo)) as server,
        afflux.connect(server.uri) as peer,
        await peer.session() as session,
    ):

        async def write() -> None:
            await session.write(body)
            session.finish()

        writing = asyncio.create_task(write())
        assert await session.read_all() == body
        await writing
        assert session.ended
        assert session.id is None


async def test_127_stall_and_one_flows() -> None:
    """The deadlock-free reading, over a socket: nobody reads 127 sessions, and the last one is echoed."""
    waiting = asyncio.Event()

    async def talk(session: Any) -> None:
        if await session.read(5) == b"stall":
            await waiting.wait()
        else:
            await echo(session)

    async with afflux.serve(HERE, Sessions(talk)) as server, afflux.connect(server.uri) as peer:
        stalled = [await peer.session() for _ in range(127)]
        writing = [asyncio.create_task(session.write(b"stall" + b"x" * 100_000)) for session in stalled]
        async with await peer.session(b"begin") as session:
            for number in range(50):
                block = bytes([number]) * 10_000
                await session.write(block)
                got = b""
                while len(got) < len(block):
                    got += await session.read()
                assert got == block
        assert not any(task.done() for task in writing)
        for one in stalled:
            one.abort()
        with pytest.raises(Canceled, match="this side"):
            await writing[0]
        await asyncio.gather(*writing, return_exceptions=True)


async def test_acknowledgements() -> None:
    """R-42 to R-45, as a handler hears of them."""
    heard: list[bool] = []
    told = asyncio.Queue[bool]()

    async def talk(session: Any) -> None:
        with pytest.raises(LocalProtocolError):
            await session.acknowledged()
        await session.write(b"answer")
        session.finish(acknowledge=True)
        await session.read_all()
        told.put_nowait(await session.acknowledged())

    async with afflux.serve(HERE, Sessions(talk)) as server, afflux.connect(server.uri) as peer:
        async with await peer.session(b"q", finish=True) as session:
            assert await session.read_all() == b"answer"
            heard.append(await told.get())
        async with await peer.session(b"q", finish=True, acknowledge=False) as session:
            assert await session.read_all() == b"answer"
            session.acknowledge()
            heard.append(await told.get())
        async with await peer.session(b"q", finish=True, acknowledge=False) as session:
            assert await session.read_all() == b"answer"
            session.abort()
            heard.append(await told.get())
    assert heard == [True, True, False]


async def test_acknowledgements_end_with_the_connection() -> None:
    told = asyncio.get_running_loop().create_future()
    begun = asyncio.Event()

    async def talk(session: Any) -> None:
        session.finish(acknowledge=True)
        begun.set()
        told.set_result(await session.acknowledged())

    async with afflux.serve(HERE, Sessions(talk)) as server, afflux.connect(server.uri) as peer:
        await peer.session(b"q")
        await begun.wait()
        peer.cut()
        assert await told is False


async def test_the_server_does_not_want_the_rest() -> None:
    """R-27: what is written then is dropped, and the response stays."""

    async def talk(session: Any) -> None:
        await session.write(b"enough")
        session.finish(drop=True)

    async with (
        afflux.serve(HERE, Sessions(talk)) as server,
        afflux.connect(server.uri) as peer,
        await peer.session() as session,
    ):
        await session.write(b"x" * 1_000_000)
        await session.write(b"more")
        assert await session.read_all() == b"enough"


async def test_a_handler_that_returns_has_finished() -> None:
    async def talk(session: Any) -> None:
        await session.write(await session.read())

    async with (
        afflux.serve(HERE, Sessions(talk)) as server,
        afflux.connect(server.uri) as peer,
        await peer.session(b"hi") as session,
    ):
        assert await session.read_all() == b"hi"
        session.finish()
        with pytest.raises(LocalProtocolError, match="finished"):
            await session.write(b"x")


async def test_a_handler_of_sessions_fails() -> None:
    async def talk(session: Any) -> None:
        raise ApplicationError(message=(await session.read_all()).decode())

    async with (
        afflux.serve(HERE, Sessions(talk)) as server,
        afflux.connect(server.uri) as peer,
        await peer.session(b"no", finish=True) as session,
    ):
        with pytest.raises(SessionAborted, match="no") as caught:
            await session.read()
        assert caught.value.may_have_been_processed
        with pytest.raises(SessionAborted):
            await session.read()


async def test_the_client_aborts() -> None:
    """A handler that waits hears it as an error, one that does not is canceled."""
    heard = asyncio.Queue[BaseException]()
    began = asyncio.Queue[None]()

    async def talk(session: Any) -> None:
        try:
            first = await session.read()
            began.put_nowait(None)
            if first == b"wait":
                await asyncio.Event().wait()
            await session.read()
        except BaseException as error:
            heard.put_nowait(error)
            raise

    async with afflux.serve(HERE, Sessions(talk)) as server, afflux.connect(server.uri) as peer:
        for first, kind in ((b"read", Canceled), (b"wait", asyncio.CancelledError)):
            async with await peer.session(first) as session:
                await began.get()
                session.abort("enough")
                session.abort()
                assert isinstance(await heard.get(), kind)


async def test_too_much_to_read() -> None:
    async with (
        afflux.serve(HERE, Sessions(echo)) as server,
        afflux.connect(server.uri) as peer,
        await peer.session(b"x" * 1000, finish=True) as session,
    ):
        with pytest.raises(LimitExceeded, match="more than 10 bytes"):
            await session.read_all(10)


async def test_one_task_reads() -> None:
    async with (
        afflux.serve(HERE, Sessions(echo)) as server,
        afflux.connect(server.uri) as peer,
        await peer.session() as session,
    ):
        reading = asyncio.create_task(session.read())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="another task"):
            await session.read()
        await session.write(b"x")
        assert await reading == b"x"


def test_sync_sessions() -> None:
    with running(Sessions(echo)) as uri, afflux.sync.connect(uri) as peer:
        with peer.session(b"hello", timeout=10) as session:
            assert session.id == 0
            got = b""
            while len(got) < 5:
                got += session.read(3)
            assert got == b"hello"
            session.write("x" * 30_000)
            session.finish()
            assert session.read_all() == b"x" * 30_000
            assert session.read() == b""
            session.acknowledge()
            with pytest.raises(LocalProtocolError, match="finished"):
                session.write(b"x")
        with peer.session(b"x" * 1000, finish=True, timeout=10) as session, pytest.raises(LimitExceeded):
            session.read_all(10)
        with peer.session(timeout=0.01) as session:
            with pytest.raises(TimeoutError):
                session.read()
            session.abort()
            with pytest.raises(Canceled):
                session.read()
        assert peer.request(b"still there", timeout=10).data == b"still there"


def test_sync_sessions_whose_rest_is_dropped() -> None:
    async def talk(session: Any) -> None:
        await session.write(b"enough")
        session.finish(drop=True)

    with running(Sessions(talk)) as uri, afflux.sync.connect(uri) as peer, peer.session(timeout=10) as session:
        session.write(b"x" * 1_000_000)
        assert session.read_all() == b"enough"


def running(handler: object) -> Any:
    """A server in a thread of its own; its address."""
    from contextlib import contextmanager
    from threading import Thread

    @contextmanager
    def run() -> Any:
        loop = asyncio.new_event_loop()
        thread = Thread(target=loop.run_forever)
        thread.start()
        try:
            server = asyncio.run_coroutine_threadsafe(afflux.serve(HERE, handler).start(), loop).result()
            try:
                yield server.uri
            finally:
                asyncio.run_coroutine_threadsafe(server.close(), loop).result()
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    return run()


# -- at most once ---------------------------------------------------------------------------------------------


async def stub(serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> Any:
    """A server that says what a test says."""

    async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)
        await said(writer, WELCOME)
        await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(met, "127.0.0.1", 0)
    return server, f"jmux+tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(
    ("answer", "kind", "may"),
    [
        ([abort()], SessionRejected, False),
        ([abort(partial=True)], SessionAborted, True),
        ([bye("gone")], SessionRejected, False),
        ([b"\x08\0\0\0"], SessionLost, True),
        ([], SessionLost, True),
        ([b"\xff\0\0\0"], SessionLost, True),
    ],
)
async def test_whether_it_may_have_been_processed(answer: list[Any], kind: type[Error], may: bool) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(5)
        for one in answer:
            writer.write(one if isinstance(one, bytes) else one.encode())
        await writer.drain()

    server, uri = await stub(serve)
    async with server, afflux.connect(uri) as peer:
        with pytest.raises(kind) as caught:
            await peer.request(b"x")
        assert caught.value.may_have_been_processed is may


async def test_what_was_never_sent_is_safe() -> None:
    async with afflux.serve(HERE, Responder()) as server:
        peer = await afflux.connect(server.uri)
        await peer.close()
        with pytest.raises(ConnectionClosed) as caught:
            await peer.request(b"")
        assert not caught.value.may_have_been_processed
        uri = server.uri
    with pytest.raises(ConnectFailed) as failed:
        await afflux.connect(uri)
    assert not failed.value.may_have_been_processed


async def test_a_pool_tries_again_only_what_is_safe() -> None:
    """JA-12: each call is processed at most once."""
    script: list[list[Any]] = [[abort()], [bye()], [data(b"a", eof=True, close=True)], [abort(partial=True)], [b""]]
    calls = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        while script and len(await reader.read(5)) == 5:
            calls += 1
            step = script.pop(0)
            for one in step:
                writer.write(one if isinstance(one, bytes) else one.encode())
            await writer.drain()
            if step[0] in (b"", bye()):
                return
            if isinstance(step[0], type(abort())):
                await reader.readexactly(4)

    server, uri = await stub(serve)
    async with server, Pool(uri, retry=Backoff(first=0, most=0, tries=3)) as pool:
        assert (await pool.request(b"x")).data == b"a"
        assert calls == 3
        with pytest.raises(SessionAborted):
            await pool.request(b"x")
        assert calls == 4
        with pytest.raises(SessionLost):
            await pool.request(b"x")
        assert calls == 5
        assert not pool.connections


async def test_a_pool_gives_up() -> None:
    async with afflux.serve(HERE, Responder()) as server:
        uri = server.uri
    async with Pool(uri, retry=Backoff(first=0, most=0, tries=2)) as pool:
        with pytest.raises(ConnectFailed):
            await pool.request(b"x")
    with pytest.raises(ConnectionClosed, match="closed"):
        await pool.request(b"x")
    with pytest.raises(ValueError, match="1 connection or more"):
        Pool(uri, most=0)


async def test_a_pool_opens_another_connection() -> None:
    """R-21: when no id is left."""
    go = asyncio.Event()

    class Slow:
        async def request(self, payload: Payload) -> Payload:
            await go.wait()
            return payload

    limits = Limits.tiny(sessions=2)
    async with afflux.serve(HERE, Slow()) as server, Pool(server.uri, most=2, limits=limits) as pool:
        asking = [asyncio.create_task(pool.request(b"%d" % number)) for number in range(3)]
        while len(server.connections) < 2:
            await asyncio.sleep(0)
        go.set()
        assert [answer.data for answer in await asyncio.gather(*asking)] == [b"0", b"1", b"2"]
        assert len(pool.connections) == 2


async def test_a_pool_counts_what_it_is_about_to_send() -> None:
    """Requests that are all made at once are spread as if they came one by one."""
    limits = Limits.tiny(sessions=2)
    handler, asked = Waits(), 6

    async with afflux.serve(HERE, handler) as server, Pool(server.uri, most=3, limits=limits) as pool:
        answers = asyncio.gather(*(pool.request(b"%d" % number) for number in range(asked)))
        for _ in range(asked):
            await handler.entered.get()
        assert len(pool.connections) == 3
        handler.go.set()
        assert [answer.data for answer in await answers] == [b"%d" % number for number in range(asked)]


# -- a peer that is not ours ----------------------------------------------------------------------------------


async def test_SL_03_a_client_that_ends_its_half() -> None:
    """3.2: the response is finished, then the connection is closed."""
    go = asyncio.Event()

    class Slow:
        async def request(self, payload: Payload) -> Payload:
            await go.wait()
            return Payload(b"y" * 20_000)

    async with afflux.serve(HERE, Slow()) as server:
        host, port = server.uri.removeprefix("jmux+tcp://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        await said(writer, HELLO, data(b"x", open=True, eof=True))
        writer.write_eof()
        assert await reader.readexactly(8) == WELCOME.encode()
        go.set()
        answer = await reader.read()
        assert answer.count(b"y") == 20_000
        writer.close()


async def test_something_else_speaks() -> None:
    async with afflux.serve(HERE, Responder()) as server:
        host, port = server.uri.removeprefix("jmux+tcp://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        answer = await reader.read()
        assert answer.startswith(WELCOME.encode() + b"\x08")
        writer.close()
