"""SIGINT while tables are written, and again while what was written is removed: no half table, no traceback, 130."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from afflux.capture import write_tables
from tests.capture.tabling import SETUP, asks, complete, item, packets
from tests.capture.writing import pcap
from tests.cli.running import PATIENCE

PROGRAM = """
import os, signal, sys
import pyarrow.parquet as pq

interrupt = lambda: os.kill(os.getpid(), signal.SIGINT)
sent, remove = [], os.unlink

class Interrupted(pq.ParquetWriter):
    def close(self):  # this file is whole, and the others are not
        super().close()
        if {first} and not sent:
            sent.append("while tables are written")
            interrupt()

def unlink(path, **more):
    remove(path, **more)
    if len(sent) == {first} and str(path).endswith({ending!r}):
        sent.append("while they are removed")
        print("removing", flush=True)
        interrupt()

pq.ParquetWriter, os.unlink = Interrupted, unlink
from afflux.cli import main
sys.argv[0] = "afflux"
sys.exit(main())
"""


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "one.pcap"
    path.write_bytes(pcap(packets([(0, True, SETUP + asks(1)), (0, False, item(1) + complete(1))])))
    return path


def content(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def decode(capture: Path, out: Path, **how: object) -> str:
    """Decode and interrupt; what the command has written to stdout. It has ended with 130 and without a traceback."""
    words = ["spark", "decode", str(capture), "--out", str(out), "--master", "none"]
    command = [sys.executable, "-c", PROGRAM.format(**how), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, "Traceback" in done.stderr) == (130, False)
    return done.stdout


@pytest.mark.parametrize("ending", ["nothing", ".parquet"])
@pytest.mark.parametrize("before", [False, True])
def test_interrupted_while_tables_are_written(ending: str, before: bool, capture: Path, tmp_path: Path) -> None:
    """Once, and again while the files are removed: the tables of the run before are as they were."""
    out = tmp_path / "out"
    if before:
        write_tables([str(capture)], str(out))
    known = content(out)
    assert decode(capture, out, first=1, ending=ending) == ("removing\n" if ending == ".parquet" else "")
    assert content(out) == known and out.exists() is before
    write_tables([str(capture)], str(out))
    assert sorted(tmp_path.iterdir()) == [capture, out]


def test_interrupted_while_the_tables_before_are_removed(capture: Path, tmp_path: Path) -> None:
    """The new tables are there; the next run removes what is left of those before."""
    out = tmp_path / "out"
    write_tables([str(capture)], str(out))
    known = content(out)
    assert decode(capture, out, first=0, ending=".parquet") == "removing\n"
    assert len(content(out)) == len(known)
    assert content(out / "streams") and not any(path in known for path in content(out / "streams"))
    assert len(list(tmp_path.glob(".out.tmp-*"))) == 1
    write_tables([str(capture)], str(out))
    assert sorted(tmp_path.iterdir()) == [capture, out]
