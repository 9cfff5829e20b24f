"""A disk that is really full: what is durable is read, trimming makes room, nothing is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from afflux.core.payload import Payload
from afflux.journal.contract import Reader
from afflux.journal.errors import JournalError, JournalNoSpace
from afflux.journal.serve import Journalled
from afflux.journal.store import Journal
from afflux.protocols.rsocket.cursor import Read
from tests.journal.disks import fill, small_disk
from tests.journal.test_serve import Feeder, Reading, acknowledge, full, head

MI = 1 << 20


def item(number: int) -> bytes:
    return b"%d." % number + bytes(100_000)


def numbers(journal: Journal) -> list[int]:
    """All stored items."""
    found: list[int] = []
    while (offset := journal.first + len(found)) < journal.head:
        found += [int(data.split(b".")[0]) for block in journal.read(offset) for data in block.data()]
    return found


def append_until_full(journal: Journal) -> None:
    while True:
        journal.append([item(journal.tail)], 0)
        try:
            journal.commit()
        except JournalNoSpace:
            return


def test_a_journal_lives_on_a_full_disk_by_trimming(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 24 * MI) as disk:
        with Journal(disk / "a") as journal:
            for _ in range(6):
                append_until_full(journal)
                assert numbers(journal) == list(range(journal.first, journal.head))
                with pytest.raises(JournalNoSpace, match="the disk is full; make room"):
                    journal.commit()
                fill(disk)
                before = journal.head
                assert journal.acknowledge(Reader("billing", 1), journal.head - 3) == journal.head - 3
                assert journal.commit() > before, "trimming made room"
            assert journal.head > 300
            append_until_full(journal)
            first, head = journal.first, journal.head
            with pytest.raises(JournalNoSpace):
                journal.close()
        fill(disk)
        with Journal(disk / "a") as journal:
            assert (journal.first, journal.head) == (first, head)
            assert numbers(journal) == list(range(first, head))
            assert journal.reader == Reader("billing", 1)
            assert journal.trim(head - 1) == head - 1


def test_large_commits_on_a_full_disk_continue_after_a_trim(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 24 * MI) as disk, Journal(disk / "a") as journal:
        for _ in range(4):
            with pytest.raises(JournalNoSpace):
                while True:
                    journal.append([item(journal.tail + n) for n in range(12)], 0)
                    journal.commit()
            fill(disk)
            with pytest.raises(JournalNoSpace):
                journal.commit()
            before = journal.head
            assert journal.trim(before) == before
            assert journal.commit() == before + 12
            assert numbers(journal) == list(range(before, before + 12))


def test_a_crash_on_a_full_disk_leaves_what_was_committed(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 24 * MI) as disk:
        journal = Journal(disk / "a")
        append_until_full(journal)
        head = journal.head
        other = fill(disk)
        for suffix in ("", "-wal", ".open"):
            (tmp_path / f"a{suffix}").write_bytes((disk / f"a{suffix}").read_bytes())
        other.unlink()
        with Journal(tmp_path / "a") as copy:
            assert numbers(copy) == list(range(head))
        journal.trim(5)
        journal.close()


def test_a_journal_cannot_be_created_on_a_full_disk_and_leaves_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", MI) as disk:
        fill(disk)
        with pytest.raises(JournalError, match="full"):
            Journal(disk / "a")
        (disk / "other").unlink()
        with Journal(disk / "a") as journal:
            assert journal.head == 0


async def test_a_server_on_a_full_disk_goes_on_when_there_is_room(tmp_path: Path) -> None:
    feeder = Feeder()
    with small_disk(tmp_path / "disk", 16 * MI) as disk:
        async with Journalled(feeder, disk, clock=lambda: 7) as handler:
            await head(handler)
            feeder.put(*map(item, range(400)))
            state = await full(handler)
            assert feeder.pulled < 200
            seen = 0
            while seen < 400:
                state = await head(handler, after=seen, wait_ms=60_000)
                reading = Reading(handler, Read(first=seen, limit=state.head - seen))
                for data in await reading.data(state.head - seen):
                    assert data == item(seen)
                    seen += 1
                await acknowledge(handler, seen)
            assert len(feeder.requests) == 1
            assert not (await head(handler)).full
            await asyncio.sleep(0)


def test_payloads_survive(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 4 * MI) as disk, Journal(disk / "a") as journal:
        journal.append([Payload(b"a", b"m")], 0)
        journal.commit()
        fill(disk)
        assert journal.read(0)[0].payloads() == [Payload(b"a", b"m")]
