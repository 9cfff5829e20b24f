"""A journal on JetStream: bad input, other programs, lost connections and crashes, on a real server."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from afflux.core.errors import AddressError
from afflux.core.limits import Limits
from afflux.journal.address import StreamAddress
from afflux.journal.contract import Reader
from afflux.journal.errors import (
    ItemTooLarge,
    JournalAway,
    JournalDamaged,
    JournalError,
    JournalGone,
    JournalNoSpace,
    JournalTaken,
    ReaderConflict,
)
from afflux.journal.jetstream import JetStreamBackend
from afflux.journal.store import Journal
from tests.cli.forking import Process
from tests.journal.contract import block, expected, filled, stored
from tests.journal.items import item
from tests.journal.nats import Cutter, NatsServer, api, nats_server, needs_nats, publish

SECRET = "hunter2"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """One server for the tests that leave it as it was; each has a stream of its own."""
    with nats_server(tmp_path_factory.mktemp("nats")) as running:
        yield running


# -- addresses ----------------------------------------------------------------------------------------------------


def test_an_address_names_servers_stream_and_options() -> None:
    address = StreamAddress.parse(f"nats://me:{SECRET}@a,[::1]:4223,c.example:1/ticks?replicas=3&timeout=2.5")
    assert address.servers == ("a:4222", "[::1]:4223", "c.example:1")
    assert (address.stream, address.replicas, address.timeout_s) == ("ticks", 3, 2.5)
    assert (address.user, address.password, address.token) == ("me", SECRET, None)
    assert str(address) == "nats://a:4222,[::1]:4223,c.example:1/ticks"
    assert SECRET not in repr(address)
    assert StreamAddress.parse(f"nats://{SECRET}@a/ticks").token == SECRET
    assert str(address.sibling("3")).endswith("/ticks-3")


@pytest.mark.parametrize(
    ("rest", "problem"),
    [
        ("a", "names its stream"),
        ("a/", "names its stream"),
        ("a/b.c", 'invalid stream "b.c"'),
        ("a/b/c", 'invalid stream "b/c"'),
        ("a/" + "x" * 129, "invalid stream"),
        ("/ticks", "invalid NATS server"),
        ("a:0/ticks", "invalid NATS server"),
        ("a:65536/ticks", "invalid NATS server"),
        ("a:x/ticks", "invalid NATS server"),
        ("a,/ticks", "invalid NATS server"),
        ("a/ticks?replicas=2", "replicas must be one of 1, 3, 5"),
        ("a/ticks?timeout=0", "timeout must be above 0"),
        ("a/ticks?timeout=1e9", "timeout must be above 0"),
        ("a/ticks?replica=3", "unknown option 'replica'"),
    ],
)
def test_an_invalid_address_is_refused_without_its_credentials(rest: str, problem: str) -> None:
    with pytest.raises(AddressError, match=problem) as refused:
        StreamAddress.parse(f"nats://me:{SECRET}@{rest}")
    assert SECRET not in str(refused.value)


def test_the_missing_package_is_named() -> None:
    program = """
import sys
sys.modules["nats"] = None
from afflux.core.errors import MissingExtra
from afflux.journal import Journal
try:
    Journal("nats://127.0.0.1/ticks")
except MissingExtra as error:
    print(error)
"""
    with Process([], program=program, stdout=subprocess.PIPE, text=True) as process:
        said, _ = process.communicate(timeout=30)
    assert 'pip install "afflux[nats]"' in said


# -- other streams, other programs --------------------------------------------------------------------------------


@needs_nats
def test_a_server_without_jetstream_is_refused(tmp_path: Path) -> None:
    server = NatsServer(tmp_path)
    server.jetstream = False
    try:
        server.start()
        with pytest.raises(JournalError, match="has no JetStream; start the server with -js"):
            Journal(server.uri("ticks"))
    finally:
        server.kill()


@needs_nats
def test_wrong_credentials_are_refused_and_never_printed(tmp_path: Path) -> None:
    with nats_server(tmp_path, more=f'authorization {{ user: "me", password: "{SECRET}" }}') as server:
        for credentials in ("", "me:wr0ng@", "wr0ng@"):
            with pytest.raises(JournalError, match="refuses the credentials") as refused:
                Journal(server.uri("ticks", credentials=credentials))
            assert "wr0ng" not in str(refused.value)
        with Journal(server.uri("ticks", credentials=f"me:{SECRET}@")) as journal:
            journal.append([b"x"], 0)
            assert journal.commit() == 1
            assert SECRET not in repr(journal)


@needs_nats
def test_a_stream_of_another_program_is_refused_and_kept(server: NatsServer) -> None:
    api(server, "STREAM.CREATE.orders", {"name": "orders", "subjects": ["orders.*"], "storage": "file"})
    publish(server, "orders.new", b"an order")
    with pytest.raises(JournalError, match="is not a journal of afflux; choose another name"):
        Journal(server.uri("orders"))
    assert api(server, "STREAM.INFO.orders")["state"]["messages"] == 1
    api(server, "STREAM.CREATE.wide", {"name": "wide", "subjects": ["taken.>"], "storage": "file"})
    with pytest.raises(JournalError, match=r'another stream has its subject "taken\.blocks"'):
        Journal(server.uri("taken"))
    api(server, "STREAM.CREATE.own-reader", {"name": "own-reader", "subjects": ["x.y"], "storage": "file"})
    with pytest.raises(JournalError, match="its stream own-reader is taken"):
        Journal(server.uri("own"))


@needs_nats
@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"max_age": 3600 * 10**9}, "has max_age=3600000000000, and a journal needs 0"),
        ({"max_msgs": 5}, "has max_msgs=5"),
        ({"discard": "old"}, "has discard=old, and a journal needs new"),
        ({"subjects": ["edited.blocks", "edited.more"]}, "has subjects="),
    ],
)
def test_a_stream_that_could_lose_items_silently_is_refused(
    server: NatsServer, changed: dict[str, object], problem: str
) -> None:
    Journal(server.uri("edited")).close()
    config = api(server, "STREAM.INFO.edited")["config"]
    assert "error" not in api(server, "STREAM.UPDATE.edited", config | changed)
    with pytest.raises(JournalError, match=problem):
        Journal(server.uri("edited"))
    api(server, "STREAM.DELETE.edited")


@needs_nats
def test_a_journal_of_another_stream_and_missing_replicas_are_refused(server: NatsServer) -> None:
    Journal(server.uri("keyed"), key=b"one").close()
    with pytest.raises(JournalError, match="contains another stream"):
        Journal(server.uri("keyed"), key=b"two")
    with pytest.raises(JournalError, match="has 1 replicas, and the address wants 3"):
        Journal(server.uri("keyed", "?replicas=3"), key=b"one")
    with pytest.raises(JournalError, match="JetStream refuses to create it: replicas > 1 not supported"):
        Journal(server.uri("tripled", "?replicas=3"))


@needs_nats
def test_a_message_of_another_program_stops_the_writer_and_is_found(server: NatsServer) -> None:
    with Journal(server.uri("foreign")) as journal:
        journal.append([b"one"], 0)
        journal.commit()
        publish(server, "foreign.blocks", b"not a block")
        journal.append([b"two"], 0)
        with pytest.raises(JournalDamaged, match=r"message 2 was not written by a journal: .*stream rmm foreign 2"):
            journal.commit()
        assert journal.head == 1
    with pytest.raises(JournalDamaged, match="message 2 was not written by a journal"):
        Journal(server.uri("foreign"))
    assert api(server, "STREAM.MSG.DELETE.foreign", {"seq": 2})["success"]
    with Journal(server.uri("foreign")) as journal:
        assert journal.head == 1
        journal.append([b"two"], 0)
        journal.commit()
        assert [data for each in journal.read(0, limit_bytes=1 << 20) for data in each.data()] == [b"one", b"two"]


@needs_nats
def test_a_purge_by_another_program_is_damage(server: NatsServer) -> None:
    with Journal(server.uri("purged")) as journal:
        journal.append([b"one"], 0)
    api(server, "STREAM.PURGE.purged")
    with pytest.raises(JournalDamaged, match="the block with offset 0 is missing"):
        Journal(server.uri("purged"))


# -- two processes ------------------------------------------------------------------------------------------------


@needs_nats
def test_the_second_writer_is_refused_with_its_first_append(server: NatsServer) -> None:
    with Journal(server.uri("both")) as first, Journal(server.uri("both")) as second:
        first.append([b"a"], 0)
        first.commit()
        second.append([b"b"], 0)
        with pytest.raises(JournalTaken, match="another writer has appended message 1; one writer at a time"):
            second.commit()
        with pytest.raises(JournalError, match="an earlier write failed: another writer"):
            second.remember(b"note")
        first.append([b"c"], 0)
        first.commit()
        assert [data for each in first.read(0, limit_bytes=1 << 20) for data in each.data()] == [b"a", b"c"]


@needs_nats
def test_readers_and_trims_of_other_processes_are_found(server: NatsServer) -> None:
    billing, audit = Reader("billing", 1), Reader("audit", 2)
    with Journal(server.uri("shared")) as writer:
        for number in range(6):
            writer.append([item(number)], number)
            writer.commit()
    with Journal(server.uri("shared")) as writer, Journal(server.uri("shared")) as other:
        size = writer.size
        assert writer.acknowledge(billing, 1) == 1
        with closing(JetStreamBackend(server.uri("shared"), follow=True)) as follower:
            follower.trim(4)
            assert follower.heads.first == 4
        assert (writer.first, writer.size) == (1, size - sizes_of(1))
        with pytest.raises(JournalGone, match="offset 2 was trimmed; the lowest one left is 4"):
            writer.read(2)
        assert (writer.first, writer.size) == (4, size - sizes_of(4))
        with pytest.raises(ReaderConflict, match="its reader is 'billing'"):
            other.acknowledge(audit, 5)
        other.release("billing")
        assert other.acknowledge(audit, 0) == 4
        with pytest.raises(ReaderConflict, match="its reader is 'audit'"):
            writer.acknowledge(billing, 5)
        assert writer.trim(6) == 6
        assert (writer.first, writer.head, writer.size) == (6, 6, 0)
        assert (other.refresh(), other.size) == (6, 0)


def sizes_of(count: int) -> int:
    return sum(block(number, 1).charge for number in range(count))


@needs_nats
def test_two_processes_that_create_the_same_journal_agree(server: NatsServer) -> None:
    found: list[int] = []

    def create() -> None:
        with closing(JetStreamBackend(server.uri("race"))) as backend:
            found.append(backend.heads.epoch)

    threads = [threading.Thread(target=create) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6 and len(set(found)) == 1


# -- sizes --------------------------------------------------------------------------------------------------------


@needs_nats
def test_an_item_that_no_message_has_room_for_is_refused(tmp_path: Path) -> None:
    with nats_server(tmp_path, more="max_payload: 65536") as server, Journal(server.uri("small")) as journal:
        journal.remember(b"x" * 8000)
        most = journal.item_bytes
        assert 50_000 < most < 65_536
        with pytest.raises(ItemTooLarge, match=f"has at most {most} .max_payload.; send it in parts"):
            journal.append([b"x" * (most + 1)], 0)
        journal.append([b"x" * most, *[b"y" * 1000] * 200, b"z" * most], 0)
        assert journal.commit() == 202
        found = [len(data) for each in journal.read(0, limit_bytes=1 << 20) for data in each.data()]
        assert found == [most, *[1000] * 200, most]


@needs_nats
def test_a_full_storage_makes_the_writer_wait_until_a_trim(tmp_path: Path) -> None:
    directory = tmp_path / "n1"
    more = f'jetstream {{ store_dir: "{directory}", max_file_store: 3000000 }}'
    server = NatsServer(tmp_path, more=more)
    server.jetstream = False  # the configuration has its own
    try:
        server.start()
        with Journal(server.uri("full"), limits=Limits.server()) as journal:
            journal.append([b"x" * 1000] * 5000, 0)
            with pytest.raises(JournalNoSpace, match="JetStream has no room"):
                journal.commit()
            there = journal.head
            assert 0 < there < 5000
            assert sum(map(len, journal.read(0, limit_bytes=1 << 30))) == there
            journal.trim(there)
            for _ in range(4):
                try:
                    journal.commit()
                except JournalNoSpace:
                    journal.trim(journal.head)
            assert journal.head == 5000
    finally:
        server.kill()


@needs_nats
def test_a_bounded_stream_makes_the_writer_wait_and_discards_nothing(server: NatsServer) -> None:
    with Journal(server.uri("bounded")) as journal:
        assert journal.item_bytes == 960_163, "docs/how-to/jetstream.md has this number"
        config = api(server, "STREAM.INFO.bounded")["config"]
        assert "error" not in api(server, "STREAM.UPDATE.bounded", config | {"max_bytes": 1_000_000})
        journal.append([b"x" * 1000] * 2000, 0)
        with pytest.raises(JournalNoSpace, match=r"JetStream has no room \(maximum bytes exceeded"):
            journal.commit()
        there = journal.head
        assert there > 500
        assert sum(map(len, journal.read(0, limit_bytes=1 << 30))) == there, "nothing was discarded"
        while journal.head < 2000:
            journal.trim(journal.head)
            with suppress(JournalNoSpace):
                journal.commit()


# -- lost connections and crashes -----------------------------------------------------------------------------------


@needs_nats
def test_appends_and_reads_survive_a_restart_of_the_server(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with nats_server(tmp_path) as server, closing(JetStreamBackend(server.uri("ticks"))) as backend:
        filled(backend, 3)
        for stop in (server.stop, server.kill):
            stop()
            timer = threading.Timer(0.3, server.start)
            timer.start()
            filled(backend, 4)
            timer.join()
            stop()
            timer = threading.Timer(0.3, server.start)
            timer.start()
            assert stored(backend) == expected(0, backend.heads.head)
            timer.join()
        assert backend.heads.head == 11
        said = [record.getMessage() for record in caplog.records if record.name == "afflux.journal"]
        assert sum("trying again" in text for text in said) == sum("answer again" in text for text in said) > 0


@needs_nats
def test_a_server_that_stays_away_is_an_error_after_the_timeout(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server, Journal(server.uri("ticks", "?timeout=0.5")) as journal:
        journal.append([b"x"], 0)
        journal.commit()
        server.stop()
        with pytest.raises(JournalAway, match=r"has not answered for 0.5 s: .*cannot be reached"):
            journal.read(0)
        with pytest.raises(JournalAway):
            Journal(server.uri("ticks", "?timeout=0.2"))
        server.start()
        assert [each.data() for each in journal.read(0)] == [[b"x"]]


@needs_nats
@pytest.mark.parametrize("blocks", [1, 3, 40])
def test_an_append_whose_answer_was_lost_is_stored_once(server: NatsServer, blocks: int) -> None:
    name = f"cut-{blocks}"
    with closing(Cutter(server)) as cutter, closing(JetStreamBackend(cutter.uri(name))) as backend:
        filled(backend, 2)
        for cuts in range(1, 4):
            cutter.mute.set()
            head = backend.heads.head
            backend.append([block(head + 2 * number, 2) for number in range(blocks)])
            assert cutter.cuts == cuts
        assert backend.heads.head == 2 + 6 * blocks
        assert stored(backend) == expected(0, backend.heads.head)
        assert api(server, f"STREAM.INFO.{name}")["state"]["messages"] == 1 + 3 * blocks


WRITER = """
import os, signal
from afflux.journal.jetstream import JetStreamBackend
from tests.journal.contract import block

backend = JetStreamBackend({uri!r})
os.write(1, b"up\\n")
os.read(0, 1)
backend.append([block(backend.heads.head, 300)])
os.write(1, b"stored\\n")
"""


@needs_nats
def test_a_writer_that_is_killed_before_the_answer_has_stored_its_block_or_not(tmp_path: Path) -> None:
    """The server is stopped while the message waits in its socket, and the writer is killed."""
    with nats_server(tmp_path) as server:
        uri = server.uri("ticks")
        for round_ in range(3):
            program = WRITER.format(uri=uri)
            with Process([], program=program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
                assert writer.stdin is not None and writer.stdout is not None
                assert writer.stdout.readline() == b"up\n"
                server.pause()
                writer.stdin.write(b"x")
                writer.stdin.flush()
                server.wait_for_input(1000)
                writer.kill()
                server.send_signal(signal.SIGCONT)
            server.wait()
            with closing(JetStreamBackend(uri)) as backend:
                assert backend.heads.head == 300 * (round_ + 1)
                assert stored(backend) == expected(0, backend.heads.head)
