"""`afflux spark tail --format delta` without Spark's package for Delta: each item is in the table once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.journal.disks import small_disk
from tests.spark.conftest import HERE, asked
from tests.spark.starting import quick_start
from tests.spark.test_tail import CONF, tail

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytestmark = pytest.mark.spark

import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from deltalake import DeltaTable  # noqa: E402

from afflux.core.errors import MissingExtra  # noqa: E402
from afflux.spark import delta  # noqa: E402
from afflux.spark.tail import Tail, follow  # noqa: E402

ROWS = 1000
HELD = """
import os, signal
from deltalake import DeltaTable
commit = DeltaTable.create_write_transaction

def held(self, *given, **named):
    commit(self, *given, **named)
    if self.version() == 1:  # the version before the second batch
        with open(os.environ["HELD"], "w") as told:
            told.write("committed")
        signal.pause()

DeltaTable.create_write_transaction = held
"""
"A sitecustomize: a driver's commit of the second batch does not return."


def entries(table: Path) -> list[dict[str, Any]]:
    """The actions of the table's log, in their order."""
    lines = [line for path in sorted((table / "_delta_log").glob("*.json")) for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def stored(table: Path) -> list[dict[str, Any]]:
    """The rows of the table in the order of its log, with the values of partition columns."""
    rows: list[dict[str, Any]] = []
    for entry in entries(table):
        if added := entry.get("add"):
            part = pq.ParquetFile(table / added["path"]).read()
            rows += [row | added["partitionValues"] for row in part.to_pylist()]
            assert json.loads(added["stats"])["numRecords"] == len(part)
    return rows


def batches(table: Path) -> list[int]:
    return [entry["txn"]["version"] for entry in entries(table) if "txn" in entry]


@pytest.mark.slow
def test_a_call_that_was_killed_after_the_commit_is_continued(uri: str, spark: Any, tmp_path: Path) -> None:
    table, code, told = tmp_path / "table", tmp_path / "code", tmp_path / "told"
    code.mkdir()
    (code / "sitecustomize.py").write_text(HELD)
    os.mkfifo(told)
    words = [uri, "-d", asked(count=ROWS), "--out", str(table), "--format", "delta", "--max-rows", "300"]
    command = [sys.executable, "-m", "afflux", "spark", "tail", *words, "--master", "local[2,4]", *CONF]
    path = os.pathsep.join((str(code), str(HERE.parents[1] / "src"), str(HERE.parents[1])))
    environment = os.environ | quick_start() | {"PYTHONPATH": path, "HELD": str(told)}
    with subprocess.Popen(command, start_new_session=True, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            assert told.read_text() == "committed"
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert batches(table) == [0, 1]
    assert [path.name for path in (table / "_checkpoint" / "commits").glob("[0-9]*")] == ["0"]
    ran = tail(uri, table, "-d", asked(count=ROWS), "--format", "delta", "--max-rows", "300")
    assert ran.code == 0, ran.errors
    assert [row["offset"] for row in stored(table)] == list(range(ROWS))
    assert batches(table) == [0, 1, 2, 3]
    assert len(list(table.glob("*.parquet"))) == 5, "the repeated batch has files that are not part of the table"


def test_partitions_are_in_the_log(uri: str, spark: Any, tmp_path: Path) -> None:
    table = tmp_path / "table"
    words = ["-r", "json", "-O", "format=json", "--schema", "id INT, name STRING", "--partition-by", "name"]
    ran = tail(uri, table, *words, "--format", "delta", "--max-rows", "600")
    assert ran.code == 0, ran.errors
    rows = stored(table)
    wanted = {(None, None) if number % 100 == 7 else (number, f"n{number}") for number in range(ROWS)}
    assert (len(rows), {(row["id"], row["name"]) for row in rows}) == (ROWS, wanted)
    assert DeltaTable(table).metadata().partition_columns == ["name"]
    other = tail(uri, table, *words[:-1], "id", "--format", "delta")
    assert (other.code, "is partitioned by name, not by id" in other.errors) == (2, True)
    words[words.index("--schema") + 1] = "id BIGINT, name STRING"
    other = tail(uri, table, *words, "--format", "delta")
    assert (other.code, "has the columns id integer, name string" in other.errors) == (2, True)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (("data",), "column 'data' cannot partition a table"),
        (("carrier",), "partition column 'carrier' is not one of the columns data, metadata,"),
    ],
)
def test_columns_that_cannot_partition_are_refused(
    columns: tuple[str, ...], text: str, uri: str, spark: Any, tmp_path: Path
) -> None:
    words = [word for name in columns for word in ("--partition-by", name)]
    ran = tail(uri, tmp_path / "table", "--format", "delta", *words)
    assert ran.code == 2
    assert text in ran.errors.splitlines()[-1]
    assert not (tmp_path / "table").exists()


COLUMNS = pa.schema({"day": pa.date32(), "text": pa.string(), "number": pa.int64()})


def written(out: Path, *batches: pa.RecordBatch, by: tuple[str, ...] = ()) -> tuple[delta.DeltaWriter, delta.Written]:
    """A table, and the message of a task that has written rows for it."""
    DeltaTable.create(out, schema=COLUMNS, partition_by=list(by), mode="ignore")
    files = delta.Files(str(out), COLUMNS, list(by))
    files.write(list(batches))
    return delta.DeltaWriter(str(out), COLUMNS, by), delta.Written("a query", files.close())


def rows_of(*numbers: int) -> pa.RecordBatch:
    rows = [{"day": None, "text": f"text {number}", "number": number} for number in numbers]
    return pa.RecordBatch.from_pylist(rows, COLUMNS)


def test_a_batch_is_added_once(tmp_path: Path) -> None:
    writer, first = written(tmp_path, rows_of(1, 2))
    _, again = written(tmp_path, rows_of(1, 2))
    for message in (first, again, first):
        writer.commit([message, None], 7)
    assert [row["number"] for row in stored(tmp_path)] == [1, 2]
    writer.commit([again], 6)
    assert batches(tmp_path) == [7]
    writer.commit([written(tmp_path, rows_of(3))[1]], 8)
    assert [row["number"] for row in stored(tmp_path)] == [1, 2, 3]


def test_of_two_drivers_one_adds_the_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, first = written(tmp_path, rows_of(1))
    _, second = written(tmp_path, rows_of(1))
    commit = DeltaTable.create_write_transaction

    def beaten(table: DeltaTable, *given: Any, **named: Any) -> None:
        monkeypatch.undo()
        writer.commit([second], 0)  # the other driver, after this one has looked
        commit(table, *given, **named)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", beaten)
    writer.commit([first], 0)
    assert [row["number"] for row in stored(tmp_path)] == [1]


def test_a_batch_without_rows_adds_nothing(tmp_path: Path) -> None:
    writer, message = written(tmp_path)
    writer.commit([message, None], 0)
    writer.abort([message], 0)
    assert batches(tmp_path) == []


def test_the_number_of_open_files_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "OPEN_FILES", 2)
    _, message = written(tmp_path, rows_of(1, 2, 3), rows_of(1), by=("number",))
    assert [(file.values["number"], file.rows) for file in message.files] == [("1", 2), ("2", 1), ("3", 1)]
    files = delta.Files(str(tmp_path), COLUMNS, ["number"])
    for number in (1, 2, 3, 1):
        files.write([rows_of(number)])
    assert [file.values["number"] for file in files.close()] == ["1", "2", "3", "1"]


def test_values_of_partitions_survive(tmp_path: Path) -> None:
    columns = pa.schema(
        {"at": pa.timestamp("us", "UTC"), "day": pa.date32(), "text": pa.string(), "yes": pa.bool_(), "n": pa.int64()}
    )
    by = ["at", "day", "text", "yes"]
    at, day = pa.scalar(1, columns.field("at").type).as_py(), pa.scalar(-1, pa.date32()).as_py()
    rows = [
        {"at": at, "day": day, "text": "a=b/../c %20 \u00e9", "yes": True, "n": 1},
        {"at": None, "day": None, "text": None, "yes": None, "n": 2},
    ]
    DeltaTable.create(tmp_path, schema=columns, partition_by=by)
    files = delta.Files(str(tmp_path), columns, by)
    files.write([pa.RecordBatch.from_pylist(rows, columns)])
    delta.DeltaWriter(str(tmp_path), columns, by).commit([delta.Written("a query", files.close())], 0)
    table = DeltaTable(tmp_path)
    assert all(Path(path).is_file() for path in table.file_uris())
    found = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    named = {tuple(each[f"partition.{name}"] for name in by): each["num_records"] for each in found}
    assert named == {tuple(row[name] for name in by): 1 for row in rows}


def test_a_table_with_more_features_is_left_to_spark(spark: Any, tmp_path: Path) -> None:
    configuration = {"delta.enableChangeDataFeed": "true"}
    schema = spark.createDataFrame([], "number BIGINT").schema
    DeltaTable.create(tmp_path, schema=pa.schema({"number": pa.int64()}), configuration=configuration)
    with pytest.raises(delta.DeltaRefused, match=r"write it with Spark's own package for Delta"):
        delta.prepare(str(tmp_path), schema, ())


def test_without_deltalake_the_extra_is_named(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(MissingExtra, match=r'pip install "afflux\[delta\]"'):
        follow(
            spark, Tail(options={"uri": "tcp://127.0.0.1:1"}, out=str(tmp_path / "table"), format="delta"), print, int
        )


def test_a_full_disk_doubles_nothing(tmp_path: Path) -> None:
    """Writing and committing fail when there is no room; with room again, the same batch is added once."""
    noise = [{"day": None, "text": os.urandom(50_000).hex(), "number": number} for number in range(4)]
    rows = pa.RecordBatch.from_pylist(noise, COLUMNS)
    with small_disk(tmp_path / "disk", 2 << 20) as disk:
        table = disk / "table"
        batch = 0
        with pytest.raises(OSError, match="No space left on device"):
            while True:
                writer, message = written(table, rows)
                writer.commit([message], batch)
                batch += 1
        assert batch > 2
        subprocess.run(["mount", "-o", f"remount,size={16 << 20}", str(disk)], check=True)
        for number in range(batch - 1, batch + 2):  # the last one again
            writer, message = written(table, rows)
            writer.commit([message], number)
        assert batches(table) == list(range(batch + 2))
        assert [row["number"] for row in stored(table)] == [0, 1, 2, 3] * (batch + 2)
