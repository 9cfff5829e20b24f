"""What is left of a session when it ends early: responses that are complete, writers that wait, ids."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import pytest

import afflux
from afflux.core import events as ev
from afflux.core.errors import Canceled, ConnectionClosed
from afflux.core.events import Readable
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.protocols.jmux import Engine
from afflux.protocols.jmux.errors import SessionAborted, SessionLost
from afflux.protocols.jmux.frames import Abort, Data
from afflux.testing.world import End, World

from .playbook import HELLO, WELCOME, Playbook, abort, client, data, failed, free_id, more, opening, ping, pong
from .test_wire import HERE, Sessions, running, said, stub


def talking(**options: Any) -> Playbook:
    """Session 0 is open, its request is not finished."""
    return client(**options).on(lambda s: s.open_session(b"q")) << opening(b"q")


# -- responses that are complete ------------------------------------------------------------------------------


def test_an_id_is_given_back_once() -> None:
    """A response that is too large ends a session in two ways at once: here, and by the server's close."""
    limits = Limits.tiny(
        payload_bytes=65_536, ration_bytes=65_536, ration_max_bytes=65_536, connection_bytes=2**20, sessions=1
    )
    play = client(limits=limits, max_wait_for_id=60)
    for _ in range(3):
        play.engine.open("request", b"q")
    play.do(lambda engine: None) << opening(b"q", eof=True)
    (play >> (data(b"x" * 32_768), data(b"x" * 32_768))).forget()
    play >> data(b"x", eof=True, close=True, ack=True) << failed(1, SessionAborted, rule="payload_bytes")
    play << abort(detail="payload-too-large: 65537 bytes exceed payload_bytes=65536") << opening(b"q", eof=True)
    play >> data(b"a", eof=True, close=True) << ev.Items(2, [Payload(b"a")], True) << opening(b"q", eof=True)
    play >> data(b"b", eof=True, close=True) << ev.Items(3, [Payload(b"b")], True)
    assert free_id(play) == 0


def test_a_response_is_not_lost_with_its_acknowledgment() -> None:
    """ack_s: the server hears that nobody has processed it; who reads it late reads all of it."""
    play = talking(ping_interval=0).on(lambda s: s.finish(1)) << data(eof=True)
    play >> data(b"answer", eof=True, close=True, ack=True) << Readable(1, 6, True)
    assert play.engine.byte_sessions.read(1, 2) == b"an"
    play.at(0).quiet().at(60) << abort()
    assert play.engine.byte_sessions.session_id(1) is None
    assert play.engine.byte_sessions.read(1) == b"swer"
    assert not play.engine.streams()
    assert play.engine.sessions.rations.shared_used == 0


def test_a_complete_response_survives_an_abort() -> None:
    """The server has finished, and gives up the rest of the request in the wrong way."""
    play = talking() >> (data(b"answer", eof=True), abort(partial=True))
    play << Readable(1, 6, True) << failed(1, SessionAborted) << abort()
    assert not play.engine.byte_sessions.takes(1)
    assert play.engine.byte_sessions.read(1) == b"answer"
    assert not play.engine.streams()


def test_a_complete_response_survives_a_stall() -> None:
    play = talking(ration=1, ping_interval=0).do(lambda engine: engine.send(1, [b"x" * 300])) << data(b"x" * 255)
    play >> data(b"answer", eof=True) << Readable(1, 6, True)
    play.at(60) << ev.Canceled(1, False) << abort(detail="session-stall")
    assert play.engine.byte_sessions.read(1) == b"answer"
    play >> abort()
    assert free_id(play) == 0


def test_a_complete_answer_is_reported_once() -> None:
    """A request whose rest nobody takes has its answer: nothing else is told of it."""
    play = client(ration=1, ping_interval=0).do(lambda engine: engine.open("request", b"x" * 300))
    play << opening(b"x" * 256) >> data(b"answer", eof=True) << ev.Items(1, [Payload(b"answer")], True)
    play.at(60) << abort(detail="session-stall")
    play.quiet()


async def unread(session: Any) -> None:
    assert await session.read_all() == b"q"
    await session.write(b"x" * 1000)


async def test_what_is_left_unread_takes_no_room() -> None:
    async with afflux.serve(HERE, Sessions(unread)) as server, afflux.connect(server.uri) as peer:
        async with await peer.session(b"q", finish=True) as session:
            assert await session.read(10) == b"x" * 10
            while not session.ended:
                await asyncio.sleep(0)
        assert not peer.streams()


def test_sync_what_is_left_unread_takes_no_room() -> None:
    with running(Sessions(unread)) as uri, afflux.sync.connect(uri) as peer:
        with peer.session(b"q", finish=True, timeout=10) as session:
            assert session.read(10) == b"x" * 10
            peer._driver.wait(lambda: session._inbox.ended, 10)
        assert not peer._driver.inboxes
        assert not peer.streams()
        with peer.session(b"q", finish=True, timeout=10) as session:
            assert session.read_all() == b"x" * 1000
        assert not peer._driver.inboxes


async def stalls(session: Any) -> None:
    await asyncio.Event().wait()


async def test_a_session_whose_opening_is_canceled_is_aborted() -> None:
    async with afflux.serve(HERE, Sessions(stalls)) as server, afflux.connect(server.uri) as peer:
        asking = asyncio.create_task(peer.session(b"x" * 100_000))
        sessions = peer._driver.streams.sessions
        while not sessions:
            await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert not sessions
        assert not peer.streams()


def test_sync_a_session_whose_opening_is_canceled_is_aborted() -> None:
    with running(Sessions(stalls)) as uri, afflux.sync.connect(uri) as peer:
        with pytest.raises(TimeoutError):
            peer.session(b"x" * 100_000, timeout=0.01)
        assert not peer._driver.inboxes
        assert not peer.streams()


# -- writers that wait ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("early", [False, True], ids=["later", "before the first turn"])
def test_a_writer_that_waits_for_ration(early: bool) -> None:
    """FC-17: nothing of it waits in the engine, and the peer's time runs all the same."""
    play = client(ration=1, ping_interval=0)
    play.engine.byte_sessions.open_session(b"x" * 256)
    if early:
        play.engine.byte_sessions.starve(1, True)
    play.do(lambda engine: None) << opening(b"x" * 256)
    play.on(lambda s: s.starve(1, True)).at(0).quiet().at(59).quiet()
    play.at(60) << failed(1, SessionAborted, message="session-stall") << abort(detail="session-stall")
    play.on(lambda s: s.starve(1, False)).quiet()


def test_a_writer_that_goes_away_or_goes_on() -> None:
    play = client(ration=1, ping_interval=0).on(lambda s: s.open_session(b"x" * 256)) << opening(b"x" * 256)
    play.on(lambda s: s.starve(1, True)).at(0).on(lambda s: s.starve(1, False)).at(100).quiet()
    play.on(lambda s: s.starve(1, True)).at(100).quiet()
    play >> more(5) << ev.Granted(1, 5)
    play.at(200).quiet()
    play.do(lambda engine: engine.send(1, [b"y" * 9])) << data(b"y" * 5)
    play.on(lambda s: s.starve(1, False)).at(200).at(260) << failed(1, SessionAborted)
    play << abort(detail="session-stall")


def test_waiting_for_an_id_starves_no_session() -> None:
    play = client(limits=Limits.tiny(sessions=1), ping_interval=0, max_wait_for_id=60)
    play.on(lambda s: s.open_session(b"q")) << opening(b"q")
    play.on(lambda s: s.open_session(b"w")).on(lambda s: s.starve(2, True)).at(30).quiet()


async def test_a_writer_sees_that_its_session_is_over() -> None:
    """One that writes for ever, with the whole request read: the server goes on, the handler ends."""
    ended = asyncio.Event()

    async def talk(session: Any) -> None:
        assert await session.read_all() == b"q"
        try:
            while True:
                await session.write(b"x" * 1000)
        except Canceled:
            ended.set()
            raise

    async with afflux.serve(HERE, Sessions(talk)) as server, afflux.connect(server.uri) as peer:
        session = await peer.session(b"q", finish=True)
        assert await session.read(10) == b"x" * 10
        session.abort()
        await ended.wait()
        with pytest.raises(Canceled, match="this side"):
            await session.read()


async def test_a_writer_without_a_reader_lets_others_run() -> None:
    async def talk(session: Any) -> None:
        session.finish(drop=True)

    async with afflux.serve(HERE, Sessions(talk)) as server, afflux.connect(server.uri) as peer:
        session = await peer.session(b"q")
        assert await session.read() == b""

        async def write() -> None:
            while True:
                await session.write(b"x" * 10_000)

        writing = asyncio.create_task(write())
        async with await peer.session(b"another", finish=True) as another:
            assert await another.read_all() == b""
        writing.cancel()


async def test_session_stall_at_a_handler() -> None:
    heard = asyncio.Queue[BaseException]()

    async def talk(session: Any) -> None:
        try:
            await session.write(b"x" * 100_000)
        except SessionAborted as error:
            heard.put_nowait(error)
            raise

    limits = Limits.tiny(session_stall_s=0.01)
    async with afflux.serve(HERE, Sessions(talk), limits=limits) as server, afflux.connect(server.uri) as peer:
        session = await peer.session(b"q", finish=True)
        assert "session-stall" in str(await heard.get())
        with pytest.raises(SessionAborted, match="session-stall"):
            await session.read_all()


# -- acknowledgements -----------------------------------------------------------------------------------------


async def test_a_handler_sees_that_no_acknowledgment_will_come() -> None:
    """R-45: the client has ended its half; its response is finished, and the handler is not canceled."""
    heard = asyncio.Queue[bool]()

    async def talk(session: Any) -> None:
        assert await session.read_all() == b"q"
        session.finish(acknowledge=True)
        heard.put_nowait(await session.acknowledged())

    async with afflux.serve(HERE, Sessions(talk)) as server:
        address = server.uri.removeprefix("jmux+tcp://").split(":")
        reader, writer = await asyncio.open_connection(address[0], int(address[1]))
        await said(writer, HELLO, opening(b"q", eof=True))
        writer.write_eof()
        assert await reader.read(-1) == WELCOME.encode() + data(eof=True, close=True, ack=True).encode()
        assert not await heard.get()
        writer.close()


async def test_a_failure_is_an_answer_to_who_waits_for_an_acknowledgment() -> None:
    """The client's abort comes while the end of the response still waits for its turn to be written."""
    heard = asyncio.Queue[bool]()

    async def talk(session: Any) -> None:
        driver = session._driver
        assert await session.read_all() == b"q"
        session.finish(acknowledge=True)
        driver.dispatch(driver.engine.receive(abort().encode(), monotonic()))
        heard.put_nowait(await session.acknowledged())

    async with afflux.serve(HERE, Sessions(talk)) as server:
        address = server.uri.removeprefix("jmux+tcp://").split(":")
        _, writer = await asyncio.open_connection(address[0], int(address[1]))
        await said(writer, HELLO, opening(b"q", eof=True))
        assert not await heard.get()
        writer.close()


# -- what was never sent ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", ["jmux", "rsocket", "reactivesocket"])
async def test_what_is_asked_while_the_connection_drains_is_safe(wire: str) -> None:
    go = asyncio.Event()

    class Slow:
        async def request(self, payload: Payload) -> Payload:
            await go.wait()
            return payload

    async with afflux.serve(f"{wire}+tcp://127.0.0.1:0", Slow()) as server, afflux.connect(server.uri) as peer:
        first = asyncio.create_task(peer.request(b"first"))
        await asyncio.sleep(0)
        closing = asyncio.create_task(peer.close(drain=True))
        await asyncio.sleep(0)
        with pytest.raises(ConnectionClosed) as caught:
            await peer.request(b"second")
        assert not caught.value.may_have_been_processed
        go.set()
        assert (await first).data == b"first"
        await closing


# -- blocking programs ----------------------------------------------------------------------------------------


@contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server of one client, which says WELCOME, reads five bytes and gives the rest to ``answer``."""
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        link, _ = listener.accept()
        with link:
            link.recv(8, socket.MSG_WAITALL)
            link.sendall(WELCOME.encode())
            link.recv(5, socket.MSG_WAITALL)
            answer(link)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield f"jmux+tcp://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        thread.join()
        listener.close()


def test_sync_writers_see_that_the_session_is_over() -> None:
    def answer(link: socket.socket) -> None:
        link.sendall(data(b"answer", eof=True).encode() + abort(partial=True).encode())

    with answering(answer) as uri, afflux.sync.connect(uri) as peer, peer.session(b"q", timeout=10) as session:
        assert session.read(2) == b"an"
        with pytest.raises((SessionAborted, SessionLost, ConnectionClosed)):
            while True:
                session.write(b"x" * 1000)
        assert session.read_all() == b"swer"
        session.finish()
        assert session.read() == b""


def test_sync_what_was_never_sent_is_safe() -> None:
    def answer(link: socket.socket) -> None:
        """It hangs up."""

    with answering(answer) as uri, afflux.sync.connect(uri) as peer:
        with pytest.raises(SessionLost) as lost:
            peer.request(b"q", timeout=10)
        assert lost.value.may_have_been_processed
        with pytest.raises(ConnectionClosed) as unsent:
            peer.request(b"q", timeout=10)
        assert not unsent.value.may_have_been_processed


async def test_stubs_get_a_complete_response() -> None:
    """Under asyncio: what is unread when the server gives up the rest of the request is read to its end."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(5)
        await said(writer, data(b"answer", eof=True), abort(partial=True))
        await reader.read(-1)

    listener, uri = await stub(serve)
    async with listener, afflux.connect(uri) as peer:
        session = await peer.session(b"q")
        assert await session.read(2) == b"an"
        with pytest.raises(SessionAborted):
            while True:
                await session.write(b"x" * 1000)
        assert await session.read_all() == b"swer"
        assert isinstance(session.error, SessionAborted)


# -- memory ---------------------------------------------------------------------------------------------------


def full_server(sessions: bool) -> Any:
    """A server with 128 sessions: requests that are half there, answers that wait for ration."""
    play = Playbook(Engine("server", sessions=sessions)) >> HELLO
    play.forget() >> tuple(opening(bytes(20_000), id=id, eof=id % 2 == 0) for id in range(128))
    for stream in range(1, 129, 1 if sessions else 2):
        play.engine.send(stream, [bytes(200_000)])
    return play.engine


def full_client(sessions: bool) -> Any:
    """A client with as many, and some that wait for an id."""
    play = Playbook(Engine("client", max_wait_for_id=30)).forget() >> WELCOME
    for _ in range(140):
        if sessions:
            play.engine.byte_sessions.open_session(bytes(200_000))
        else:
            play.engine.open("request", bytes(200_000))
    play.forget() >> tuple(data(bytes(20_000), id=id) for id in range(128))
    return play.engine


@pytest.mark.repetitive
@pytest.mark.parametrize("sessions", [False, True])
@pytest.mark.parametrize("full", [full_server, full_client])
def test_nothing_is_kept_when_it_is_over(full: Callable[[bool], Any], sessions: bool) -> None:
    """What waited is dropped as soon as nobody can take it, and no cycle holds it or anything else."""
    full(sessions)
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        engine = full(sessions)
        assert tracemalloc.get_traced_memory()[0] - before > 5_000_000
        engine.receive_eof(0.0)  # no half of a request will become whole, and no ration will come
        assert engine.closed
        assert tracemalloc.get_traced_memory()[0] - before < 200_000
        del engine
        assert not gc.collect()
    finally:
        tracemalloc.stop()
        gc.enable()


def test_what_the_client_has_made_room_for_is_still_sent() -> None:
    """A client that has ended its half reads on: an answer within its ration arrives, a larger one never will."""
    play = Playbook(Engine("server")) >> HELLO
    play.forget() >> (opening(b"q", eof=True), opening(b"q", id=1, eof=True)) << (ev.Opened, {"stream": 1})
    play << (ev.Opened, {"stream": 2})
    play.engine.send(1, [bytes(32_768)], complete=True)
    play.engine.send(2, [bytes(32_769)], complete=True)
    play.collect(play.engine.receive_eof(0.0))
    play << failed(2, SessionAborted)
    said = list(play.sent)
    assert sum(len(one.data) for one in said if isinstance(one, Data) and one.session == 0) == 32_768
    assert [one for one in said if isinstance(one, Abort)] == [abort(1, True, "the client has ended its half")]
    play.sent.clear()
    play.collect(play.engine.tick(0.0))
    play << ev.Closed


@pytest.mark.repetitive
def test_answers_to_pings_are_small() -> None:
    """As many as one read may bring, if they are allowed: then nothing is read until they are written."""
    play = Playbook(Engine("server", limits=Limits.server(keepalive_rate=(1_000_000, 1_000_000)))) >> HELLO
    play.forget()
    flood = b"".join(ping(cookie).encode() for cookie in range(65_536))
    gc.collect()
    tracemalloc.start()
    try:
        play.engine.receive(flood, 0.0)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert not play.engine.wants_read
    assert play.engine.queued == len(flood)
    said = b""
    while some := play.engine.outgoing(1001):
        assert len(some) <= 1001
        said += some
    assert said == b"".join(pong(cookie).encode() for cookie in range(65_536))
    assert play.engine.wants_read


# -- time -----------------------------------------------------------------------------------------------------

LATE = 25.0
"When the application does something; the last that the engine has heard was at 0."


def gives_up(near: Any, far: Any) -> None:
    near.byte_sessions.abort(1)


def writes_too_much(near: Any, far: Any) -> None:
    near.send(1, [bytes(100_000)])


def opens_one_too_many(near: Any, far: Any) -> None:
    near.open("request", b"q")


def wants_an_acknowledgement(near: Any, far: Any) -> None:
    far.byte_sessions.finish(1, ack=True)


@pytest.mark.parametrize(
    ("act", "seconds", "told"),
    [
        (gives_up, 30, ev.Closed),
        (writes_too_much, 60, ev.Failed),
        (opens_one_too_many, 20, ev.Failed),
        (wants_an_acknowledgement, 60, ev.Acknowledged),
    ],
)
def test_a_time_begins_when_the_application_acts(act: Callable[[Any, Any], None], seconds: int, told: type) -> None:
    """Verbs are not told the time; what they begin still takes as long as its limit says."""
    world = World()
    limits = Limits.server(sessions=1)
    near = Engine("client", limits=limits, ping_interval=0, max_wait_for_id=20, auto_ack=False)
    far = Engine("server", limits=limits, ping_interval=0, sessions=True)
    heard: list[tuple[float, type]] = []

    def hear(end: End, event: object) -> None:
        heard.append((world.now, type(event)))

    link = world.join(near, far, on_client=hear, on_server=hear)
    world.run()
    near.byte_sessions.open_session(b"q")
    world.run()
    heard.clear()
    link.dark = True
    world.at(LATE, lambda: act(near, far))
    world.run(until=200)
    assert next(when for when, kind in heard if kind is told) == LATE + seconds
