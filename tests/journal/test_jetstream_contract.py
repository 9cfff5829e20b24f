"""The backend on JetStream passes the contract, on a real server."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from afflux.journal.blocks import Block
from afflux.journal.contract import Backend
from afflux.journal.jetstream import JetStreamBackend
from tests.journal.contract import Contract, Storage, filled
from tests.journal.nats import NatsServer, nats_server, needs_nats

pytestmark = needs_nats


class JetStream(Storage):
    """A stream of one server."""

    imports = "from afflux.journal.jetstream import JetStreamBackend"

    def __init__(self, directory: Path, server: NatsServer) -> None:
        super().__init__(directory)
        self.server = server
        self.uri = server.uri("ticks")

    @property
    def opening(self) -> str:
        return f"JetStreamBackend({self.uri!r})"

    def open(self) -> Backend:
        return JetStreamBackend(self.uri)

    @property
    def messages(self) -> Path:
        """The file with the last messages."""
        found = self.server.directory.glob("jetstream/$G/streams/ticks/msgs/*.blk")
        return max(found, key=lambda path: int(path.stem))

    def torn(self, rng: random.Random) -> bool:
        """Kill the server and cut what it wrote last: as after a loss of power, it has less than it acknowledged."""
        with closing(self.open()) as backend:
            filled(backend, 1)
            kept = self.messages.stat().st_size
            filled(backend, *[rng.choice((1, 20, 300)) for _ in range(4)])
        self.server.kill()
        path = self.messages
        content = path.read_bytes()
        path.write_bytes(content[: rng.randrange(kept, len(content))])
        path.with_suffix(".idx").unlink(missing_ok=True)
        self.server.start()
        return True

    def flip(self, backend: Backend, block: Block) -> None:
        self.server.stop()
        for path in self.server.directory.glob("jetstream/$G/streams/ticks/msgs/*.blk"):
            content = path.read_bytes()
            if (start := content.find(block.body)) >= 0:
                at = start + len(block.body) // 2
                path.write_bytes(content[:at] + bytes((content[at] ^ 1,)) + content[at + 1 :])
        self.server.start()


class TestJetStream(Contract):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> Iterator[Storage]:
        with nats_server(tmp_path) as server:
            yield JetStream(tmp_path, server)
