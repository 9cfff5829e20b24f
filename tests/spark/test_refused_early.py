"""``afflux spark decode`` refuses what cannot be decoded or written before it starts Spark: a Java that would note its
start is never run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from afflux.capture.output import MARK, write_tables
from tests.capture.test_decoding import CLIENT, SERVER
from tests.capture.writing import Talk, pcap
from tests.cli.running import Ran, afflux
from tests.journal.disks import small_disk

STARTED = "Java was started"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with captures, and other things that are in the way; it is the current one."""
    (tmp_path / "captures").mkdir()
    (tmp_path / "captures" / "a.pcap").write_bytes(pcap(Talk().whole(CLIENT, SERVER, 300)))
    for name in ("empty", "full"):
        (tmp_path / name).mkdir()
    (tmp_path / "full" / "notes.txt").write_text("text")
    (tmp_path / "file").write_text("text")
    write_tables([str(tmp_path / "captures")], str(tmp_path / "old"))
    (tmp_path / "old" / MARK).write_text('{"version": 99}')
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f'#!/bin/sh\necho "{STARTED}" >> "{tmp_path}/java/started"\nexit 1\n')
    java.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def locked(folder: Path) -> Iterator[Path]:
    """A directory with captures on a file system that is read-only."""
    with small_disk(folder / "locked", 0x20_0000) as disk:
        (disk / "a.pcap").write_bytes((folder / "captures" / "a.pcap").read_bytes())
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        yield disk


def decode(folder: Path, *words: str) -> Ran:
    environment = {"JAVA_HOME": str(folder / "java"), "PATH": f"{folder}/java/bin:{os.environ['PATH']}"}
    ran = afflux(["spark", "decode", *words], env=environment)
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def test_a_run_without_mistakes_asks_for_java(folder: Path) -> None:
    """The Java of these tests is the one that a run uses, so its absence proves something."""
    ran = decode(folder, "captures", "--out", "out", "--master", "mistaken")
    assert ran.code != 0 and STARTED in (folder / "java" / "started").read_text()


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ("missing.pcap", 2, "PATH: file 'missing.pcap' not found"),
        ("captures missing.pcap", 2, "PATH: file 'missing.pcap' not found"),
        ("empty", 1, "the directory empty has no captures (pcap or pcapng; plain, gzip, zstd, xz or bzip2)"),
        ("full/notes.txt", 1, "not a pcap or pcapng file: its first bytes are 74 65 78 74"),
        ("captures --out file", 2, "--out: 'file' is a file; it has to be a directory, which may be new"),
        ("captures --out full", 2, "full has files that are no capture tables: choose a new directory"),
        ("captures --out old", 2, "has tables of version 99, and this afflux reads and writes version 1"),
        ("captures --out file/out", 2, "is a file, so 'file/out' cannot be made"),
        ("captures --index-dir file", 2, "--index-dir: 'file' is a file; it has to be a directory, which may be new"),
        ("captures --index-dir file/deep", 2, "is a file, so 'file/deep' cannot be made"),
    ],
)
def test_a_mistake_starts_no_java(words: str, code: int, text: str, folder: Path) -> None:
    refused(folder, decode(folder, "--out", "out", *words.split()), code, text)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ("captures --out locked/out", 2, "--out: cannot write into '"),
        ("captures --index-dir locked/deep/index", 2, "--index-dir: cannot write into '"),
        ("locked", 1, "no permission to write the index of a.pcap; name another directory with --index-dir (indexDir)"),
    ],
)
def test_a_directory_that_cannot_be_written_starts_no_java(
    words: str, code: int, text: str, locked: Path, folder: Path
) -> None:
    refused(folder, decode(folder, "--out", "out", *words.split()), code, text)


def refused(folder: Path, ran: Ran, code: int, text: str) -> None:
    """One line with the exit code, no Java, and nothing left."""
    assert (ran.code, ran.out, ran.errors.count("\n")) == (code, "", 1)
    assert ran.errors.startswith("afflux: ") and text in ran.errors
    names = {path.name for path in folder.iterdir()} - {"locked"}
    assert names == {"captures", "empty", "full", "file", "old", "java"}
    assert os.listdir(folder / "java") == ["bin"] and os.listdir(folder / "captures") == ["a.pcap"]
