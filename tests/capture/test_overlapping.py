"""Captures of the same traffic of which one was started later are named, with what to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from afflux.capture import overlapping
from afflux.capture.places import captures_in
from tests.capture.tabling import SETUP, asks, item
from tests.capture.writing import Packet, Talk, pcap, pcapng
from tests.cli.running import here

Write = Callable[[Sequence[Packet]], bytes]
FORMATS: dict[str, Write] = {
    "pcap": pcap,
    "pcap-big": lambda packets: pcap(packets, order=">", nano=True),
    "pcapng": pcapng,
    "pcapng-big": lambda packets: pcapng(packets, order=">"),
}
PACKETS = 3_000


@cache
def talks(count: int = 4, first: int = 1_000) -> tuple[Packet, ...]:
    """Connections at the same time, in the order of time: three thousand packets in three seconds, three megabytes."""
    found = []
    for number in range(count):
        talk = Talk(("10.0.0.1", first + number), initial=(1_000 * number, 2_000 * number))
        talk.time += 250_000 * number
        found += [*talk.open(), *talk.send(True, SETUP + asks(1, 1_000))]
        while len(found) < PACKETS // 4 * (number + 1):
            found += talk.send(False, item(1, bytes(1_440)))
    return tuple(sorted(found, key=lambda one: one.time))


def told(paths: Sequence[Path]) -> list[str]:
    """What is said about captures, after the warning sign and without the remedy."""
    said: list[str] = []
    captures_in(map(str, paths), said.append)
    return [line.removeprefix("warning: ").partition(": ")[0] for line in said]


@pytest.mark.parametrize(("earlier", "later"), [*zip(FORMATS, reversed(FORMATS), strict=True)])
def test_a_capture_that_was_started_later_is_named(earlier: str, later: str, tmp_path: Path) -> None:
    """Whichever is given first. Their times differ a little, and the later one also goes on for longer."""
    one, two = tmp_path / "one", tmp_path / "two"
    packets = talks()
    one.write_bytes(FORMATS[earlier](packets[:2_400]))
    two.write_bytes(FORMATS[later]([replace(packet, time=packet.time + 30_000) for packet in packets[1_700:]]))
    expected = [f"{two} begins within {one}, and has the packets that it has"]
    assert told([one, two]) == told([two, one]) == told([tmp_path]) == expected


def test_commands_say_it_with_the_remedy(tmp_path: Path) -> None:
    one, two = tmp_path / "one.pcap", tmp_path / "two.pcap"
    packets = talks()
    one.write_bytes(pcap(packets))
    two.write_bytes(pcap(packets[500:]))
    text = (
        f"warning: {two} begins within {one}, and has the packets that it has: connections are decoded twice, or their "
        "bytes count as repeated; give one of them, or merge both with `mergecap -w OUT IN IN`, and remove copies with "
        "`editcap -d OUT ONCE`"
    )
    inspected = here("inspect", str(two), str(one), "-o", "ndjson")
    decoded = here("spark", "decode", str(tmp_path), "--out", str(tmp_path / "out"), "--master", "none")
    assert inspected.code == decoded.code == 0
    assert inspected.errors.startswith(f"afflux: {text}\n")
    assert f"  {text}\n" in decoded.errors


def test_one_connection_in_common_is_enough(tmp_path: Path) -> None:
    """Each capture has connections that the other one lacks, as those of two interfaces have."""
    common, mine, yours = (talks(1, 1_000 * number) for number in (1, 2, 3))
    one, two = tmp_path / "one.pcap", tmp_path / "two.pcap"
    one.write_bytes(pcap(sorted([*common, *mine], key=lambda packet: packet.time)))
    two.write_bytes(pcap(sorted([*common[300:], *yours[300:]], key=lambda packet: packet.time)))
    assert len(told([one, two])) == 1


def test_captures_at_the_same_time_without_common_packets_are_not_named(tmp_path: Path) -> None:
    """Each direction in a file of its own, other connections, a rotated capture, and clocks that are an hour apart."""
    packets = talks()
    client, server = ([one for one in packets if (one.data[29] == 1) is mine] for mine in (True, False))
    for name, chosen in {
        "client.pcap": client,
        "server.pcap": server[40:],
        "others.pcap": talks(4, 5_000)[500:],
    }.items():
        (tmp_path / name).write_bytes(pcap(chosen))
    assert told([tmp_path]) == []
    rotated = [tmp_path / f"rotated-{number}.pcap" for number in range(3)]
    for number in range(3):
        rotated[number].write_bytes(pcap(packets[number * 900 : number * 900 + 900]))
    assert told(rotated) == []
    rotated[1].write_bytes(pcap([replace(one, time=one.time - 3_600_000_000_000) for one in packets[900:]]))
    assert told(rotated[:2]) == []


def test_a_damaged_or_growing_file_does_no_harm(tmp_path: Path) -> None:
    """The end of the earlier one is cut, and a file without packets has no time."""
    one, two = tmp_path / "one.pcap", tmp_path / "two.pcapng"
    packets = talks()
    one.write_bytes(pcap(packets)[:-7])
    two.write_bytes(pcapng(packets[800:])[:-9])
    (tmp_path / "empty.pcap").write_bytes(pcap([]))
    assert len(told([tmp_path])) == 1
    data = bytearray(pcap(packets))
    data[len(data) // 2 :] = bytes(len(data) // 2)
    one.write_bytes(data)
    assert len(told([tmp_path])) <= 1


def test_few_pairs_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many hosts captured in the same hour are many pairs."""
    monkeypatch.setattr(overlapping, "_PAIRS", 2)
    for number in range(4):
        (tmp_path / f"{number}.pcap").write_bytes(pcap(talks(1, 1_000 * number + 1_000)[number:]))
    (tmp_path / "copy.pcap").write_bytes(pcap(talks(1, 1_000)[600:]))
    assert told([tmp_path]) == []
    monkeypatch.setattr(overlapping, "_PAIRS", 100)
    assert len(told([tmp_path])) == 1
