"""Copies of captures, and captures of the same traffic, through Spark: read once, and told in the log."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

from afflux.capture.output import write_tables  # noqa: E402
from afflux.capture.schemas import TABLES  # noqa: E402
from afflux.capture.units import Decoding  # noqa: E402
from afflux.spark.capturejob import decode  # noqa: E402
from afflux.spark.captureoptions import CaptureOptions  # noqa: E402
from afflux.spark.captures import CaptureReader, CaptureStreamReader  # noqa: E402
from tests.capture.test_copies import sent  # noqa: E402
from tests.capture.test_overlapping import talks  # noqa: E402
from tests.capture.writing import pcap  # noqa: E402


@pytest.fixture
def captures(tmp_path: Path) -> Path:
    """A capture, a copy of it, and another name of it."""
    directory = tmp_path / "captures"
    directory.mkdir()
    (directory / "a.pcap").write_bytes(pcap(sent()))
    shutil.copy(directory / "a.pcap", directory / "b.pcap")
    (directory / "c.pcap").symlink_to("a.pcap")
    return directory


def rows(frame: Any) -> list[str]:
    return sorted(repr(row.asDict(True)) for row in frame.collect())


def test_tables_have_copies_once(spark: Any, captures: Path, tmp_path: Path) -> None:
    alone, said = tmp_path / "alone", list[str]()
    wanted = write_tables([str(captures / "a.pcap")], str(alone))
    assert decode(spark, [str(captures)], str(tmp_path / "out"), Decoding(), said.append) == wanted
    assert said[:2] == [
        f"passed over {captures / 'b.pcap'}: a copy of {captures / 'a.pcap'}",
        f"passed over {captures / 'c.pcap'}: the same file as {captures / 'a.pcap'}",
    ]
    for table in TABLES:
        expected = rows(spark.read.parquet(str(alone / table)))
        assert rows(spark.read.parquet(str(tmp_path / "out" / table))) == expected
        assert rows(spark.read.format("afflux-capture").option("table", table).load(str(captures))) == expected


def test_captures_of_the_same_traffic_are_told_before_tasks_begin(spark: Any, tmp_path: Path) -> None:
    packets, said = talks(1), list[str]()
    for name, chosen in (("one.pcap", packets), ("two.pcap", packets[500:])):
        (tmp_path / name).write_bytes(pcap(chosen))
    decode(spark, [str(tmp_path)], str(tmp_path / "out"), Decoding(tables=("connections",)), said.append)
    expected = f"warning: {tmp_path / 'two.pcap'} begins within {tmp_path / 'one.pcap'}, and has the packets that"
    assert said[0].startswith(expected)


def test_readers_tell_it_in_the_log(captures: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A batch, and a stream whose files arrive together."""
    for path in captures.iterdir():
        os.utime(path, (1, 1), follow_symlinks=False)
    options = CaptureOptions.parse({"path": str(captures)})
    streaming = CaptureStreamReader(options)
    start = streaming.initialOffset()
    for partitions in (
        lambda: CaptureReader(options).partitions(),
        lambda: streaming.partitions(start, streaming.latestOffset(start)),
    ):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "afflux.spark"):
            assert len(partitions()) >= 1
        assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
            f"a copy of {captures / 'a.pcap'}",
            f"the same file as {captures / 'a.pcap'}",
        ]
