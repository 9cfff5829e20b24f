"""``afflux spark decode --master none``: tables without Spark, and what is refused, in one line with its exit code."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import subprocess
from collections import Counter
from operator import itemgetter
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="tables need the extra capture")

import pyarrow.parquet as pq

from afflux.capture.output import MARK
from afflux.capture.schemas import TABLES
from afflux.capture.units import Decoding
from tests.capture.tabling import SETUP, asks, item
from tests.capture.test_decoding import CLIENT, SERVER
from tests.capture.writing import Talk, pcap
from tests.cli.running import COMMAND, PATIENCE, Ran, afflux, here
from tests.journal.disks import small_disk


def decode(*words: str) -> Ran:
    ran = afflux(["spark", "decode", "--master", "none", *words])
    return Ran(ran.returncode, ran.stdout, ran.stderr)


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "captures" / "one.pcap"
    path.parent.mkdir()
    path.write_bytes(pcap(Talk().whole(CLIENT, SERVER, 300)))
    return path


def test_tables_without_spark(capture: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = decode(str(capture.parent), "--out", str(out))
    assert (ran.code, ran.errors) == (0, "")
    counts = json.loads(ran.out)["rows"]
    assert counts == {table: pq.read_table(out / table).num_rows for table in TABLES}
    assert counts["frames"] == 81
    assert os.listdir(capture.parent) == ["one.pcap"]  # no index


def test_frames_without_a_type(capture: Path, tmp_path: Path) -> None:
    """Bytes that the capture lacks are a frame without a type: in a capture of their own, and beside others."""
    packets = Talk(client=("10.0.0.3", 40_000)).whole(CLIENT, SERVER, 300)
    del packets[-5]
    lost = capture.with_name("lost.pcap")
    lost.write_bytes(pcap(packets))
    columns, found = ("type", "protocol", "dir", "conn"), {}
    for path in (capture, lost):
        rows = [row for table, batch in Decoding().files([path]) if table == "frames" for row in batch.to_pylist()]
        found[path] = Counter(map(itemgetter(*columns), rows))
        assert {row["file"] for row in rows} == {str(path)}
    assert any(kind is None for kind, *_ in found[lost])
    for names in ((lost,), (capture, lost), (lost, capture)):
        ran = decode(*map(str, names), "--out", str(tmp_path / "out"))
        assert (ran.code, ran.errors) == (0, "")
        rows = pq.read_table(tmp_path / "out" / "frames").to_pylist()
        assert Counter(map(itemgetter(*columns), rows)) == sum((found[path] for path in names), Counter())
        assert {row["file"] for row in rows} == {str(path) for path in names}
    ran = decode(str(lost), "--out", str(tmp_path / "parts"), "--partition-by", "type")
    assert (ran.code, ran.errors) == (0, "")
    kinds = pq.read_table(tmp_path / "parts" / "frames").column("type").to_pylist()
    assert Counter(kinds) == Counter(kind for kind, *_ in found[lost].elements())


def test_some_rows_of_some_tables_in_partitions(capture: Path, tmp_path: Path) -> None:
    words = ("--tables", "frames,streams", "--where", "type == SETUP", "--payload", "--partition-by", "type")
    ran = decode(str(capture), "--out", str(tmp_path / "out"), *words)
    assert (ran.code, ran.errors) == (0, "")
    assert sorted(os.listdir(tmp_path / "out")) == [MARK, "frames", "streams"]
    frames = pq.read_table(tmp_path / "out" / "frames")
    assert os.listdir(tmp_path / "out" / "frames") == ["type=SETUP"]
    assert frames.num_rows == 1 and {"metadata", "data"} <= set(frames.schema.names)


def test_a_column_of_too_many_values_makes_no_directories(tmp_path: Path) -> None:
    path = tmp_path / "many.pcap"
    path.write_bytes(packed(SETUP + asks(1), *(item(1) for _ in range(1_100))))
    ran = decode(str(path), "--out", str(tmp_path / "out"), "--tables", "frames", "--partition-by", "packet")
    assert (ran.code, ran.out, ran.errors.count("\n")) == (2, "", 1)
    assert "the table frames cannot be distributed by packet: " in ran.errors and "1024" in ran.errors
    assert os.listdir(tmp_path) == ["many.pcap"]


def packed(ours: bytes, *theirs: bytes) -> bytes:
    """A capture of a connection in which the server's frames have a packet each."""
    talk = Talk()
    packets = [*talk.open(), *talk.send(True, ours)]
    return pcap([*packets, *(one for data in theirs for one in talk.send(False, data)), *talk.close()])


def test_compressed_captures_are_captures_of_their_own(capture: Path, tmp_path: Path) -> None:
    whole = capture.read_bytes()
    capture.with_name("two.pcap.xz").write_bytes(lzma.compress(whole))
    capture.with_name("three").write_bytes(bz2.compress(whole))
    ran = decode(str(capture.parent), "--out", str(tmp_path / "out"))
    assert (ran.code, ran.errors) == (0, "")
    files = Counter(pq.read_table(tmp_path / "out" / "frames").column("file").to_pylist())
    assert files == {str(capture.with_name(name)): 81 for name in ("one.pcap", "two.pcap.xz", "three")}


def test_a_file_with_several_names_is_read_once(capture: Path, tmp_path: Path) -> None:
    capture.with_name("latest.pcap").symlink_to("one.pcap")
    capture.with_name("linked.pcap").hardlink_to(capture)
    capture.with_name("nowhere.pcap").symlink_to("missing.pcap")
    capture.with_name("loop.pcap").symlink_to("loop.pcap")
    here = f"{capture.parent}/../captures"
    ran = decode(str(capture), f"{here}/*.pcap", here, f"{here}/one.pcap", "--out", str(tmp_path / "out"))
    assert (ran.code, json.loads(ran.out)["rows"]["frames"]) == (0, 81)
    names = [line.split("passed over ")[1] for line in ran.errors.splitlines()]
    others = [f"{here}/{name}.pcap" for name in ("latest", "linked", "one")]
    assert names == [f"{name}: the same file as {capture}" for name in others]


@pytest.mark.parametrize("scheme", ["file:", "file://"])
def test_paths_may_be_file_uris(scheme: str, capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out"
    ran = decode(f"{scheme}{capture}", "--out", f"{scheme}{out}")
    assert not (tmp_path / "file:").exists()
    assert (ran.code, ran.errors, json.loads(ran.out)["rows"]["frames"]) == (0, "", 81)
    assert pq.read_table(out / "frames").num_rows == 81


def test_a_report_about_the_tables(capture: Path, tmp_path: Path) -> None:
    pytest.importorskip("altair", reason='a report needs the extra "report"')
    page, inspected = tmp_path / "page.html", tmp_path / "inspected.html"
    words = (str(capture), "--out", str(tmp_path / "out"), "--html", str(page))
    ran = decode(*words)
    assert ran.code == 0 and json.loads(ran.out)["rows"]["frames"] == 81
    assert f"report written: {page}, {page.stat().st_size:,} bytes\n" in ran.errors
    text = page.read_text()
    assert "<h1>one.pcap</h1>" in text
    assert here("inspect", str(capture), "--html", str(inspected)).code == 0
    assert inspected.read_text() == text
    assert decode(*words, "--tables", "streams").code == 0
    assert page.read_text() != text


def test_a_report_that_cannot_be_written_is_refused_first(capture: Path, tmp_path: Path) -> None:
    pytest.importorskip("altair", reason='a report needs the extra "report"')
    out = tmp_path / "out"
    for name, code, reason in (
        (out / "page.html", 2, "--html: the report cannot be inside --out"),
        (capture, 2, f"{capture} exists and is not HTML: choose another name for the report"),
        (tmp_path / "no" / "page.html", 1, f"there is no directory {tmp_path / 'no'}"),
    ):
        ran = decode(str(capture), "--out", str(out), "--html", str(name))
        assert (ran.code, ran.out, reason in ran.errors) == (code, "", True), ran.errors
    assert os.listdir(tmp_path) == ["captures"]


def test_a_pipe_is_refused(capture: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    ran = decode(str(tmp_path / "pipe"), "--out", str(tmp_path / "out"))
    text = "is a device or a pipe, not a regular file: captures are read more than once, so write it to a file first"
    assert (ran.code, ran.out, ran.errors) == (1, "", f"afflux: {tmp_path / 'pipe'} {text}\n")


def test_a_damaged_capture_is_a_row(capture: Path, tmp_path: Path) -> None:
    os.truncate(capture, capture.stat().st_size - 5)
    assert decode(str(capture), "--out", str(tmp_path / "out")).code == 0
    rows = pq.read_table(tmp_path / "out" / "violations").to_pylist()
    assert [(row["kind"], row["file"]) for row in rows if row["kind"] == "damaged"] == [("damaged", str(capture))]


def test_captures_of_which_nothing_can_be_read_are_rows(capture: Path, tmp_path: Path) -> None:
    whole = gzip.compress(capture.read_bytes())
    reasons = {}
    for name, data, reason in (
        ("a.pcap", b"", "the file is empty"),
        ("b.gz", whole[:4] + b"\xff" * 40, "the compressed data cannot be read: "),
        ("c.pcap", capture.read_bytes()[:4], "a pcap file begins with 24 bytes, and this one has 4"),
        ("d.pcap.gz", gzip.compress(b"text"), "not a pcap or pcapng file"),
    ):
        capture.with_name(name).write_bytes(data)
        reasons[str(capture.with_name(name))] = reason
    for name, data in (("notes.txt", b"text"), ("log.gz", gzip.compress(b"text")), ("empty", b"")):
        capture.with_name(name).write_bytes(data)
    ran = decode(str(capture.parent), "--out", str(tmp_path / "out"))
    rows = pq.read_table(tmp_path / "out" / "violations").to_pylist()
    found = {row["file"]: row for row in rows if row["kind"] == "damaged"}
    assert ran.code == 0 and found.keys() == reasons.keys()
    assert len(ran.errors.splitlines()) == len(reasons) + 1
    log = capture.with_name("log.gz")
    assert f"  passed over {log}: not a pcap or pcapng file: its first bytes are 74 65 78 74\n" in ran.errors
    for name, reason in reasons.items():
        row = found[name]
        assert (row["rule"], row["file_offset"]) == ("unreadable", 0) and row["reason"].startswith(reason)
        assert f"  passed over {name}: {row['reason']}\n" in ran.errors
    assert json.loads(ran.out)["rows"]["frames"] == 81


def test_what_is_not_decoded_is_where_the_page_says(capture: Path, tmp_path: Path) -> None:
    """Each row has a file and an offset; the rule of a connection says whether it is encrypted."""
    hello = bytes.fromhex("16030100050100000100")
    packets = Talk(client=("10.0.0.3", 40_000)).whole(b"\xff" * 3000, b"", 300)
    mixed = capture.with_name("mixed.pcap")
    mixed.write_bytes(pcap([*packets[8:], *Talk(client=("10.0.0.4", 40_000)).whole(hello, b"")]))
    os.truncate(mixed, mixed.stat().st_size - 5)
    assert decode(str(mixed), "--out", str(tmp_path / "out")).code == 0
    rows = pq.read_table(tmp_path / "out" / "violations").to_pylist()
    assert {row["kind"] for row in rows} >= {"damaged", "undecoded"}
    assert {row["file"] for row in rows} == {str(mixed)}
    data = mixed.read_bytes()
    contents = {row["conn"]: row["content"] for row in pq.read_table(tmp_path / "out" / "connections").to_pylist()}
    found = {contents[row["conn"]].partition(" ")[0]: row for row in rows if row["kind"] == "undecoded"}
    assert found.keys() == {"encrypted", "mid-stream,"}
    assert (found["encrypted"]["rule"], found["encrypted"]["packet"]) == ("encrypted", len(packets) - 8 + 4)
    at = [found[name]["file_offset"] for name in ("encrypted", "mid-stream,")]
    assert data[at[0] : at[0] + len(hello)] == hello and data[at[1] - 1 : at[1] + 300] != data[at[1] : at[1] + 301]
    assert data[at[1] : at[1] + 300] == b"\xff" * 300
    assert "--keylog FILE" in found["encrypted"]["expected"]
    assert (found["mid-stream,"]["rule"], found["mid-stream,"]["packet"]) == ("undecoded", 1)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("missing.pcap",), 2, "PATH: file 'missing.pcap' not found"),
        (("empty",), 1, "the directory empty has no captures (pcap or pcapng; plain, gzip, zstd, xz or bzip2)"),
        (("*.pcapng",), 2, "PATH: no captures match '*.pcapng'"),
        (("captures", "missing.pcap"), 2, "PATH: file 'missing.pcap' not found"),
        (("captures", "file:///missing.pcap"), 2, "PATH: file '/missing.pcap' not found"),
        (("captures", ""), 2, "PATH: file '' not found"),
        (("captures", "--tables", "frame"), 2, "--tables: there is no table 'frame'; there are frames, "),
        (("captures", "--partition-by", "typ"), 2, "--partition-by: none of the tables has a column 'typ'"),
        (("captures", "--partition-by", "flags"), 2, "--partition-by: 'flags' is array<string>: directories need a"),
        (
            ("captures", "--where", "typ == 1"),
            2,
            '--where:1:1: unknown name "typ"; did you mean "type"?\n  typ == 1\n  ^\n',
        ),
        (("captures", "--keylog", "missing.log"), 2, "--keylog: file 'missing.log' not found"),
        (("captures", "--keylog", "empty"), 2, "--keylog: 'empty' is a directory, not a file"),
        (("captures", "--keylog", "captures/one.pcap"), 2, "--keylog: 'captures/one.pcap' is not a key log: its lines"),
        (("captures", "--stall", "0"), 2, "--stall must be longer than 0"),
        (("captures", "--where", "n > 1", "--tables", "streams"), 2, "--where selects rows of the table frames"),
        (
            ("s3://bucket/a.pcap",),
            2,
            "PATH: s3://bucket/a.pcap is not in a file system: object stores are not supported",
        ),
        (("captures", "--out", "s3://bucket/out"), 2, "--out: s3://bucket/out is not in a file system: object stores"),
        (("captures", "--out", "file://host/out"), 2, "--out: file://host/out is not in a file system: object stores"),
        (("captures", "--index-dir", "s3://bucket"), 2, "--index-dir: s3://bucket is not in a file system: object"),
        (("captures", "--out", "captures"), 2, "has files that are no capture tables: choose a new directory"),
    ],
)
def test_what_is_refused(
    words: tuple[str, ...], code: int, text: str, capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    ran = decode(*(() if "--out" in words else ("--out", "out")), *words)
    assert (ran.code, ran.out) == (code, "")
    assert ran.errors.startswith("afflux: ") and text in ran.errors and "Traceback" not in ran.errors
    assert sorted(os.listdir(tmp_path)) == ["captures", "empty"] and os.listdir(capture.parent) == ["one.pcap"]


def test_tables_of_another_version_stay(capture: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert decode(str(capture), "--out", str(out)).code == 0
    (out / MARK).write_text('{"version": 99}')
    before = sorted(out.rglob("*"))
    ran = decode(str(capture), "--out", str(out))
    assert (ran.code, ran.errors.count("\n")) == (2, 1)
    assert "has tables of version 99, and this afflux reads and writes version 1" in ran.errors
    assert sorted(out.rglob("*")) == before


def test_a_file_above_the_largest_size_names_the_directory(capture: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = [*COMMAND, "spark", "decode", str(capture), "--master", "none", "--out", str(out)]
    limited = ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", *words]
    ran = subprocess.run(limited, capture_output=True, text=True, timeout=PATIENCE)
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", f"afflux: {out}: File too large\n")
    assert os.listdir(tmp_path) == ["captures"]


def test_a_full_disk_leaves_the_tables_as_they_were(capture: Path, tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 0x20_0000) as disk:
        out = disk / "out"
        assert decode(str(capture), "--out", str(out)).code == 0
        before = {path: path.read_bytes() if path.is_file() else b"" for path in out.rglob("*")}
        other = disk / "other"
        room = os.statvfs(disk)
        other.write_bytes(bytes(room.f_bavail * room.f_frsize - 0x4000))
        ran = decode(str(capture), "--out", str(out))
        assert (ran.code, ran.out, ran.errors) == (1, "", f"afflux: {out}: No space left on device\n")
        assert {path: path.read_bytes() if path.is_file() else b"" for path in out.rglob("*")} == before
        assert set(disk.iterdir()) == {out, other}
