"""A directory that is given to inspect and has no tables."""

from __future__ import annotations

from pathlib import Path

from tests.capture.tabling import SETUP, packets
from tests.capture.writing import pcap
from tests.cli.running import here


def test_a_directory_of_captures_says_what_to_do(tmp_path: Path) -> None:
    """It takes files, or a directory of tables."""
    (tmp_path / "notes.txt").write_text("no capture")
    ran = here("inspect", str(tmp_path))
    assert (ran.code, ran.out) == (2, "") and "no capture tables" in ran.errors
    (tmp_path / "b.pcap").write_bytes(pcap(packets([(0, True, SETUP)])))
    ran = here("inspect", str(tmp_path))
    assert (ran.code, ran.out) == (2, "")
    assert ran.errors == (
        f"afflux: FILE: the directory {tmp_path} has captures, and no tables: name files, such as "
        f"{tmp_path / 'b.pcap'}, or make tables of all: afflux spark decode {tmp_path} --out DIR\n"
    )
