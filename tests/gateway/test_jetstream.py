"""The relay and journalled streams on JetStream, on real servers: kills, restarts, trims of other processes."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import afflux
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.gateway import Origin
from afflux.journal import Journalled, JournalTaken
from afflux.journal.jetstream import JetStreamBackend
from afflux.protocols.rsocket.cursor import Head, Read, state_of
from tests.cli.forking import Process
from tests.gateway.remotes import HERE, Counter, Replay, Stored, acknowledge, head, number, read, read_from, relaying
from tests.journal.nats import NatsServer, api, nats_server, needs_nats

pytestmark = needs_nats


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with nats_server(tmp_path_factory.mktemp("nats")) as running:
        yield running


def numbers(start: int, stop: int) -> list[bytes]:
    return [number(n) for n in range(start, stop)]


def test_a_stream_is_relayed_and_continued(nats: NatsServer) -> None:
    async def main() -> None:
        where = nats.uri("relayed")
        async with afflux.serve(HERE, Replay(500, ends=False)) as remote:
            origin = Origin(remote.uri, replays=True)
            for _ in range(2):
                async with relaying(origin, where) as relay:
                    assert await asyncio.gather(*[read_from(relay, 500) for _ in range(3)]) == [numbers(0, 500)] * 3
                    assert relay.status()[0].gaps == 0
            with pytest.raises(afflux.Error, match="relayed: it contains another stream; choose another name"):
                await relaying(Origin(remote.uri, route="other"), where)

    asyncio.run(main())


def test_each_remote_has_a_stream(nats: NatsServer) -> None:
    async def main() -> None:
        async with (
            afflux.serve(HERE, Replay(3)) as one,
            afflux.serve(HERE, Replay(5)) as two,
            relaying([one.uri, two.uri], nats.uri("pair")) as relay,
        ):
            assert await read_from(relay, 3, shard=0) == numbers(0, 3)
            assert await read_from(relay, 5, shard=1) == numbers(0, 5)

    asyncio.run(main())
    for name, items in (("pair", 3), ("pair-1", 5)):
        with closing(JetStreamBackend(nats.uri(name), key=None, follow=True)) as backend:
            assert (backend.heads.head, backend.heads.sealed) == (items, True)


@pytest.mark.slow
def test_a_relay_that_is_killed_neither_loses_nor_doubles(nats: NatsServer, tmp_path: Path) -> None:
    count = 60_000

    async def main() -> None:
        source = Stored()
        async with source.served(tmp_path / "remote") as handler, afflux.serve(HERE, handler) as remote:
            for first in range(0, count, 500):
                source.put(numbers(first, first + 500))
            command = ["relay", "--from", remote.uri, "--journal", nats.uri("killed"), "--listen", HERE]
            reached = 0
            for part in range(1, 7):
                with Process(command, stdout=subprocess.PIPE, text=True) as process:
                    assert process.stdout is not None
                    uri = (await asyncio.to_thread(process.stdout.readline)).split()[1]
                    async with afflux.connect(uri) as peer:
                        state = await head(peer, after=min(count - 1, reached + part * 500))
                    assert state.head >= reached
                    reached = state.head
                    process.send_signal(signal.SIGKILL)
            async with relaying(remote.uri, nats.uri("killed")) as relay:
                assert await read_from(relay, count) == numbers(0, count)
                assert relay.status()[0].head == count

    asyncio.run(main())


def test_a_second_relay_ends_one_of_both(nats: NatsServer, tmp_path: Path) -> None:
    async def main() -> None:
        source = Stored()
        async with (
            source.served(tmp_path) as handler,
            afflux.serve(HERE, handler) as remote,
            relaying(remote.uri, nats.uri("double")) as one,
        ):
            source.put(*numbers(0, 3))
            assert await read_from(one, 3) == numbers(0, 3)
            async with relaying(remote.uri, nats.uri("double")) as two:
                source.put(*numbers(3, 50))
                failed = [asyncio.create_task(relay.failed()) for relay in (one, two)]
                await asyncio.wait(failed, return_when=asyncio.FIRST_COMPLETED)
                for task in failed:
                    if task.done():
                        with pytest.raises(JournalTaken, match="one writer at a time"):
                            task.result()
                    task.cancel()

    asyncio.run(main())


def test_a_full_journal_continues_after_a_trim_of_another_process(nats: NatsServer) -> None:
    async def main() -> None:
        limits = Limits.server().replace(journal_bytes=1 << 20)
        async with (
            afflux.serve(HERE, Heavy()) as remote,
            relaying(remote.uri, nats.uri("filled"), limits=limits) as relay,
            afflux.connect(relay.uri) as peer,
        ):
            done = 0
            while done < Heavy.count:
                state = await head(peer, after=done or 1)
                found = await read(peer, state.head - done, first=done)
                assert [item[:6] for item in found if isinstance(item, bytes)] == numbers(done, state.head)
                done = state.head
                await asyncio.to_thread(trim, nats.uri("filled"), done)

    asyncio.run(main())


class Heavy:
    """Three times as many bytes as the journal has room for."""

    count = 3000

    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        for n in range(self.count):
            yield number(n) + bytes(1000)


def trim(uri: str, done: int) -> None:
    """Trim whole blocks that were read, but not the last one, which only the writer may trim."""
    with closing(JetStreamBackend(uri, key=None, follow=True)) as other, closing(other.index()) as blocks:
        other.trim(max(block.first for block in blocks if block.first < done))


def test_acknowledgements_trim_the_stream(nats: NatsServer) -> None:
    async def main() -> None:
        async with (
            afflux.serve(HERE, Replay(1000)) as remote,
            relaying(Origin(remote.uri, replays=True), nats.uri("acknowledged")) as relay,
        ):
            assert await read_from(relay, 1000) == numbers(0, 1000)
            async with afflux.connect(relay.uri) as peer:
                await head(peer, after=999)
            state = await acknowledge(relay, 1000)
            assert (state.first, state.head) == (1000, 1000)

    asyncio.run(main())
    assert api(nats, "STREAM.INFO.acknowledged")["state"]["messages"] == 1


def test_the_relay_waits_for_a_server_that_restarts(tmp_path: Path) -> None:
    async def main() -> None:
        with nats_server(tmp_path) as nats:
            counter = Counter(3)
            async with afflux.serve(HERE, counter) as remote, relaying(remote.uri, nats.uri("ticks")) as relay:
                assert await read_from(relay, 3) == numbers(0, 3)
                for stop in (6, 9):
                    nats.kill()
                    counter.allow(stop)
                    await asyncio.to_thread(nats.start)
                    assert await read_from(relay, stop) == numbers(0, stop)

    asyncio.run(main())


class Two:
    """Streams by their data: so many numbers."""

    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        for n in range(int(payload.data)):
            yield number(n)

    replays = True


def test_streams_of_a_server_are_journalled_by_their_request(nats: NatsServer) -> None:
    async def ask(peer: Any, count: int) -> list[bytes]:
        answer = [item async for item in peer.stream(str(count), cursor=Head(after=count - 1, wait_ms=30_000))]
        assert state_of(answer[0].metadata).head == count
        return [item.data async for item in peer.stream(str(count), cursor=Read(limit=count))]

    async def main() -> None:
        for _ in range(2):
            async with (
                Journalled(Two(), nats.uri("served"), journals=2) as handler,
                afflux.serve(HERE, handler) as server,
                afflux.connect(server.uri) as peer,
            ):
                assert await asyncio.gather(ask(peer, 5), ask(peer, 300)) == [numbers(0, 5), numbers(0, 300)]
                with pytest.raises(afflux.Rejected, match="too-many-journals: at most 2"):
                    await ask(peer, 7)

    asyncio.run(main())
    streams = api(nats, "STREAM.NAMES")["streams"]
    assert len([name for name in streams if name.startswith("served-") and not name.endswith("-reader")]) == 2
