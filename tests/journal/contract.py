"""What every backend of a journal has to pass. test_contract.py runs it; see :mod:`afflux.journal.contract`.

A backend under test is a :class:`Storage`: a way to open it, also in a process that is killed, and to damage it as a
crash of the machine does.
"""

from __future__ import annotations

import random
import signal
import subprocess
from abc import ABC, abstractmethod
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from afflux.core.payload import Payload
from afflux.journal.blocks import Block, Pending, columns, sizes
from afflux.journal.contract import Backend, BlockInfo, Reader
from afflux.journal.errors import JournalDamaged, JournalError
from tests.cli.forking import Process
from tests.journal.items import item

READER = Reader("billing", 77)


class Storage(ABC):
    """Where one journal is stored, in ``directory``."""

    imports: str
    "A statement that a program of its own needs to open it."

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    @abstractmethod
    def opening(self) -> str:
        """An expression that opens it, for a program of its own."""

    @abstractmethod
    def open(self) -> Backend:
        """Open it; create it if it is missing."""

    @abstractmethod
    def torn(self, rng: random.Random) -> bool:
        """Lose a part of what was written last, as a crash of the machine does that tears a write. False if nothing can
        be lost."""

    @abstractmethod
    def flip(self, backend: Backend, block: Block) -> None:
        """Change a bit of a stored block, with the backend closed."""


def block(first: int, count: int, time_us: int = 0) -> Block:
    """A block of the items that every writer writes."""
    pending = Pending(first, time_us)
    data, metadata = columns([item(offset) for offset in range(first, first + count)])
    pending.extend(data, metadata, sum(sizes(data, metadata)))
    return pending.pack()


def filled(backend: Backend, *counts: int) -> None:
    """Append a block of each number of items, one by one; the time of each is its number."""
    for count in counts:
        backend.append([block(backend.heads.head, count, len(list(backend.index())))])


def stored(backend: Backend) -> list[Payload]:
    """All items; offsets are checked."""
    heads = backend.heads
    found: list[Payload] = []
    with closing(backend.read_blocks(heads.first, heads.head)) as blocks:
        for each in blocks:
            assert each.first == heads.first + len(found)
            found += each.payloads()
    assert len(found) == heads.head - heads.first
    return found


def expected(first: int, head: int) -> list[Payload]:
    return [item(offset) for offset in range(first, head)]


class Contract:
    """The suite; a subclass has the fixture ``storage``."""

    def test_what_is_appended_is_read_as_it_was(self, storage: Storage) -> None:
        with closing(storage.open()) as backend:
            assert (backend.heads.first, backend.heads.head, backend.heads.size) == (0, 0, 0)
            assert backend.heads.epoch > 0 and not backend.heads.sealed and backend.heads.reader is None
            first, second = block(0, 5, 7), block(5, 1, 9)
            backend.append([first, second])
            with closing(backend.read_blocks(0, 6)) as blocks:
                for given, found in zip([first, second], blocks, strict=True):
                    assert (given.first, given.stored, given.time_us) == (found.first, found.stored, found.time_us)
                    assert (given.body, given.metadata_bytes, given.crc) == (
                        found.body,
                        found.metadata_bytes,
                        found.crc,
                    )
            heads = backend.heads
            assert (heads.head, heads.size, heads.time_us) == (6, first.charge + second.charge, 9)
        with closing(storage.open()) as backend:
            assert backend.heads == heads
            assert stored(backend) == expected(0, 6)

    def test_any_range_is_read_in_whole_blocks(self, storage: Storage) -> None:
        with closing(storage.open()) as backend:
            filled(backend, 3, 1, 4, 2)
            for start in range(10):
                for stop in range(start + 1, 11):
                    with closing(backend.read_blocks(start, stop)) as blocks:
                        found = list(blocks)
                    assert found[0].first <= start < found[0].end
                    assert found[-1].first < stop <= found[-1].end
                    assert all(before.end == after.first for before, after in pairwise(found))

    def test_a_block_that_does_not_begin_at_the_head_is_refused(self, storage: Storage) -> None:
        with closing(storage.open()) as backend:
            filled(backend, 3)
            for first in (0, 2, 4):
                with pytest.raises(ValueError, match="head 3"):
                    backend.append([block(first, 1)])
            assert stored(backend) == expected(0, 3)

    def test_trimming(self, storage: Storage) -> None:
        with closing(storage.open()) as backend:
            filled(backend, 3, 1, 4, 2)
            infos = list(backend.index())
            assert [(info.first, info.end, info.time_us) for info in infos] == [
                (0, 3, 0),
                (3, 4, 1),
                (4, 8, 2),
                (8, 10, 3),
            ]
            assert sum(info.charge for info in infos) == backend.heads.size
            backend.trim(4)
            assert list(backend.index()) == infos[2:]
            assert (backend.heads.first, backend.heads.size) == (4, sum(info.charge for info in infos[2:]))
            assert stored(backend) == expected(4, 10)
            backend.trim(10)
            assert (backend.heads.first, backend.heads.head, backend.heads.size) == (10, 10, 0)
            filled(backend, 1)
        with closing(storage.open()) as backend:
            assert stored(backend) == expected(10, 11)
            [info] = backend.index()
            assert isinstance(info, BlockInfo)

    def test_a_range_that_is_not_there_is_damage(self, storage: Storage) -> None:
        with closing(storage.open()) as backend:
            filled(backend, 3, 3)
            backend.trim(3)
            for start, stop in ((0, 1), (2, 4), (5, 7), (6, 7)):
                with pytest.raises(JournalDamaged), closing(backend.read_blocks(start, stop)) as blocks:
                    list(blocks)

    def test_reader_and_seal_are_durable(self, storage: Storage) -> None:
        with closing(storage.open()) as backend:
            filled(backend, 2)
            backend.register(READER)
            backend.seal()
            heads = backend.heads
            assert heads.reader == READER and heads.sealed
        with closing(storage.open()) as backend:
            assert backend.heads == heads
            backend.register(None)
        with closing(storage.open()) as backend:
            assert backend.heads.reader is None

    def test_the_note_is_durable(self, storage: Storage) -> None:
        with closing(storage.open()) as backend:
            assert backend.heads.note == b""
            backend.remember(b"first")
            filled(backend, 2)
            backend.remember(b"second \x00\xff")
            assert backend.heads.note == b"second \x00\xff"
            assert stored(backend) == expected(0, 2)
        with closing(storage.open()) as backend:
            assert backend.heads.note == b"second \x00\xff"
            filled(backend, 3)
            backend.remember(b"third")
            backend.trim(5)
            backend.seal()
            heads = backend.heads
        with closing(storage.open()) as backend:
            assert backend.heads == heads
            assert (heads.first, heads.head, heads.note) == (5, 5, b"third")

    def test_refresh_finds_nothing_new_alone(self, storage: Storage) -> None:
        with closing(storage.open()) as backend:
            for count in (0, 3, 4):
                if count:
                    filled(backend, count)
                heads = backend.heads
                backend.refresh()
                assert backend.heads == heads
            backend.trim(3)
            backend.register(READER)
            heads = backend.heads
            backend.refresh()
            assert backend.heads == heads
            assert backend.most_bytes >= 0x40000

    def test_a_second_writer_never_mixes(self, storage: Storage) -> None:
        """It is refused when it opens, or when it appends after the first has."""
        with closing(storage.open()) as backend:
            filled(backend, 2)
            try:
                second = storage.open()
            except JournalError:
                pass
            else:
                with closing(second):
                    filled(backend, 1)
                    with pytest.raises(JournalError):
                        filled(second, 1)
            filled(backend, 2)
            assert stored(backend) == expected(0, backend.heads.head)

    def test_a_removed_journal_begins_again_with_another_epoch(self, storage: Storage) -> None:
        backend = storage.open()
        filled(backend, 2)
        epoch = backend.heads.epoch
        backend.remove()
        backend.close()
        with closing(storage.open()) as backend:
            assert backend.heads.head == 0
            assert backend.heads.epoch != epoch

    def test_a_flipped_bit_is_found(self, storage: Storage) -> None:
        with closing(storage.open()) as backend:
            filled(backend, 40, 40, 40)
            with closing(backend.read_blocks(40, 41)) as blocks:
                [damaged] = blocks
        storage.flip(backend, damaged)
        with closing(storage.open()) as backend:
            with pytest.raises(JournalDamaged), closing(backend.read_blocks(0, 120)) as blocks:
                list(blocks)
            with closing(backend.read_blocks(80, 120)) as blocks:
                assert [payload for each in blocks for payload in each.payloads()] == expected(80, 120)

    def test_a_torn_write_loses_whole_blocks_from_the_end_or_is_refused(self, storage: Storage) -> None:
        rng = random.Random(7)
        for _ in range(25):
            with closing(storage.open()) as backend:
                base = backend.heads.head
            if not storage.torn(rng):
                pytest.skip("this storage answers for torn writes itself")
            try:
                opened = storage.open()
            except JournalDamaged:
                return
            with closing(opened) as backend:
                assert stored(backend) == expected(backend.heads.first, backend.heads.head)
                assert backend.heads.head >= base

    def test_a_killed_writer_loses_nothing_that_was_stored(self, storage: Storage) -> None:
        rng = random.Random(20261123)
        promised, epoch = 0, 0
        for seed in range(6):
            promised = max(promised, killed(storage, seed, lines=(2, 5, 20)[seed % 3], spin=rng.randrange(100_000)))
            with closing(storage.open()) as backend:
                heads = backend.heads
                assert heads.head >= promised
                assert heads.epoch == (epoch or heads.epoch)
                assert heads.reader == READER
                assert stored(backend) == expected(heads.first, heads.head)
                epoch = heads.epoch
        assert promised > 1000


WRITER = """
import os, random, sys
from tests.journal.contract import READER, block, item
{imports}

rng = random.Random({seed})
backend = {opening}
backend.register(READER)
os.write(1, b"%d\\n" % backend.heads.head)
while True:
    head = backend.heads.head
    blocks = []
    for _ in range(rng.choice((1, 1, 3))):
        blocks.append(block(head, rng.choice((1, 50, 400)), head))
        head = blocks[-1].end
    backend.append(blocks)
    if rng.random() < 0.3:
        ends = [info.end for info in backend.index()]
        backend.trim(rng.choice(ends))
    os.write(1, b"%d\\n" % backend.heads.head)
"""


def killed(storage: Storage, seed: int, *, lines: int, spin: int) -> int:
    """Start a writer, kill it after some lines and a little; return the last head that it reported."""
    program = WRITER.format(imports=storage.imports, opening=storage.opening, seed=seed)
    with Process([], program=program, stdout=subprocess.PIPE) as writer:
        if writer.stdout is None:
            raise RuntimeError("no pipe")
        said = [writer.stdout.readline() for _ in range(lines)]
        for _ in range(spin):
            pass
        writer.send_signal(signal.SIGKILL)
        said += writer.stdout.read().splitlines(keepends=True)
    if writer.returncode != -signal.SIGKILL:
        raise RuntimeError(f"the writer ended by itself: {writer.returncode}")
    return max(int(line) for line in said if line.endswith(b"\n"))
