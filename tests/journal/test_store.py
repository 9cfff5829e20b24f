"""The journal in one process: offsets, room, trimming, sealing, threads. Crashes and damage have their own files."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afflux.core.errors import Error, LimitExceeded
from afflux.core.limits import Limits
from afflux.core.payload import Payload, PayloadLike
from afflux.journal.blocks import BLOCK_OVERHEAD, ITEM_OVERHEAD, checksum
from afflux.journal.contract import Reader
from afflux.journal.errors import (
    ItemTooLarge,
    JournalError,
    JournalFull,
    JournalGone,
    JournalLocked,
    ReaderConflict,
)
from afflux.journal.retention import Retention
from afflux.journal.store import Journal
from tests.examples import share

MI = 1 << 20


def everything(journal: Journal) -> list[Payload]:
    """All items from the lowest offset left to the head; offsets are checked on the way."""
    found: list[Payload] = []
    offset = journal.first
    while offset < journal.head:
        for block in journal.read(offset):
            assert block.first == offset
            found += block.payloads()
            offset = block.end
    return found


def test_an_item_is_there_once_it_is_committed(tmp_path: Path) -> None:
    with Journal(tmp_path / "a.journal") as journal:
        assert (journal.first, journal.head, journal.time_us) == (0, 0, 0)
        assert journal.append([b"one", b"two"], 7) == (0, 2)
        assert (journal.head, journal.tail, journal.read(0)) == (0, 2, [])
        assert journal.commit() == 2
        [block] = journal.read(0)
        assert (block.first, block.end, len(block), block.time_us) == (0, 2, 2, 7)
        assert (block.data(), block.metadata()) == ([b"one", b"two"], None)
        assert journal.time_us == 7
        assert journal.read(2) == []
        assert journal.read(99) == []


def test_a_journal_is_the_same_after_closing(tmp_path: Path) -> None:
    with Journal(tmp_path / "sub" / "a.journal", key=b"k") as journal:
        journal.append([b"a", Payload(b"b", b""), Payload(b"c", b"meta"), "text"], 1)
        before = journal.epoch, journal.room
    with Journal(tmp_path / "sub" / "a.journal", key=b"k") as journal:
        assert (journal.epoch, journal.room) == before
        assert (journal.first, journal.head, journal.time_us) == (0, 4, 1)
        assert everything(journal) == [Payload(b"a"), Payload(b"b", b""), Payload(b"c", b"meta"), Payload(b"text")]
    assert sorted(path.name for path in (tmp_path / "sub").iterdir()) == [
        "a.journal",
        "a.journal.lock",
        "a.journal.reserve",
    ]
    assert (tmp_path / "sub" / "a.journal").stat().st_mode & 0o77 == 0


def test_epochs_differ_and_are_never_zero(tmp_path: Path) -> None:
    epochs = set()
    for name in "abcd":
        with Journal(tmp_path / name) as journal:
            epochs.add(journal.epoch)
    assert len(epochs) == 4
    assert all(0 < epoch < 1 << 63 for epoch in epochs)
    with Journal(tmp_path / "e", epoch=5) as journal:
        assert journal.epoch == 5
        assert "epoch=5, first=0, head=0" in repr(journal)


items = st.lists(
    st.one_of(
        st.binary(max_size=40), st.builds(Payload, st.binary(max_size=40), st.none() | st.binary(max_size=10))
    ),
    max_size=12,
)  # fmt: skip


@settings(max_examples=share(0.4), deadline=None)
@given(
    batches=st.lists(st.tuples(items, st.booleans()), max_size=8),
    block_bytes=st.integers(1, 300),
    step=st.integers(1, 5),
)
def test_whatever_is_appended_is_read(
    tmp_path_factory: pytest.TempPathFactory, batches: list[tuple[list[bytes | Payload], bool]],
    block_bytes: int, step: int,
) -> None:  # fmt: skip
    path = tmp_path_factory.mktemp("journal") / "a.journal"
    expected: list[Payload] = []
    with Journal(path, block_bytes=block_bytes) as journal:
        for batch, commit in batches:
            first, end = journal.append(batch, len(expected))
            assert (first, end) == (len(expected), len(expected) + len(batch))
            expected += [item if isinstance(item, Payload) else Payload(item) for item in batch]
            if commit:
                assert journal.commit() == len(expected)
        journal.commit()
        room = journal.room
        assert everything(journal) == expected
        for offset in range(len(expected)):
            blocks = journal.read(offset, step)
            assert [p for block in blocks for p in block.payloads()] == expected[offset : offset + step]
        assert len(journal.read(0, limit_bytes=1)) == min(1, len(expected))
    with Journal(path, block_bytes=block_bytes) as journal:
        assert journal.room == room
        assert everything(journal) == expected


def test_blocks_grow_to_their_size_and_no_further(tmp_path: Path) -> None:
    with Journal(tmp_path / "a", block_bytes=100) as journal:
        journal.append([b"x" * (20 - ITEM_OVERHEAD)] * 3, 1)
        journal.append([b"x" * (20 - ITEM_OVERHEAD)] * 4, 2)
        journal.append([b"y" * 1000, b"z"], 3)
        journal.commit()
        blocks = journal.read(0)
        assert [(block.first, len(block), block.time_us) for block in blocks] == [
            (0, 5, 1),
            (5, 2, 2),
            (7, 1, 3),
            (8, 1, 3),
        ]
        [cut] = journal.read(1, 3)
        assert (cut.first, cut.end, len(cut)) == (1, 4, 3)
        assert len(cut.cut(3, 99)) == 1
        assert len(cut.cut(50, 99)) == 0


@pytest.mark.parametrize(("more", "fits"), [(-1, True), (0, True), (1, False)])
def test_journal_bytes_is_reached_exactly(tmp_path: Path, more: int, fits: bool) -> None:
    limits = Limits.server(journal_bytes=MI)
    with Journal(tmp_path / "a", limits=limits) as journal:
        item = b"x" * (MI - BLOCK_OVERHEAD - ITEM_OVERHEAD + more)
        if fits:
            journal.append([item], 0)
            assert journal.room == -more
            return
        with pytest.raises(JournalFull, match="trim items") as caught:
            journal.append([item], 0)
        assert isinstance(caught.value, LimitExceeded)
        assert caught.value.rule == "journal-full"
        assert (journal.tail, journal.room, journal.pending) == (0, MI, 0)


def test_trimming_makes_room(tmp_path: Path) -> None:
    with Journal(tmp_path / "a", limits=Limits.server(journal_bytes=MI), block_bytes=0x10000) as journal:
        with pytest.raises(JournalFull):
            while True:
                journal.append([b"x" * 1000], 0)
                journal.commit()
        assert journal.room < 1100
        full = journal.head
        assert journal.trim(100) == 100
        assert journal.first == 100
        journal.append([b"y" * 1000] * 90, 0)
        journal.commit()
        with pytest.raises(JournalGone, match=r"offset 99 .* 100"):
            journal.read(99)
        assert journal.read(100, 1)[0].payloads() == [Payload(b"x" * 1000)]
        assert journal.trim(full + 500) == journal.head == full + 90
        assert journal.room == MI
        assert journal.read(journal.head) == []
        with pytest.raises(JournalGone):
            journal.read(full)
    with Journal(tmp_path / "a") as journal:
        assert journal.first == journal.head == full + 90
        assert journal.append([b"next"], 0) == (full + 90, full + 91)


def test_one_reader_acknowledges(tmp_path: Path) -> None:
    first, second, other = Reader("billing", 1), Reader("billing", 2), Reader("audit", 1)
    with Journal(tmp_path / "a") as journal:
        for item in (b"a", b"b", b"c"):
            journal.append([item], 0)
            journal.commit()
        assert journal.reader is None
        assert journal.acknowledge(first) == 0
    with Journal(tmp_path / "a") as journal:
        assert journal.reader == first
        for reader, reason in ((second, "another reader 'billing'"), (other, "'audit' .* its reader is 'billing'")):
            with pytest.raises(ReaderConflict, match=reason):
                journal.acknowledge(reader, 3)
        assert journal.acknowledge(first, 2) == 2
        assert journal.trim(1) == 2  # trimming needs no name
        with pytest.raises(ReaderConflict, match="no reader 'audit' to release: its reader is 'billing'"):
            journal.release("audit")
        journal.release("billing")
        with pytest.raises(ReaderConflict, match="no reader 'billing' to release: none is registered"):
            journal.release("billing")
    with Journal(tmp_path / "a") as journal:
        assert journal.reader is None
        assert journal.acknowledge(second, 3) == 3


S = 1_000_000


def test_a_retention_by_size_keeps_the_newest(tmp_path: Path) -> None:
    with Journal(tmp_path / "a") as journal:
        for number in range(10):
            journal.append([b"%d" % number + bytes(100_000)], 0)
            journal.commit()
        each = journal.size // 10
        for size, first in ((10 * each, 0), (10 * each - 1, 1), (3 * each, 7), (1, 10)):
            assert journal.retain(Retention(size=size), 0) == first
        assert (journal.first, journal.head, journal.size) == (10, 10, 0)


def test_a_retention_makes_room(tmp_path: Path) -> None:
    with Journal(tmp_path / "a", limits=Limits.server(journal_bytes=MI)) as journal:
        for _ in range(10):
            journal.append([bytes(100_000)], 0)
            journal.commit()
        assert journal.retain(Retention(size=MI), 0) == 0
        with pytest.raises(JournalFull, match=f"journal_bytes={MI} is reached"):
            journal.append([bytes(100_000)], 0)
        assert journal.retain(Retention(size=MI), 0, room=100_100) == 1
        journal.append([bytes(100_000)], 0)


def test_a_retention_by_time_counts_from_the_first_call_that_finds_an_item(tmp_path: Path) -> None:
    """The times of items may be anything, such as those of a clock that stepped."""
    hour = Retention(seconds=3600)
    with Journal(tmp_path / "a") as journal:
        for time_us in (-S, 10**17, 5):
            journal.append([b"x"], time_us)
            journal.commit()
        assert journal.retain(hour, 100 * S) == 0
        journal.append([b"later"], 0)
        journal.commit()
        assert journal.retain(hour, 3700 * S) == 0, "an hour and no more"
        assert journal.retain(hour, 3700 * S + 1) == 3
        assert journal.retain(hour, 7300 * S + 1) == 4, "found at 3700 s"
        assert journal.head == 4


def test_a_retention_by_time_uses_the_stored_time_of_older_items(tmp_path: Path) -> None:
    with Journal(tmp_path / "a") as journal:
        for second in (100, 200, 300):
            journal.append([b"x"], second * S)
            journal.commit()
    with Journal(tmp_path / "a") as journal:
        assert journal.retain(Retention(seconds=100), 300 * S) == 1
        assert journal.retain(Retention(seconds=100, size=1), 300 * S) == 3


@pytest.mark.parametrize("bound", [{"seconds": 0}, {"size": 0}, {"seconds": -1.0}, {"seconds": float("nan")}])
def test_a_retention_that_keeps_nothing_is_refused(bound: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"Retention: {next(iter(bound))} must be above 0"):
        Retention(**bound)


def test_an_item_that_no_reader_can_receive_is_refused(tmp_path: Path) -> None:
    with Journal(tmp_path / "a") as journal:
        most = journal.limits.payload_bytes - 64
        assert journal.item_bytes == most
        journal.append([bytes(most), Payload(bytes(most - 1), b"m")], 0)
        for item in (Payload(bytes(most + 1)), Payload(bytes(most), b"m")):
            with pytest.raises(ItemTooLarge, match=f"an item of {most + 1} bytes was refused at offset 2") as caught:
                journal.append([Payload(b"good"), item], 0)
            assert isinstance(caught.value, LimitExceeded)
        assert (journal.tail, journal.refused) == (2, 2)


def test_whole_blocks_are_read_as_they_are_stored(tmp_path: Path) -> None:
    with Journal(tmp_path / "a") as journal:
        batches: list[list[PayloadLike]] = [[b"a", b"bc"], [Payload(b"d", b"meta"), b""], [b"e"]]
        for items in batches:
            journal.append(items, len(items))
            journal.commit()
        assert [(block.first, block.end) for block in journal.read_blocks(1, 3)] == [(0, 2), (2, 4)]
        assert [block.first for block in journal.read_blocks(0, 99)] == [0, 2, 4]
        assert [block.first for block in journal.read_blocks(0, 99, limit_bytes=1)] == [0]
        assert journal.read_blocks(5, 9) == []
        first, second = journal.read_blocks(1, 3)
        assert first.body == bytes.fromhex("01000000 02000000") + b"abc"
        assert (first.stored, first.metadata_bytes, first.time_us, list(first.lengths())) == (2, None, 2, [1, 2])
        assert second.body == bytes.fromhex("01000000 00000000 05000000 00000000") + b"meta" + b"d"
        assert (second.metadata_bytes, second.crc) == (4, checksum(2, 2, 2, 4, second.body))
        assert sum(block.charge for block in journal.read_blocks(0, 5)) == journal.size
        [cut] = journal.read(1, 1)
        assert (cut.first, list(cut.lengths()), cut.crc, cut.body) == (1, [2], first.crc, first.body)
        journal.trim(4)
        with pytest.raises(JournalGone):
            journal.read_blocks(1, 5)


def test_trimming_keeps_whole_blocks(tmp_path: Path) -> None:
    with Journal(tmp_path / "a") as journal:
        journal.append([b"a", b"b", b"c"], 0)
        journal.commit()
        journal.append([b"d"], 0)
        assert journal.trim(2) == 0
        assert journal.trim(0) == 0
        assert journal.trim(3) == 3  # what waits for a commit is not touched
        journal.commit()
        assert everything(journal) == [Payload(b"d")]


def test_a_sealed_journal_stays_sealed(tmp_path: Path) -> None:
    with Journal(tmp_path / "a") as journal:
        journal.append([b"last"], 0)
        journal.seal()
        journal.seal()
        assert journal.sealed
        assert "sealed" in repr(journal)
        assert journal.head == 1
        with pytest.raises(JournalError, match="sealed"):
            journal.append([b"more"], 0)
    with Journal(tmp_path / "a") as journal:
        assert journal.sealed
        with pytest.raises(JournalError, match="sealed"):
            journal.append([b"more"], 0)
        journal.trim(1)


def test_a_closed_journal_reports_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a")
    journal.append([b"kept"], 0)
    journal.close()
    journal.close()
    for use in (lambda: journal.append([b"x"], 0), journal.commit, journal.seal, lambda: journal.read(0)):
        with pytest.raises(JournalError, match="closed"):
            use()
    with Journal(tmp_path / "a") as journal:
        assert everything(journal) == [Payload(b"kept")]


def test_the_second_to_open_a_journal_is_refused(tmp_path: Path) -> None:
    with Journal(tmp_path / "a") as journal:
        with pytest.raises(JournalLocked, match=r"a: another process") as caught:
            Journal(tmp_path / "a", on_damage="new-epoch")
        assert isinstance(caught.value, Error)
        journal.append([b"undisturbed"], 0)
        journal.commit()
        assert everything(journal) == [Payload(b"undisturbed")]
    Journal(tmp_path / "a").close()


def test_a_removed_journal_leaves_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a", epoch=1)
    journal.append([b"x"], 0)
    journal.commit()
    journal.append([b"y"], 0)
    journal.remove()
    journal.close()
    assert list(tmp_path.iterdir()) == []
    with Journal(tmp_path / "a") as journal:
        assert (journal.head, journal.epoch == 1) == (0, False)


def test_a_journal_of_another_stream_is_refused(tmp_path: Path) -> None:
    Journal(tmp_path / "a", key=b"prices").close()
    with pytest.raises(JournalError, match="another stream"):
        Journal(tmp_path / "a", key=b"flights", on_damage="new-epoch")
    Journal(tmp_path / "a", key=b"prices").close()


def test_a_wrong_item_is_refused_and_nothing_is_appended(tmp_path: Path) -> None:
    with Journal(tmp_path / "a") as journal:
        with pytest.raises(TypeError):
            journal.append([b"good", 7], 0)  # type: ignore[list-item] # what is tested
        assert journal.tail == 0


def test_reading_does_not_wait_for_a_commit(tmp_path: Path) -> None:
    """A commit that is held up by the disk: here by a lock that another connection has on the database."""
    with Journal(tmp_path / "a") as journal:
        journal.append([b"a"], 0)
        journal.commit()
        disk = sqlite3.connect(tmp_path / "a", isolation_level=None)
        disk.execute("BEGIN IMMEDIATE")
        journal.append([b"b"], 0)
        committer = threading.Thread(target=journal.commit)
        committer.start()
        assert everything(journal) == [Payload(b"a")]
        journal.append([b"c"], 0)
        disk.execute("ROLLBACK")
        disk.close()
        committer.join()
        journal.commit()
        assert everything(journal) == [Payload(b"a"), Payload(b"b"), Payload(b"c")]


def test_many_threads_append_commit_and_read(tmp_path: Path) -> None:
    with Journal(tmp_path / "a", block_bytes=500) as journal:
        done = threading.Event()
        seen: list[int] = []

        def write(name: bytes) -> None:
            for number in range(100):
                journal.append([name + b"%d" % number] * 3, number)
                journal.commit()

        def read() -> None:
            offset = 0
            while not (done.is_set() and offset == journal.head):
                for block in journal.read(offset):
                    assert block.first == offset
                    offset = block.end
            seen.append(offset)

        reader = threading.Thread(target=read)
        writers = [threading.Thread(target=write, args=(name,)) for name in (b"a", b"b")]
        for thread in [reader, *writers]:
            thread.start()
        for thread in writers:
            thread.join()
        done.set()
        reader.join()
        assert seen == [journal.head] == [600]
        found = [payload.data for payload in everything(journal)]
        for name in (b"a", b"b"):
            own = [item for item in found if item.startswith(name)]
            assert own == [name + b"%d" % number for number in range(100) for _ in range(3)]
