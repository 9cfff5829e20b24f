"""A capture that becomes shorter while it is read: every reader says so, and no table is written."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")

from afflux.capture import Capture, write_tables
from afflux.capture.errors import CaptureError
from tests.capture.writing import START, Packet, ethernet, ipv4, pcap, tcp

CLIENT, SERVER = ("10.0.0.1", 40_000), ("10.0.0.2", 7_000)


def packets(count: int) -> bytes:
    """A file of packets of one size."""
    return pcap(
        [
            Packet(ethernet(ipv4(CLIENT[0], SERVER[0], tcp(CLIENT, SERVER, 1 + 1_000 * n, bytes(1_000)))), START + n)
            for n in range(count)
        ]
    )


RECORD = len(packets(1)) - 24
"Bytes of one packet in the file."


class Shrinking:
    """A file of which the last half disappears when its second half megabyte is read."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def read(self, size: int) -> bytes:
        if self._file.tell() >= 0x8_0000:
            os.truncate(self._file.name, 24 + RECORD * 1_000)
        data: bytes = self._file.read(size)
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> Shrinking:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


@pytest.mark.parametrize("rest", [0, 5], ids=["between two packets", "within a packet"])
def test_the_problem_says_so(tmp_path: Path, rest: int) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(packets(2_000))
    with path.open("rb") as file:
        capture = Capture(file, chunk=RECORD * 10)
        count = 0
        for batch in capture:
            count += len(batch.time)
            os.truncate(path, 24 + RECORD * 1_500 + rest)
    assert 1_000 < count <= 1_500
    assert capture.problem is not None and capture.problem.word == "shrunk"
    assert f"the file had {24 + RECORD * 2_000:,} bytes when reading began, and has become" in capture.problem.text


def test_a_compressed_file(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap.gz"
    content = gzip.compress(packets(2_000), compresslevel=0)
    path.write_bytes(content)
    with path.open("rb") as file:
        capture = Capture(file, chunk=RECORD * 10)
        for _ in capture:
            os.truncate(path, len(content) - 500_000)
    assert capture.problem is not None and capture.problem.word == "shrunk"


def test_no_table_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file becomes shorter after its first bytes were read: the run fails, and the tables before it stay."""
    path, out = tmp_path / "a.pcap", tmp_path / "tables"
    path.write_bytes(packets(2_000))
    write_tables([str(path)], str(out))
    before = sorted(out.rglob("*"))
    path.write_bytes(packets(2_000))
    opened = Path.open

    def shortened(self: Path, *words: Any, **more: Any) -> Any:
        file = opened(self, *words, **more)
        return Shrinking(file) if self == path else file

    monkeypatch.setattr(Path, "open", shortened)
    with pytest.raises(CaptureError, match=r"a\.pcap: the file had .* and has become shorter"):
        write_tables([str(path)], str(out))
    assert sorted(out.rglob("*")) == before
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.pcap", "tables"]
