"""The backends of this package pass the contract."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import pytest

from afflux.journal.blocks import Block
from afflux.journal.contract import Backend
from afflux.journal.database import SqliteBackend
from afflux.journal.errors import JournalDamaged
from tests.journal.contract import Contract, Storage, filled


class Sqlite(Storage):
    """A file."""

    imports = "from pathlib import Path; from afflux.journal.database import SqliteBackend"

    @property
    def path(self) -> Path:
        return self.directory / "a.journal"

    @property
    def opening(self) -> str:
        return f"SqliteBackend(Path({str(self.path)!r}))"

    def open(self) -> Backend:
        return SqliteBackend(self.path)

    def torn(self, rng: random.Random) -> bool:
        """Copy the files of a backend that is open, and cut the WAL anywhere: its last writes are lost or torn."""
        with closing(self.open()) as backend:
            filled(backend, *[rng.choice((1, 20, 300)) for _ in range(4)])
            database, wal = (Path(f"{self.path}{suffix}").read_bytes() for suffix in ("", "-wal"))
        self.path.write_bytes(database)
        Path(f"{self.path}-wal").write_bytes(wal[: rng.randrange(100, len(wal))])
        Path(f"{self.path}.open").touch()
        return True

    def flip(self, backend: Backend, block: Block) -> None:
        content = self.path.read_bytes()
        at = content.index(block.body) + len(block.body) // 2
        self.path.write_bytes(content[:at] + bytes((content[at] ^ 1,)) + content[at + 1 :])


class TestSqlite(Contract):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> Storage:
        return Sqlite(tmp_path)

    def test_a_reader_who_checks_gets_small_whole_blocks_unchecked(self, storage: Storage) -> None:
        with closing(storage.open()) as backend:
            filled(backend, 40, 40, 40)
            with closing(backend.read_blocks(40, 41)) as blocks:
                [damaged] = blocks
        storage.flip(backend, damaged)
        with closing(storage.open()) as backend:
            with closing(backend.read_blocks(0, 120, damaged.size)) as blocks:
                assert [each.is_intact() for each in blocks] == [True, False, True]
            for start, stop, unchecked in ((41, 120, damaged.size), (0, 79, damaged.size), (0, 120, damaged.size - 1)):
                with pytest.raises(JournalDamaged), closing(backend.read_blocks(start, stop, unchecked)) as blocks:
                    list(blocks)
