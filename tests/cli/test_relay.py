"""afflux relay as a process: killed at any moment, stopped by signals, refused."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect as ws_connect
from websockets.typing import Origin

import afflux
from afflux.protocols.rsocket.gap import Gap
from tests.cli.running import Server, here
from tests.cli.running import afflux as run
from tests.gateway.remotes import HERE, Counter, Replay, Stored, head, number, read


class Relay(Server):
    """``afflux relay`` in a process."""

    def __init__(self, remote: str, journal: Path, *options: str) -> None:
        command = ("relay", "--journal", str(journal), "--listen", HERE, "--from")
        super().__init__(*options, uri=remote, command=command)

    async def __aenter__(self) -> Relay:
        """Start it in a thread, while the remote in this process continues."""
        await asyncio.to_thread(self.__enter__)
        return self

    async def __aexit__(self, *error: Any) -> None:
        await asyncio.to_thread(self.__exit__, None, None, None)

    async def kill(self) -> None:
        self.process.kill()
        await asyncio.to_thread(self.process.communicate)


async def state_of(uri: str, *, after: int = 0, shard: int = 0) -> Any:
    async with afflux.connect(uri) as peer:
        return await head(peer, after=after, shard=shard)


async def everything(uri: str, shards: int) -> list[list[bytes | Gap]]:
    async with afflux.connect(uri) as peer:
        return [await read(peer, 1 << 40, shard=shard) for shard in range(shards)]


@pytest.mark.parametrize("options", [[], ["--key", "/k", "--shards", "3"]])
def test_kills_lose_and_double_nothing_of_a_remote_with_a_cursor(options: Sequence[str], tmp_path: Path) -> None:
    """SP-11."""
    rng = random.Random(20261123)
    shards = 3 if options else 1
    items = [json.dumps({"n": n, "k": n % 5}).encode() for n in range(12_000)]

    async def main() -> list[list[bytes | Gap]]:
        inner = Stored()
        async with inner.served(tmp_path / "remote") as handler, afflux.serve(HERE, handler) as remote:
            for start in range(0, len(items), 2_000):
                async with Relay(remote.uri, tmp_path / "relay", *options) as relay:
                    for first in range(start, start + 2_000, 250):
                        inner.put(items[first : first + 250])
                        for _ in range(rng.randrange(30)):
                            await asyncio.sleep(0)
                    await relay.kill()
            inner.put(None)
            async with Relay(remote.uri, tmp_path / "relay", *options) as relay:
                return await everything(relay.uri, shards)

    found = asyncio.run(main())
    if not options:
        assert found == [items]
    for k in range(5):
        own = items[k::5]
        wanted = set(own)
        assert [part for shard in found if (part := [item for item in shard if item in wanted])] == [own]


def test_kills_lose_nothing_that_was_durable_of_a_live_stream(tmp_path: Path) -> None:
    async def main() -> None:
        counter = Counter(jump=100)
        kept = 0
        async with afflux.serve(HERE, counter) as remote:
            for _ in range(5):
                async with Relay(remote.uri, tmp_path / "relay") as relay:
                    counter.allow(counter.next + 3_000)
                    kept = (await state_of(relay.uri, after=(await state_of(relay.uri)).head + 500)).head
                    await relay.kill()
            async with Relay(remote.uri, tmp_path / "relay") as relay, afflux.connect(relay.uri) as peer:
                found = await read(peer, kept)
        gaps = [offset for offset, item in enumerate(found) if isinstance(item, Gap)]
        assert len(gaps) == 4
        assert found[0] == number(0)
        for before, after in pairwise(found):
            if isinstance(before, Gap):
                assert before.cause == "the relay was restarted"
            elif not isinstance(after, Gap):
                assert int(after) == int(before) + 1

    asyncio.run(main())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_it_and_nothing_that_arrived_is_lost(number: signal.Signals, code: int, tmp_path: Path) -> None:
    async def main() -> None:
        async with afflux.serve(HERE, Counter(700)) as remote:
            async with Relay(remote.uri, tmp_path) as relay:
                await state_of(relay.uri, after=699)
                ended, out, errors = await asyncio.to_thread(relay.stop, number)
            assert (ended, out) == (code, "")
            assert errors == f"afflux: {remote.uri}: connected; items arrive\n"
            async with Relay(remote.uri, tmp_path) as relay:
                assert (await state_of(relay.uri)).head == 700

    asyncio.run(main())


def test_failures_have_exit_codes(tmp_path: Path) -> None:
    words = ("relay", "--journal", str(tmp_path / "journal"))
    for more, code, text in (
        ((), 2, "--from is missing"),
        (("--from", "tcp:/a"), 2, "tcp:/a"),
        (("--from", "jmux+tcp://a:1"), 2, "choose its framing"),
        (("--from", "tcp://a:1", "--channel", "--subscribe"), 2, "exclude each other"),
        (("--from", "tcp://a:1", "--session", "x.lstr", "--subscribe"), 2, "exclude each other"),
        (("--from", "tcp://a:1", "--session", "x.lstr"), 2, "--session requires -r CHANNEL"),
        (("--from", "tcp://a:1", "--session", "no.lstr", "-r", "a"), 2, "--session: file 'no.lstr' not found"),
        (("--from", "tcp://a:1", "--key", "/a"), 2, "--key and --shards require each other"),
        (
            ("--from", "tcp://a:1", "--from", "tcp://b:1", *("-r", "a") * 3),
            2,
            "3 times --route do not fit 2 times --from",
        ),
        (("--from", "tcp://a:1", "--listen", "auto+tcp://127.0.0.1:0"), 2, "--listen requires one protocol"),
    ):
        listen = () if "--listen" in more else ("--listen", HERE)
        ran = here(*words, *listen, *more)
        assert (ran.code, ran.out) == (code, "")
        assert text in ran.errors
    with Server("--demo") as remote:
        done = run([*words, "--listen", HERE, "--from", remote.uri, "-r", "nowhere"])
        assert (done.returncode, done.stderr.count("\n")) == (65, 1)
        assert "unknown route" in done.stderr
    (tmp_path / "file").write_text("")
    done = run(["relay", "--from", "tcp://a:1", "--journal", str(tmp_path / "file"), "--listen", HERE])
    told = f"afflux: --journal: '{tmp_path / 'file'}' is a file; it has to be a directory, which may be new\n"
    assert (done.returncode, done.stderr) == (2, told)


def test_a_session_of_a_session_type(tmp_path: Path) -> None:
    sessions = pytest.importorskip("afflux.sessions")
    pytest.importorskip("lark", reason='the language of session types needs the extra "sessions"')
    file, router = tmp_path / "words.lstr", afflux.Router()
    file.write_text("""
        channel words = recv string -> choose | more | end
        channel more = send string -> choose | more | end
        channel sum = recv int -> offer | sum | end
    """)

    @router.session(sessions.load(file)["words"])
    async def words(chan: Any) -> None:
        text, chan = await chan.recv()
        await chan.loop().send_each(text.split())
        chan = await chan.choose(2)
        await chan.end()

    async def main() -> list[list[bytes | Gap]]:
        async with (
            afflux.serve("limit+tcp://127.0.0.1:0", router) as remote,
            Relay(
                remote.uri, tmp_path / "journal", "--session", str(file), "-r", "words", "-d", '"one two three"'
            ) as relay,
        ):
            return await everything(relay.uri, 1)

    assert asyncio.run(main()) == [[b'"one"', b'"two"', b'"three"']]
    command = ("relay", "--from", "limit+tcp://a:1", "--journal", str(tmp_path / "other"), "--listen", HERE)
    ran = here(*command, "--session", str(file), "-r", "sum")
    assert ran.code == 2
    assert ran.errors == "afflux: a session of sum cannot be relayed: it receives no items in a loop\n"


def test_many_remotes_with_a_route_each(tmp_path: Path) -> None:
    with Server("--demo") as remote:
        asked = json.dumps({"count": 5, "size": 3})
        flights = json.dumps({"count": 2})
        more = ("--from", remote.uri, "-r", "", "-r", "flights", "-d", asked, "-d", flights)
        with Relay(remote.uri, tmp_path, *more) as relay:
            plain, rows = asyncio.run(everything(relay.uri, 2))
            assert plain == [b"0..", b"1..", b"2..", b"3..", b"4.."]
            assert [sorted(json.loads(row))[:2] for row in rows if isinstance(row, bytes)] == [
                ["air_time", "arr_delay"]
            ] * 2


def test_progress_is_shown_on_a_terminal_only(tmp_path: Path) -> None:
    async def main() -> str:
        async with afflux.serve(HERE, Replay(200)) as remote, Relay(remote.uri, tmp_path) as relay:
            assert len((await everything(relay.uri, 1))[0]) == 200
            return (await asyncio.to_thread(relay.stop))[2]

    errors = asyncio.run(main())
    assert "items stored" not in errors
    assert errors.count("the stream is complete") == 1


def test_origins_of_pages(tmp_path: Path) -> None:
    command = ("relay", "--journal", str(tmp_path), "--listen", "ws://127.0.0.1:0", "--from")
    with Server("--origin", "https://app.example", uri="tcp://127.0.0.1:1", command=command) as server:
        with ws_connect(server.uri, origin=Origin("https://app.example"), proxy=None):
            pass
        with (
            pytest.raises(InvalidStatus, match="403"),
            ws_connect(server.uri, origin=Origin("https://other.example"), proxy=None),
        ):
            pass
