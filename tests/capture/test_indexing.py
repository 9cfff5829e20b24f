"""Indexes of captures: parts that are stitched exactly, groups of flows that are read as the whole capture is."""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from afflux.capture import CaptureError
from afflux.capture.flows import Flows
from afflux.capture.groups import Group, groups_of
from afflux.capture.indexing import SUFFIX, FileIndex, index_of
from afflux.core.limits import Limits
from tests.capture import writing
from tests.capture.reading import Collected, followed
from tests.capture.writing import Packet, Talk, enhanced, ethernet, fragments, interface, pcap, pcapng, section, tcp

LIMITS = Limits.server()
Bytes = dict[tuple[str, bool], list[bytes | int]]


def indexed(path: Path, part_bytes: int) -> FileIndex:
    return index_of(path, LIMITS, part_bytes=part_bytes)


def in_one_piece(file: bytes) -> Bytes:
    """The bytes of each connection, as one process reads them."""
    return bytes_of(followed(file).connections)


def bytes_of(connections: list[Collected]) -> Bytes:
    return {(one.connection.id, client): one.joined(client) for one in connections for client in (True, False)}


def in_groups(groups: list[Group]) -> Bytes:
    """The bytes of each connection, as tasks read them."""
    made: list[Collected] = []

    def consumer(connection: object) -> Collected:
        made.append(Collected(connection, True))  # type: ignore[arg-type]  # a connection of the flows
        return made[-1]

    for group in groups:
        flows = Flows(LIMITS, consumer)
        for batch in group.batches():
            flows.take(batch.packets, batch.segments)
        flows.end()
    return bytes_of(made)


def traffic(seed: int, connections: int = 12) -> list[Packet]:
    """Interleaved connections with segments out of order, twice and missing, and packets that are not TCP."""
    rng = random.Random(seed)
    queues = []
    for number in range(connections):
        six = number % 3 == 2
        ends = (writing.CLIENT6, writing.SERVER6) if six else (writing.CLIENT, writing.SERVER)
        talk = Talk((ends[0][0], 40_000 + number), ends[1], time=writing.START + number * 1_000_000)
        sent = talk.whole(rng.randbytes(rng.randrange(4_000)), rng.randbytes(rng.randrange(4_000)), 700)
        if number % 4 == 1:
            del sent[len(sent) // 2]
        if number % 4 == 2:
            sent.insert(6, sent[4])
        if number % 4 == 3:
            sent[5], sent[6] = sent[6], sent[5]
        queues.append(sent)
    found = [Packet(ethernet(b"\x45" + bytes(30)))]
    while queues:
        queue = rng.choice(queues)
        found += queue[: rng.randrange(1, 4)]
        del queue[: rng.randrange(1, 4)]
        queues = [queue for queue in queues if queue]
    return [Packet(one.data, writing.START + n * 1_000_000) for n, one in enumerate(found)]


@pytest.mark.parametrize("form", [pcap, pcapng])
@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("part_bytes", [200, 4_096, 1 << 26])
def test_parts_of_every_size(form: Callable[..., bytes], order: str, part_bytes: int, tmp_path: Path) -> None:
    file = form(traffic(1, 6), order=order)
    path = tmp_path / "one.cap"
    path.write_bytes(file)
    index = indexed(path, part_bytes)
    assert index.packets == len(traffic(1, 6)) and index.problem is None
    assert index.skipped == +followed(file).network.skipped != {}
    for count in (1, 3, 100):
        groups = groups_of([index], count)
        assert len(groups) <= count
        assert in_groups(groups) == in_one_piece(file)


@pytest.mark.parametrize("form", [pcap, pcapng])
@pytest.mark.parametrize("part_bytes", [250, 700, 3_000])
def test_payloads_that_contain_captures(form: Callable[..., bytes], part_bytes: int, tmp_path: Path) -> None:
    inner = form([Packet(one.data, one.time) for one in Talk(("10.9.9.9", 5)).whole(bytes(900), bytes(300), 60)])
    inner += bytes(-len(inner) % 4)
    packets = Talk().whole(inner * 3, inner[24:], 1_400)
    file = form([*traffic(2, 3), *packets])
    path = tmp_path / "one.cap"
    path.write_bytes(file)
    index = indexed(path, part_bytes)
    assert index.packets == len(packets) + len(traffic(2, 3))
    assert in_groups(groups_of([index], 4)) == in_one_piece(file)


@pytest.mark.parametrize("part_bytes", [250, 1_000])
def test_sections_and_interfaces_in_the_middle(part_bytes: int, tmp_path: Path) -> None:
    first, second, third = (traffic(seed, 3) for seed in (3, 4, 5))
    raw = [Packet(one.data[14:], one.time, linktype=101) for one in second]
    file = pcapng(first) + section(">") + interface(101, order=">") + b"".join(enhanced(p, order=">") for p in raw)
    file += interface(1, order=">") + b"".join(enhanced(p, 1, order=">") for p in third)
    path = tmp_path / "one.pcapng"
    path.write_bytes(file)
    assert in_groups(groups_of([indexed(path, part_bytes)], 3)) == in_one_piece(file)


@pytest.mark.parametrize("six", [False, True])
@pytest.mark.parametrize("part_bytes", [250, 500, 1 << 20])
def test_fragments_in_different_parts(six: bool, part_bytes: int, tmp_path: Path) -> None:
    client, server = (writing.CLIENT6, writing.SERVER6) if six else (writing.CLIENT, writing.SERVER)
    talk = Talk(client, server)
    packets = talk.open() + talk.send(True, b"before")
    whole = tcp(client, server, talk.initial[0] + 1 + 6, b"0123456789" * 30)
    pieces = [Packet(ethernet(piece), talk.time) for piece in fragments(whole, 64)]
    talk.sent[True] += b"0123456789" * 30
    other = Talk(("10.7.7.7", 7)).whole(b"x" * 2_000, b"y" * 300, 90)
    mixed = [packet for pair in zip(pieces, other, strict=False) for packet in pair]
    file = pcap([*packets, *mixed, *talk.send(True, b"after"), *talk.close()])
    path = tmp_path / "one.pcap"
    path.write_bytes(file)
    found = in_groups(groups_of([indexed(path, part_bytes)], 5))
    assert found == in_one_piece(file)
    assert [b"before" + b"0123456789" * 30 + b"after"] in found.values()


def test_a_flow_of_fragments_alone(tmp_path: Path) -> None:
    whole = tcp(writing.CLIENT, writing.SERVER, 1, b"0123456789" * 30)
    file = pcap([Packet(ethernet(piece)) for piece in fragments(whole, 64)])
    path = tmp_path / "one.pcap"
    path.write_bytes(file)
    assert in_groups(groups_of([indexed(path, 100)])) == in_one_piece(file)


@pytest.mark.parametrize("form", [pcap, pcapng])
@pytest.mark.parametrize("part_bytes", [250, 1_000])
def test_a_file_that_is_damaged_or_cut_off(form: Callable[..., bytes], part_bytes: int, tmp_path: Path) -> None:
    file = form(traffic(6))
    path = tmp_path / "one.cap"
    for broken in (file[:-5], file[:9_000] + b"\xff" * 4_000 + file[13_000:], file[:5_001]):
        path.write_bytes(broken)
        expected = followed(broken).capture
        index = indexed(path, part_bytes)
        assert index.problem == expected.problem is not None
        assert index.packets == expected.packets
        assert in_groups(groups_of([index], 3)) == in_one_piece(broken)


def test_files_without_packets(tmp_path: Path) -> None:
    for name, data in (("a", pcap([])), ("b", pcapng([]))):
        (tmp_path / name).write_bytes(data)
        index = indexed(tmp_path / name, 64)
        assert (index.packets, index.problem, groups_of([index])) == (0, None, [])
    (tmp_path / "c").write_bytes(b"GET / HTTP/1.1\r\n")
    with pytest.raises(CaptureError, match="its first bytes are 47 45 54 20"):
        indexed(tmp_path / "c", 64)


def test_a_connection_in_two_files(tmp_path: Path) -> None:
    packets = Talk().whole(b"a" * 5_000, b"b" * 5_000)
    halves = packets[:6], packets[6:]
    for name, half in zip("ab", halves, strict=True):
        (tmp_path / name).write_bytes(pcap(half))
    indexes = [indexed(tmp_path / name, 1_000) for name in "ab"]
    assert in_groups(groups_of(indexes, 2)) == in_one_piece(pcap(packets))


def test_groups_are_of_about_the_same_size(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(pcap([p for n in range(64) for p in Talk(("10.0.0.1", n)).whole(bytes(9_000), b"")]))
    groups = groups_of([indexed(tmp_path / "one", 10_000)], 8)
    sizes = [group.bytes for group in groups]
    assert len(sizes) == 8 and max(sizes) == min(sizes)


# -- the cache -------------------------------------------------------------------------------------------------------


def test_an_index_is_made_once_and_again_for_a_changed_or_damaged_one(tmp_path: Path) -> None:
    path = tmp_path / "one.pcap"
    path.write_bytes(pcap(traffic(7)))
    jobs: list[int] = []

    def counted(which: object) -> object:
        from afflux.capture.indexing import run_job

        jobs.append(len(which))  # type: ignore[arg-type]
        return [run_job(job) for job in which]  # type: ignore[attr-defined]

    def made() -> bool:
        """Whether it is made now."""
        jobs.clear()
        index_of(path, LIMITS, run=counted, part_bytes=4_096)  # type: ignore[arg-type]
        return bool(jobs)

    def files() -> list[Path]:
        return sorted(Path(index_of(path, LIMITS, part_bytes=4_096).directory).iterdir())

    assert made() and not made()
    for number in range(len(files())):
        for damage in (lambda data: data[:-1], lambda data: bytes([data[0] ^ 1]) + data[1:]):
            file = files()[number]
            file.write_bytes(damage(file.read_bytes()))
            assert made() and not made()
    with path.open("ab") as grown:
        grown.write(pcap(traffic(8))[24:])
    assert made() and not made()
    assert len(list((tmp_path / f"one.pcap{SUFFIX}").iterdir())) == 1


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "one.pcap"
    path.write_bytes(pcap(traffic(7)))
    left = tmp_path / f"one.pcap{SUFFIX}" / ".tmp-123"
    left.mkdir(parents=True)
    (left / ".lock").touch()
    indexed(path, 1_000)
    assert not left.exists()


def test_two_at_once(tmp_path: Path) -> None:
    path = tmp_path / "one.pcap"
    path.write_bytes(pcap(traffic(7)))
    both = threading.Barrier(2)
    found: list[FileIndex] = []

    def work() -> None:
        from afflux.capture.indexing import run_job

        def run(jobs: object) -> object:
            made = [run_job(job) for job in jobs]  # type: ignore[attr-defined]
            if len(made) > 1:
                both.wait(30)
            return made

        found.append(index_of(path, LIMITS, run=run, part_bytes=2_000))  # type: ignore[arg-type]

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0].directory == found[1].directory
    assert in_groups(groups_of([found[0]], 2)) == in_groups(groups_of([found[1]], 2)) == in_one_piece(path.read_bytes())


def test_a_place_that_is_not_writable(tmp_path: Path) -> None:
    directory = tmp_path / "captures"
    directory.mkdir()
    path = directory / "one.pcap"
    path.write_bytes(pcap(traffic(7)))
    index = index_of(path, LIMITS, index_dir=tmp_path / "indexes")
    assert index.packets and os.listdir(directory) == ["one.pcap"]
    shutil.rmtree(tmp_path / "indexes")
    (tmp_path / "indexes").write_text("a file")
    with pytest.raises(OSError, match="indexes"):
        index_of(path, LIMITS, index_dir=tmp_path / "indexes")


def test_a_capture_that_has_become_shorter(tmp_path: Path) -> None:
    path = tmp_path / "one.pcap"
    path.write_bytes(pcap(traffic(7)))
    groups = groups_of([indexed(path, 1_000)], 1)
    os.truncate(path, 2_000)
    with pytest.raises(CaptureError, match="has become shorter"):
        in_groups(groups)
