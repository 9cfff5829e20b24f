"""The same packets twice: copies of a file are passed over, and captures of two places are named with what to do."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from afflux.capture import Decoding, analyze, write_tables
from afflux.capture.places import captures_in
from tests.capture.tabling import SETUP, asks, complete, grant, item
from tests.capture.writing import Packet, Talk, pcap, pcapng
from tests.cli.running import here

LATER = 20_000
"Nanoseconds between the copies of a packet at two places."


def sent() -> list[Packet]:
    """A stream that stalls, a connection of another protocol, and one in TLS."""
    ours, other, secret = (Talk(("10.0.0.1", 1_001 + number)) for number in range(3))
    made = [*ours.open(), *ours.send(True, SETUP + asks(1, 2)), *ours.send(False, item(1) + item(1))]
    ours.time += 2_000_000_000
    made += [*ours.send(True, grant(1, 5)), *ours.send(False, item(1) + complete(1)), *ours.close()]
    other.time = ours.time
    made += other.whole(b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n")
    secret.time = other.time
    return [*made, *secret.whole(b"\x16\x03\x01\0\x20" + bytes(32), b"\x16\x03\x03\0\x20" + bytes(32))]


def late(packets: list[Packet]) -> list[Packet]:
    return [replace(one, time=one.time + LATER) for one in packets]


def rows(*paths: Path) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for name, batch in analyze(paths):
        found.setdefault(name, []).extend(batch.to_pylist())
    return found


@pytest.fixture
def one(tmp_path: Path) -> Path:
    path = tmp_path / "one.pcap"
    path.write_bytes(pcap(sent()))
    return path


@pytest.mark.parametrize("how", ["given twice", "a copy of {}", "the same file as {}"])
def test_inspect_reads_a_copy_once(how: str, one: Path) -> None:
    two = one.with_name("two.pcap")
    match how[:1]:
        case "g":
            two = one
        case "a":
            shutil.copy(one, two)
        case _:
            two.hardlink_to(one)
    alone, both = here("inspect", str(one), "-o", "ndjson"), here("inspect", str(one), str(two), "-o", "ndjson")
    assert (alone.code, alone.errors) == (0, "")
    assert (both.code, both.out) == (0, alone.out)
    assert both.errors == f"afflux: passed over {two}: {how.format(one)}\n"


def test_tables_have_a_copy_once(one: Path, tmp_path: Path) -> None:
    two, said = one.with_name("two.pcap"), list[str]()
    shutil.copy(one, two)
    wanted = write_tables([str(one)], str(tmp_path / "alone"))
    assert write_tables([str(one), str(two)], str(tmp_path / "out"), report=said.append) == wanted
    assert said[:1] == [f"passed over {two}: a copy of {one}"]
    assert [len(captures_in([str(place)]).plain) for place in (one.parent, two)] == [1, 1]


def test_files_of_the_same_size_and_time_are_compared_to_their_end(one: Path) -> None:
    two = one.with_name("two.pcap")
    octets = bytearray(one.read_bytes())
    octets[-1] ^= 1
    two.write_bytes(octets)
    said: list[str] = []
    assert captures_in([str(one), str(two)], said.append).plain == [one, two]
    assert len(said) == 1 and "begins with the same packets" in said[0]


def test_captures_of_two_places_are_named_with_what_to_do(one: Path) -> None:
    two = one.with_name("two.pcap")
    two.write_bytes(pcapng(late(sent()[1:])))
    ran = here("inspect", str(one), str(two))
    first, *others = ran.errors.splitlines()
    assert ran.code == 0 and first.startswith(
        f"afflux: warning: {two} begins with the same packets as {one}: connections are decoded twice"
    )
    assert "give one of them" in first and "mergecap -w OUT IN IN" in first and "editcap -d OUT ONCE" in first
    assert all("editcap -d" in line for line in others)
    said: list[str] = []
    assert captures_in([str(one.parent)], said.append).plain == [one, two]
    assert said == [first.removeprefix("afflux: ")]


def test_captures_that_follow_each_other_are_not_copies(tmp_path: Path) -> None:
    packets, said = sent(), list[str]()
    for number, part in enumerate((packets[:9], packets[8:20], packets[20:])):
        (tmp_path / f"{number}.pcap").write_bytes(pcap(part))
    for number in range(2):
        (tmp_path / f"empty-{number}.pcap").write_bytes(pcap([]))
    found = captures_in([str(tmp_path)], said.append)
    assert len(found.plain) == 5 and said == []
    assert here("inspect", *map(str, found.plain)).errors == ""


def test_copies_of_packets_in_one_capture_count_as_repeated(one: Path) -> None:
    """Both interfaces of a router: each packet is there twice, and only the counts of bytes and packets show it."""
    both = one.with_name("both.pcap")
    both.write_bytes(pcap([each for pair in zip(sent(), late(sent()), strict=True) for each in pair]))
    single, twice = rows(one), rows(both)
    assert twice["streams"] == single["streams"]
    assert [row["cause"] for row in twice["stalls"]] == [row["cause"] for row in single["stalls"]] == ["peer"]
    assert [row["content"] for row in twice["connections"]] == [row["content"] for row in single["connections"]]
    for row in twice["connections"]:
        assert row["repeated_bytes"] == row["client_bytes"] + row["server_bytes"]


def test_merged_and_without_copies_it_is_one_capture(one: Path) -> None:
    """The remedy of the warning."""
    commands = [shutil.which(name) for name in ("mergecap", "editcap")]
    if None in commands:
        pytest.skip("needs mergecap and editcap of Wireshark")
    two, merged, once = (one.with_name(f"{name}.pcap") for name in ("two", "merged", "once"))
    two.write_bytes(pcap(late(sent())))
    merge, edit = (str(command) for command in commands)
    subprocess.run([merge, "-w", str(merged), str(one), str(two)], check=True, capture_output=True)
    subprocess.run([edit, "-d", str(merged), str(once)], check=True, capture_output=True)
    expected, found = rows(one), rows(once)
    equal = ("file", "file_offset", "packet", "client_packets", "server_packets")
    for row in (row for each in (expected, found) for name in ("connections", "violations") for row in each[name]):
        row |= dict.fromkeys(equal)  # this capture has acknowledgements that are equal, which editcap removes as well
    assert found == expected
    assert write_tables([str(once)], str(one.with_name("out")), Decoding(tables=("streams",))) == {"streams": 1}
