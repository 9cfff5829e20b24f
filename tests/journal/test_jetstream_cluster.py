"""A journal on three servers, each of which stores every message: nodes that are killed, cut off and stopped."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from afflux.journal.errors import JournalAway, JournalTaken
from afflux.journal.jetstream import JetStreamBackend
from tests.journal.contract import block, expected, stored
from tests.journal.nats import NatsServer, api, block_headers, cluster, needs_nats

pytestmark = [needs_nats, pytest.mark.slow]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[NatsServer]]:
    with cluster(tmp_path) as servers:
        yield servers


def uri(nodes: list[NatsServer], stream: str, *, timeout: int = 40) -> str:
    """The address of all nodes."""
    return f"nats://{','.join(f'127.0.0.1:{node.port}' for node in nodes)}/{stream}?replicas=3&timeout={timeout}"


def leader(nodes: list[NatsServer], stream: str, asked: NatsServer | None = None) -> NatsServer:
    """The node that orders the messages of the stream."""
    name = api(asked or nodes[0], f"STREAM.INFO.{stream}")["cluster"]["leader"]
    return next(node for node in nodes if node.name == name)


class Writer(threading.Thread):
    """Appends blocks until it is stopped."""

    def __init__(self, backend: JetStreamBackend) -> None:
        super().__init__()
        self.backend = backend
        self.error: Exception | None = None
        self._ends = threading.Event()
        self._grown = threading.Condition()
        self.start()

    def run(self) -> None:
        try:
            while not self._ends.is_set():
                head = self.backend.heads.head
                self.backend.append([block(head + 20 * number, 20) for number in range(8)])
                with self._grown:
                    self._grown.notify_all()
        except Exception as error:
            self.error = error
            with self._grown:
                self._grown.notify_all()

    def until(self, more: int) -> int:
        """Wait until that many items are stored in addition; return the head."""
        wanted = self.backend.heads.head + more
        with self._grown:
            assert self._grown.wait_for(lambda: self.backend.heads.head >= wanted or self.error, 60)
        assert self.error is None
        return self.backend.heads.head

    def end(self) -> int:
        self._ends.set()
        self.join()
        assert self.error is None
        return self.backend.heads.head


def test_each_node_is_killed_in_mid_append(nodes: list[NatsServer]) -> None:
    with closing(JetStreamBackend(uri(nodes, "ticks"))) as backend:
        writer = Writer(backend)
        promised = writer.until(1000)
        for node in (leader(nodes, "ticks"), nodes[0], nodes[1]):
            node.kill()
            promised = writer.until(500)
            node.start()
        head = writer.end()
        assert head >= promised
        assert stored(backend) == expected(0, head)
    with closing(JetStreamBackend(uri(nodes, "ticks"))) as backend:
        assert backend.heads.head == head
        assert stored(backend) == expected(0, head)


def test_the_leader_changes_in_mid_append(nodes: list[NatsServer]) -> None:
    with closing(JetStreamBackend(uri(nodes, "ticks"))) as backend:
        writer = Writer(backend)
        for _ in range(6):
            writer.until(1000)
            assert "error" not in api(nodes[0], "STREAM.LEADER.STEPDOWN.ticks")
        head = writer.end()
        assert stored(backend) == expected(0, head)
        messages = api(nodes[0], "STREAM.INFO.ticks")["state"]
        assert messages["messages"] == messages["last_seq"] == head // 20


def test_a_leader_that_is_cut_off_does_not_fork_the_journal(nodes: list[NatsServer]) -> None:
    """The node stops without closing its connections, as behind a broken network, and comes back later."""
    with closing(JetStreamBackend(uri(nodes, "ticks"))) as backend:
        writer = Writer(backend)
        writer.until(1000)
        first = leader(nodes, "ticks")
        first.pause()
        writer.until(1000)
        first.send_signal(signal.SIGCONT)
        writer.until(1000)
        head = writer.end()
        assert stored(backend) == expected(0, head)
    with closing(JetStreamBackend(uri(nodes, "ticks"))) as backend:
        assert stored(backend) == expected(0, head)


def test_without_a_majority_nothing_is_promised(nodes: list[NatsServer]) -> None:
    with closing(JetStreamBackend(uri(nodes, "ticks", timeout=3))) as backend:
        backend.append([block(0, 20)])
        for node in nodes[1:]:
            node.kill()
        with pytest.raises(JournalAway):
            backend.append([block(20, 20)])
        assert backend.heads.head == 20
        for node in nodes[1:]:
            node.start(wait=False)
        for node in nodes:
            node.wait()
    with closing(JetStreamBackend(uri(nodes, "ticks"))) as backend:
        head = backend.heads.head
        assert head in (20, 40), "it may have been stored without an answer"
        backend.append([block(head, 20)])
        assert stored(backend) == expected(0, head + 20)


def test_two_writers_never_mix(nodes: list[NatsServer]) -> None:
    with closing(JetStreamBackend(uri(nodes, "ticks"))) as one, closing(JetStreamBackend(uri(nodes, "ticks"))) as two:
        writers = [Writer(one), Writer(two)]
        api(nodes[0], "STREAM.LEADER.STEPDOWN.ticks")
        while all(writer.error is None for writer in writers):
            writers[0].join(0.05)
        [loser] = [writer for writer in writers if writer.error is not None]
        [winner] = [writer for writer in writers if writer is not loser]
        loser.join()
        assert isinstance(loser.error, JournalTaken)
        winner.until(500)
        head = winner.end()
        assert stored(winner.backend) == expected(0, head)
        headers = block_headers(nodes[0], "ticks", head // 20)
        assert len({word for header in headers for word in header.split() if word.startswith("writer=")}) == 1
