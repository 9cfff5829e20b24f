"""``afflux inspect --html``: a report of files, of standard input and of a directory of tables, and wrong input."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="reports need the extra report")
pytest.importorskip("altair", reason="reports need the extra report")
pytest.importorskip("vl_convert", reason="reports need the extra report")

from tests.capture.reporting import stalled
from tests.capture.tabling import SETUP, asks, complete, grant, item, packets
from tests.capture.writing import pcap
from tests.cli.running import here
from tests.journal.disks import small_disk

SAID = [
    (0, True, SETUP + asks(1, 1)),
    (0, False, item(1)),
    (1.5, True, grant(1, 1)),
    (0.5, False, item(1) + item(1) + complete(1)),
]


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "stalled.pcap"
    path.write_bytes(pcap(packets(SAID)))
    return path


def test_the_report_of_a_file_says_who_stopped_the_stream(capture: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    ran = here("inspect", "--html", str(out), str(capture))
    assert (ran.code, ran.out) == (0, "")
    assert ran.errors == f"afflux: report written: {out}, {out.stat().st_size:,} bytes\n"
    page = out.read_text(encoding="utf-8")
    assert "<title>stalled.pcap</title>" in page
    assert "The <b>client</b>" in page
    assert "for <b>1.50 s</b>: it granted no credit" in page
    assert '1.502,"peer","\\u003c","the client granted no credit"]' in page


def test_only_a_page_is_replaced(capture: Path, tmp_path: Path) -> None:
    """Not the capture that is read, another one, or a key log."""
    other, keys, out = tmp_path / "other.pcapng", tmp_path / "keys.log", tmp_path / "out.html"
    other.write_bytes(capture.read_bytes())
    keys.write_text("CLIENT_RANDOM 00 00\n")
    out.touch()
    before = {path: path.read_bytes() for path in (capture, other, keys)}
    for path in before:
        ran = here("inspect", str(capture), "--html", str(path))
        assert (ran.code, ran.out) == (2, "")
        assert ran.errors == f"afflux: {path} exists and is not HTML: choose another name for the report\n"
    assert {path: path.read_bytes() for path in before} == before
    assert here("inspect", str(capture), "--html", str(tmp_path)).code == 2
    for _ in range(2):
        assert here("inspect", str(capture), "--html", str(out)).code == 0


def test_a_full_disk_is_named(capture: Path, tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 0x1_0000) as disk:
        out = disk / "out.html"
        ran = here("inspect", str(capture), "--html", str(out))
        assert (ran.code, ran.out, ran.errors) == (1, "", f"afflux: {out}: No space left on device\n")
        assert list(disk.iterdir()) == []


@pytest.mark.slow
def test_standard_input_is_read_once(capture: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    command = [sys.executable, "-m", "afflux", "inspect", "--html", str(out), "-"]
    with capture.open("rb") as file:
        ran = subprocess.run(command, stdin=file, capture_output=True, text=True, check=True)
    assert ran.stderr.startswith(f"afflux: report written: {out}")
    page = out.read_text(encoding="utf-8")
    assert '1.502,"peer","\\u003c","the client granted no credit"]' in page


def test_the_report_of_tables(tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    ran = here("inspect", "--html", str(out), str(stalled().write(tmp_path / "tables")))
    assert ran.code == 0, ran.errors
    assert "for <b>2.50 s</b>: it granted no credit" in out.read_text(encoding="utf-8")


def test_a_directory_without_tables_is_an_error(tmp_path: Path) -> None:
    ran = here("inspect", "--html", str(tmp_path / "out.html"), str(tmp_path))
    assert ran.code == 2
    assert ran.errors.startswith(f"afflux: FILE: {tmp_path}: no capture tables; expected a directory of Parquet files")
    assert "Traceback" not in ran.errors


def test_a_report_that_cannot_be_written_is_an_error(capture: Path) -> None:
    ran = here("inspect", "--html", "/no/such/directory/out.html", str(capture))
    assert ran.code == 2
    assert ran.errors == "afflux: --html: directory '/no/such/directory' not found\n"
    assert "Traceback" not in ran.errors
