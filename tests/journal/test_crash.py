"""A writer that is killed, for real and at any moment: what it said was committed is there, whole and in order."""

from __future__ import annotations

import random
import signal
import subprocess
from pathlib import Path

import pytest

from afflux.core.limits import Limits
from afflux.journal.errors import JournalLocked
from afflux.journal.store import Journal
from tests.cli.forking import Process
from tests.journal.items import item

WRITER = """
import os, random, sys
from afflux.core.limits import Limits
from afflux.journal.store import Journal
from tests.journal.items import item

rng = random.Random(sys.argv[2])
os.write(1, b"up\\n")
journal = Journal(sys.argv[1], limits=Limits.tiny(), block_bytes=3000)
os.write(1, b"%d %d %d\\n" % (journal.epoch, journal.first, journal.head))
while True:
    journal.append([item(journal.tail + n) for n in range(rng.choice((1, 2, 50, 400)))], journal.tail)
    if rng.random() < 0.7:
        journal.commit()
    if rng.random() < 0.2:
        journal.trim(journal.head - rng.randrange(3000))
    os.write(1, b"%d %d %d\\n" % (journal.epoch, journal.first, journal.head))
"""


def killed_writer(path: Path, seed: int, lines: int, spin: int) -> tuple[int, int, int]:
    """Start a writer, kill it after so many lines and a little; return the last line that it wrote."""
    with Process([str(path), str(seed)], program=WRITER, stdout=subprocess.PIPE) as writer:
        if writer.stdout is None:
            raise RuntimeError("no pipe")
        said = [writer.stdout.readline() for _ in range(lines)]
        for _ in range(spin):
            pass
        writer.send_signal(signal.SIGKILL)
        said += writer.stdout.read().splitlines(keepends=True)
    if writer.returncode != -signal.SIGKILL:
        raise RuntimeError(f"the writer ended by itself: {writer.returncode}")
    last = [line for line in said if line.endswith(b"\n") and line != b"up\n"][-1:]
    epoch, first, head = (int(word) for word in last[0].split()) if last else (0, 0, 0)
    return epoch, first, head


@pytest.mark.slow
def test_kills_lose_nothing_that_was_committed(tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    rng = random.Random(20261121)
    epoch = committed = 0
    grown = 0
    for seed in range(30):
        lines = (1, 2, 3, 10, 40)[seed % 5]
        said_epoch, said_first, said_head = killed_writer(path, seed, lines, rng.randrange(100_000))
        with Journal(path, limits=Limits.tiny()) as journal:
            if epoch:
                assert journal.epoch == epoch
            assert said_epoch in (0, journal.epoch)
            assert journal.head >= max(said_head, committed)
            assert journal.first >= said_first
            offset = journal.first
            while offset < journal.head:
                for block in journal.read(offset):
                    assert block.first == offset
                    assert block.payloads() == [item(offset) for offset in range(block.first, block.end)]
                    offset = block.end
            assert offset == journal.head
            if committed:
                grown += journal.head > committed
            if journal.head or said_epoch:
                epoch, committed = journal.epoch, journal.head
    assert grown >= 8  # those that were let write for a while


def test_another_process_is_refused_until_the_first_one_dies(tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    holder = f"""
import os, sys
from afflux.journal.store import Journal
journal = Journal({str(path)!r})
journal.append([b"x"], 0)
journal.commit()
os.write(1, b"up\\n")
sys.stdin.read()
"""
    with Process([], program=holder, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        if process.stdout is None:
            raise RuntimeError("no pipe")
        assert process.stdout.readline() == b"up\n"
        with pytest.raises(JournalLocked, match="another process or object has it open"):
            Journal(path)
        process.kill()
    with Journal(path) as journal:
        assert journal.head == 1
