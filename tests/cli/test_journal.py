"""``afflux journal`` and ``afflux doctor --journal``: what a directory of journals contains, and what is wrong."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from afflux.core.limits import Limits
from afflux.journal import Journal, Reader
from tests.cli.running import afflux
from tests.journal.disks import fill, small_disk

MI = 1 << 20


def listed(directory: Path) -> dict[str, dict[str, Any]]:
    ran = afflux(["journal", str(directory), "-o", "json"])
    assert ran.returncode == 0, ran.stderr
    return {Path(each["path"]).name: each for each in json.loads(ran.stdout)}


def remedies(directory: Path) -> dict[str, str | None]:
    ran = afflux(["doctor", "--journal", str(directory), "-o", "json"])
    return {each["name"]: each["remedy"] for each in json.loads(ran.stdout) if each["name"].endswith(".journal")}


def test_open_closed_sealed_and_damaged_journals(tmp_path: Path) -> None:
    with Journal(tmp_path / "closed.journal") as journal:
        journal.append([b"a", b"b"], 0)
    with Journal(tmp_path / "sealed.journal", key=b"any") as journal:
        journal.append([b"a"], 0)
        journal.seal()
    (tmp_path / "damaged.journal").write_bytes(b"nothing of the kind" * 20)
    (tmp_path / "foreign.txt").write_text("no journal")
    with Journal(tmp_path / "open.journal") as journal:
        journal.acknowledge(Reader("billing", 1))
        journal.append([b"a", b"b", b"c"], 0)
        journal.commit()
        found = listed(tmp_path)
        shown = afflux(["journal", str(tmp_path), "-o", "table"]).stdout
        journal.append([b"d"], 0)
        assert journal.commit() == 4, "looking did not disturb it"
    assert set(found) == {"closed.journal", "damaged.journal", "open.journal", "sealed.journal"}
    assert [found[name]["state"] for name in sorted(found)] == ["closed", "closed", "open", "sealed"]
    assert (found["open.journal"]["head"], found["open.journal"]["reader"]) == (3, "billing")
    assert found["closed.journal"]["problem"] is None
    assert found["damaged.journal"]["problem"].startswith("it cannot be read: it is a database of another program")
    assert "billing" in shown and "sealed" in shown and "it cannot be read" in shown
    with Journal(tmp_path / "closed.journal") as journal:
        assert journal.head == 2


def test_a_journal_after_a_crash_and_one_of_the_first_version(tmp_path: Path) -> None:
    with Journal(tmp_path / "live") as journal:
        journal.append([b"a"], 0)
        journal.commit()
        for suffix in ("", "-wal", ".open"):
            (tmp_path / f"crashed.journal{suffix}").write_bytes((tmp_path / f"live{suffix}").read_bytes())
    Journal(tmp_path / "old.journal").close()
    database = sqlite3.connect(tmp_path / "old.journal")
    database.execute("DROP TABLE reader")
    database.execute("PRAGMA user_version = 1")
    database.close()
    found = listed(tmp_path)
    assert (found["old.journal"]["head"], found["old.journal"]["reader"]) == (0, None)
    assert (found["crashed.journal"]["head"], found["crashed.journal"]["state"]) == (1, "open")
    with Journal(tmp_path / "crashed.journal") as journal:
        assert journal.head == 1


def test_a_journal_without_room_is_called_full(tmp_path: Path) -> None:
    with Journal(tmp_path / "small.journal", limits=Limits.server(journal_bytes=MI)) as journal:
        journal.append([bytes(500_000)], 0)
        journal.commit()
        assert remedies(tmp_path) == {"small.journal": None}
        journal.append([bytes(500_000)], 0)
        journal.commit()
        assert "it is full (journal_bytes=1048576)" in (remedies(tmp_path)["small.journal"] or "")
        assert "it is full" in listed(tmp_path)["small.journal"]["problem"]


def test_a_journal_on_a_full_disk_is_reported(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 8 * MI) as disk, Journal(disk / "a.journal") as journal:
        journal.append([b"a"], 0)
        journal.commit()
        fill(disk)
        assert remedies(disk) == {"a.journal": "its disk is full: make room, or trim"}


def test_a_reader_that_is_gone_is_released(tmp_path: Path) -> None:
    for name, reader in (("a", "billing"), ("b", "audit")):
        with Journal(tmp_path / f"{name}.journal", key=name.encode()) as journal:
            journal.acknowledge(Reader(reader, 1))
    ran = afflux(["journal", str(tmp_path), "--release", "billing"])
    assert ran.returncode == 0
    assert {name: each["reader"] for name, each in listed(tmp_path).items()} == {
        "a.journal": None,
        "b.journal": "audit",
    }
    ran = afflux(["journal", str(tmp_path), "--release", "billing"])
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "has the reader 'billing'" in ran.stderr
    with Journal(tmp_path / "b.journal", key=b"b"):
        ran = afflux(["journal", str(tmp_path), "--release", "audit"])
    assert ran.returncode == 1
    assert "another process or object has it open" in ran.stderr


@pytest.mark.parametrize("words", [["journal"], ["doctor", "--journal"]])
def test_a_directory_that_is_not_there(tmp_path: Path, words: list[str]) -> None:
    ran = afflux([*words, str(tmp_path / "none")])
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "not found" in ran.stderr
