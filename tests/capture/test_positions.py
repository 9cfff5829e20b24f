"""Rows of violations say where their packets are in the file: plain, compressed, in groups, in fragments."""

from __future__ import annotations

import gzip
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from afflux.capture.places import captures_in
from afflux.capture.units import Decoding, units_of
from afflux.core.limits import Limits
from tests.capture.tabling import SETUP, asks, brief, grant, item, packets, tables
from tests.capture.writing import Packet, Talk, ethernet, fragments, pcap, pcapng

BROKEN = b"\0\0\6\0\0\0\1\xfc\0"
SAID = [(0, True, SETUP + asks(1, 1)), (0.1, False, item(1)), (0.1, False, item(1)), (0.1, True, BROKEN)]
CASES = [("state", item(1)), ("malformed", BROKEN), ("lost", grant(1, 5))]


def _sent() -> list[Packet]:
    """A connection with an item too many, a frame that is none, and a frame whose packet is cut short."""
    sent = packets([*SAID, (0.1, True, grant(1, 5))])
    (last,) = [number for number, one in enumerate(sent) if one.data.endswith(grant(1, 5))]
    sent[last] = sent[last].cut(len(sent[last].data) - 4)
    return sent


def _rows(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted((row for row in found if row["conn"] is not None), key=itemgetter("packet"))


def _check(rows: list[dict[str, Any]], file: bytes) -> None:
    assert [row["kind"] for row in rows] == [kind for kind, _ in CASES]
    for row, (_, data) in zip(rows, CASES, strict=True):
        shown = data[:-4] if row["kind"] == "lost" else data
        assert file[row["file_offset"] :].startswith(shown)


@pytest.mark.parametrize("make", [pcap, pcapng])
def test_the_data_of_the_packet_is_there(make: Any, tmp_path: Path) -> None:
    """The same from one process and from tasks, whatever the sizes of chunks and parts."""
    file, path = make(_sent()), tmp_path / "a"
    path.write_bytes(file)
    for chunk in (300, 1 << 20):
        _check(_rows(tables(file, chunk=chunk)["violations"]), file)
    _check(_rows(tables(gzip.compress(file))["violations"]), file)
    for part in (700, 1 << 20):
        files = captures_in([str(path)])
        units = units_of(files, Limits.server(), index_dir=tmp_path / str(part), part_bytes=part)
        found = [pair for unit in units for pair in Decoding().of(unit)]
        _check(_rows([row for name, batch in found if name == "violations" for row in batch.to_pylist()]), file)


def test_a_packet_that_waits_for_later_ones_has_its_position() -> None:
    """The acknowledgement of an item comes before it, so both are handed over with the next batch."""
    sent = _sent()
    at = max(number for number, one in enumerate(sent) if one.data.endswith(item(1)))
    sent[at], sent[at + 1] = sent[at + 1], sent[at]
    file = pcap(sent)
    for chunk in (200, 1 << 20):
        _check(_rows(tables(file, chunk=chunk)["violations"]), file)


def test_fragments_have_no_position() -> None:
    sent = packets(SAID)
    (number,) = [number for number, one in enumerate(sent) if one.data.endswith(BROKEN)]
    pieces = [replace(sent[number], data=ethernet(one)) for one in fragments(sent[number].data[14:], 8)]
    found = tables(pcap([*sent[:number], *pieces, *sent[number + 1 :]]))["violations"]
    assert brief(found, "kind", "file_offset")[-1] == ("malformed", None)
    assert found[0]["file_offset"] is not None


def test_a_connection_that_is_not_decoded_has_the_position_of_its_first_data() -> None:
    file = pcap(Talk().whole(b"\x16\3\1\0\5\1\0\0\1\0", b""))
    (row,) = tables(file)["violations"]
    assert (row["rule"], file[row["file_offset"] :][:3]) == ("encrypted", b"\x16\3\1")
