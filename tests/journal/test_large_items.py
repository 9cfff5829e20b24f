"""A journal behind a real server: what an older version stored is read, whatever its size."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

import afflux
from afflux.core.errors import Error
from afflux.core.limits import Limits
from afflux.journal import Journal, Journalled
from afflux.protocols.rsocket.cursor import Head, Read, split_position

MI = 1 << 20
ITEMS = [b"before", b"large".ljust(5 * MI, b"."), b"after"]


class Ended:
    """A stream without items of its own."""

    async def stream(self, payload: afflux.Payload) -> Any:
        nothing: list[bytes] = []
        for item in nothing:
            yield item


async def stored_by_an_older_version(directory: Path) -> None:
    """Put an item above 4 MiB into the journal of ``Ended``, as versions without the limit did."""
    async with (
        Journalled(Ended(), directory) as journalled,
        afflux.serve("mem://older", journalled) as server,
        afflux.connect(server.uri) as peer,
    ):
        _ = [answer async for answer in peer.stream(cursor=Head(wait_ms=60_000))]
    [path] = directory.glob("*.journal")
    with sqlite3.connect(path) as database:
        [key] = database.execute("SELECT key FROM state").fetchone()
    database.close()
    path.unlink()
    with Journal(path, key=key, limits=Limits.trusted()) as journal:
        journal.append(ITEMS, 0)
        journal.seal()


@pytest.mark.parametrize("limits", [Limits.server(), Limits.trusted()], ids=["server", "trusted"])
async def test_an_item_above_the_limit_is_read_by_a_reader_with_room(tmp_path: Path, limits: Limits) -> None:
    await stored_by_an_older_version(tmp_path)
    async with (
        Journalled(Ended(), tmp_path) as journalled,
        afflux.serve("tcp://127.0.0.1:0", journalled) as server,
        afflux.connect(server.uri, limits=limits) as peer,
    ):
        if limits.payload_bytes < 5 * MI:
            with pytest.raises(Error, match="payload-too-large"):
                _ = [item async for item in peer.stream(cursor=Read(first=0))]
        else:
            items = [item async for item in peer.stream(cursor=Read(first=0))]
            assert [item.data for item in items] == ITEMS
            position, _ = split_position(items[0].metadata)
            assert position is not None and position.offset == 0
        rest = [item async for item in peer.stream(cursor=Read(first=2))]
        assert [item.data for item in rest] == [b"after"], "those after it are not out of reach"
