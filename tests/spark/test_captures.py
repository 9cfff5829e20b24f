"""Tables of captures on Spark equal those of one process, in batch, as files arrive, and as Parquet."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

from afflux.capture.output import MARK, OutputRefused, write_tables  # noqa: E402
from afflux.capture.schemas import TABLES  # noqa: E402
from afflux.capture.units import Decoding  # noqa: E402
from afflux.spark.capturejob import DecodeFailed, decode  # noqa: E402
from tests.capture.test_decoding import CLIENT, SERVER  # noqa: E402
from tests.capture.writing import Talk, pcap, pcapng  # noqa: E402

DECODING = Decoding(payload=True)


@pytest.fixture
def captures(tmp_path: Path) -> Path:
    """Two files with one connection in both, and a file that is damaged."""
    directory = tmp_path / "captures"
    directory.mkdir()
    packets = [packet for n in range(6) for packet in Talk(("10.0.0.1", 1_000 + n)).whole(CLIENT, SERVER, 200)]
    (directory / "a.pcap").write_bytes(pcap(packets[:30]))
    (directory / "b.pcapng").write_bytes(pcapng(packets[30:])[:-6])
    (directory / "notes.txt").write_text("no capture")
    return directory


def rows(frame: Any) -> list[str]:
    return sorted(repr(row.asDict(True)) for row in frame.collect())


def test_every_table_equals_that_of_one_process(spark: Any, captures: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "here")
    counts = write_tables([str(captures)], out, DECODING)
    assert counts["frames"] > 400 and counts["violations"] >= 1
    assert decode(spark, [str(captures)], str(tmp_path / "there"), DECODING, lambda text: None) == counts
    for table in TABLES:
        reader = spark.read.format("afflux-capture").option("table", table).option("payload", table == "frames")
        expected = rows(spark.read.parquet(f"{out}/{table}"))
        assert rows(reader.option("partitions", 4).load(str(captures))) == expected
        assert rows(spark.read.parquet(str(tmp_path / "there" / table))) == expected


def test_columns_and_filters(spark: Any, captures: Path) -> None:
    reader = spark.read.format("afflux-capture").option("columns", "type, conn").option("where", "type == SETUP")
    frame = reader.load(f"{captures}/*.pcap*")
    assert frame.columns == ["type", "conn"]
    assert {row["type"] for row in frame.collect()} == {"SETUP"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tabel": "frames"}, "unknown option tabel; did you mean table?"),
        ({"table": "stalls", "columns": "type"}, "stalls has no column 'type'"),
        ({"table": "stalls", "where": "type == SETUP"}, "option where selects frames"),
        ({"where": "route == 'prices'"}, "frames has no column route"),
        ({"keylog": "/no/such/file"}, "file '/no/such/file' not found"),
        ({"overlap": "both"}, "option overlap"),
        ({"ports": "x"}, "must be PORT=NAME"),
    ],
)
def test_options_that_are_refused(spark: Any, captures: Path, options: dict[str, str], text: str) -> None:
    with pytest.raises(Exception, match=text.replace("?", r"\?")):
        spark.read.format("afflux-capture").options(**options).load(str(captures)).collect()


def test_paths_that_are_refused(spark: Any, tmp_path: Path) -> None:
    for path, text in ((tmp_path, "has no captures"), (tmp_path / "missing", "No such file")):
        with pytest.raises(Exception, match=text):
            spark.read.format("afflux-capture").load(str(path)).collect()


def test_a_repeated_run_replaces_and_foreign_directories_are_refused(captures: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write = partial(write_tables, [str(captures)], str(out))
    write(Decoding(tables=("frames", "streams")))
    write(Decoding(tables=("frames",)))
    assert sorted(os.listdir(out)) == [MARK, "frames"] and len(list((out / "frames").iterdir())) == 1
    changes: list[Callable[[], object]] = [
        lambda: (out / MARK).write_text('{"version": 99}'),
        lambda: (out / "mine.txt").write_text(""),
        lambda: (out / MARK).unlink(),
    ]
    for change in changes:
        change()
        before = sorted(os.listdir(out))
        with pytest.raises(OutputRefused):
            write()
        assert sorted(os.listdir(out)) == before
    assert sorted(os.listdir(tmp_path)) == ["captures", "out"]


def test_a_failed_run_leaves_the_tables_as_they_were(spark: Any, captures: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_tables([str(captures)], str(out), DECODING)
    before = sorted(path for path in out.rglob("*"))

    def shorten(text: str) -> None:
        if "captures," in text:  # after the plan, before the tasks
            os.truncate(captures / "a.pcap", 100)

    with pytest.raises(DecodeFailed, match="has become shorter"):
        decode(spark, [str(captures)], str(out), DECODING, shorten)
    assert sorted(path for path in out.rglob("*")) == before
    assert sorted(os.listdir(tmp_path)) == ["captures", "out"]


def test_files_that_arrive_are_read_once_also_after_a_restart(spark: Any, captures: Path, tmp_path: Path) -> None:
    expected: list[str] = []

    def run() -> None:
        reader = spark.readStream.format("afflux-capture").option("columns", "conn, type, offset, dir")
        writer = reader.option("settleSeconds", "0.001").load(str(captures)).writeStream.format("parquet")
        query = writer.option("checkpointLocation", str(tmp_path / "check")).start(str(tmp_path / "table"))
        query.processAllAvailable()
        query.stop()

    def add(name: str, port: int) -> None:
        (captures / name).write_bytes(pcap(Talk(("10.1.1.1", port)).whole(CLIENT, SERVER)))

    for path in captures.iterdir():
        path.unlink()
    for number in range(2):
        add(f"{number}.pcap", number + 1)
        run()
        expected.append(f"{number}.pcap")
        count = spark.read.parquet(str(tmp_path / "table")).count()
        assert count == 81 * len(expected)
