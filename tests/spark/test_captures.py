"""Tables of captures on Spark equal those of one process, in batch, as files arrive, and as Parquet."""

from __future__ import annotations

import gzip
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

from afflux.capture.errors import CaptureError  # noqa: E402
from afflux.capture.output import MARK, OutputRefused, write_tables  # noqa: E402
from afflux.capture.schemas import TABLES  # noqa: E402
from afflux.capture.units import Decoding  # noqa: E402
from afflux.cli.examples import EXAMPLES  # noqa: E402
from afflux.core.errors import Invalid  # noqa: E402
from afflux.spark.capturejob import DecodeFailed, decode  # noqa: E402
from afflux.spark.captureoptions import CaptureOptions  # noqa: E402
from afflux.spark.captures import CaptureStreamReader  # noqa: E402
from tests.capture.test_decoding import CLIENT, SERVER  # noqa: E402
from tests.capture.test_undecoded import mixed  # noqa: E402
from tests.capture.writing import Talk, pcap, pcapng  # noqa: E402
from tests.cli.running import here  # noqa: E402
from tests.journal.disks import small_disk  # noqa: E402
from tests.spark import following  # noqa: E402

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


@pytest.fixture
def handlers() -> Iterator[None]:
    """The command changes what signals do to its process."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def rows(frame: Any) -> list[str]:
    return sorted(repr(row.asDict(True)) for row in frame.collect())


def test_every_table_equals_that_of_one_process(spark: Any, captures: Path, tmp_path: Path) -> None:
    """Those of bytes that could not be decoded included."""
    (captures / "late.pcap").write_bytes(pcap(mixed()))
    out = str(tmp_path / "here")
    counts = write_tables([str(captures)], out, DECODING)
    assert counts["frames"] > 400 and counts["violations"] >= 4
    undecoded = spark.read.parquet(f"{out}/frames").where("error.rule IN ('undecoded', 'encrypted')")
    assert undecoded.where("length > 0 AND file_offset > 0 AND packet > 0").count() == undecoded.count() == 3
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


def test_filters_of_the_query_reach_the_reader(spark: Any, captures: Path) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        reader = spark.read.format("afflux-capture").option("columns", "type, offset, fields")
        found = {}
        for pushed in ("true", "false"):
            frame = reader.option("pushFilters", pushed).load(str(captures))
            frame = frame.where("type = 'SETUP' AND offset < 10 AND length(fields) > 2")
            plan = frame._jdf.queryExecution().executedPlan().toString()
            assert ("type" in plan.partition("Filter ")[2].partition("\n")[0]) == (pushed == "false"), plan
            found[pushed] = rows(frame)
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert found["true"] == found["false"] != []


def test_compressed_captures(spark: Any, captures: Path, tmp_path: Path) -> None:
    """Each is a capture of its own, and its frames are those of the file in it."""
    packed = tmp_path / "packed"
    packed.mkdir()
    for name in ("a.pcap", "b.pcapng"):
        (packed / f"{name}.gz").write_bytes(gzip.compress((captures / name).read_bytes()))
    counts = write_tables([str(packed)], str(tmp_path / "here"), DECODING)
    assert decode(spark, [str(packed)], str(tmp_path / "there"), DECODING, lambda text: None) == counts
    apart = [write_tables([str(captures / name)], str(tmp_path / name))["frames"] for name in ("a.pcap", "b.pcapng")]
    assert counts["frames"] == sum(apart)
    for table in TABLES:
        expected = rows(spark.read.parquet(str(tmp_path / "here" / table)))
        assert rows(spark.read.parquet(str(tmp_path / "there" / table))) == expected
        frame = spark.read.format("afflux-capture").option("table", table).load(str(packed))
        assert frame.count() == len(expected)
    assert sorted(os.listdir(packed)) == ["a.pcap.gz", "b.pcapng.gz"]


def test_indexes_in_a_directory_of_their_own(spark: Any, captures: Path, tmp_path: Path) -> None:
    """Nothing is written beside the captures, and the next reader finds the indexes, whichever it is."""
    indexes, before = tmp_path / "new" / "indexes", sorted(os.listdir(captures))
    reader = spark.read.format("afflux-capture").option("indexDir", str(indexes))
    count = reader.load(str(captures)).count()
    assert sorted(os.listdir(captures)) == before
    made = {path: path.stat().st_mtime_ns for path in indexes.rglob("*")}
    assert {path.name.partition("-")[0] for path in indexes.iterdir()} == {"a.pcap", "b.pcapng"}
    assert reader.load(str(captures)).count() == count
    counts = decode(spark, [str(captures)], str(tmp_path / "out"), DECODING, lambda text: None, index_dir=indexes)
    assert counts["frames"] == count
    assert {path: path.stat().st_mtime_ns for path in indexes.rglob("*")} == made
    assert sorted(os.listdir(captures)) == before


def test_tables_in_partitions(spark: Any, captures: Path, tmp_path: Path) -> None:
    decoding = Decoding(tables=("frames", "credit"))
    counts = decode(
        spark, [str(captures)], str(tmp_path / "out"), decoding, lambda text: None, partition_by=("dir", "protocol")
    )
    write_tables([str(captures)], str(tmp_path / "plain"), decoding)
    assert {path.name for path in (tmp_path / "out" / "frames").iterdir()} == {"dir=%3C", "dir=%3E"}
    assert {path.name for path in (tmp_path / "out" / "frames").glob("*/*")} == {"protocol=rsocket"}
    for table in decoding.tables:
        plain = spark.read.parquet(str(tmp_path / "plain" / table))
        found = spark.read.parquet(str(tmp_path / "out" / table)).select(*plain.columns)
        assert rows(found) == rows(plain) and len(rows(found)) == counts[table]


def test_a_file_that_grows_after_the_plan_is_read_as_far_as_it_was(spark: Any, captures: Path, tmp_path: Path) -> None:
    path = captures / "a.pcap"
    expected = write_tables([str(path)], str(tmp_path / "here"))
    more = pcap(Talk(("10.2.2.2", 1)).whole(CLIENT, SERVER))[24:]
    size = path.stat().st_size

    def grow(text: str) -> None:
        if " task" in text and path.stat().st_size == size:  # after the plan, before the tasks; progress comes again
            with path.open("ab") as file:
                file.write(more)

    assert decode(spark, [str(path)], str(tmp_path / "there"), Decoding(), grow) == expected
    assert write_tables([str(path)], str(tmp_path / "here"))["frames"] == expected["frames"] + 81


def test_a_full_disk_leaves_the_tables_as_they_were(spark: Any, captures: Path, tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 0x20_0000) as disk:
        out = disk / "out"
        write_tables([str(captures)], str(out))
        before = sorted(disk.rglob("*"))
        room = os.statvfs(disk)
        (disk / "other").write_bytes(bytes(room.f_bavail * room.f_frsize - 0x8000))
        with pytest.raises((DecodeFailed, OSError), match="No space left on device"):
            decode(spark, [str(captures)], str(out), DECODING, lambda text: None)
        assert sorted(set(disk.rglob("*")) - {disk / "other"}) == before


@pytest.mark.parametrize("line", EXAMPLES["spark decode"])
def test_an_example_of_the_command(
    line: str, spark: Any, handlers: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "capture.pcapng").write_bytes(pcapng(Talk().whole(CLIENT, SERVER, 200)))
    name, *words = shlex.split(line)
    ran = here(*words)
    assert (name, ran.code) == ("afflux", 0), ran.errors
    told = json.loads(ran.out)
    assert set(told["rows"]) == {path.name for path in (tmp_path / told["out"]).iterdir()} - {MARK}
    assert sum(told["rows"].values()) > 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tabel": "frames"}, "unknown option tabel; did you mean table?"),
        ({"table": "stalls", "columns": "type"}, "stalls has no column 'type'"),
        ({"table": "stalls", "where": "type == SETUP"}, "option where selects frames"),
        ({"where": "route == 'prices'"}, "frames has no column route"),
        ({"keylog": "/no/such/file"}, "file '/no/such/file' not found"),
        ({"keylog": "/"}, "option keylog: '/' is not a regular file"),
        ({"keylog": __file__}, "is not a key log"),
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


def test_packets_that_go_back_in_time_are_told_whatever_the_tables(spark: Any, tmp_path: Path) -> None:
    sent = [packet for n in range(3) for packet in Talk(("10.0.0.1", 1_000 + n)).whole(CLIENT, SERVER, 200)]
    path, late = tmp_path / "a.pcap", [*sent[30:], *sent[:30]]  # the second half of the middle connection comes first
    path.write_bytes(pcap(late))
    said: list[str] = []
    decode(spark, [str(path)], str(tmp_path / "out"), Decoding(tables=("streams",)), said.append)
    warned = "\n".join(text for text in said if text.startswith("warning: "))
    assert f"packets of 1 connection go back in time, the first is packet {len(sent) - 9} of {path}: " in warned
    assert "1 connection could not be decoded, the first from packet 2 of a.pcap on: " in warned
    assert sorted(os.listdir(tmp_path / "out")) == [MARK, "streams"]


def test_a_file_that_arrives_and_cannot_be_read_is_a_row(tmp_path: Path) -> None:
    """As in a batch: also if no other file arrives with it. What is no capture has none."""
    given = {"path": str(tmp_path), "table": "violations", "settleSeconds": "0.001"}
    reader = CaptureStreamReader(CaptureOptions.parse(given))
    start = reader.initialOffset()
    for names in (("a.pcap", "b.pcap"), ("c.pcap", "notes.txt")):
        for name in names:
            (tmp_path / name).write_bytes(pcap(Talk().whole(CLIENT, SERVER)) if name == "a.pcap" else b"text")
            os.utime(tmp_path / name, (1, 1))
        end = reader.latestOffset(start)
        found = [
            row
            for partition in reader.partitions(start, end)
            for batch in reader.read(partition)
            for row in batch.to_pylist()
        ]
        assert [(row["kind"], row["rule"], row["file"]) for row in found] == [
            ("damaged", "unreadable", str(tmp_path / name)) for name in names if name in ("b.pcap", "c.pcap")
        ]
        start = end


def test_a_file_that_grows_is_taken_when_it_is_complete(tmp_path: Path) -> None:
    """One that is moved here with an older time is taken at once. A removed file leaves the offset; if its batch is not
    finished, the query fails and says what to do."""
    (tmp_path / "in").mkdir()
    given = {"path": str(tmp_path / "in"), "table": "connections", "settleSeconds": "600"}
    reader = CaptureStreamReader(CaptureOptions.parse(given))
    growing, moved = tmp_path / "in" / "growing.pcap", tmp_path / "in" / "moved.pcap"
    whole = pcap(Talk().whole(CLIENT, SERVER))
    growing.write_bytes(whole[:500])
    (tmp_path / "in" / "loop").symlink_to("loop")
    (tmp_path / "in" / "nothing").symlink_to("missing")
    before = reader.latestOffset(reader.initialOffset())
    assert before == {"files": {}}
    (tmp_path / "moved.pcap").write_bytes(whole)
    os.utime(tmp_path / "moved.pcap", (1, 1))
    (tmp_path / "moved.pcap").rename(moved)
    growing.write_bytes(whole)
    first = reader.latestOffset(before)
    assert first["files"].keys() == {"moved.pcap"}
    moved.rename(tmp_path / "moved.pcap")
    with pytest.raises(CaptureError, match=r"moved\.pcap is gone or has changed, .*: put it back, or start"):
        reader.partitions(before, first)
    (tmp_path / "moved.pcap").rename(moved)
    (one,) = reader.partitions(before, first)
    assert [len(batch) for batch in reader.read(one)] == [1]
    moved.unlink()
    os.utime(growing, (1, 1))
    second = reader.latestOffset(first)
    assert second["files"].keys() == {"growing.pcap"}
    (one,) = reader.partitions(first, second)
    assert [row["file"] for batch in reader.read(one) for row in batch.to_pylist()] == [str(growing)]


def test_a_file_that_vanishes_while_the_directory_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone.pcap").write_bytes(pcap([]))
    stat = Path.stat

    def vanish(path: Path, **options: Any) -> os.stat_result:
        state = stat(path, **options)
        if path.name == "gone.pcap":
            path.unlink()
        return state

    reader = CaptureStreamReader(CaptureOptions.parse({"path": str(tmp_path)}))
    monkeypatch.setattr(Path, "stat", vanish)
    assert reader.latestOffset(reader.initialOffset()) == {"files": {}}


def test_a_file_that_was_replaced_fails_until_it_is_moved_away(tmp_path: Path) -> None:
    """And all others are read once."""
    reader = CaptureStreamReader(CaptureOptions.parse({"path": str(tmp_path), "settleSeconds": "0.001"}))

    def put(name: str, time: int, *, port: int) -> None:
        (tmp_path / name).write_bytes(pcap(Talk(("10.0.0.1", port)).whole(CLIENT, SERVER)))
        os.utime(tmp_path / name, (time, time))

    def read(start: Any, end: Any) -> set[str]:
        partitions = reader.partitions(start, end)
        return {row["file"] for one in partitions for batch in reader.read(one) for row in batch.to_pylist()}

    put("a.pcap", 1, port=1)
    first = reader.latestOffset(reader.initialOffset())
    put("a.pcap", 2, port=2)
    put("b.pcap", 2, port=3)
    for _ in range(2):
        with pytest.raises(Invalid, match=r"a\.pcap had .* bytes when its rows were read, .*: move it away to go on"):
            reader.latestOffset(first)
    (tmp_path / "a.pcap").rename(tmp_path / "c.pcap")
    second = reader.latestOffset(first)
    assert read(first, second) == {str(tmp_path / "b.pcap"), str(tmp_path / "c.pcap")}
    assert reader.partitions(second, reader.latestOffset(second)) == []


@pytest.mark.slow
def test_each_frame_is_once_in_the_table_of_a_query_that_was_killed(spark: Any, tmp_path: Path) -> None:
    """The driver is killed while a task has rows of the second file, whose batch begins again."""
    directory, held = tmp_path / "captures", tmp_path / "held"
    directory.mkdir()
    os.mkfifo(held)
    for number in range(2):
        packets = Talk(("10.1.1.1", 1 + number)).whole(CLIENT, SERVER)
        (directory / f"{number}.pcap").write_bytes(pcap(packets))
    program = [sys.executable, "-m", "tests.spark.following", str(directory), str(tmp_path), str(held)]
    with subprocess.Popen(program, cwd=following.ROOT, start_new_session=True) as driver:
        assert held.read_bytes() == b"1"  # it waits until a task is in the middle of a batch
        os.killpg(driver.pid, signal.SIGKILL)
    query = following.query(spark, directory, tmp_path, None)
    query.processAllAvailable()
    query.stop()
    table = spark.read.parquet(str(tmp_path / "table"))
    assert table.count() == table.distinct().count() == 2 * 81
