"""The relay from outside: remote streams, a relay and readers over real sockets."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import afflux
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.gateway import Origin
from afflux.journal import Journal, JournalDamaged, JournalError, Journalled, JournalLocked
from afflux.protocols.rsocket.cursor import Read, split_position, split_request
from afflux.protocols.rsocket.gap import Gap, Place, gap_of
from tests.gateway.remotes import (
    HERE,
    Counter,
    Replay,
    Stored,
    acknowledge,
    head,
    key_of,
    number,
    read,
    read_from,
    relaying,
)


def numbers(start: int, stop: int) -> list[bytes]:
    return [number(n) for n in range(start, stop)]


def test_a_stream_is_stored_and_served_to_any_number_of_readers(tmp_path: Path) -> None:
    async def main() -> None:
        async with afflux.serve(HERE, Replay(1000)) as remote, relaying(remote.uri, tmp_path) as relay:
            both = await asyncio.gather(read_from(relay, 1000), read_from(relay, 2000))
            assert both == [numbers(0, 1000)] * 2  # the second one ends with the stream
            async with afflux.connect(relay.uri) as peer:
                assert [item.data async for item in peer.stream()] == numbers(0, 1000)
                assert await read(peer, 10, first=500) == numbers(500, 510)
            (shard,) = relay.status()
            assert (shard.head, shard.waiting, shard.sealed, shard.gaps) == (1000, 0, True, 0)
        async with relaying(remote.uri, tmp_path) as relay:  # a complete stream needs no remote
            assert await read_from(relay, 1001) == numbers(0, 1000)

    asyncio.run(main())


def test_credit_ends_with_the_room_and_comes_back_with_it(tmp_path: Path) -> None:
    limits = Limits.tiny().replace(journal_bytes=20_000)

    async def main() -> None:
        counter = Counter(1 << 62)
        async with (
            afflux.serve(HERE, counter) as remote,
            relaying(remote.uri, tmp_path, limits=limits) as relay,
            afflux.connect(relay.uri) as peer,
        ):
            stored = 0
            while relay.status()[0].room >= 128:
                stored = (await head(peer, after=stored)).head
            most = 20_000 // 14 + limits.connection_bytes // 4 // 64 + 2
            assert 500 < stored <= counter.next <= most  # items of 6 bytes, charged 14
            await acknowledge(relay, stored)
            assert (await head(peer, after=stored)).head > stored

    asyncio.run(main())


def test_a_remote_with_a_cursor_is_continued_exactly(tmp_path: Path) -> None:
    async def main() -> None:
        inner = Stored()
        async with inner.served(tmp_path / "remote") as handler, afflux.serve(HERE, handler) as remote:
            inner.put(*numbers(0, 100))
            async with relaying(remote.uri, tmp_path / "relay") as relay:
                assert await read_from(relay, 100) == numbers(0, 100)
            inner.put(*numbers(100, 150))
            async with relaying(remote.uri, tmp_path / "relay") as relay:
                assert await read_from(relay, 150) == numbers(0, 150)
                await remote.close()
                async with afflux.serve(remote.uri, handler):
                    inner.put(*numbers(150, 200), None)
                    assert await read_from(relay, 300) == numbers(0, 200)
                    assert relay.status()[0].gaps == 0

    asyncio.run(main())


class Asked:
    """A remote with a cursor that records whether each READ permits blocks. It may not know that flag, or damage the
    blocks."""

    def __init__(self, inner: Journalled, *, knows: bool, damages: bool = False) -> None:
        self.inner = inner
        self.knows = knows
        self.damages = damages
        self.permitted: list[bool] = []

    async def stream(self, payload: Payload) -> AsyncIterator[Any]:
        cursor, _ = split_request(payload.metadata)
        if isinstance(cursor, Read):
            self.permitted.append(cursor.blocks)
            if cursor.blocks and not self.knows:
                raise afflux.Invalid("reserved flags")
        async for items in self.inner.stream(payload):
            yield [damaged(item) for item in items] if self.permitted == [True] and self.damages else items


def damaged(block: Payload) -> Payload:
    """The block with one other bit."""
    return Payload(block.data[:-1] + bytes([block.data[-1] ^ 1]), block.metadata)


@pytest.mark.parametrize(
    ("knows", "damages", "permitted"),
    [(True, False, [True]), (False, False, [True, False]), (True, True, [True, False])],
)
def test_blocks_of_a_remote_are_stored_as_its_items(
    tmp_path: Path, knows: bool, damages: bool, permitted: list[bool]
) -> None:
    values = [Payload(b"%d" % n, (None, b"", b"m%d" % n)[n % 3]) for n in range(5000)]
    values[10:20] = [Payload(b"x" * 40_000)] * 10
    bare = [b"y" * (n % 300) for n in range(20_000)]
    gap = Gap(cause="a test", lost=3).item()

    async def main() -> None:
        inner = Stored()
        async with inner.served(tmp_path / "remote") as handler:
            remote = Asked(handler, knows=knows, damages=damages)
            async with afflux.serve(HERE, remote) as server, relaying(server.uri, tmp_path / "relay") as relay:
                inner.put(values, bare, [gap], values, None)
                async with afflux.connect(relay.uri) as peer:
                    found = [item async for item in peer.stream()]
                (shard,) = relay.status()
                assert (shard.sealed, shard.gaps) == (True, 0)
            assert found == [*values, *map(Payload, bare), gap, *values]
            assert remote.permitted == permitted

    asyncio.run(main())


def test_small_limits_permit_no_blocks(tmp_path: Path) -> None:
    async def main() -> None:
        inner = Stored()
        async with inner.served(tmp_path / "remote") as handler:
            remote = Asked(handler, knows=True)
            async with (
                afflux.serve(HERE, remote) as server,
                relaying(server.uri, tmp_path / "relay", limits=Limits.tiny()) as relay,
            ):
                inner.put(numbers(0, 1000), None)
                assert await read_from(relay, 2000) == numbers(0, 1000)
            assert remote.permitted == [False]

    asyncio.run(main())


def test_what_a_remote_has_dropped_is_a_gap_with_both_positions(tmp_path: Path) -> None:
    async def main() -> None:
        inner = Stored()
        async with inner.served(tmp_path / "remote") as handler, afflux.serve(HERE, handler) as remote:
            inner.put(*numbers(0, 10))
            async with relaying(remote.uri, tmp_path / "relay") as relay:
                assert await read_from(relay, 10) == numbers(0, 10)
            inner.put(numbers(10, 100))
            await until(remote.uri, 100)
            async with afflux.connect(remote.uri) as peer:
                epoch = (await head(peer)).epoch
                cursor = afflux.protocols.rsocket.cursor.Acknowledge(epoch=epoch, offset=100, owner=1, name="test")
                assert [item async for item in peer.stream(cursor=cursor)]
            inner.put(*numbers(100, 110))
            async with relaying(remote.uri, tmp_path / "relay") as relay:
                *items, gap = await read_from(relay, 11)
                assert items == numbers(0, 10)
                assert gap == Gap(
                    cause="the remote has dropped them", before=Place(epoch, 10), after=Place(epoch, 100), lost=90
                )
                assert await read_from(relay, 10, first=11) == numbers(100, 110)
            async with relaying(remote.uri, tmp_path / "relay") as relay:
                inner.put(*numbers(110, 112))
                assert await read_from(relay, 2, first=21) == numbers(110, 112)

    asyncio.run(main())


def test_a_remote_that_was_created_again_is_a_gap(tmp_path: Path) -> None:
    async def main() -> None:
        async with afflux.serve(HERE, Counter()) as free:
            uri = free.uri
        epochs = []
        for name, stop in (("one", 5), ("two", 7)):
            inner = Stored()
            async with inner.served(tmp_path / name) as handler, afflux.serve(uri, handler):
                inner.put(*numbers(0, stop))
                async with afflux.connect(uri) as peer:
                    epochs.append((await head(peer)).epoch)
                async with relaying(uri, tmp_path / "relay") as relay:
                    found = await read_from(relay, 5 if name == "one" else 13)
        gap = Gap(cause="the remote's journal was created again", before=Place(epochs[0], 5), after=Place(epochs[1], 0))
        assert found == [*numbers(0, 5), gap, *numbers(0, 7)]

    asyncio.run(main())


async def until(uri: str, count: int) -> None:
    """Wait until a remote with a cursor has stored so many items."""
    async with afflux.connect(uri) as peer:
        while (await head(peer, after=count - 1)).head < count:
            pass


def test_a_live_stream_has_a_gap_after_each_lost_connection(tmp_path: Path) -> None:
    async def main() -> None:
        counter = Counter(10, jump=1000)
        async with afflux.serve(HERE, counter) as remote:
            async with relaying(remote.uri, tmp_path) as relay:
                assert await read_from(relay, 10) == numbers(0, 10)
            async with relaying(remote.uri, tmp_path) as relay:
                counter.allow(1020)
                assert await read_from(relay, 11, first=10) == [
                    Gap(cause="the relay was restarted"),
                    *numbers(1010, 1020),
                ]
                await remote.close()
                async with afflux.serve(remote.uri, counter):
                    counter.allow(2030)
                    gap, *items = await read_from(relay, 11, first=21)
                    assert items == numbers(2020, 2030)
                    assert isinstance(gap, Gap)
                    assert gap.cause.startswith("the connection was lost: ")
                    assert (gap.before, gap.after, gap.lost, relay.status()[0].gaps) == (None, None, None, 2)

    asyncio.run(main())


def test_a_stream_that_replays_continues_behind_the_stored_items(tmp_path: Path) -> None:
    async def main() -> None:
        short, whole = Replay(120, ends=False), Replay(300)
        async with afflux.serve(HERE, short) as remote:
            origin = Origin(remote.uri, replays=True)
            async with relaying(origin, tmp_path) as relay:
                assert await read_from(relay, 120) == numbers(0, 120)
                await remote.close()
                async with afflux.serve(remote.uri, whole):
                    assert await read_from(relay, 400) == numbers(0, 300)
                    assert relay.status()[0].gaps == 0

    asyncio.run(main())


def test_a_stream_that_replays_without_the_option_is_told_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once: what the gap means, and the option that was forgotten."""

    async def main() -> None:
        async with afflux.serve(HERE, Replay(100, ends=False)) as remote:
            for replays, count in ((True, 100), (True, 100), (False, 201)):
                assert not [each for each in caplog.records if each.levelname == "WARNING"]
                async with relaying(Origin(remote.uri, replays=replays), tmp_path) as relay:
                    await read_from(relay, count)

    asyncio.run(main())
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len([text for text in said if "some may be stored twice" in text and "relay it with --replays" in text]) == 1


def test_a_gap_without_an_item_after_it_is_recorded_once(tmp_path: Path) -> None:
    async def main() -> None:
        counter = Counter(5, jump=10)
        async with afflux.serve(HERE, counter) as remote:
            for subscriptions in range(1, 4):
                async with relaying(remote.uri, tmp_path) as relay:
                    assert await read_from(relay, 5) == numbers(0, 5)
                    await counter.subscribed(subscriptions)
            counter.allow(1 << 62)
            async with relaying(remote.uri, tmp_path) as relay:
                gap, item = await read_from(relay, 2, first=5)
                assert (gap, item) == (Gap(cause="the relay was restarted"), number(35))

    asyncio.run(main())


@pytest.mark.parametrize("size", [Limits.tiny().payload_bytes - 32, Limits.tiny().payload_bytes * 4])
def test_an_item_that_no_reader_could_receive_is_a_gap(size: int, tmp_path: Path) -> None:
    limits = Limits.tiny().replace(frame_bytes=Limits.tiny().payload_bytes + 100)

    async def main() -> None:
        inner = Stored()
        async with inner.served(tmp_path / "remote") as handler, afflux.serve(HERE, handler) as remote:
            inner.put(b"a", [b"b", bytes(size), b"c"], None)
            async with relaying(remote.uri, tmp_path / "relay", limits=limits) as relay:
                a, b, gap, c = await read_from(relay, 9)
                assert [a, b, c] == [b"a", b"b", b"c"]
                assert isinstance(gap, Gap)
                assert gap.before is not None
                assert gap.after is not None
                assert (gap.before.offset, gap.after.offset, gap.lost) == (2, 3, 1)
                assert re.match("the item (has 131040 bytes, and a stored|is larger than can be received)", gap.cause)

    asyncio.run(main())


def test_items_keep_their_metadata(tmp_path: Path) -> None:
    class Both:
        async def stream(self, payload: Payload) -> AsyncIterator[Payload | bytes]:
            yield Payload(b"a", b"own")
            yield Payload(b"b", b"")
            yield b"c"

    async def main() -> None:
        async with afflux.serve(HERE, Both()) as remote, relaying(remote.uri, tmp_path) as relay:
            assert len(await read_from(relay, 4)) == 3
            async with afflux.connect(relay.uri) as peer:
                a, b, c = [item async for item in peer.stream()]
                assert (a, b, c) == (Payload(b"a", b"own"), Payload(b"b", b""), Payload(b"c"))

    asyncio.run(main())


@pytest.mark.parametrize("stored", [False, True], ids=["plain", "cursor"])
def test_many_items_of_one_size_keep_their_metadata(stored: bool, tmp_path: Path) -> None:
    values = [Payload(number(n), b"m%05d" % n) for n in range(5_000)]

    async def main() -> None:
        inner = Stored()
        inner.put(values, None)
        async with (
            inner.served(tmp_path / "remote") as handler,
            afflux.serve(HERE, handler if stored else inner) as remote,
            relaying(remote.uri, tmp_path / "relay") as relay,
            afflux.connect(relay.uri) as peer,
        ):
            assert [item async for item in peer.stream()] == values

    asyncio.run(main())


def test_many_blocks_of_one_size_are_stored_as_their_items(tmp_path: Path) -> None:
    """A remote that stores its items one by one, as those of a slow source, sends as many blocks when it is read."""

    async def main() -> None:
        inner = Stored()
        async with inner.served(tmp_path / "remote") as handler, afflux.serve(HERE, handler) as remote:
            async with afflux.connect(remote.uri) as peer:
                for n in range(100):
                    inner.put(number(n))
                    await head(peer, after=n)
            async with relaying(remote.uri, tmp_path / "relay") as relay:
                assert await read_from(relay, 100) == numbers(0, 100)

    asyncio.run(main())


# Many shards.


def test_each_of_several_remotes_is_a_shard(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            afflux.serve(HERE, Replay(30)) as one,
            afflux.serve(HERE, Replay(70)) as two,
            relaying([one.uri, two.uri], tmp_path) as relay,
            afflux.connect(relay.uri) as peer,
        ):
            assert await read(peer, 100) == numbers(0, 30)
            assert await read(peer, 100, shard=1) == numbers(0, 70)
            with pytest.raises(afflux.ApplicationError, match="unknown shard 2; the shards are 0 to 1"):
                await read(peer, 1, shard=2)
            with pytest.raises(afflux.Rejected, match="the stream has 2 shards"):
                await anext(peer.stream())

    asyncio.run(main())


def test_items_are_distributed_by_their_key_and_keep_their_order(tmp_path: Path) -> None:
    items = [json.dumps({"who": f"user {n % 7}", "n": n}).encode() for n in range(500)]

    async def main() -> None:
        inner = Stored()
        async with inner.served(tmp_path / "remote") as handler, afflux.serve(HERE, handler) as remote:
            inner.put(items[:200])
            async with relaying(remote.uri, tmp_path / "relay", key="/who", shards=3) as relay:
                while sum(shard.head for shard in relay.status()) < 200:
                    await asyncio.sleep(0)
            inner.put(items[200:], None)
            async with relaying(remote.uri, tmp_path / "relay", key="/who", shards=3) as relay:
                shards = [await read_from(relay, 1000, shard=shard) for shard in range(3)]
        for who in range(7):
            own = [items[n] for n in range(who, 500, 7)]
            assert own in [[item for item in shard if item in own] for shard in shards]
        assert sum(map(len, shards)) == 500
        assert all(shards)

    asyncio.run(main())


# Every wire.


@pytest.mark.parametrize(("protocol", "route"), [("rsocket", None), ("limit", "twice")])
def test_a_channel_is_stored(protocol: str, route: str | None, tmp_path: Path) -> None:
    class Twice:
        async def channel(self, payloads: AsyncIterator[Payload]) -> AsyncIterator[bytes]:
            async for payload in payloads:
                if payload.data:
                    yield payload.data
                    yield payload.data

    async def main() -> None:
        async with afflux.serve(f"{protocol}+{HERE}", Twice()) as remote:
            origin = Origin(remote.uri, verb="channel", route=route, data=b"a")
            async with relaying(origin, tmp_path) as relay:
                assert await read_from(relay, 9) == [b"a", b"a"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("protocol", "call"),
    [
        ("rsocket-draft", {}),
        ("reactivesocket", {}),
        ("reactivesocket", {"verb": "subscribe"}),
        ("rsio", {"data": b"count:50:6"}),
        ("rsio", {"data": b"count:50:6", "verb": "subscribe"}),
    ],
)
def test_a_stream_of_another_wire_is_stored(protocol: str, call: dict[str, Any], tmp_path: Path) -> None:
    class Fifty(Replay):
        subscribe = Replay.stream

    async def main() -> None:
        async with (
            afflux.serve(f"{protocol}+{HERE}", Fifty(50)) as remote,
            relaying(Origin(remote.uri, **call), tmp_path) as relay,
        ):
            assert await read_from(relay, 50) == numbers(0, 50)

    asyncio.run(main())


@pytest.mark.parametrize("framing", ["lines", "u32"])
def test_bytes_of_jmux_become_items(framing: str, tmp_path: Path) -> None:
    class Bytes:
        async def session(self, session: afflux.Session) -> None:
            for item in numbers(0, 40):
                await session.write(item + b"\n" if framing == "lines" else len(item).to_bytes(4, "big") + item)
            session.finish()

    async def main() -> None:
        async with (
            afflux.serve(f"jmux+{HERE}", Bytes()) as remote,
            relaying(Origin(remote.uri, framing=framing), tmp_path) as relay,
        ):
            assert await read_from(relay, 50) == numbers(0, 40)

    asyncio.run(main())


# What is refused.


def test_arguments_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    cases = [
        (["tcp://a:1", "tcp://b:1"], {"key": "/a", "shards": 2}, "a key distributes the items of one remote stream"),
        (["tcp://a:1"], {"key": "/a"}, "a key needs the number of shards"),
        (["tcp://a:1"], {"key": "a", "shards": 2}, 'expected a JSON pointer, such as "/carrier"'),
        (["tcp://a:1"], {"shards": 2}, "without a key, each remote stream is a shard: 1, not 2"),
        (["tcp://a:1"], {"key": "/a", "shards": 5000}, "shards must be 1 to 1024, not 5000"),
        ([], {}, "a relay needs at least one remote stream"),
    ]
    for origins, given, text in cases:
        with pytest.raises(ValueError, match=re.escape(text)):
            relaying(origins, tmp_path, **given)
    with pytest.raises(ValueError, match="a relay is read by cursor, which jmux does not have"):
        afflux.relay("tcp://a:1", journal=tmp_path, listen="jmux+tcp://127.0.0.1:0")
    origins = [
        ({"uri": "jmux+tcp://a:1"}, ValueError, "choose its framing, one of lines, u8, u16, u24, u32"),
        ({"uri": "jmux+tcp://a:1", "framing": "u99"}, ValueError, "unknown framing 'u99'; known: lines"),
        ({"uri": "tcp://a:1", "framing": "lines"}, afflux.Unsupported, "rsocket"),
        ({"uri": "tcp://a:1", "framing": "lines", "verb": "stream"}, ValueError, "a framing is for sessions of bytes"),
        ({"uri": "tcp://a:1", "verb": "subscribe"}, afflux.Unsupported, "subscribe"),
        ({"uri": "limit+tcp://a:1", "verb": "stream"}, afflux.Unsupported, 'limit has no "stream"'),
        ({"uri": "rsio+tcp://a:1", "resume": True}, afflux.Unsupported, "resume"),
        ({"uri": "tcp:/a"}, afflux.AddressError, "tcp:/a"),
    ]
    for arguments, kind, text in origins:
        with pytest.raises(kind, match=re.escape(text)):
            Origin(**arguments)


def test_a_request_for_another_stream_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            afflux.serve(HERE, Replay(5)) as remote,
            relaying(Origin(remote.uri, route="ticks", data=b"x"), tmp_path) as relay,
            afflux.connect(relay.uri) as peer,
        ):
            assert len([item async for item in peer.stream(b"x", route="ticks")]) == 5
            with pytest.raises(afflux.Rejected, match="route 'tocks' is not that of a relayed stream"):
                await anext(peer.stream(route="tocks"))
            with pytest.raises(afflux.Rejected, match="its data is not that of a relayed stream"):
                await anext(peer.stream(b"y"))

    asyncio.run(main())


def test_a_journal_belongs_to_one_stream_and_one_relay(tmp_path: Path) -> None:
    async def main() -> None:
        async with afflux.serve(HERE, Replay(5)) as one, afflux.serve(HERE, Replay(9)) as two:
            async with relaying(one.uri, tmp_path) as relay:
                await read_from(relay, 6)
                with pytest.raises(JournalLocked):
                    await relaying(one.uri, tmp_path)
            with pytest.raises(JournalError, match=f"it contains the stream of {one.uri}; .* --moved"):
                await relaying(two.uri, tmp_path)
            with pytest.raises(JournalError, match="another stream"):
                await relaying(Origin(one.uri, route="other"), tmp_path)
            async with relaying(two.uri, tmp_path, moved=True) as relay:
                assert await read_from(relay, 6) == numbers(0, 5)
            async with relaying(two.uri, tmp_path):
                pass

    asyncio.run(main())


def test_a_mark_that_does_not_fit_its_journal_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with afflux.serve(HERE, Counter(5)) as remote:
            async with relaying(remote.uri, tmp_path) as relay:
                await read_from(relay, 5)
            text = marked(tmp_path)
            for damaged in (text[:-9], b"[]", text.replace(b'"at":[0]', b'"at":[9]')):
                marked(tmp_path, damaged)
                with pytest.raises(JournalDamaged):
                    await relaying(remote.uri, tmp_path)
            marked(tmp_path, text.replace(b'"version":1', b'"version":2'))
            with pytest.raises(JournalError, match="update afflux"):
                await relaying(remote.uri, tmp_path)
            marked(tmp_path, text)
            async with relaying(remote.uri, tmp_path) as relay:
                assert await read_from(relay, 5) == numbers(0, 5)

    asyncio.run(main())


def marked(directory: Path, text: bytes | None = None) -> bytes:
    """Replace the mark of a relay that is not running; return the former one."""
    path = directory / "0.journal"
    with Journal(path, key=key_of(path)) as journal:
        former = journal.note
        if text is not None:
            journal.remember(text)
    return former


def test_the_mark_of_an_earlier_version_is_moved_to_the_journal(tmp_path: Path) -> None:
    """Earlier versions had it in a file beside the journal."""

    async def main() -> None:
        async with afflux.serve(HERE, Replay(9)) as remote:
            origin = Origin(remote.uri, replays=True)
            async with relaying(origin, tmp_path) as relay:
                await read_from(relay, 9)
            text, mark = marked(tmp_path, b""), tmp_path / "0.mark"
            mark.write_bytes(text[:-9])
            with pytest.raises(JournalDamaged, match=r"0\.mark: it cannot be read"):
                await relaying(origin, tmp_path)
            mark.write_bytes(text)
            async with relaying(origin, tmp_path) as relay:
                assert await read_from(relay, 9) == numbers(0, 9)
                assert relay.status()[0].gaps == 0
            assert not mark.exists()
            assert marked(tmp_path) == text

    asyncio.run(main())


def test_a_remote_that_refuses_the_first_request_ends_the_relay(tmp_path: Path) -> None:
    class Refusing:
        async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
            raise afflux.Invalid("no such route")
            yield b""

    async def main() -> None:
        async with afflux.serve(HERE, Refusing()) as remote, relaying(remote.uri, tmp_path) as relay:
            with pytest.raises(afflux.Invalid, match="no such route") as found:
                await relay.failed()
            assert found.value.__notes__ == [f"the remote is {remote.uri}"]

    asyncio.run(main())


def test_a_stream_that_fails_each_time_behind_its_items_is_tried_again_more_and_more_slowly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing:
        def __init__(self) -> None:
            self.times, self.often = 0, asyncio.Event()

        async def stream(self, payload: Payload) -> AsyncIterator[bytes]:
            self.times += 1
            if self.times == 4:
                self.often.set()
            yield b"item"
            raise afflux.ApplicationError(message="no more today")

    async def main() -> None:
        handler = Failing()
        waits = afflux.Backoff(first=0.1, factor=2, most=60, jitter=0)
        async with (
            afflux.serve(HERE, handler) as remote,
            afflux.relay(remote.uri, journal=tmp_path, listen=HERE, backoff=waits) as relay,
            asyncio.timeout(60),
        ):
            await handler.often.wait()
            async with afflux.connect(relay.uri) as reader:
                items = [item async for item in reader.stream(cursor=Read(first=0, limit=2))]
        gap = gap_of(split_position(items[1].metadata)[1])
        assert gap is not None and gap.cause == "the stream failed: no more today"

    asyncio.run(main())
    said = [record.getMessage() for record in caplog.records if "connecting again" in record.getMessage()]
    assert [text.rpartition("again in ")[2] for text in said[:3]] == ["0.1 s", "0.2 s", "0.4 s"]


def test_a_remote_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    async def main() -> None:
        async with afflux.serve(HERE, Replay(5)) as free:
            uri = free.uri
        async with relaying(uri, tmp_path) as relay, afflux.serve(uri, Replay(5)):
            assert await read_from(relay, 6) == numbers(0, 5)

    asyncio.run(main())
