"""The relay reads sessions of session types: the values of a loop become items."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import afflux
from afflux.core.limits import Limits
from afflux.gateway import Origin
from afflux.protocols.rsocket.gap import Gap
from tests.gateway.remotes import acknowledge, head, read_from, relaying

pytest.importorskip("lark", reason='the language of session types needs the extra "sessions"')

from afflux import sessions

WIRES = ("limit+tcp://127.0.0.1:0", "tcp://127.0.0.1:0")
TYPES = sessions.loads("""
    struct Done {}
    struct Tick { name: string, at: At }
    enum At { day(Day), none(Done) }
    struct Day { number: uint, hour: double }

    channel ticks = recv string -> choose | more | send string -> end
    channel more = send Tick -> choose | more | send string -> end

    channel asked = recv string -> choose | again | end
    channel again = send uint -> recv bool -> choose | again | end

    channel sum = recv int -> offer | sum | recv Done -> send int -> end

    channel pairs = offer | two | end
    channel two = choose | pair | end
    channel pair = send int -> send string -> choose | pair | end
""")


def tick(number: int) -> Any:
    return ("a" * (number % 3), ("none", ()) if number % 2 else ("day", (number, 0.5)))


def as_json(number: int) -> Any:
    at = {"none": {}} if number % 2 else {"day": {"number": number, "hour": 0.5}}
    return {"name": "a" * (number % 3), "at": at}


class Ticks:
    """A server whose sessions each continue where the last one has ended, or begin again."""

    def __init__(self, count: int = 0, *, replays: bool = False) -> None:
        self.count = count
        self.sent = 0
        self.asked: list[str] = []
        self.ends = True
        self.more = asyncio.Event()
        self._replays = replays

    def router(self) -> afflux.Router:
        router = afflux.Router()
        router.session(TYPES["ticks"])(self.serve)
        return router

    async def serve(self, chan: Any) -> None:
        asked, chan = await chan.recv()
        self.asked.append(asked)
        if self._replays:
            self.sent = 0
        while True:
            await chan.loop().send_each(self.ticks())
            if self.ends:
                break
            await self.more.wait()
            self.more.clear()
        chan = await chan.choose(2)
        chan = await chan.send("that is all")
        await chan.end()

    def ticks(self) -> Any:
        while self.sent < self.count:
            self.sent += 1
            yield tick(self.sent - 1)


def origin(uri: str, channel: str = "ticks", data: str = '"all"', **given: Any) -> Origin:
    return Origin(uri, session=TYPES[channel], route=channel, data=data, **given)


def values(found: list[bytes | Gap]) -> list[Any]:
    return [item if isinstance(item, Gap) else json.loads(item) for item in found]


@pytest.mark.parametrize("wire", WIRES)
def test_the_values_of_a_loop_are_items(wire: str, tmp_path: Path) -> None:
    async def main() -> None:
        remote = Ticks(500)
        async with afflux.serve(wire, remote.router()) as server, relaying(origin(server.uri), tmp_path) as relay:
            assert values(await read_from(relay, 501)) == [as_json(number) for number in range(500)]
            assert (relay.status()[0].sealed, remote.asked) == (True, ["all"])

    asyncio.run(main())


def test_a_channel_may_have_more_than_one_value_in_its_loop(tmp_path: Path) -> None:
    router = afflux.Router()

    @router.session(TYPES["pairs"])
    async def pairs(chan: Any) -> None:
        _, chan = await chan.offer()
        for number in range(3):
            chan = await chan.choose(1)
            chan = await chan.send(number)
            chan = await chan.send(f"number {number}")
        chan = await chan.choose(2)
        await chan.end()

    async def main() -> None:
        async with (
            afflux.serve(WIRES[0], router) as server,
            relaying(origin(server.uri, "pairs", "choose 1\n"), tmp_path) as relay,
        ):
            assert values(await read_from(relay, 7)) == [0, "number 0", 1, "number 1", 2, "number 2"]

    asyncio.run(main())


@pytest.mark.parametrize("replays", [False, True])
def test_a_lost_session_is_opened_again(replays: bool, tmp_path: Path) -> None:
    async def main() -> None:
        remote = Ticks(10, replays=replays)
        remote.ends = False
        server = await afflux.serve(WIRES[0], remote.router())
        async with relaying(origin(server.uri, replays=replays), tmp_path) as relay:
            await read_from(relay, 10)
            await server.close(drain=0)
            remote.count, remote.ends = 20, True
            async with afflux.serve(server.uri, remote.router()):
                found = values(await read_from(relay, 30))
        assert [item for item in found if not isinstance(item, Gap)] == [as_json(number) for number in range(20)]
        assert (len(found), len(remote.asked)) == (20 if replays else 21, 2)

    asyncio.run(main())


def test_a_restarted_relay_opens_a_session_again(tmp_path: Path) -> None:
    async def main() -> None:
        remote = Ticks(10, replays=True)
        remote.ends = False
        async with afflux.serve(WIRES[0], remote.router()) as server:
            async with relaying(origin(server.uri, replays=True), tmp_path) as relay:
                await read_from(relay, 10)
            remote.count, remote.ends = 20, True
            async with relaying(origin(server.uri, replays=True), tmp_path) as relay:
                assert values(await read_from(relay, 30)) == [as_json(number) for number in range(20)]

    asyncio.run(main())


@pytest.mark.parametrize("wire", WIRES)
def test_a_full_journal_holds_the_server_up(wire: str, tmp_path: Path) -> None:
    limits = Limits.tiny().replace(journal_bytes=20_000)

    async def main() -> None:
        remote = Ticks(1 << 62)
        async with (
            afflux.serve(wire, remote.router(), limits=Limits.tiny()) as server,
            relaying(origin(server.uri), tmp_path, limits=limits) as relay,
            afflux.connect(relay.uri) as peer,
        ):
            stored = 0
            while relay.status()[0].room >= 128:
                stored = (await head(peer, after=stored)).head
            assert 100 < stored <= remote.sent < 1 << 20  # the sockets hold some
            await acknowledge(relay, stored)
            assert (await head(peer, after=stored)).head > stored

    asyncio.run(main())


@pytest.mark.parametrize(
    ("channel", "data", "text"),
    [
        ("sum", "1\nchoose 2\n{}", "a session of sum cannot be relayed: it receives no items in a loop"),
        ("asked", '"go"', "a session of asked cannot be relayed: its loop of items has a send bool"),
        ("ticks", "go", "'go' is neither JSON nor a choice, such as: choose 2"),
    ],
)
def test_what_cannot_be_relayed_is_refused_at_once(channel: str, data: str, text: str) -> None:
    with pytest.raises((afflux.Unsupported, ValueError), match=text):
        origin("limit+tcp://127.0.0.1:1", channel, data)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("", "the session type ticks expects send string, and the data has no more steps"),
        ("choose 1", "'choose 1' is a choice, and the session type expects send string"),
        ("7", "the session type expects send string .*, not int 7"),
    ],
)
def test_steps_that_do_not_fit_end_the_relay(data: str, text: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            afflux.serve(WIRES[0], Ticks(1).router()) as server,
            relaying(origin(server.uri, data=data), tmp_path) as relay,
        ):
            with pytest.raises(afflux.Error, match=text):
                await relay.failed()

    asyncio.run(main())


def test_a_session_is_not_for_other_verbs() -> None:
    for uri, given in (("jmux+tcp://127.0.0.1:1", {"framing": "lines"}), ("tcp://127.0.0.1:1", {"verb": "stream"})):
        with pytest.raises((afflux.Unsupported, ValueError)):
            origin(uri, **given)
