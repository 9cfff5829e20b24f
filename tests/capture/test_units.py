"""Captures decoded whole, and in groups as tasks of Spark do it: with a key log, and with either copy of bytes."""

from __future__ import annotations

import gc
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="tables need the extra capture")

import pyarrow.parquet as pq

from afflux.capture import output
from afflux.capture.errors import CaptureError
from afflux.capture.places import captures_in
from afflux.capture.tables import CHUNK
from afflux.capture.units import Decoding, units_of
from afflux.core.limits import Limits
from tests.capture.tabling import SETUP, asks, item
from tests.capture.test_decoding import ANSWER, ASK, message
from tests.capture.tlspeers import TlsTalk
from tests.capture.writing import Packet, Talk, block, enhanced, ethernet, interface, ipv4, pcap, pcapng, section
from tests.transports.certificates import Certificates


def streams(path: Path, decoding: Decoding) -> Iterator[list[tuple[int, int]]]:
    """The bytes of each stream, from a capture decoded whole, then in groups."""
    whole = decoding.files([path])
    units = units_of(captures_in([str(path)]), Limits.server(), index_dir=path.parent)
    for found in (whole, (one for unit in units for one in decoding.of(unit))):
        yield [(row["stream"], row["bytes_in"]) for _, batch in found for row in batch.to_pylist()]


def test_a_key_log_decrypts(tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="decrypting needs the extra tls")
    talk = TlsTalk(Certificates(tmp_path), tmp_path / "keys.log", protocols=("rsocket",))
    talk.send(True, SETUP + asks(1))
    talk.send(False, item(1, b"four"))
    path = tmp_path / "tls.pcap"
    path.write_bytes(pcap(talk.close()))
    assert [*streams(path, Decoding(tables=("streams",), keylog=str(tmp_path / "keys.log")))] == [[(1, 4)], [(1, 4)]]
    assert [*streams(path, Decoding(tables=("streams",)))] == [[], []]
    with pytest.raises(FileNotFoundError):
        [*streams(path, Decoding(tables=("streams",), keylog=str(tmp_path / "missing")))]
    with pytest.raises(CaptureError, match="is not a key log"):
        [*streams(path, Decoding(tables=("streams",), keylog=str(path)))]


@pytest.mark.parametrize(("before", "between", "count"), [(True, CHUNK, 1), (False, 0, 1), (False, CHUNK, 0)])
def test_secrets_in_a_capture_count_from_their_batch_on(before: bool, between: int, count: int, tmp_path: Path) -> None:
    """However far the file is read ahead: those that come after the packets count only within a batch."""
    pytest.importorskip("cryptography", reason="decrypting needs the extra tls")
    talk = TlsTalk(Certificates(tmp_path), tmp_path / "keys.log", protocols=("rsocket",))
    talk.send(True, SETUP + asks(1))
    talk.send(False, item(1, b"four"))
    other = Talk(client=("10.0.0.1", 40_001))
    busy = [*other.open(), *other.send(True, SETUP + asks(1)), *other.send(False, item(1, bytes(100)) * 20_000)]
    packets = b"".join(map(enhanced, [*busy, *talk.close()]))
    keys = (tmp_path / "keys.log").read_bytes()
    log, rest = block(10, struct.pack("<II", 0x544C534B, len(keys)) + keys), block(0x0BAD, bytes(between))
    path = tmp_path / "secrets.pcapng"
    path.write_bytes(section() + interface() + (log if before else b"") + packets + rest + log)
    assert sum(len(batch) for _, batch in Decoding(tables=("streams",)).files([path])) == 1 + count


def test_a_reader_that_is_closed_leaves_no_thread(tmp_path: Path) -> None:
    talk = Talk()
    path = tmp_path / "long.pcap"
    path.write_bytes(
        pcap([*talk.open(), *talk.send(True, SETUP + asks(1)), *talk.send(False, item(1, bytes(100)) * 90_000)])
    )
    before = set(threading.enumerate())
    found = Decoding(tables=("frames",)).files([path])
    assert next(found)[0] == "frames"
    found.close()
    assert set(threading.enumerate()) <= before


def test_a_file_of_a_table_has_a_bounded_number_of_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a writer knows of them is in memory, and in the end of the file."""
    monkeypatch.setattr(output, "_FLUSH_BYTES", 1)
    monkeypatch.setattr(output, "_ROW_GROUPS", 3)
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap(Talk().whole(SETUP + asks(1), item(1))))
    found = [(table, batch) for table, batch in Decoding().files([path]) if table in ("frames", "streams")]
    attempt = output.TableWriter(tmp_path / "made", Decoding()).take(found * 7)
    for table, batch in found:
        files = [pq.ParquetFile(each) for each in (Path(attempt.directory) / table).iterdir()]
        assert sorted(each.num_row_groups for each in files) == [1, 3, 3]
        assert sum(each.metadata.num_rows for each in files) == 7 * len(batch) == attempt.rows[table]


def left_open(talk: Talk) -> list[Packet]:
    return [*talk.open(), *talk.send(True, SETUP + asks(1)), *talk.send(False, item(1))]


def without_a_segment(talk: Talk) -> list[Packet]:
    packets = talk.whole(SETUP + asks(1), item(1) * 200)
    return packets[:6] + packets[7:]


def in_a_websocket(talk: Talk) -> list[Packet]:
    return talk.whole(ASK % b"" + message(SETUP[3:], masked=True), ANSWER % b"" + message(item(1)[3:]))


def opened_twice(talk: Talk) -> list[Packet]:
    return left_open(talk) + left_open(replace(talk, initial=(5, 7), sent={True: bytearray(), False: bytearray()}))


def of_others(talk: Talk) -> list[Packet]:
    return talk.whole(b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n")


@pytest.mark.parametrize("flows", [2, 65_536])
@pytest.mark.parametrize("say", [left_open, without_a_segment, in_a_websocket, opened_twice, of_others])
def test_nothing_of_a_capture_is_left_to_the_garbage_collector(
    say: Callable[[Talk], list[Packet]], flows: int, tmp_path: Path
) -> None:
    """It runs late, so a worker of Spark would hold what several tasks have read; and a run of it takes long."""
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap([packet for port in range(5) for packet in say(Talk(("10.0.0.1", 1_000 + port)))]))
    decoding = Decoding(limits=replace(Limits.server(), capture_flows=flows))
    units = units_of(captures_in([str(path)]), decoding.limits)
    for make in (partial(decoding.files, [path]), *(partial(decoding.of, unit) for unit in units)):
        with garbage() as left:
            assert sum(len(batch) for _, batch in make())
        assert [one for one in left if str(getattr(one, "__module__", "")).startswith("afflux")] == []


@contextmanager
def garbage() -> Iterator[list[object]]:
    """What the block leaves to the garbage collector, after the block."""
    gc.collect()
    found: list[object] = []
    try:
        gc.disable()
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize(("overlap", "size"), [("first", 4), ("last", 9)])
def test_the_copy_that_counts(overlap: str, size: int, tmp_path: Path) -> None:
    """PC-07."""
    talk = Talk()
    long = item(1, b"nine byte")
    short = (item(1, b"four") + item(1, b""))[: len(long)]
    packets = [*talk.open(), *talk.send(True, SETUP + asks(1))]
    packets += [talk.packet(False, 1, short[1:]), talk.packet(False, 1, long[1:])]
    packets += [talk.packet(False, 0, long[:1])]
    path = tmp_path / "copies.pcap"
    path.write_bytes(pcap(packets))
    assert [*streams(path, Decoding(tables=("streams",), overlap=overlap))] == [[(1, size)]] * 2


def test_packets_that_are_skipped_are_rows(tmp_path: Path) -> None:
    """For each reason and file, with the number and the place of the first packet. Traffic that is not TCP has none."""
    path, other = tmp_path / "a.pcapng", tmp_path / "b.pcap"
    talk = Talk().whole(SETUP + asks(1), item(1))
    tags, wifi = b"\x81\x00\x00\x05" * 5, [replace(one, linktype=127) for one in talk]
    tagged = [replace(one, data=one.data[:12] + tags + one.data[12:]) for one in talk]
    udp = replace(talk[0], data=ethernet(ipv4("10.0.0.1", "10.0.0.2", bytes(20), protocol=17)))
    arp = replace(talk[0], data=bytes(12) + b"\x08\x06" + bytes(28))
    path.write_bytes(pcapng([udp, arp, *talk, *tagged[:5], *(one.cut(40) for one in talk), *wifi]))
    other.write_bytes(pcap([Talk(("10.0.0.9", 9)).open()[0], talk[1].cut(10)]))
    count, first = len(talk), 3 + len(talk)
    expected = {
        (str(path), "5 packets skipped: too many tags", first),
        (str(path), f"{count} packets skipped: cut off in TCP", first + 5),
        (str(path), f"{count} packets skipped: unsupported link type 127", first + 5 + count),
        (str(other), "1 packet skipped: cut off before IP", 2),
    }
    files, decoding = captures_in([str(path), str(other)]), Decoding(tables=("violations",))
    found = [[row for _, batch in decoding.files([path, other]) for row in batch.to_pylist()]]
    for part in (300, 1 << 20):
        units = units_of(files, Limits.server(), index_dir=tmp_path / "indexes", part_bytes=part)
        found.append([row for unit in units for _, batch in decoding.of(unit) for row in batch.to_pylist()])
    for rows in found:
        assert {(row["file"], row["reason"], row["packet"]) for row in rows} == expected
        assert len(rows) == len(expected) and {(row["kind"], row["rule"]) for row in rows} == {("undecoded", "skipped")}
        offsets = {row["reason"]: row["file_offset"] for row in rows}
        assert path.read_bytes()[offsets["5 packets skipped: too many tags"] + 12 :].startswith(tags)
        assert {row["ts"] is None for row in rows} == {False}
    assert sorted(map(repr, found[0])) == sorted(map(repr, found[1])) == sorted(map(repr, found[2]))
    report = units_of(captures_in([str(path)]), Limits.server(), index_dir=tmp_path / "indexes")
    assert [one for unit in report for one, _ in Decoding(tables=("frames",)).of(unit)] == ["frames"]
