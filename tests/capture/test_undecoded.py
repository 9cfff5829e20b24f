"""PC-06 and PC-11: whatever of a connection could not be decoded is a row with file, offset and number of bytes."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from afflux.capture import Capture, Decoder, analyze
from afflux.capture.places import captures_in
from afflux.capture.schemas import TABLES
from afflux.capture.units import Decoding, units_of
from afflux.core.limits import Limits
from afflux.protocols.registry import recognizable
from tests.capture.tabling import SETUP, asks, brief, complete, item, packets, tables
from tests.capture.test_losses import TALKS
from tests.capture.writing import Packet, Talk, ethernet, fragments, pcap
from tests.cli.running import afflux, here
from tests.cli.test_inspect import on_a_terminal

Place = tuple[str, int, int, int]
"The direction, the packet from 1, where its data begins in the file, and the bytes of the direction."


def _data(packet: Packet) -> bytes:
    """The data of a packet of ``Talk`` without tags, IPv6 and options of TCP."""
    head = 14 + 20 + 4 * (packet.data[46] >> 4)
    return packet.data[head:]


def _truth(sent: Sequence[Packet]) -> list[Place]:
    """Where the bytes of each direction begin in a pcap file of packets, and how many there are."""
    first: dict[str, tuple[int, int]] = {}
    size = {">": 0, "<": 0}
    at = 24
    for number, packet in enumerate(sent, 1):
        data, way = _data(packet), ">" if packet.data[26:30] == b"\x0a\0\0\x01" else "<"
        if data:
            first.setdefault(way, (number, at + 16 + len(packet.data) - len(data)))
            size[way] += len(data)
        at += 16 + len(packet.data)
    return sorted((way, *first[way], size[way]) for way in first)


def _places(rows: list[dict[str, Any]]) -> list[Place]:
    return sorted(brief(rows, "dir", "packet", "file_offset", "length"))


def _cut(protocol: str, size: int) -> list[Packet]:
    """The packets of a conversation, with ``size`` bytes of data at most."""
    talk, sent = Talk(), list[Packet]()
    sent += talk.open()
    for pause, client, data in TALKS[protocol]():
        talk.time += round(pause * 1e9)
        sent += talk.send(client, data, size)
    return [*sent, *talk.close()]


def _sorted(found: dict[str, list[dict[str, Any]]]) -> dict[str, list[str]]:
    return {name: sorted(map(repr, rows)) for name, rows in found.items() if rows}


def _decoded(path: Path, decoding: Decoding, part: int | None) -> dict[str, list[dict[str, Any]]]:
    """The rows of a capture: of one process, or of the tasks of Spark with parts of this size."""
    if part is None:
        found = [decoding.files([path], dictionaries=True)]
    else:
        files = captures_in([str(path)])
        units = units_of(files, Limits.server(), index_dir=path.parent / f"{path.name}-{part}", part_bytes=part)
        found = [decoding.of(unit) for unit in units]
    rows: dict[str, list[dict[str, Any]]] = {}
    for name, batch in (pair for one in found for pair in one):
        rows.setdefault(name, []).extend(batch.to_pylist())
    return rows


@pytest.mark.parametrize("protocol", TALKS)
@pytest.mark.parametrize("size", [1_448, 7])
def test_a_start_in_mid_stream_is_rows(protocol: str, size: int) -> None:
    """For each direction: its bytes, from the first packet with data on. Wherever the capture begins, and whichever
    packets a batch has."""
    sent = _cut(protocol, size)
    carrying = [number for number, one in enumerate(sent) if _data(one)]
    for start in carrying[1 :: 1 if size > 7 else 5]:
        kept = sent[start:]
        found = tables(pcap(kept), tables=TABLES)
        (connection,) = found["connections"]
        rows = found["frames"]
        assert connection["content"] == "mid-stream, not decoded (protocol unknown)" and connection["frames"] == 0
        assert _places(rows) == _truth(kept)
        assert all(one["error"] == {"rule": "undecoded", "reason": connection["content"]} for one in rows)
        assert {(one["type"], one["protocol"], one["stream"], one["offset"]) for one in rows} == {(None, None, None, 0)}
        assert {one["conn"] for one in rows} == {connection["conn"]}
        first = min(row["packet"] for row in rows)
        assert brief(found["violations"], "kind", "rule", "packet") == [("undecoded", "undecoded", first)]
        assert "streams" not in found
        assert _sorted(tables(pcap(kept), tables=TABLES, chunk=200)) == _sorted(found)


def mixed() -> list[Packet]:
    """A connection that begins before the capture, one that is whole, one in TLS that is cut short, and one with a hole
    across frames."""
    said = [(0, True, SETUP + asks(1)), (0, False, item(1, bytes(40))), (0, False, item(1) + complete(1))]
    late = packets(said, Talk(client=("10.0.0.1", 40_001)))[6:]
    hello = Talk(client=("10.0.0.1", 40_002)).whole(b"\x16\3\1\0\5\1\0\0\1\0", b"\x15\3\1\0\2\2\x28")
    holed = packets(said, Talk(client=("10.0.0.1", 40_003)))
    (hole,) = [number for number, one in enumerate(holed) if _data(one).endswith(item(1, bytes(40)))]
    holed[hole] = holed[hole].cut(len(holed[hole].data) - 11)
    return [*late, *packets(said), *hello, *holed]


def test_tasks_and_one_process_have_the_same_rows(tmp_path: Path) -> None:
    path = tmp_path / "mixed.pcap"
    path.write_bytes(pcap(mixed()))
    for payload in (False, True):
        decoding = Decoding(payload=payload)
        whole = _sorted(_decoded(path, decoding, None))
        for part in (300, 900, 1 << 20):
            assert _sorted(_decoded(path, decoding, part)) == whole
    rows = _decoded(path, Decoding(), None)["frames"]
    wrong = {one["error"]["rule"]: one for one in rows if one["error"]}
    assert wrong.keys() == {"undecoded", "encrypted", "lost"}
    assert all(one["file"] == str(path) and one["file_offset"] for one in rows)


def test_every_frame_has_the_place_of_its_packet() -> None:
    """Also those that a hole or the snap length has cut, and those after a loss that is known only later."""
    sent = mixed()
    file = pcap(sent)
    for chunk in (200, 1 << 20):
        for row in tables(file, tables=["frames"], chunk=chunk)["frames"]:
            data = _data(sent[row["packet"] - 1])
            assert data and file[row["file_offset"] :].startswith(data)
    at = [row for row in tables(file, tables=["frames"])["frames"] if row["error"] and row["error"]["rule"] == "lost"]
    assert [row["error"]["reason"] for row in at] == [
        "cut off: 11 bytes are missing; a snap length cuts packets after 38 bytes of data"
    ]


def test_a_direction_that_begins_in_another_file(tmp_path: Path) -> None:
    """Its first packet is there, although the connection was known to be undecodable before."""
    talk = Talk()
    one, other = talk.packet(True, 1_000, b"\xff" * 30), talk.packet(False, 2_000, b"\xfe" * 20)
    paths = [tmp_path / "1.pcap", tmp_path / "2.pcap"]
    paths[0].write_bytes(pcap([one]))
    paths[1].write_bytes(pcap([replace(other, time=one.time + 5_000_000)]))
    rows = [row for _, batch in analyze(paths, tables=["frames"]) for row in batch.to_pylist()]
    assert sorted(brief(rows, "dir", "file", "packet", "file_offset", "length")) == [
        ("<", str(paths[1]), 1, 94, 20),
        (">", str(paths[0]), 1, 94, 30),
    ]


def test_a_packet_in_fragments_has_no_position() -> None:
    packet = Talk().packet(True, 1_000, b"\xff" * 30)
    pieces = [replace(packet, data=ethernet(one)) for one in fragments(packet.data[14:], 24)]
    (row,) = tables(pcap(pieces), tables=["frames"])["frames"]
    assert (row["length"], row["file_offset"], row["error"]["rule"]) == (30, None, "undecoded")


def test_copies_count_once_and_a_new_connection_between_the_same_ends_apart() -> None:
    talk = Talk()
    one = talk.packet(True, 1_000, b"\xff" * 30)
    sent = [one, one, talk.packet(False, 0, flags=0x14)]
    again = Talk(initial=(777, 888), time=talk.time)
    sent += [*again.open(), *again.send(True, SETUP + asks(1)), *again.send(False, item(1)), *again.close()]
    found = tables(pcap(sent), tables=TABLES)
    assert brief(found["connections"], "protocol", "frames") == [(None, 0), ("rsocket", 3)]
    assert _places([row for row in found["frames"] if row["protocol"] is None]) == [(">", 1, 94, 30)]


@pytest.mark.parametrize("protocol", ["rsocket", "reactivesocket", "limit"])
def test_a_direction_whose_first_packets_are_missing_begins_with_a_loss(protocol: str) -> None:
    """Its SYN is missing too: what the other side acknowledges says how many bytes, and no frame is guessed."""
    sent = _cut(protocol, 7)
    ours = [number for number, one in enumerate(sent) if one.data[26:30] == b"\x0a\0\0\x02"]
    whole = {(row["dir"], row["offset"]) for row in tables(pcap(sent), tables=["frames"])["frames"]}
    carrying = [number for number in ours if _data(sent[number])]
    for count in range(1, min(9, len(carrying))):
        left = {ours[0], *carrying[:count]}
        kept = [one for number, one in enumerate(sent) if number not in left]
        lost = sum(len(_data(sent[number])) for number in carrying[:count])
        for chunk in (300, 1 << 20):
            found = tables(pcap(kept), tables=TABLES, chunk=chunk)
            wrong = [row for row in found["frames"] if row["error"]]
            assert [row["error"]["reason"].partition(" bytes")[0] for row in wrong] == [str(lost)]
            assert brief(wrong, "dir", "offset") == [("<", 0)] and wrong[0]["error"]["rule"] == "lost"
            assert wrong[0]["file_offset"] is not None
            assert found["connections"][0]["lost_bytes"] == lost
            assert {(row["dir"], row["offset"]) for row in found["frames"] if not row["error"]} <= whole
            assert {row["kind"] for row in found["violations"]} == {"lost"}


def test_the_commands_tell_it(tmp_path: Path) -> None:
    """stderr of decode and of spark decode, and the text of inspect."""
    path, out = tmp_path / "late.pcap", tmp_path / "out"
    sent = packets([(0, True, SETUP + asks(1)), (0, False, item(1))])[4:]
    path.write_bytes(pcap(sent))
    (number, at), *_ = sorted(place[1:3] for place in _truth(sent))
    ran = here("decode", str(path))
    assert (ran.code, ran.out) == (0, "")
    assert "10.0.0.1:40000 > 10.0.0.2:7000 mid-stream, not decoded" in ran.errors
    assert f", from packet {number} at byte {at} on\n" in ran.errors
    text = " ".join(on_a_terminal("inspect", str(path)).split())
    assert f"from packet {number} on" in text and "not decoded: 1 mid-stream, not decoded" in text
    made = afflux(["spark", "decode", "--master", "none", str(path), "--out", str(out)])
    assert made.returncode == 0
    assert f"1 connection could not be decoded, the first from packet {number} of {path.name} on" in made.stderr


def test_the_decoder_names_connections_that_cannot_be_decoded() -> None:
    decoder = Decoder(Capture(io.BytesIO(pcap(mixed()))), recognizable())
    list(decoder)
    named = [(one.text.partition(" ")[0], one.place.packet) for one in decoder.undecoded()]
    assert named[0] == ("mid-stream,", 1) and [text for text, _ in named] == ["mid-stream,", "encrypted"]
    assert decoder.undecoded() == []


def test_the_decoder_names_the_first_64_of_them() -> None:
    talks = [Talk(("10.0.0.1", 1_000 + number)) for number in range(70)]
    late = [packet for talk in talks for packet in talk.send(False, item(1))]
    decoder = Decoder(Capture(io.BytesIO(pcap(late))), recognizable())
    list(decoder)
    assert [one.place.packet for one in decoder.undecoded()] == list(range(0, 128, 2))  # each has an ACK
    assert decoder.tally == {"mid-stream, not decoded (protocol unknown)": 70}


def test_sides_that_begin_alike_are_decoded_without_their_syns_if_the_capture_has_both_beginnings() -> None:
    """Or if it has one direction only. One beginning of two does not show whose it is (PC-11, PC-12)."""
    sent = _cut("jmux", 1_448)
    whole = tables(pcap(sent), tables=TABLES)
    late = tables(pcap(sent[3:]), tables=TABLES)
    columns = ("dir", "type", "offset", "length", "error")
    assert brief(late["frames"], *columns) == brief(whole["frames"], *columns) and "violations" not in late
    ours = [one for one in sent[3:] if one.data[26:30] == b"\x0a\0\0\x01"]
    one_way = tables(pcap(ours), tables=TABLES)
    assert brief(one_way["frames"], *columns) == [row for row in brief(whole["frames"], *columns) if row[0] == ">"]
    assert brief(one_way["connections"], "protocol", "one_way") == [("jmux", True)]
