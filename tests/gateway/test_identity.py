"""The identity of a relay's journal: what differs is said, and journals of earlier versions stay usable."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

import afflux
from afflux.gateway.identity import Identity
from afflux.gateway.origin import Origin
from afflux.journal.errors import AnotherStream
from afflux.journal.store import Journal
from tests.gateway.remotes import HERE, Replay, read_from, relaying

ONE = Identity(verb="stream", route="flights", data=b"{}", key=None, shards=1, shard=0)


def refusal(stored: bytes, now: Identity = ONE) -> str:
    return str(now.refused(AnotherStream(Path("0.journal"), "it contains another stream", stored)))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"verb": "channel"}, "the verb was 'channel', and is 'stream' now"),
        ({"route": "trains"}, "the route was 'trains', and is 'flights' now"),
        ({"route": None}, "the route was not given, and is 'flights' now"),
        ({"data": b"\xff"}, "the data of the request was a value with the hex ff, and is '{}' now"),
        ({"data": b"x" * 101}, "the data of the request was a value with the sha256 "),
        ({"key": "/carrier", "shards": 4}, "the key was '/carrier', and is not given now; the number of shards was 4"),
        ({"shard": 1}, "the number of the shard was 1, and is 0 now"),
    ],
)
def test_a_refusal_says_what_was_and_what_is(change: dict[str, object], text: str) -> None:
    said = refusal(replace(ONE, **change).stored)  # type: ignore[arg-type] # of any field
    assert said.startswith("0.journal: it contains another stream (")
    assert text in said


@pytest.mark.parametrize("stored", [b"", ONE.former, b"\xff" * 32, b"[1]", b"null", b"x" * 40, b"{}"])
def test_a_key_of_something_else_is_refused_without_differences(stored: bytes) -> None:
    assert "made by another program or an earlier afflux" in refusal(stored)


def test_values_that_look_alike_have_different_keys() -> None:
    datas = (b"", b"\xff", b"\\xff", b'{"hex":"ff"}', b"a" * 100, b"a" * 101, b"a" * 102)
    keys = {replace(ONE, data=data).stored for data in datas}
    assert len(keys) == len(datas)
    widest = replace(ONE, route="\x80" * 100, data=("\x80" * 50).encode(), key="\x80" * 100)
    assert len(widest.stored.hex()) < 3_500


def test_a_relay_of_another_route_is_told_the_routes(tmp_path: Path) -> None:
    async def main() -> None:
        async with afflux.serve(HERE, Replay(5)) as remote:
            async with relaying(remote.uri, tmp_path) as relay:
                await read_from(relay, 6)
            with pytest.raises(AnotherStream, match=r"choose another path \(the route was not given, and is 'other'"):
                await relaying(Origin(remote.uri, route="other"), tmp_path)

    asyncio.run(main())


def test_a_journal_of_an_earlier_version_is_continued(tmp_path: Path) -> None:
    async def main() -> None:
        async with afflux.serve(HERE, Replay(5)) as remote:
            origin = Origin(remote.uri)
            made = Identity(verb=origin.verb, route=None, data=b"", key=None, shards=1, shard=0)
            Journal(tmp_path / "0.journal", key=made.former).close()
            async with relaying(origin, tmp_path) as relay:
                assert len(await read_from(relay, 6)) == 5
            with pytest.raises(AnotherStream, match="an earlier afflux"):
                await relaying(Origin(remote.uri, route="other"), tmp_path)

    asyncio.run(main())


def test_the_stored_key_is_json() -> None:
    assert json.loads(ONE.stored)["route"] == "flights"
