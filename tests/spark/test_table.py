"""The table of a receiver: batches appear once and whole, whatever is killed, repeated, or late."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from afflux.core.errors import Error, Invalid, Rejected
from afflux.core.limits import Limits
from afflux.protocols.rsocket.staging import (
    NOT_STAGED,
    RUN_SUPERSEDED,
    SCHEMA_MISMATCH,
    Abort,
    Commit,
    Committed,
    Part,
    Stage,
    Staged,
    decode_staging,
)
from afflux.spark import queries
from afflux.spark import table as module
from afflux.spark.queries import NotATable, TableError, TableLocked
from afflux.spark.table import Table

pa = pytest.importorskip("pyarrow")

Q, Q2 = b"q" * 16, b"r" * 16
RUN, NEXT_RUN = b"1" * 16, b"2" * 16


def block(rows: list[bytes], **columns: Any) -> bytes:
    batch = pa.record_batch({"data": pa.array(rows, pa.binary()), **columns})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    made = Table(tmp_path / "table")
    yield made
    made.close()


def stage(
    table: Table,
    rows: list[bytes],
    batch: int = 0,
    *,
    partition: int = 0,
    attempt: int = 1,
    run: bytes = RUN,
    query: bytes = Q,
    **columns: list[object],
) -> Part:
    writer = table.stage(Stage(query=query, batch=batch, run=run, partition=partition, attempt=attempt))
    assert writer is not None
    writer.write([block(rows, **columns)])
    assert writer.finish() == Staged(rows=len(rows))
    return Part(partition, attempt, len(rows))


def commit(table: Table, *parts: Part, batch: int = 0, run: bytes = RUN, query: bytes = Q) -> Committed:
    return table.commit(Commit(query=query, batch=batch, run=run, parts=tuple(sorted(parts))))


def visible(table: Table) -> list[bytes]:
    """What a reader of the directory finds, in any order."""
    import pyarrow.dataset as ds

    found = ds.dataset(table.directory, format="parquet", partitioning="hive")
    return sorted(found.to_table(columns=["data"]).column("data").to_pylist()) if found.files else []


def refused(code: int | None, work: Any) -> str:
    with pytest.raises(Error) as caught:
        work()
    assert caught.value.code == code
    return caught.value.message


def test_rows_appear_with_the_commit_and_not_before(table: Table) -> None:
    first, second = stage(table, [b"a", b"b"]), stage(table, [b"c"], partition=1)
    assert visible(table) == []
    assert commit(table, first, second) == Committed(rows=3)
    assert visible(table) == [b"a", b"b", b"c"]
    assert table.staged_bytes == 0
    assert [path.name for path in table.directory.glob("query=*/*")] == ["batch=0"]


def test_attempts_that_the_commit_does_not_name_are_dropped(table: Table) -> None:
    stage(table, [b"first try"])
    second = stage(table, [b"second try"], attempt=2)
    assert commit(table, second) == Committed(rows=1)
    assert visible(table) == [b"second try"]


def test_a_part_that_is_complete_after_the_commit_is_dropped(table: Table) -> None:
    late = table.stage(Stage(query=Q, batch=0, run=RUN, partition=0, attempt=2))
    assert late is not None
    late.write([block([b"late"])])
    commit(table, stage(table, [b"in time"]))
    assert late.finish() == Staged(rows=1, duplicate=True)
    assert visible(table) == [b"in time"]
    assert table.staged_bytes == 0


def test_a_batch_is_committed_once_in_whatever_form_it_comes_back(table: Table) -> None:
    """SP-04."""
    part = stage(table, [b"a"])
    assert [commit(table, part) for _ in range(3)] == [Committed(rows=1), *[Committed(rows=0, duplicate=True)] * 2]
    again = Stage(query=Q, batch=0, run=NEXT_RUN, partition=0, attempt=9)
    assert table.stage(again) is None
    assert commit(table, Part(0, 9, 1), run=NEXT_RUN) == Committed(rows=0, duplicate=True)
    assert visible(table) == [b"a"]


def test_batches_below_the_last_one_are_duplicates_also_when_their_files_are_gone(tmp_path: Path) -> None:
    table = Table(tmp_path)
    commit(table, stage(table, [b"a"], 4), batch=4)
    commit(table, stage(table, [b"b"], 7), batch=7)
    shutil.rmtree(tmp_path / f"query={uuid.UUID(bytes=Q)}")
    table.close()
    table = Table(tmp_path)
    for batch in (4, 5, 7):
        assert table.stage(Stage(query=Q, batch=batch, run=NEXT_RUN, partition=0, attempt=1)) is None
    commit(table, stage(table, [b"c"], 8, run=NEXT_RUN), batch=8, run=NEXT_RUN)
    assert visible(table) == [b"c"]
    table.close()


def test_what_is_visible_counts_when_the_note_of_it_is_missing(tmp_path: Path) -> None:
    table = Table(tmp_path)
    commit(table, stage(table, [b"a"], 4), batch=4)
    table.close()
    (tmp_path / "_afflux" / "committed" / Q.hex()).unlink()
    table = Table(tmp_path)
    assert commit(table, Part(0, 1, 1), batch=4) == Committed(rows=0, duplicate=True)
    table.close()


def test_queries_are_independent(table: Table) -> None:
    commit(table, stage(table, [b"a"]))
    commit(table, stage(table, [b"b"], query=Q2), query=Q2)
    assert visible(table) == [b"a", b"b"]


@pytest.mark.parametrize("part", [Part(1, 1, 1), Part(0, 2, 1), Part(0, 1, 2)], ids=["partition", "attempt", "rows"])
def test_a_commit_of_what_is_not_staged_shows_nothing(table: Table, part: Part) -> None:
    stage(table, [b"a"])
    assert "is not staged" in refused(NOT_STAGED, lambda: commit(table, part))
    assert visible(table) == []
    assert commit(table, Part(0, 1, 1)) == Committed(rows=1)


def test_a_run_that_was_replaced_is_stopped(table: Table) -> None:
    """SP-06."""
    old = stage(table, [b"old"])
    writing = table.stage(Stage(query=Q, batch=0, run=RUN, partition=1, attempt=1))
    assert writing is not None
    writing.write([block([b"old"])])
    new = stage(table, [b"new"], run=NEXT_RUN, attempt=2)
    text = refused(RUN_SUPERSEDED, lambda: commit(table, old))
    assert str(uuid.UUID(bytes=RUN)) in text and str(uuid.UUID(bytes=NEXT_RUN)) in text
    refused(RUN_SUPERSEDED, lambda: stage(table, [b"older"]))
    refused(RUN_SUPERSEDED, writing.finish)
    writing.discard()
    commit(table, new, run=NEXT_RUN)
    assert visible(table) == [b"new"]
    assert table.staged_bytes == 0
    assert [*table.directory.glob("_afflux/partial/*")] == []


def test_an_abort_drops_what_is_staged_and_nothing_that_is_committed(table: Table) -> None:
    """SP-04."""
    abort = Abort(query=Q, batch=0, run=RUN)
    part = stage(table, [b"a"])
    writing = table.stage(Stage(query=Q, batch=0, run=RUN, partition=1, attempt=1))
    assert writing is not None
    table.abort(abort)
    refused(NOT_STAGED, lambda: commit(table, part))
    writing.write([block([b"b"])])
    with pytest.raises(Rejected, match="aborted"):
        writing.finish()
    writing.discard()
    commit(table, stage(table, [b"c"]))
    table.abort(abort)
    assert visible(table) == [b"c"]


def test_complete_parts_survive_the_receiver_and_partial_ones_do_not(tmp_path: Path) -> None:
    table = Table(tmp_path)
    part = stage(table, [b"a"])
    writing = table.stage(Stage(query=Q, batch=0, run=RUN, partition=1, attempt=1))
    assert writing is not None
    (tmp_path / "_afflux" / "partial" / "left").touch()
    table.close()
    table = Table(tmp_path)
    assert [*tmp_path.glob("_afflux/partial/*")] == []
    assert table.staged_bytes > 0
    commit(table, part)
    assert visible(table) == [b"a"]
    table.close()


def test_a_closed_table_does_not_commit_behind_its_successor(tmp_path: Path) -> None:
    table = Table(tmp_path)
    part = stage(table, [b"a"])
    table.close()
    successor = Table(tmp_path)
    with pytest.raises(Rejected, match="the receiver is closing"):
        commit(table, part)
    assert visible(successor) == []
    commit(successor, part)
    assert visible(successor) == [b"a"]
    successor.close()


def test_stale_parts_are_deleted(tmp_path: Path) -> None:
    table = Table(tmp_path)
    stage(table, [b"a"])
    table.close()
    table = Table(tmp_path, stale_s=-1)
    assert table.staged_bytes == 0
    assert [*tmp_path.glob("_afflux/staging/*")] == []
    table.close()


def test_other_columns_are_refused_as_soon_as_the_table_has_some(table: Table) -> None:
    numbered = stage(table, [b"a"], number=[1])
    plain = stage(table, [b"a"], partition=1)
    text = refused(SCHEMA_MISMATCH, lambda: commit(table, numbered, plain))
    assert text == "the columns are not those of the table: missing number int64"
    commit(table, numbered)
    text = refused(SCHEMA_MISMATCH, lambda: stage(table, [b"b"], 1, number=["x"]))
    assert text == "the columns are not those of the table: missing number int64; unexpected number string"
    swapped = pa.record_batch({"number": [1], "data": [b"x"]})
    text = refused(SCHEMA_MISMATCH, lambda: table.check_schema(swapped.schema))
    assert text.endswith("the order is number, data instead of data, number")


def test_the_columns_of_one_part_are_the_same(table: Table) -> None:
    writing = table.stage(Stage(query=Q, batch=0, run=RUN, partition=0, attempt=1))
    assert writing is not None
    writing.write([block([b"a"])])
    refused(SCHEMA_MISMATCH, lambda: writing.write([block([b"a"], number=[1])]))


def compressed() -> bytes:
    batch = pa.record_batch({"data": pa.array([bytes(1 << 20)], pa.binary())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"garbage",
        block([b"a" * 100])[:-60],
        compressed(),
        block([b"a"], more=pa.array(["x"]).dictionary_encode()),
        block([b"a"], more=pa.array(["x"], pa.string_view())),
    ],
    ids=["empty", "garbage", "cut", "compressed", "dictionary", "view"],
)
def test_a_block_that_is_not_arrow(table: Table, bad: bytes) -> None:
    writing = table.stage(Stage(query=Q, batch=0, run=RUN, partition=0, attempt=1))
    assert writing is not None
    with pytest.raises(Invalid, match="a block is not an Arrow IPC stream of rows"):
        writing.write([bad])
    writing.discard()
    assert [*table.directory.glob("_afflux/partial/*")] == []


def test_a_part_without_rows(table: Table) -> None:
    for blocks in ([], [block([])]):
        writing = table.stage(Stage(query=Q, batch=0, run=RUN, partition=0, attempt=1))
        assert writing is not None
        writing.write(blocks)
        with pytest.raises(Invalid, match="at least one row"):
            writing.finish()
        writing.discard()


def test_parts_are_bounded(tmp_path: Path) -> None:
    table = Table(tmp_path, limits=Limits.server(staging_parts=2))
    writers = [table.stage(Stage(query=Q, batch=0, run=RUN, partition=n, attempt=1)) for n in range(2)]
    third = Stage(query=Q, batch=0, run=RUN, partition=2, attempt=1)
    with pytest.raises(Rejected, match="too-many-parts"):
        table.stage(third)
    assert writers[0] is not None
    writers[0].discard()
    assert table.stage(third) is not None
    table.close()


def test_staged_bytes_are_bounded(tmp_path: Path) -> None:
    table = Table(tmp_path / "a")
    stage(table, [b"a"])
    size = table.staged_bytes
    table.close()
    table = Table(tmp_path / "b", limits=Limits.server(staged_bytes=2 * size))
    parts = [stage(table, [b"a"], partition=n) for n in range(2)]
    assert table.staged_bytes == 2 * size
    third = table.stage(Stage(query=Q, batch=0, run=RUN, partition=2, attempt=1))
    assert third is not None
    third.write([block([b"a"])])
    with pytest.raises(Rejected, match="sink-full"):
        third.finish()
    third.discard()
    commit(table, *parts)
    stage(table, [b"a"], 1)
    table.close()


def test_a_large_part_has_row_groups(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet as pq

    monkeypatch.setattr(module, "GROUP_BYTES", 1)
    monkeypatch.setattr(module, "LEAST_GROUP_BYTES", 1)
    writing = table.stage(Stage(query=Q, batch=0, run=RUN, partition=0, attempt=1))
    assert writing is not None
    for number in range(3):
        writing.write([block([b"%d" % number]), block([b"%d again" % number])])
    assert writing.finish() == Staged(rows=6)
    commit(table, Part(0, 1, 6))
    (path,) = table.directory.glob("query=*/batch=0/*.parquet")
    assert pq.ParquetFile(path).num_row_groups == 3
    assert visible(table) == [b"0", b"0 again", b"1", b"1 again", b"2", b"2 again"]


def test_one_receiver_at_a_time(tmp_path: Path) -> None:
    table = Table(tmp_path)
    with pytest.raises(TableLocked, match="has it open"):
        Table(tmp_path)
    table.close()
    Table(tmp_path).close()


def test_a_directory_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TableError, match="cannot be written"):
        Table(tmp_path / "file")


def test_a_damaged_note_is_an_error_and_not_a_new_query(tmp_path: Path) -> None:
    table = Table(tmp_path)
    (tmp_path / "_afflux" / "committed" / Q.hex()).write_text("{")
    with pytest.raises(TableError, match="is damaged"):
        stage(table, [b"a"])
    table.close()


def test_the_notes_of_queries_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "MOST_QUERIES", 2)
    table = Table(tmp_path)
    for number in range(1, 4):
        query = bytes([number]) * 16
        commit(table, stage(table, [b"a"], query=query), query=query)
        os.utime(tmp_path / "_afflux" / "committed" / query.hex(), (number, number))
    table.close()
    Table(tmp_path).close()
    assert sorted(path.name[:2] for path in tmp_path.glob("_afflux/committed/*")) == ["02", "03"]


STEPS = ("fsync", "rename", "unlink", "rmdir", "mkdir", "open")
CRASH = """
import os, signal, sys
import pyarrow.parquet
from pathlib import Path
from tests.spark.test_table import STEPS, replay

def deadly(real, left):
    def call(*words, **named):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*words, **named)
    return call

number = 1
while True:
    directory = Path(sys.argv[1]) / str(number)
    child = os.fork()
    if not child:
        left = [number]
        for name in STEPS:
            setattr(os, name, deadly(getattr(os, name), left))
        replay(directory, b"1" * 16)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status == 0:
        print(number - 1)
        break
    assert os.WTERMSIG(status) == signal.SIGKILL, status
    number += 1
"""


def replay(directory: Path, run: bytes) -> None:
    """A batch of two partitions, as Spark sends it again after a crash."""
    table = Table(directory)
    parts = []
    for partition in (0, 1):
        if (writer := table.stage(Stage(query=Q, batch=0, run=run, partition=partition, attempt=1))) is not None:
            writer.write([block([b"%d" % partition])])
            parts.append(Part(partition, 1, writer.finish().rows))
    commit(table, *parts, run=run)
    table.close()


@pytest.mark.slow
def test_a_receiver_killed_at_every_call_of_the_system_loses_and_doubles_nothing(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", CRASH, str(tmp_path)], capture_output=True, text=True, check=True)
    kills = int(ran.stdout)
    assert kills > 25
    for number in range(1, kills + 1):
        directory = tmp_path / str(number)
        assert len([*directory.glob("query=*/batch=*/*")]) in (0, 2)
        replay(directory, NEXT_RUN)
        table = Table(directory)
        assert visible(table) == [b"0", b"1"], number
        assert table.staged_bytes == 0
        assert commit(table, run=NEXT_RUN).duplicate
        table.close()
        assert json.loads((directory / "_afflux" / "committed" / Q.hex()).read_text())["batch"] == 0


@pytest.mark.parametrize("name", ["report.csv", "_spark_metadata", "query=1"])
def test_a_directory_with_other_files_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    with pytest.raises(NotATable, match=f"{tmp_path}: it has other files, such as '{name}'.*choose a new or an empty"):
        Table(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_hidden_files_and_an_interrupted_start_are_no_other_files(tmp_path: Path) -> None:
    (tmp_path / ".DS_Store").touch()
    (tmp_path / "_afflux" / "partial").mkdir(parents=True)  # what a receiver has made that was killed then
    Table(tmp_path).close()
    (tmp_path / "notes.txt").touch()  # beside the table of a receiver
    Table(tmp_path).close()


def test_a_batch_of_many_partitions_costs_a_little_memory_for_each(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tracemalloc

    count = 600
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # a disk needs most of the time
    stage(table, [b"0"])
    tracemalloc.start()
    parts = [Part(0, 1, 1), *(stage(table, [b"%d" % number], partition=number) for number in range(1, count))]
    commit(table, *parts)
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(list(table.directory.rglob("query=*/batch=0/*.parquet"))) == count
    assert grown < count * 2_000
    assert not table._writers and not table.staged_bytes


def test_a_commit_names_ten_thousand_partitions() -> None:
    parts = tuple(Part(number, (1 << 63) + number, 1 << 40) for number in range(10_000))
    made = Commit(query=Q, batch=7, run=RUN, parts=parts)
    assert decode_staging(made.encode()) == made
    assert len(made.encode()) < 1 << 19  # a request has up to 4 MiB
