"""Damaged, cut, foreign and newer files: refused with a clear error, or exactly what was committed. Never a guess."""

from __future__ import annotations

import contextlib
import resource
import shutil
import sqlite3
from pathlib import Path

import pytest

from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.journal import files
from afflux.journal.contract import Reader
from afflux.journal.database import SqliteBackend
from afflux.journal.errors import JournalDamaged, JournalError, JournalLocked, JournalNoSpace, ReaderConflict
from afflux.journal.store import Journal
from tests.journal.test_store import everything

ITEMS = [Payload(b"item %d " % number * (number % 5), b"m" if number % 3 else None) for number in range(60)]


READER = Reader("billing", 77)


def _writer(journal: Journal) -> sqlite3.Connection:
    backend = journal._backend
    assert isinstance(backend, SqliteBackend)
    return backend._writer


def closed(path: Path) -> Path:
    """A journal with ITEMS in small blocks, closed in order."""
    with Journal(path, block_bytes=400, epoch=77) as journal:
        for number in range(0, 60, 6):
            journal.append(ITEMS[number : number + 6], number)
            journal.commit()
        journal.acknowledge(READER)
    return path


def crashed(path: Path) -> Path:
    """The same as its files look when the process died: copied while it is open."""
    live = path.with_name("live")
    with Journal(live, block_bytes=400, epoch=77) as journal:
        for number in range(0, 60, 6):
            journal.append(ITEMS[number : number + 6], number)
            journal.commit()
        shutil.copy(live, path)
        shutil.copy(f"{live}-wal", f"{path}-wal")
        shutil.copy(f"{live}.open", f"{path}.open")
    return path


def version_1(path: Path) -> Path:
    """The same as a journal of the first version, which knew no reader."""
    database = sqlite3.connect(closed(path))
    database.execute("DROP TABLE reader")
    database.execute("PRAGMA user_version = 1")
    database.close()
    return path


def wal(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def refused(path: Path) -> str | None:
    """Why opening or reading all of it is refused; None when it is what was committed."""
    try:
        with Journal(path, block_bytes=400) as journal:
            found = everything(journal)
            numbers = journal.epoch, journal.first, journal.head, journal.sealed, journal.time_us
    except JournalError as error:
        assert str(path) in str(error)
        return error.reason
    assert found == ITEMS
    assert numbers == (77, 0, 60, False, 54)
    return None


def test_a_closed_journal_cut_anywhere_is_refused(tmp_path: Path) -> None:
    whole = closed(tmp_path / "a").read_bytes()
    assert refused(tmp_path / "a") is None
    page = files.PAGE_BYTES
    edges = {0, 1, 15, 16, 99, 100, 101, 511, 512, len(whole) - 1}
    edges |= {at + off for at in range(page, len(whole), page) for off in (-1, 0, 1)}
    for size in sorted(edges):
        (tmp_path / "a").write_bytes(whole[:size])
        reason = refused(tmp_path / "a")
        assert reason is not None, size
        assert "restore a copy, or open it with on_damage='new-epoch'" in reason


def test_a_closed_journal_with_a_flipped_bit_is_refused_or_unharmed(tmp_path: Path) -> None:
    path = closed(tmp_path / "a")
    whole = path.read_bytes()
    harmless = 0
    for at in [*range(120), *range(120, len(whole), 41)]:
        path.write_bytes(whole[:at] + bytes((whole[at] ^ 0x10,)) + whole[at + 1 :])
        wal(path).unlink(missing_ok=True)
        if refused(path) is None:
            harmless += 1  # room in a page that nothing uses
            path.unlink()
    assert harmless < len(whole)


def test_a_flipped_bit_in_an_item_is_found_when_it_is_read(tmp_path: Path) -> None:
    path = closed(tmp_path / "a")
    whole = path.read_bytes()
    at = whole.index(b"item 4 item 4")
    path.write_bytes(whole[:at] + b"X" + whole[at + 1 :])
    with Journal(path) as journal:
        assert journal.head == 60
        with pytest.raises(JournalDamaged, match="checksum of the block at offset 0 is wrong") as caught:
            journal.read(3)
        assert caught.value.rule == "journal-damaged"
        assert journal.read(30, 6)[0].payloads() == ITEMS[30:36]
    with Journal(path, on_damage="new-epoch") as journal:
        assert (journal.first, journal.head) == (0, 0)
        assert journal.epoch != 77
    assert (tmp_path / "a.damaged-1").read_bytes()[at : at + 1] == b"X"


def test_a_missing_block_is_damage(tmp_path: Path) -> None:
    path = closed(tmp_path / "a")
    for first, reason in ((18, "offset 18"), (54, "offset 59"), (0, "offset 0")):
        other = shutil.copy(path, tmp_path / f"without-{first}")
        database = sqlite3.connect(other)
        database.execute("DELETE FROM block WHERE first = ?", (first,))
        database.commit()
        database.close()
        assert reason in str(refused(Path(other)))


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE state SET epoch = 78",
        "UPDATE state SET head = 59",
        "UPDATE state SET sealed = 1",
        "UPDATE state SET sealed = 'x'",
        "UPDATE state SET bytes = -1",
        "DELETE FROM state",
        "DROP TABLE state",
        "DROP TABLE block",
        "UPDATE block SET count = count + 1",
        "UPDATE block SET time_us = 'noon'",
        "UPDATE block SET body = 'text'",
        "UPDATE block SET metadata_bytes = NULL",
        "UPDATE reader SET name = 'audit'",
        "UPDATE reader SET name = 5",
        "UPDATE reader SET owner = 78",
        "UPDATE reader SET owner = 'x'",
        "UPDATE reader SET owner = -1",
        "UPDATE reader SET crc = 0",
        "DROP TABLE reader",
    ],
)
def test_a_changed_row_is_damage(tmp_path: Path, change: str) -> None:
    path = closed(tmp_path / "a")
    database = sqlite3.connect(path)
    database.execute(change)
    database.commit()
    database.close()
    assert refused(path) is not None


def test_after_a_crash_all_is_there(tmp_path: Path) -> None:
    assert refused(crashed(tmp_path / "a")) is None
    assert refused(tmp_path / "a") is None


def test_a_cut_wal_loses_whole_commits_from_the_end_or_is_refused(tmp_path: Path) -> None:
    """SP-09, what a disk that lies about writing can do: the head goes back to a commit, never into one."""
    path = crashed(tmp_path / "a")
    database, log = path.read_bytes(), wal(path).read_bytes()
    heads = set()
    for size in [0, 1, 31, 32, 33, *range(100, len(log), 1999), len(log) - 1, len(log)]:
        path.write_bytes(database)
        wal(path).write_bytes(log[:size])
        path.with_name("a.open").touch()
        try:
            with Journal(path, block_bytes=400) as journal:
                assert everything(journal) == ITEMS[: journal.head]
                heads.add(journal.head)
        except JournalDamaged as error:
            assert size < 100, error
    assert heads == set(range(0, 61, 6))


def test_a_crashed_journal_without_its_wal_is_refused(tmp_path: Path) -> None:
    path = crashed(tmp_path / "a")
    wal(path).unlink()
    assert "it was not closed and its -wal file with the last items is missing" in str(refused(path))


def test_a_wal_without_its_journal_is_refused(tmp_path: Path) -> None:
    path = crashed(tmp_path / "a")
    path.unlink()
    assert "the database is missing" in str(refused(path))
    with Journal(path, on_damage="new-epoch") as journal:
        assert journal.head == 0
    assert wal(tmp_path / "a.damaged-1").exists()


def test_the_files_set_aside_do_not_replace_each_other(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / "a").write_bytes(b"%d" % number)
        Journal(tmp_path / "a", on_damage="new-epoch").close()
        assert (tmp_path / f"a.damaged-{number}").read_bytes() == b"%d" % number


def test_new_epoch_leaves_a_whole_journal_alone(tmp_path: Path) -> None:
    path = closed(tmp_path / "a")
    with Journal(path, on_damage="new-epoch") as journal:
        assert journal.epoch == 77
        assert everything(journal) == ITEMS


def test_a_birth_that_was_cut_short_is_no_damage(tmp_path: Path) -> None:
    (tmp_path / "a.new").write_bytes(b"SQLite fo")
    with Journal(tmp_path / "a") as journal:
        assert journal.head == 0
    assert not (tmp_path / "a.new").exists()


def test_a_database_of_another_program_is_refused_and_kept(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "a")
    database.execute("CREATE TABLE theirs (x)")
    database.close()
    before = (tmp_path / "a").read_bytes()
    with pytest.raises(JournalError, match="another program"):
        Journal(tmp_path / "a", on_damage="new-epoch")
    assert (tmp_path / "a").read_bytes() == before


def test_a_newer_schema_is_refused_and_kept(tmp_path: Path) -> None:
    path = closed(tmp_path / "a")
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 4")
    database.close()
    with pytest.raises(JournalError, match=r"version 4, this afflux reads 3; update"):
        Journal(path, on_damage="new-epoch")
    assert list(tmp_path.glob("*.damaged*")) == []


def header_version(path: Path) -> int:
    return int.from_bytes(path.read_bytes()[60:64], "big")


def test_a_journal_of_the_first_version_is_read_and_written(tmp_path: Path) -> None:
    path = version_1(tmp_path / "a")
    assert refused(path) is None
    with Journal(path) as journal:
        assert journal.reader is None
        journal.append([b"new"], 99)
        journal.commit()
        with pytest.raises(ReaderConflict, match="none is registered"):
            journal.release("billing")
        journal.trim(6)
    assert header_version(path) == 1  # an older afflux may still open it
    with Journal(path) as journal:
        assert everything(journal) == [*ITEMS[6:], Payload(b"new")]
        assert journal.acknowledge(READER, 12) == 12
        assert header_version(path) == 2, "an older afflux must not trim from now on, even after a crash"
    with Journal(path) as journal:
        assert journal.reader == READER
        assert everything(journal) == [*ITEMS[12:], Payload(b"new")]


def test_a_path_that_can_not_be_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(JournalError, match="check the directory"):
        Journal(tmp_path / "file" / "a")
    (tmp_path / "a").mkdir()
    with pytest.raises(JournalError, match="check the directory"):
        Journal(tmp_path / "a")
    (tmp_path / "b.lock").write_bytes(b"no database at all, though long enough to be looked at" * 20)
    with pytest.raises(JournalError, match="lock file cannot be locked"):
        Journal(tmp_path / "b")


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """A bound on the pages of the database stands for the disk's end."""
    with Journal(tmp_path / "a", limits=Limits.server()) as journal:
        journal.append([b"before"], 0)
        journal.commit()
        writer = _writer(journal)
        pages = writer.execute("PRAGMA page_count").fetchone()[0]
        writer.execute(f"PRAGMA max_page_count = {pages}").fetchall()
        journal.append([b"x" * 200_000], 0)
        for _ in range(2):
            with pytest.raises(JournalNoSpace, match="disk is full"):
                journal.commit()
        assert (journal.head, journal.tail) == (1, 2)
        journal.append([b"y"], 0)
        assert everything(journal) == [Payload(b"before")]
        writer.execute("PRAGMA max_page_count = 1000000").fetchall()
        assert journal.commit() == 3
        assert everything(journal) == [Payload(b"before"), Payload(b"x" * 200_000), Payload(b"y")]


def test_a_failing_disk_ends_writing_but_not_reading(tmp_path: Path) -> None:
    """A file size limit of the operating system makes writes fail as a bad disk does."""
    journal = Journal(tmp_path / "a", limits=Limits.server())
    journal.append([b"before"], 0)
    journal.commit()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (wal(tmp_path / "a").stat().st_size + 5000, hard))
    try:
        journal.append([b"x" * 200_000], 0)
        with pytest.raises(JournalError) as caught:
            journal.commit()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert journal.head == 1
    assert everything(journal) == [Payload(b"before")]
    if not isinstance(caught.value, JournalNoSpace):
        for use in (journal.commit, lambda: journal.append([b"y"], 0), lambda: journal.trim(1), journal.seal):
            with pytest.raises(JournalError, match="an earlier write failed"):
                use()
    with contextlib.suppress(JournalError):
        journal.close()
    with Journal(tmp_path / "a") as journal:
        assert everything(journal)[:1] == [Payload(b"before")]


def test_another_program_on_the_database_delays_a_commit(tmp_path: Path) -> None:
    with Journal(tmp_path / "a") as journal:
        _writer(journal).execute("PRAGMA busy_timeout = 1")
        other = sqlite3.connect(tmp_path / "a", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        journal.append([b"x"], 0)
        with pytest.raises(JournalLocked, match="another process or object has it open"):
            journal.commit()
        with pytest.raises(JournalLocked):
            journal.seal()
        assert not journal.sealed
        other.close()
        assert journal.commit() == 1
