"""Complete parts: one pass of syncs in the commit, and what a crash of the machine or a failing disk leaves."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from afflux.core.errors import ApplicationError, Error, Rejected
from afflux.protocols.rsocket.staging import NOT_STAGED, RUN_SUPERSEDED, Abort, Commit, Committed, Part, Stage
from afflux.spark import complete
from afflux.spark.queries import TableError
from afflux.spark.table import Table

pytest.importorskip("pyarrow")

from tests.spark.test_table import NEXT_RUN, Q2, RUN, Q, block, commit, refused, stage, visible


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    made = Table(tmp_path / "table")
    yield made
    made.close()


def staged_files(table: Table) -> list[Path]:
    return sorted(table.directory.glob("_afflux/staging/*/*/*/*"))


@contextmanager
def fsync(monkeypatch: pytest.MonkeyPatch, instead: Callable[[Path], None]) -> Iterator[None]:
    """Call ``instead`` with the path before each sync of a file or a directory."""
    real = os.fsync

    def call(handle: int) -> None:
        instead(Path(os.readlink(f"/proc/self/fd/{handle}")))
        real(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", call)
        yield


linux = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="finds the paths of handles by Linux's table")


@linux
def test_parts_are_synced_by_their_commit_before_they_are_visible(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, synced, unseen = 50, [], []

    def note(path: Path) -> None:
        synced.append(path)
        if path.name.startswith("part-"):
            unseen.append(not visible(table))

    with fsync(monkeypatch, note):
        parts = [stage(table, [b"%d" % number], partition=number) for number in range(count)]
        assert len(synced) == 2  # the columns of the table: a small file and its directory
        files = staged_files(table)
        commit(table, *parts)
    assert sorted(path for path in synced if path.name.startswith("part-")) == files
    assert len(synced) < count + 12
    assert len(unseen) == count and all(unseen)
    assert len(visible(table)) == count


@linux
def test_a_batch_that_cannot_be_synced_is_lost_and_never_visible(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failed sync the next one may succeed, although the system has dropped the bytes."""

    def failing(number: int) -> Callable[[Path], None]:
        def fail(path: Path) -> None:
            if path.name.startswith("part-00001"):
                raise OSError(number, os.strerror(number))

        return fail

    for number, kind in ((errno.EIO, TableError), (errno.ENOSPC, Rejected)):
        parts = [stage(table, [b"%d" % partition], partition=partition) for partition in range(3)]
        with fsync(monkeypatch, failing(number)), pytest.raises(kind):
            commit(table, *parts)
        refused(NOT_STAGED, lambda parts=parts: commit(table, *parts))
        assert visible(table) == []
        assert table.staged_bytes == 0 and not staged_files(table)
    commit(table, stage(table, [b"again"], attempt=2))
    assert visible(table) == [b"again"]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut": lambda data: data[:-1],
    "zeros": lambda data: bytes(len(data)),
    "one bit": lambda data: data[:20] + bytes([data[20] ^ 1]) + data[21:],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_parts_that_a_crash_of_the_machine_has_damaged_are_not_committed(tmp_path: Path, damage: str) -> None:
    table = Table(tmp_path)
    parts = [stage(table, [b"a"]), stage(table, [b"b"], partition=1)]
    (_, second) = staged_files(table)
    table.close()
    second.write_bytes(DAMAGE[damage](second.read_bytes()))
    table = Table(tmp_path)
    text = refused(NOT_STAGED, lambda: commit(table, *parts))
    assert text.startswith("partition 1 of batch 0")
    assert visible(table) == []
    again = stage(table, [b"b"], partition=1, attempt=2)
    assert commit(table, parts[0], again) == Committed(rows=2)
    assert visible(table) == [b"a", b"b"]
    assert table.staged_bytes == 0
    table.close()


def test_parts_of_an_earlier_version_have_no_checksum(tmp_path: Path) -> None:
    table = Table(tmp_path)
    part = stage(table, [b"a"])
    (path,) = staged_files(table)
    table.close()
    path.rename(path.with_name(f"{complete.stem(part)}-{complete.mark_in(path.name)}.parquet"))
    table = Table(tmp_path)
    assert commit(table, part) == Committed(rows=1)
    assert visible(table) == [b"a"]
    table.close()


def test_a_part_that_is_sent_twice_is_stored_once(table: Table) -> None:
    part = stage(table, [b"a"])
    (path,) = staged_files(table)
    before = path.stat().st_ino
    assert stage(table, [b"a"]) == part
    assert path.stat().st_ino == before
    commit(table, part)
    assert visible(table) == [b"a"]
    assert table.staged_bytes == 0


class Held:
    """A commit of one part that waits in its sync, in a thread."""

    def __init__(self, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
        self.part = stage(table, [b"a"])
        self.error: Error | None = None
        self._table = table
        self._reached, self._goes_on = threading.Event(), threading.Event()
        self._holding = fsync(monkeypatch, self._hold)
        self._thread = threading.Thread(target=self._commit)

    def __enter__(self) -> Held:
        self._holding.__enter__()
        self._thread.start()
        assert self._reached.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._goes_on.set()
        self._thread.join()
        self._holding.__exit__(None, None, None)

    def _hold(self, path: Path) -> None:
        if path.name.startswith(complete.stem(self.part)) and Q.hex() in str(path):
            self._reached.set()
            assert self._goes_on.wait(30)

    def _commit(self) -> None:
        try:
            commit(self._table, self.part)
        except Error as error:
            self.error = error


@linux
def test_others_stage_and_commit_while_a_batch_is_synced(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    with Held(table, monkeypatch) as held:
        commit(table, stage(table, [b"b"], query=Q2), query=Q2)
        assert visible(table) == [b"b"]
        for work in (lambda: commit(table, held.part), lambda: table.abort(Abort(query=Q, batch=0, run=RUN))):
            with pytest.raises(Rejected, match="batch 0 is being committed"):
                work()
    assert held.error is None
    assert visible(table) == [b"a", b"b"]
    assert commit(table, held.part) == Committed(rows=0, duplicate=True)


@linux
def test_a_receiver_that_closes_does_not_commit_behind_its_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(tmp_path)
    with Held(table, monkeypatch) as held:
        table.close()
    assert isinstance(held.error, Rejected) and "closing" in held.error.message
    table = Table(tmp_path)
    assert visible(table) == []
    commit(table, held.part)
    assert visible(table) == [b"a"]
    table.close()


@linux
def test_a_run_that_is_replaced_during_its_commit_shows_nothing(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    with Held(table, monkeypatch) as held:
        new = stage(table, [b"new"], run=NEXT_RUN, attempt=2)
    assert isinstance(held.error, ApplicationError) and held.error.code == RUN_SUPERSEDED
    assert visible(table) == []
    commit(table, new, run=NEXT_RUN)
    assert visible(table) == [b"new"]


@linux
def test_a_part_that_vanishes_during_its_commit_is_not_committed(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its successor has the name of a file that was synced, and was not synced itself."""

    def exchange(path: Path) -> None:
        if path.name.startswith("part-00000"):
            (other,) = [each for each in staged_files(table) if each.name.startswith("part-00001")]
            shutil.move(other, table.directory.parent / "aside")
            moved.set()

    moved = threading.Event()
    real = os.open

    def wait(path: Path, flags: int) -> int:
        if path.name.startswith("part-00001"):
            assert moved.wait(30)
        return real(path, flags)

    parts = [stage(table, [b"a"]), stage(table, [b"b"], partition=1)]
    monkeypatch.setattr(os, "open", wait)
    with fsync(monkeypatch, exchange):
        refused(NOT_STAGED, lambda: commit(table, *parts))
    assert visible(table) == []


# -- a loss of power ---------------------------------------------------------------------------------------------


STEPS = ("fsync", "rename", "unlink", "rmdir", "mkdir", "open")
LOSS = """
import os, signal, sys, threading
import pyarrow.parquet
from pathlib import Path
from tests.spark.test_complete import STEPS, two_parts

def deadly(real, left, note):
    def call(*words, **named):
        with mutex:
            left[0] -= 1
            if left[0] <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
            if real is fsync:
                real(*words)
                os.write(note, b"%d\\n" % os.fstat(words[0]).st_ino)
                return None
            return real(*words, **named)
    return call

number, mutex, fsync = 1, threading.RLock(), os.fsync
while True:
    directory = Path(sys.argv[1]) / str(number)
    note = os.open(f"{directory}.synced", os.O_WRONLY | os.O_CREAT)
    child = os.fork()
    if not child:
        left = [number]
        for name in STEPS:
            setattr(os, name, deadly(getattr(os, name), left, note))
        two_parts(directory)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status == 0:
        print(number - 1)
        break
    assert os.WTERMSIG(status) == signal.SIGKILL, status
    number += 1
"""


def two_parts(directory: Path) -> None:
    table = Table(directory)
    parts = [stage(table, [b"%d" % partition], partition=partition) for partition in (0, 1)]
    commit(table, *parts)
    table.close()


def lose_power(directory: Path, synced: set[int]) -> None:
    """Empty all files that were not synced."""
    for path in directory.rglob("*"):
        if path.is_file() and path.stat().st_ino not in synced:
            os.truncate(path, 0)


@pytest.mark.slow
def test_a_loss_of_power_at_every_call_of_the_system_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """The driver still has the answers to STAGE. Its commit shows the whole batch, or is refused and shows nothing."""
    ran = subprocess.run([sys.executable, "-c", LOSS, str(tmp_path)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    kills = int(ran.stdout)
    outcomes: set[object] = set()
    assert kills > 25
    for number in range(1, kills + 1):
        directory = tmp_path / str(number)
        directory.mkdir(exist_ok=True)
        lose_power(directory, {int(line) for line in Path(f"{directory}.synced").read_text().split()})
        assert len([*directory.glob("query=*/batch=*/*")]) in (0, 2)
        table = Table(directory)
        try:
            outcomes.add("duplicate" if commit(table, Part(0, 1, 1), Part(1, 1, 1)).duplicate else "committed")
        except ApplicationError as error:
            outcomes.add(error.code)
            assert visible(table) == []
            again = Stage(query=Q, batch=0, run=NEXT_RUN, partition=0, attempt=2)
            writer = table.stage(again)
            assert writer is not None
            writer.write([block([b"0", b"1"])])
            writer.finish()
            table.commit(Commit(query=Q, batch=0, run=NEXT_RUN, parts=(Part(0, 2, 2),)))
        assert visible(table) == [b"0", b"1"], number
        assert table.staged_bytes == 0
        table.close()
    assert outcomes == {NOT_STAGED, "committed", "duplicate"}
