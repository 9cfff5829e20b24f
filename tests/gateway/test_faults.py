"""The relay among faults: a disk that is full or fails, a clock that steps, a network that is cut."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import pytest

import afflux
from afflux.core.payload import Payload
from afflux.gateway import Origin
from afflux.journal import JournalError, Retention
from afflux.testing import Faults, Proxy
from tests.gateway.remotes import HERE, Counter, Replay, acknowledge, head, number, read, read_from, relaying
from tests.journal.disks import fill, small_disk

MI = 1 << 20


class Heavy:
    """A live stream of items of 10,000 bytes, without end."""

    def __init__(self) -> None:
        self.sent = 0

    async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
        for self.sent in count():
            yield number(self.sent).ljust(10_000)


async def stalled(peer: afflux.Peer) -> int:
    """Wait until the remote has to wait; return the head."""
    while not (state := await head(peer)).full:
        await asyncio.sleep(0)
    return state.head


def numbers(items: object) -> list[int]:
    assert isinstance(items, list)
    return [int(item) for item in items]


def test_on_a_full_disk_the_remote_waits_and_readers_read(tmp_path: Path) -> None:
    async def main(disk: Path) -> None:
        heavy = Heavy()
        async with (
            afflux.serve(HERE, heavy) as remote,
            relaying(remote.uri, disk / "journal") as relay,
            afflux.connect(relay.uri) as peer,
        ):
            durable = await stalled(peer)
            assert relay.status()[0].stall == "the disk is full; make room and try again"
            assert numbers(await read(peer, durable)) == list(range(durable))
            assert heavy.sent - durable < 3 * MI // 10_000
            await acknowledge(relay, durable)
            more = (await head(peer, after=durable)).head
            assert numbers(await read(peer, more - durable, first=durable)) == list(range(durable, more))

    with small_disk(tmp_path / "disk", 24 * MI) as disk:
        asyncio.run(main(disk))


def test_the_first_item_waits_for_room_on_the_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main(disk: Path) -> None:
        counter = Counter()
        async with afflux.serve(HERE, counter) as remote, relaying(remote.uri, disk / "journal") as relay:
            other = fill(disk)
            counter.allow(3)
            while "0.journal: the disk is full; make room and try again; its stream waits" not in caplog.text:
                await asyncio.sleep(0.01)
            assert relay.status()[0].head == 0
            other.unlink()
            assert numbers(await read_from(relay, 3)) == [0, 1, 2]

    with small_disk(tmp_path / "disk", 24 * MI) as disk:
        asyncio.run(main(disk))


def test_a_disk_that_fails_ends_the_relay(tmp_path: Path) -> None:
    async def main() -> None:
        counter = Counter(3)
        async with afflux.serve(HERE, counter) as remote, relaying(remote.uri, tmp_path) as relay:
            assert numbers(await read_from(relay, 3)) == [0, 1, 2]
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
            try:
                counter.allow(10)
                with pytest.raises(JournalError, match="SQLite failed"):
                    await relay.failed()
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        async with relaying(remote.uri, tmp_path) as relay:
            assert numbers(await read_from(relay, 3)) == [0, 1, 2]

    asyncio.run(main())


def test_a_clock_that_steps_trims_nothing_and_loses_nothing(tmp_path: Path) -> None:
    steps = iter([0, 10**15, 5, 10**17, 7])
    now = 0

    def clock() -> int:
        nonlocal now
        now = next(steps, now)
        return now

    async def main() -> None:
        counter = Counter()
        keep = Retention(seconds=3600)
        async with (
            afflux.serve(HERE, counter) as remote,
            relaying(remote.uri, tmp_path, clock=clock, keep=keep) as relay,
            afflux.connect(relay.uri) as peer,
        ):
            for stop in range(1, 8):
                counter.allow(stop)
                assert (await head(peer, after=stop - 1)).first == 0
            assert numbers(await read(peer, 7)) == list(range(7))

    asyncio.run(main())


def test_retention_trims(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            afflux.serve(HERE, Heavy()) as remote,
            relaying(remote.uri, tmp_path, keep=Retention(size=MI)) as relay,
            afflux.connect(relay.uri) as peer,
        ):
            state = await head(peer, after=1000)
            while state.first == 0:
                state = await head(peer, after=state.head)

    asyncio.run(main())


def test_a_session_is_resumed_without_a_gap(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            afflux.serve(HERE, Replay(2000), resume=True) as remote,
            Proxy(
                remote.uri, plan=lambda number: (Faults(), Faults(cut_after=3000) if not number else Faults())
            ) as proxy,
            relaying(Origin(proxy.uri, resume=True), tmp_path) as relay,
        ):
            assert numbers(await read_from(relay, 3000)) == list(range(2000))
            assert (proxy.connections, relay.status()[0].gaps) == (2, 0)

    asyncio.run(main())


def test_a_connection_that_is_cut_again_and_again_loses_nothing_of_a_stream_that_replays(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            afflux.serve(HERE, Replay(2000)) as remote,
            Proxy(remote.uri, plan=lambda number: (Faults(), Faults(cut_after=4000 * number + 1000))) as proxy,
            relaying(Origin(proxy.uri, replays=True), tmp_path) as relay,
        ):
            assert numbers(await read_from(relay, 3000)) == list(range(2000))
            assert proxy.connections > 3
            assert relay.status()[0].gaps == 0

    asyncio.run(main())
