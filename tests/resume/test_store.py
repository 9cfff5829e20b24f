"""The file of sessions: what is written is read, and what can not be used is refused with words."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import afflux
from afflux import Limits, Payload
from afflux.core.errors import ApplicationError, Canceled, ConnectionClosed, Error, LimitExceeded
from afflux.core.events import Block, Completed, Failed, Items, Opened
from afflux.core.terms import Terms
from afflux.protocols.family.sessions import Sessions
from afflux.protocols.rsocket import Engine
from afflux.protocols.rsocket.frames import Keepalive, PayloadFrame, Setup
from afflux.resume import StoreDamaged, StoreError, StoreLocked, StoreNoSpace
from afflux.resume.record import Record
from afflux.resume.store import SCHEMA_VERSION, Change, Store
from tests.aio.handlers import Demo

LIMITS = Limits.server(resume_rate=(1_000_000, 0.0))
ANYTHING = {"a": [1, -5, 1 << 62, True, None, "ü", b"\0\xff", {"base": b""}], "b": {"c": [[1, b"x"]]}}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file is."""
    return tmp_path / "sessions.db"


# -- the file -------------------------------------------------------------------------------------------------


def test_what_is_written_is_read(path: Path) -> None:
    store = Store(path)
    assert store.sessions() == []
    blocks = [(0, 10, b"one"), (10, 30, b"two"), (30, 35, b"three")]
    items = [(1, 0, b"a", None), (1, 1, b"", b""), (3, 0, b"c", b"m"), (1, 2, b"d", None)]
    key = store.save(None, "client", "tcp://h:1", Change(seen=5.0, parts=ANYTHING, blocks=blocks, items=items))
    assert store.save(key, "client", "", Change(seen=6.5, parts={"b": 2, "c": b""}, gone=["a"], first=12)) == key
    store.save(key, "client", "", Change(seen=6.5, taken=[(1, 2)], dropped=[3], items=[(1, 3, b"e", None)]))
    other = store.save(None, "server", "", Change(seen=1.0))
    store.close()
    store.close()
    store = Store(path)
    older, saved = store.sessions()
    assert (older.key, older.kind, older.parts, older.blocks, older.items) == (other, "server", {}, [], [])
    assert (saved.kind, saved.address, saved.seen) == ("client", "tcp://h:1", 6.5)
    assert saved.parts == {"b": 2, "c": b""}
    assert saved.blocks == [(10, b"two"), (30, b"three")]
    assert saved.items == [(1, 2, b"d", None), (1, 3, b"e", None)]
    store.remove(key)
    assert [saved.key for saved in store.sessions()] == [other]
    store.close()
    with closing(sqlite3.connect(path)) as file:
        for table in ("part", "block", "item"):
            assert file.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


def test_only_its_owner_can_read_it(path: Path) -> None:
    """Tokens are in it."""
    path.touch(0o644)
    store = Store(path)
    store.save(None, "client", "", Change(seen=1.0))
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    store.close()


def test_a_transaction_is_whole_or_not_at_all(path: Path) -> None:
    store = Store(path)
    key = store.save(None, "client", "", Change(seen=1.0, parts={"a": 1}))
    with pytest.raises(StoreError, match="SQLite failed"):
        store.save(key, "client", "", Change(seen=2.0, parts={"a": 2}, items=[(1, 1, b"", None)] * 2))
    (saved,) = store.sessions()
    assert (saved.seen, saved.parts, saved.items) == (1.0, {"a": 1}, [])
    store.close()
    with pytest.raises(StoreError, match="the file is closed"):
        store.remove(key)
    assert store.closed


def test_two_at_once(path: Path) -> None:
    """In one process, and in two."""
    store = Store(path)
    with pytest.raises(StoreLocked, match="another process or object has it open"):
        Store(path)
    code = "import sys; from afflux.resume.store import Store; Store(sys.argv[1])"
    run = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert "StoreLocked" in run.stderr
    assert "another process or object has it open; close that, or use another file" in run.stderr
    store.close()
    Store(path).close()


def damage(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as file:
        file.execute(statement)
        file.commit()


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        (
            f"PRAGMA user_version = {SCHEMA_VERSION + 1}",
            f"its schema is version {SCHEMA_VERSION + 1}, this afflux reads",
        ),
        ("PRAGMA application_id = 77", "it is a database of another program"),
        ("UPDATE part SET value = '[1]'", "a checksum is wrong; remove the file"),
        ("UPDATE block SET frames = x'00'", "a checksum is wrong"),
        ("UPDATE block SET first = 1", "a checksum is wrong"),
        ("UPDATE item SET metadata = NULL", "a checksum is wrong"),
        ("UPDATE item SET number = 1, crc = 'x'", "a checksum is wrong"),
        ("DROP TABLE item", "SQLite failed"),
    ],
)
def test_what_can_not_be_used_is_refused(path: Path, statement: str, text: str) -> None:
    store = Store(path)
    change = Change(seen=1.0, parts={"a": [2]}, blocks=[(0, 1, b"x")], items=[(1, 0, b"", b"m")])
    store.save(None, "client", "", change)
    store.close()
    damage(path, statement)
    with pytest.raises(StoreError, match=text) as caught:
        try:
            store = Store(path)
            store.sessions()
        finally:
            store.close()
    assert caught.value.path == path
    assert str(path) in str(caught.value)
    assert caught.value.rule in ("store", "store-damaged")


def test_something_else_is_refused_and_stays(path: Path) -> None:
    path.write_bytes(b"precious" * 1000)
    with pytest.raises(StoreDamaged, match="not a sessions file"):
        Store(path)
    assert path.read_bytes() == b"precious" * 1000
    other = path.with_name("other.db")
    damage(other, "CREATE TABLE precious (x)")
    with pytest.raises(StoreError, match="another program"):
        Store(other)


def test_a_file_that_is_cut(path: Path) -> None:
    store = Store(path)
    store.save(None, "client", "", Change(seen=1.0, parts={"a": "x" * 100_000}))
    store.close()
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(StoreDamaged):
        try:
            store = Store(path)
            store.sessions()
        finally:
            store.close()


def test_a_place_where_no_file_can_be(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="check the directory"):
        Store(tmp_path / "none" / "sessions.db")
    with pytest.raises(StoreError):
        Store(tmp_path)


def fill(store: Store) -> None:
    """The disk is full from now on."""
    file: Any = store._file
    file.execute(f"PRAGMA max_page_count = {file.execute('PRAGMA page_count').fetchone()[0]}").fetchone()


def test_a_full_disk(path: Path) -> None:
    store = Store(path)
    key = store.save(None, "client", "", Change(seen=1.0, parts={"a": 1}))
    fill(store)
    with pytest.raises(StoreNoSpace, match="the disk is full; make room") as caught:
        store.save(key, "client", "", Change(seen=2.0, blocks=[(0, 9, bytes(1_000_000))]))
    assert caught.value.rule == "store-no-space"
    assert store.sessions()[0].seen == 1.0
    store.close()


# -- the record -----------------------------------------------------------------------------------------------


def client() -> Engine:
    setup = Setup(
        stream=0, keepalive_ms=20_000, lifetime_ms=90_000, metadata_mime="a/b", data_mime="c/d", token=bytes(16)
    )
    engine = Engine("client", setup=setup, limits=LIMITS)
    engine.receive(Keepalive(stream=0, respond=False, position=0, data=b"").encode(prefixed=True), 0.0)
    return engine


def record_of(store: Store, engine: Engine) -> Record:
    return Record(store, engine, kind="client", address="x", asks=True, replays=lambda verb, payload, mime: True)


def again(store: Store) -> Record:
    (saved,) = store.sessions()
    return Record.load(store, saved, limits=LIMITS, terms=Terms(), asks=True, replays=lambda verb, payload, mime: True)


def test_a_record_goes_on(path: Path) -> None:
    store = Store(path)
    engine = client()
    record = record_of(store, engine)
    record.about = {"x": [1]}
    assert not record.kept
    record.save()
    assert record.kept
    for verb in ("request", "stream", "channel", "fire"):
        credit = 9 if verb in ("stream", "channel") else 0
        record.opened(engine.open(verb, b"q", credit=credit), verb, Payload(b"q", b"m"))  # type: ignore[arg-type]
    assert record.dirty
    starts_ends = ([0, 1], [1, 3])
    block = Block(3, b"abc", *(__import__("array").array("q", part) for part in starts_ends), False)
    failed = Failed(5, ApplicationError(0x301, "mine", stream=5))
    assert not record.observe([Items(1, [Payload(b"answer")]), block, Items(3, [Payload(b"", b"m")], True), failed])
    assert not record.observe([Items(99, [Payload(b"nobody's")]), Completed(97)])
    assert record.observe([Opened(2, "stream", Payload(b"peer's"), 3, False)])
    record.save()
    assert not record.dirty
    made = again(store)
    assert made.about == {"x": [1]}
    request, stream, channel = made.asked.values()
    assert list(made.asked) == [1, 3, 5]
    assert (request.verb, request.payload, request.waiting, request.ended) == (
        "request",
        Payload(b"q", b"m"),
        [Payload(b"answer")],
        True,
    )
    assert (stream.waiting, stream.taken, stream.arrived, stream.ended) == (
        [Payload(b"a"), Payload(b"bc"), Payload(b"", b"m")],
        0,
        3,
        True,
    )
    assert isinstance(channel.error, ApplicationError)
    assert (channel.error.code, channel.error.message, channel.ended) == (0x301, "mine", True)
    assert made.served == {}  # the engine knows of no such handler
    assert record.consumed(3, 2)
    assert not record.consumed(99, 1)
    record.drop(1)
    record.drop(99)
    record.save()
    made = again(store)
    assert list(made.asked) == [3, 5]
    assert (made.asked[3].waiting, made.asked[3].taken) == ([Payload(b"", b"m")], 2)
    engine.receive_eof(1.0)
    record.save()
    engine.close(2.0)
    record.save()
    assert store.sessions() == []
    record.remove()
    record.save()
    assert store.sessions() == []
    assert not record.observe([Opened(4, "request", Payload(b""), 1, False)])
    store.close()


def test_frames_are_kept_until_they_have_arrived(path: Path) -> None:
    store = Store(path)
    engine = client()
    record = record_of(store, engine)
    for number in range(6):
        engine.open("fire", b"%d" % number * 50)
        while engine.outgoing():
            pass
        record.save()
    size = 6 * 56
    assert again(store).engine.resuming.retained.state() == [0, size, 0, 0, 0]  # type: ignore[union-attr]
    engine.receive(Keepalive(stream=0, respond=False, position=56 * 4, data=b"").encode(prefixed=True), 0.0)
    record.save()
    made = again(store)
    kept: Any = made.engine.resuming.retained
    assert kept.state()[:2] == [56 * 4, size]
    assert b"5" * 50 in b"".join(kept.blocks())
    assert len(store.sessions()[0].blocks) == 2
    store.close()


def test_nothing_is_written_when_nothing_has_changed(path: Path) -> None:
    store = Store(path)
    record = record_of(store, client())
    record.save()
    file: Any = store._file
    before = file.total_changes
    record.save()
    assert file.total_changes == before
    record._seen -= 2
    record.save()
    assert file.total_changes == before + 1
    store.close()


@pytest.mark.parametrize(
    "error",
    [
        Canceled("c", code=0x203, stream=3),
        LimitExceeded("l", rule="r"),
        ConnectionClosed("x"),
        Error("e"),
        StoreLocked(Path("p"), "w"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_are_reported_again(path: Path, error: Error) -> None:
    store = Store(path)
    engine = client()
    record = record_of(store, engine)
    record.opened(engine.open("request", b""), "request", Payload())
    record.observe([Failed(1, error)])
    record.save()
    made = again(store).asked[1].error
    assert made is not None
    assert (made.message, made.code, made.stream, made.rule) == (error.message, error.code, error.stream, error.rule)
    assert type(made) is (Error if isinstance(error, StoreError) else type(error))
    store.close()


@pytest.mark.parametrize(
    "change",
    [
        Change(seen=9e9, gone=["queue"]),
        Change(seen=9e9, parts={"positions": [0, 5, 0, 0, 0]}),
        Change(seen=9e9, parts={"streams": 7}),
        Change(seen=9e9, parts={"progress": [[1, 0, 4, False, None]]}),
        Change(seen=9e9, parts={"asked.9": ["stream", b"", None]}),
        Change(seen=9e9, parts={"setup": [True, b"\0" * 6, 64]}),
    ],
    ids=lambda change: str([*change.parts, *change.gone][0]),
)
def test_what_does_not_fit_together_is_refused(path: Path, change: Change) -> None:
    store = Store(path)
    engine = client()
    record = record_of(store, engine)
    record.opened(engine.open("request", b""), "request", Payload())
    record.save()
    store.save(record._key, "client", "", change)
    with pytest.raises(StoreDamaged, match="is inconsistent"):
        again(store)
    store.close()


# -- connect and serve ----------------------------------------------------------------------------------------


async def connect(uri: str, path: Path, **more: Any) -> afflux.Peer:
    return await afflux.connect(uri, resume=True, store=path, limits=LIMITS, **more)


def serve(path: Path, handler: object = None, uri: str = "tcp://127.0.0.1:0") -> afflux.Server:
    return afflux.serve(uri, handler or Demo(), resume=True, store=path, limits=LIMITS)


async def test_a_store_needs_resumption() -> None:
    with pytest.raises(ValueError, match="needs resume=True"):
        afflux.connect("tcp://127.0.0.1:1", store="x")
    with pytest.raises(ValueError, match="needs resume=True"):
        afflux.serve("tcp://127.0.0.1:0", Demo(), store="x")


async def test_one_file_one_connection(path: Path) -> None:
    async with afflux.serve("tcp://127.0.0.1:0", Demo(), resume=True) as server:
        peer = await connect(server.uri, path)
        with pytest.raises(StoreLocked, match="another process"):
            await connect(server.uri, path)
        assert (await peer.request(b"x")).data == b"x"
        await peer.close()
        await (await connect(server.uri, path)).close()
        with pytest.raises(afflux.ConnectFailed):
            await connect("tcp://127.0.0.1:1", path)
        peer = await connect(server.uri, path)
        for guest in server.connections:
            await guest.close()
        await peer.wait_closed()
        await (await connect(server.uri, path)).close()  # nobody had to close the other


async def left(path: Path, uri: str) -> None:
    """A session is in the file, and nobody has it open."""
    peer = await connect(uri, path)
    await peer.request(b"x")
    peer._driver.saving.durable()
    peer._driver.leave()
    await peer.close()


async def test_a_session_with_another_address(path: Path) -> None:
    async with afflux.serve("tcp://127.0.0.1:0", Demo(), resume=True, limits=LIMITS) as server:
        await left(path, server.uri)
        with pytest.raises(StoreError, match=f"a session with {server.uri}; use another file for tcp://127.0.0.1:1"):
            await connect("tcp://127.0.0.1:1", path)
        with pytest.raises(StoreError, match=f"a client's session with {server.uri}; choose another"):
            await serve(path)
        peer = await connect(server.uri + "?keepalive=7", path)
        assert (await peer.request(b"y")).data == b"y"
        await peer.close()


async def test_the_file_of_a_server(path: Path) -> None:
    async with serve(path) as server:
        peer = await afflux.connect(server.uri, resume=True)
        await peer.request(b"x")
        with pytest.raises(StoreLocked):
            await serve(path)
        uri = server.uri
        await server.close(keep=True)
        with pytest.raises(StoreError, match="it stores the sessions of a server"):
            await connect(uri, path)
        await peer.close()


class Busy:
    """Items for ever."""

    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        """Large ones."""
        while True:
            yield bytes(1000)

    async def request(self, payload: Payload) -> bytes:
        """Echo."""
        return payload.data


def locked(store: Store) -> None:
    """Somebody has broken into the file."""
    file: Any = store._file

    class Locked:
        in_transaction = False

        def execute(self, *_: Any) -> Any:
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise error

        def close(self) -> None:
            file.close()

    store._file = Locked()  # type: ignore[assignment]


FAULTS: list[tuple[Callable[[Store], None], type[StoreError]]] = [(fill, StoreNoSpace), (locked, StoreLocked)]


@pytest.mark.parametrize(("fault", "kind"), FAULTS, ids=["full", "locked"])
async def test_a_file_that_fails_a_client_ends_its_connection(
    path: Path, fault: Callable[[Store], None], kind: type[StoreError], caplog: pytest.LogCaptureFixture
) -> None:
    async with afflux.serve("tcp://127.0.0.1:0", Busy(), resume=True, limits=LIMITS) as server:
        peer = await connect(server.uri, path)
        other = await afflux.connect(server.uri)
        items = peer.stream(b"", credit=5000)
        assert len((await anext(items)).data) == 1000
        store: Any = peer.store
        fault(store)
        with pytest.raises(kind) as caught:
            async for _ in items:
                pass
        assert str(path) in str(caught.value)
        await peer.wait_closed()
        with pytest.raises(kind):
            await peer.request(b"")
        assert (await other.request(b"y")).data == b"y"
        await peer.close()
        await other.close()
        while server.connections:
            await asyncio.sleep(0)
    assert "a session cannot be stored" in caplog.text


@pytest.mark.parametrize(("fault", "kind"), FAULTS, ids=["full", "locked"])
async def test_a_file_that_fails_a_server_ends_what_would_be_kept(
    path: Path, fault: Callable[[Store], None], kind: type[StoreError], caplog: pytest.LogCaptureFixture
) -> None:
    """And nothing else: who did not ask for resumption is served on."""
    async with serve(path, Busy()) as server:
        other = await afflux.connect(server.uri)
        peer = await afflux.connect(server.uri, resume=True)
        items = peer.stream(b"", credit=10)
        assert len((await anext(items)).data) == 1000
        store: Any = server._store
        fault(store)
        with pytest.raises(afflux.ConnectionClosed, match="the session cannot be stored"):
            async for _ in items:
                pass
        assert (await other.request(b"y")).data == b"y"
        if kind is StoreLocked:
            late = await afflux.connect(server.uri, resume=True)
            with pytest.raises(afflux.ConnectionClosed, match="the session cannot be stored"):
                await late.request(b"z")
            await late.close()
        await peer.close()
        await other.close()
    assert "a session cannot be stored" in caplog.text


async def test_a_server_does_not_start_on_a_bad_file(path: Path) -> None:
    path.write_bytes(b"precious" * 1000)
    with pytest.raises(StoreDamaged, match="not a sessions file"):
        await serve(path)
    with pytest.raises(StoreDamaged, match="not a sessions file"):
        await connect("tcp://127.0.0.1:1", path)


def test_sessions_keep_their_bounds(path: Path) -> None:
    """What is loaded is weighed, and the longest away are the first to go."""
    store = Store(path)
    for number in range(3):
        engine = client()
        setup: Any = engine.setup
        engine.setup = Setup(
            **{field.name: getattr(setup, field.name) for field in Setup.FIELDS} | {"token": bytes([number]) * 16}
        )
        record = record_of(store, engine)
        engine.open("fire", bytes(500))
        record.save()
    limits = LIMITS.replace(resume_process_bytes=1200)
    sessions = Sessions(limits)
    loaded = []
    for saved in store.sessions():
        saved.parts["setup"][0] = False
        terms = Terms(sessions=sessions)
        loaded.append(Record.load(store, saved, limits=limits, terms=terms, asks=False, replays=lambda *_: False))
    assert len(sessions) == 3
    assert sessions.crowd_out() == [loaded[0].engine]
    store.close()


def test_an_answer_in_part_is_no_item(path: Path) -> None:
    store = Store(path)
    engine = client()
    record = record_of(store, engine)
    id = engine.open("stream", b"", credit=3)
    record.opened(id, "stream", Payload())
    frame = PayloadFrame(stream=id, follows=True, next=True, data=b"d" * 80)
    assert not record.observe(engine.receive(frame.encode(prefixed=True), 0.0))
    record.save()
    made = again(store)
    assert made.asked[id].waiting == []
    assert made.engine.stream_table.reassembly.size > 80
    store.close()


def test_requests_are_kept_within_resume_bytes(path: Path) -> None:
    """What is beyond is not kept: an empty request at the one that asked, no second call at the one that serves."""
    store = Store(path)
    engine = client()
    record = record_of(store, engine)
    engine.limits = LIMITS.replace(resume_bytes=100)
    for stream, size in ((1, 40), (3, 60), (5, 1), (7, 0)):
        record.opened(stream, "request", Payload(bytes(size)))
        record.observe([Opened(stream + 1, "request", Payload(bytes(size)), 1, False)])
    assert [len(asked.payload) for asked in record.asked.values()] == [40, 60, 0, 0]
    assert list(record.served) == [2, 4, 8]
    store.close()
