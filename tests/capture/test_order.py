"""Captures whose packets are not in the order of time: one direction after the other, shuffled, and nearly in order."""

from __future__ import annotations

import random
from dataclasses import replace
from operator import itemgetter
from pathlib import Path

import pytest

from afflux.capture import write_tables
from afflux.capture.places import captures_in
from afflux.capture.units import Decoding, units_of
from afflux.core.limits import Limits
from afflux.protocols.rsocket import frames as wire
from tests.capture.tabling import SETUP, Tables, asks, brief, complete, grant, item, packets, tables
from tests.capture.writing import Packet, Talk, interface, obsolete, pcap, section, simple
from tests.cli.running import here

SAID = [
    (0, True, SETUP + asks(1, 2)), (0.2, False, item(1)), (0.2, False, item(1)), (0.5, True, grant(1, 2)),
    (0.5, False, item(1) + item(1) + complete(1)), (0.1, True, asks(3, 1)), (0.2, False, item(3)),
    (0.2, True, wire.Cancel(stream=3).encode(prefixed=True)),
]  # fmt: skip


def _client(packet: Packet) -> bool:
    return packet.data[34:36] == (40_000).to_bytes(2, "big")


def _appended() -> list[Packet]:
    """The packets of the client, and then those of the server, as `mergecap -a` appends two captures."""
    sent = packets(SAID)
    return [*filter(_client, sent), *(one for one in sent if not _client(one))]


def _late(found: Tables) -> list[tuple[object, ...]]:
    return brief((row for row in found.get("violations", []) if row["kind"] == "order"), "rule", "packet", "reason")


def test_directions_that_were_appended_are_a_violation_and_nothing_is_concluded() -> None:
    sent = _appended()
    first = next(number for number, one in enumerate(sent, 1) if not _client(one))
    found = tables(pcap(sent))
    (row,) = found["violations"]
    assert (row["conn"], row["packet"]) == (found["connections"][0]["conn"], first)
    earlier = (sent[first - 2].time - sent[first - 1].time) / 1e9
    assert row["reason"] == f"the packet is {earlier:.3f} s earlier than the one of its connection before it"
    assert "reordercap IN OUT" in row["expected"] and "mergecap -w OUT IN IN" in row["expected"]
    assert "stalls" not in found
    whole = tables(pcap(packets(SAID)))
    assert "violations" not in whole and len(whole["stalls"]) > 2


@pytest.mark.parametrize("seed", range(20))
def test_shuffled_packets_break_no_rule(seed: int) -> None:
    sent = packets(SAID)
    random.Random(seed).shuffle(sent)
    found = tables(pcap(sent), tables=["frames", "violations", "connections", "streams"])
    assert _late(found)
    assert {row["kind"] for row in found["violations"]} <= {"order", "undecoded", "lost", "cut"}


def test_each_connection_has_one_row_and_the_others_are_as_they_were() -> None:
    other = packets(SAID, Talk(client=("10.0.0.1", 40_001)))
    found = tables(pcap([*_appended(), *other, *packets(SAID, Talk(client=("10.0.0.1", 40_002)))]))
    assert len(_late(found)) == 1
    stalled = {row["conn"] for row in found["stalls"]}
    assert len(stalled) == 2 and found["violations"][0]["conn"] not in stalled


def test_packets_of_several_connections_may_be_in_any_order() -> None:
    """A capture of several interfaces has the packets of each in order."""
    one, two = packets(SAID), packets(SAID, Talk(client=("10.0.0.1", 40_001)))
    assert "violations" not in tables(pcap([*two, *one]))


@pytest.mark.parametrize(("early", "count"), [(1_000_000, 0), (1_001_000, 1)])
def test_a_millisecond_is_the_work_of_several_processors(early: int, count: int) -> None:
    sent = packets(SAID)
    sent[8] = replace(sent[8], time=sent[7].time - early)
    assert len(_late(tables(pcap(sent)))) == count


def test_packets_without_a_time_are_in_no_order() -> None:
    sent = packets(SAID)
    head = section() + interface()
    assert _late(tables(head + b"".join(map(simple, sent)))) == []
    mixed = [simple(one) if number % 3 else obsolete(one) for number, one in enumerate(_appended())]
    assert len(_late(tables(head + b"".join(mixed)))) == 1


def test_groups_and_a_whole_capture_find_the_same(tmp_path: Path) -> None:
    """The tasks of Spark have the rows that one process has, whatever the size of their parts."""
    path = tmp_path / "a.pcap"
    hello = bytes.fromhex("16030100050100000100")
    encrypted = Talk(client=("10.0.0.1", 40_002)).whole(hello, b"")
    path.write_bytes(pcap([*packets(SAID, Talk(client=("10.0.0.1", 40_001))), *_appended(), *encrypted]))
    rows = []
    for part in (700, 1 << 20):
        files = captures_in([str(path)])
        units = units_of(files, Limits.server(), index_dir=tmp_path / str(part), part_bytes=part, count=2)
        found = [row for unit in units for name, batch in Decoding().of(unit) if name == "violations"
                 for row in batch.to_pylist()]  # fmt: skip
        rows.append(sorted(found, key=itemgetter("packet")))
    whole = [row for name, batch in Decoding().files([path]) if name == "violations" for row in batch.to_pylist()]
    whole.sort(key=itemgetter("packet"))
    assert rows == [whole, whole] and [row["rule"] for row in whole] == ["order", "encrypted"]


@pytest.mark.parametrize("wanted", [("streams",), ("streams", "violations")])
def test_commands_warn_and_say_what_to_do(tmp_path: Path, wanted: tuple[str, ...]) -> None:
    path, html = tmp_path / "appended.pcap", tmp_path / "report.html"
    sent = _appended()
    path.write_bytes(pcap(sent))
    first = next(number for number, one in enumerate(sent, 1) if not _client(one))
    text = (
        f"packets of 1 connection go back in time, the first is packet {first} of {path}: frames may be missing or in "
        "the wrong order; sort the packets with `reordercap IN OUT`, merge captures with `mergecap -w OUT IN IN`, and "
        "remove packets that were captured twice with `editcap -d IN OUT`"
    )
    for words in (["decode"], ["inspect"], ["inspect", "--strict"], ["inspect", "-o", "csv"]):
        ran = here(*words, str(path))
        assert ran.code == 0 and f"afflux: warning: {text}\n" in ran.errors
    assert here("inspect", str(path), "--html", str(html)).code == 0
    assert f"P{text[1:]}." in html.read_text().replace("&#x27;", "'")
    said: list[str] = []
    write_tables([str(path)], str(tmp_path / "out"), Decoding(tables=wanted), report=said.append)
    assert said == [f"warning: {text}"]
    assert here("inspect", str(tmp_path / "out")).errors.count("go back in time") == len(wanted) - 1


def test_reordercap_is_the_remedy(tmp_path: Path) -> None:
    import shutil
    import subprocess

    command = shutil.which("reordercap")
    if command is None:
        pytest.skip("needs reordercap of Wireshark")
    path, right = tmp_path / "appended.pcap", tmp_path / "right.pcap"
    path.write_bytes(pcap(_appended()))
    subprocess.run([command, str(path), str(right)], check=True, capture_output=True)
    whole = tables(pcap(packets(SAID)))
    assert tables(right.read_bytes()) == whole
