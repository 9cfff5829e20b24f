"""TCP connections put together: order, copies, gaps, ends, re-used ports, and the limits of the state."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from afflux.capture.missing import WAIT
from afflux.capture.reassembly import Overlap
from afflux.core.limits import Limits
from tests.capture.reading import Collected, Followed, followed
from tests.capture.writing import ACK, FIN, RST, SYN, Packet, Talk, pcap
from tests.examples import share

DATA = random.Random(1).randbytes(20_000)
BOTH = pytest.mark.parametrize("settled", [True, False], ids=["bulk", "single"])


def one(packets: list[Packet], settled: bool = True, **options: object) -> Collected:
    found = followed(pcap(packets), settled=settled, **options)  # type: ignore[arg-type]  # limits or chunk
    (connection,) = found.connections
    return connection


@BOTH
@pytest.mark.parametrize("chunk", [200, 3_000, 0x8_0000])
@pytest.mark.parametrize("initial", [0, 2**32 - 1, 2**32 - 10_000, 2**31 - 5])
def test_a_connection_whose_numbers_may_wrap(settled: bool, chunk: int, initial: int) -> None:
    found = one(Talk(initial=(initial, initial + 77)).whole(DATA, DATA[::-1]), settled, chunk=chunk)
    assert (found.joined(), found.joined(False)) == ([DATA], [DATA[::-1]])
    assert found.ended == {True, False} and found.connection.closed


@BOTH
def test_out_of_order_and_retransmitted(settled: bool) -> None:
    """PC-07."""
    talk = Talk()
    packets = [*talk.open(), *talk.send(True, DATA, 1_000)]
    data = packets[3:-1]
    order = [data[0], data[2], data[1], data[1], data[0], *data[6:8], *data[3:6], *data[3:]]
    found = one([*packets[:3], *order, *talk.close()], settled)
    counts = found.connection.halves[bool(found.connection.opener)].counts
    assert found.joined() == [DATA]
    assert counts.reordered == 3
    assert counts.retransmitted == 1_000 * (2 + 5)
    assert (counts.conflicts, counts.gaps) == (0, 0)


@BOTH
def test_the_first_copy_wins_and_another_one_is_a_conflict(settled: bool) -> None:
    """PC-07."""
    talk = Talk()
    start = talk.open()
    late = [
        talk.packet(True, 0, b"aaaa"),
        talk.packet(True, 2, b"AAbb"),
        talk.packet(True, 4, b"bb"),
        talk.packet(True, 0, b"aaaabbcc"),
    ]
    waiting = [talk.packet(True, 12, b"eeee"), talk.packet(True, 10, b"ddEE"), talk.packet(True, 8, b"dd??eeeeff")]
    found = one([*start, *late, *waiting], settled)
    assert found.joined() == [b"aaaabbccdd??eeeeff"[:10] + b"ddeeeeff"] or found.joined() == [b"aaaabbccddddeeeeff"]
    counts = found.connection.halves[bool(found.connection.opener)].counts
    assert counts.conflicts == 3


def overlapping() -> list[Packet]:
    """Segments that wait for the first byte, and repeat each other with other bytes; then one that repeats it."""
    talk = Talk()
    waiting = [(1, b"bcdefgh"), (3, b"DE"), (5, b"fgH"), (0, b"a"), (0, b"Xbc")]
    return talk.open() + [talk.packet(True, at, data) for at, data in waiting]


@BOTH
@pytest.mark.parametrize(("overlap", "expected"), [("first", b"abcdefgh"), ("last", b"abcDEfgH")])
def test_which_copy_counts(settled: bool, overlap: Overlap, expected: bytes) -> None:
    """PC-07: the policy is an option, each conflict is counted and listed. What was delivered stays."""
    found = followed(pcap(overlapping()), settled=settled, overlap=overlap)
    (connection,) = found.connections
    assert connection.joined() == [expected]
    counts = connection.connection.halves[True].counts
    assert (counts.conflicts, counts.conflicting, found.flows.conflicts) == (3, 4, 3)
    listed = found.flows.disputes()
    assert [(one.position, one.size, one.packet) for one in listed] == [(3, 2, 4), (7, 1, 5), (0, 1, 7)]
    assert {(one.connection, one.rising) for one in listed} == {(connection.connection, True)}
    assert found.flows.disputes() == []


def test_conflicts_are_counted_and_not_all_listed() -> None:
    talk = Talk()
    packets = talk.open() + talk.send(True, b"abc") + [talk.packet(True, 0, b"xyz") for _ in range(1_100)]
    found = followed(pcap(packets))
    assert found.flows.conflicts == 1_100 and len(found.flows.disputes()) == 1_024


@given(st.lists(st.tuples(st.integers(0, 30), st.binary(min_size=1, max_size=12)), max_size=30))
def test_either_policy_against_a_model(pieces: list[tuple[int, bytes]]) -> None:
    """All wait for the byte before them: the model is a dictionary."""
    talk = Talk()
    packets = talk.open() + [talk.packet(True, 1 + at, data) for at, data in pieces] + [talk.packet(True, 0, b"!")]
    models: dict[Overlap, dict[int, int]] = {"first": {}, "last": {}}
    for at, data in pieces:
        for n, byte in enumerate(data):
            models["first"].setdefault(at + n, byte)
            models["last"][at + n] = byte
    for overlap, model in models.items():
        (found,) = followed(pcap(packets), overlap=overlap).connections
        at, shown = -1, {}
        for piece in found.joined():
            if isinstance(piece, bytes):
                shown |= {at + n: byte for n, byte in enumerate(piece)}
            at += piece if isinstance(piece, int) else len(piece)
        assert shown == {-1: 33} | model


@BOTH
def test_missing_bytes_are_a_gap_of_known_size(settled: bool) -> None:
    talk = Talk()
    packets = [*talk.open(), *talk.send(True, DATA, 1_000), *talk.close()]
    del packets[5:7]
    found = one(packets, settled)
    assert found.joined() == [DATA[:2_000], 2_000, DATA[4_000:]]
    counts = found.connection.halves[bool(found.connection.opener)].counts
    assert (counts.gaps, counts.lost) == (1, 2_000)


@BOTH
def test_an_acknowledged_gap_is_declared_after_a_second(settled: bool) -> None:
    """The receiver has the bytes, so the capture lost them: what follows does not wait for the end."""
    talk = Talk()
    packets = [*talk.open(), *talk.send(True, b"a" * 100, 10)]
    del packets[5]
    for wait, declared in ((WAIT - 10_000_000, False), (WAIT, True)):
        talk.time = packets[-1].time + wait
        ack = talk.packet(False, 0)
        found = followed(pcap([*packets, ack]), settled=settled)
        assert found.connections[0].joined() == [b"a" * 20, 10, b"a" * 70]
        halves = found.connections[0].connection.halves
        assert any(half.counts.gaps for half in halves.values())
        early = followed_before_the_end([*packets, ack], settled)
        assert early == ([b"a" * 20, 10, b"a" * 70] if declared else [b"a" * 20])


def followed_before_the_end(packets: list[Packet], settled: bool) -> list[bytes | int]:
    """What is delivered before the capture ends."""
    import io

    from afflux.capture import Capture, Flows, Network, segments

    made: list[Collected] = []
    capture = Capture(io.BytesIO(pcap(packets)))
    network = Network(capture.limits)

    def consumer(connection: object) -> Collected:
        made.append(Collected(connection, settled))  # type: ignore[arg-type]  # a Connection
        return made[-1]

    flows = Flows(capture.limits, consumer)
    for batch in capture:
        flows.take(batch, segments(batch, network))
    return made[0].joined()


@BOTH
def test_packets_cut_by_the_snap_length(settled: bool) -> None:
    """PC-06."""
    packets = [packet.cut(54 + 100) for packet in Talk().whole(DATA[:3_000], b"ok", 1_000)]
    assert one(packets, settled).joined() == [DATA[:100], 900, DATA[1_000:1_100], 900, DATA[2_000:2_100], 900]
    swapped = [*packets[:3], packets[4], packets[3], *packets[5:]]
    assert one(swapped, settled).joined() == [DATA[:100], 900, DATA[1_000:1_100], 900, DATA[2_000:2_100], 900]


@BOTH
def test_a_start_in_mid_stream_and_one_direction_only(settled: bool) -> None:
    """PC-11, PC-12."""
    packets = Talk().whole(DATA, b"answer", 1_000)
    middle = one(packets[6:], settled)
    assert middle.connection.opener is None
    assert {True: middle.found[True][0], False: middle.found[False][0]}.values() != set()
    joined = [b"".join(piece for piece in found if isinstance(piece, bytes)) for found in middle.found.values()]
    assert sorted(joined) == sorted([DATA[3_000:], b"answer"])
    assert not any(half.synced for half in middle.connection.halves.values())
    alone = one([packet for packet in packets if packet.data[26:30] == b"\x0a\0\0\x01"], settled)
    assert (alone.joined(), alone.joined(False)) == ([DATA], [])


@BOTH
def test_only_the_answering_side(settled: bool) -> None:
    packets = [packet for packet in Talk().whole(b"q", DATA) if packet.data[26:30] == b"\x0a\0\0\x02"]
    found = one(packets, settled)
    assert found.connection.opener is not None  # a SYN with ACK answers
    assert (found.joined(False), found.joined(True)) == ([DATA], [])


@BOTH
def test_keepalive_probes_are_not_data(settled: bool) -> None:
    talk = Talk()
    packets = [*talk.open(), *talk.send(True, b"abc")]
    packets += [talk.packet(True, 2), talk.packet(True, 2, b"c"), talk.packet(False, 0)]
    packets += talk.send(True, b"def")
    assert one(packets, settled).joined() == [b"abcdef"]


@BOTH
@pytest.mark.parametrize("ending", ["fin", "rst", "none"])
def test_a_port_that_is_used_again(settled: bool, ending: str) -> None:
    first, second = Talk(), Talk(initial=(500_000, 700_000))
    packets = [*first.open(), *first.send(True, b"first"), *first.send(False, b"1")]
    if ending == "fin":
        packets += first.close()
    elif ending == "rst":
        packets.append(first.packet(False, 1, flags=RST))
    second.time = first.time
    packets += second.whole(b"second", b"2")
    for chunk in (100, 0x8_0000):
        found = followed(pcap(packets), settled=settled, chunk=chunk)
        assert [(one.joined(), one.joined(False)) for one in found.connections] == [
            ([b"first"], [b"1"]),
            ([b"second"], [b"2"]),
        ]
        assert len({one.connection.id for one in found.connections}) == 2
        assert [one.connection.closed for one in found.connections] == [ending != "none", True]


@BOTH
def test_a_syn_that_is_sent_again_and_one_with_data(settled: bool) -> None:
    talk = Talk()
    syn, answer, ack = talk.open()
    assert one([syn, syn, answer, syn, answer, ack, *talk.send(True, b"data")], settled).joined() == [b"data"]
    fast = Talk()
    start = fast.packet(True, -1, b"early", flags=SYN)
    fast.sent[True] += b"early"
    assert one([start, fast.packet(False, -1, flags=SYN | ACK), *fast.send(True, b" data")], settled).joined() == [
        b"early data"
    ]


@BOTH
def test_a_rst_ends_both_directions_and_gaps_are_declared(settled: bool) -> None:
    talk = Talk()
    packets = [*talk.open(), *talk.send(True, b"a" * 30, 10), talk.packet(False, 0, flags=RST | ACK)]
    del packets[4]
    found = one(packets, settled)
    assert found.joined() == [b"a" * 10, 10, b"a" * 10]
    assert found.ended == {True, False} and found.connection.closed


def test_a_fin_ends_the_direction_when_everything_before_it_is_there() -> None:
    talk = Talk()
    packets = [*talk.open(), *talk.send(True, b"a" * 30, 10), *talk.close()]
    packets = [*packets[:3], *packets[4:], packets[3]]
    found = one(packets, settled=False)
    assert found.joined() == [b"a" * 30] and found.connection.closed


def test_strays_are_counted() -> None:
    talk = Talk()
    packets = [*talk.open(), talk.packet(True, 2**31 - 9, b"far"), *talk.send(True, b"near")]
    found = one(packets)
    assert found.joined() == [b"near"]
    assert sum(half.counts.strays for half in found.connection.halves.values()) == 1


def test_many_connections_at_once() -> None:
    talks = [Talk((f"10.0.{n // 250}.{n % 250}", 5_000 + n)) for n in range(300)]
    sets = [talk.whole(b"%d" % n * 900, b"ok", 1_000) for n, talk in enumerate(talks)]
    width = max(map(len, sets))
    packets = [one[n] for n in range(width) for one in sets if n < len(one)]
    found = followed(pcap(packets))
    assert sorted(one.joined()[0] for one in found.connections) == sorted(b"%d" % n * 900 for n in range(300))  # type: ignore[type-var]  # bytes
    assert len({one.connection.id for one in found.connections}) == 300


# -- limits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "dropped"), [(255, 0), (256, 0), (257, 1), (1_000, 744)])
@pytest.mark.parametrize("data", [False, True])
def test_capture_flows(count: int, dropped: int, data: bool) -> None:
    """The least recently used connection ends, with or without data; the others are still known at the end (PC-10)."""
    talks = [Talk(("10.0.0.1", 1_000 + n)) for n in range(count)]
    packets = [packet for talk in talks for packet in (talk.open()[:1] + (talk.send(True, b"x")[:1] if data else []))]
    found = followed(pcap(packets), limits=Limits.tiny())
    assert (found.flows.connections, found.flows.dropped) == (count, dropped)
    assert len(found.connections) == (count if data else 0)
    assert all(one.ended == {True, False} and one.joined() == [b"x"] for one in found.connections)


def waiting(sizes: list[int], limits: Limits, step: int = 0) -> Followed:
    """A capture in which these pieces wait for a first byte that never comes."""
    talk = Talk()
    packets, at = talk.open(), 1
    for size in sizes:
        packets.append(talk.packet(True, at, bytes(size)))
        at += size + step
    return followed(pcap(packets), limits=limits)


@pytest.mark.parametrize(("size", "early"), [(999, False), (1_000, False), (1_001, True)])
def test_capture_flow_bytes(size: int, early: bool) -> None:
    talk = Talk()
    packets = [*talk.open(), talk.packet(True, 1, bytes(500)), talk.packet(True, 501, bytes(size - 500))]
    late = talk.packet(True, 0, b"x")
    found = followed(pcap([*packets, late]), limits=Limits.tiny(capture_flow_bytes=1_000))
    assert found.connections[0].joined() == ([1, bytes(size)] if early else [b"x" + bytes(size)])


@pytest.mark.parametrize(("holes", "early"), [(63, False), (64, False), (65, True)])
def test_capture_holes(holes: int, early: bool) -> None:
    talk = Talk()
    packets = [*talk.open(), *(talk.packet(True, 2 * n + 1, b"x") for n in range(holes)), talk.packet(True, 0, b"y")]
    found = followed(pcap(packets), limits=Limits.tiny()).connections[0].joined()
    assert (found[0] == 1) is early
    assert found[0 if not early else 1] == (b"x" if early else b"yx")


def test_capture_bytes() -> None:
    """All connections together: the one that goes beyond gives up its missing bytes. The limit is compared between
    batches."""
    limits = Limits.tiny(capture_bytes=10_000, capture_flow_bytes=5_000)
    for count, gaps in ((2, 0), (3, 1)):
        packets = []
        talks = [Talk(("10.0.0.9", 100 + n)) for n in range(count)]
        for talk in talks:
            packets += [*talk.open(), talk.packet(True, 1, bytes(4_000))]
        packets += Talk(("10.0.0.8", 99)).whole(bytes(500), bytes(500))
        packets += [talk.packet(True, 0, b"x") for talk in talks]
        found = followed(pcap(packets), limits=limits, chunk=500)
        assert sum(half.counts.gaps for one in found.connections for half in one.connection.halves.values()) == gaps


# -- faults whose truth is known -------------------------------------------------------------------------------------


class Faulty:
    """One connection with faults: what the client sent, and the bytes of it that no packet has."""

    def __init__(self, packets: list[Packet], data: bytes, lost: set[int], cut: bool) -> None:
        self.packets = packets
        self.data = data
        self.lost = lost
        self.cut = cut

    def __repr__(self) -> str:
        return f"{len(self.packets)} packets of {len(self.data)} bytes, lost {sorted(self.lost)[:9]}"


@st.composite
def faulty(draw: st.DrawFn) -> Faulty:
    talk = Talk(
        initial=(draw(st.sampled_from([5, 2**32 - 3_000, 2**31 - 100])), 9),
        vlans=draw(st.sampled_from([(), ((0x8100, 5),), ((0x88A8, 1), (0x8100, 2))])),
    )
    size = draw(st.integers(1, 400))
    data = random.Random(size).randbytes(draw(st.integers(1, 3_000)))
    start = talk.open()
    pieces: list[tuple[int, int]] = [(at, min(at + size, len(data))) for at in range(0, len(data), size)]
    lost = draw(st.sets(st.integers(0, len(pieces) - 1), max_size=3))
    kept = [piece for n, piece in enumerate(pieces) if n not in lost]
    for _ in range(draw(st.integers(0, 4))):  # copies and overlaps
        begin = draw(st.integers(0, len(data) - 1))
        kept.insert(draw(st.integers(0, len(kept))), (begin, draw(st.integers(begin + 1, min(begin + 500, len(data))))))
    for _ in range(draw(st.integers(0, 6))):  # order
        if len(kept) > 1:
            n = draw(st.integers(0, len(kept) - 2))
            kept[n], kept[n + 1] = kept[n + 1], kept[n]
    packets = [talk.packet(True, begin, data[begin:end]) for begin, end in kept]
    snap = draw(st.sampled_from([10_000, 10_000, 200]))
    header = 54 + 4 * len(talk.vlans)
    there = {n for begin, end in kept for n in range(begin, min(end, begin + snap - header))}
    talk.sent[True] += data
    packets = [packet.cut(snap) if len(packet.data) > snap else packet for packet in packets]
    return Faulty([*start, *packets, *talk.close()], data, set(range(len(data))) - there, snap == 200)


@given(faulty(), st.sampled_from([150, 1_000, 0x8_0000]), st.booleans())
@settings(deadline=None, max_examples=share(1.5))
def test_every_byte_that_was_captured_is_delivered_in_its_place(made: Faulty, chunk: int, settled: bool) -> None:
    """Delivered bytes and gaps cover the direction exactly; a gap contains every byte that was lost, and where packets
    are whole nothing else."""
    data, lost = made.data, made.lost
    found = one(made.packets, settled, chunk=chunk)
    at = 0
    missing: set[int] = set()
    for piece in found.joined():
        if isinstance(piece, bytes):
            assert data[at : at + len(piece)] == piece
            at += len(piece)
        else:
            missing |= set(range(at, at + piece))
            at += piece
    trailing = set(range(at, len(data)))
    assert trailing <= lost
    assert missing >= lost - trailing
    if not made.cut:
        assert missing == lost - trailing
    assert sum(half.counts.conflicts for half in found.connection.halves.values()) == 0


@given(
    st.lists(
        st.tuples(
            st.booleans(), st.integers(0, 40), st.integers(0, 12), st.sampled_from([ACK, SYN, FIN, RST, SYN | ACK, 0])
        ),
        max_size=40,
    )
)
@settings(deadline=None)
@example([(True, 0, 0, SYN), (True, 0, 5, ACK), (True, 0, 5, FIN), (True, 2, 9, RST)])
def test_any_segments_in_any_order_deliver_the_same_in_any_batches(rows: list[tuple[bool, int, int, int]]) -> None:
    """Neither the size of a batch nor bulk delivery changes what is delivered."""
    talk = Talk()
    packets = [
        talk.packet(client, at - 1, bytes([at + n for n in range(size)]), flags) for client, at, size, flags in rows
    ]

    def shown(found: Followed) -> list[object]:
        return [(one.connection.id, one.joined(True), one.joined(False), one.ended) for one in found.connections]

    ways: list[Callable[[], Followed]] = [
        lambda: followed(pcap(packets), chunk=90),
        lambda: followed(pcap(packets), settled=False),
        lambda: followed(pcap(packets), settled=False, chunk=300),
    ]
    expected = shown(followed(pcap(packets)))
    for way in ways:
        assert shown(way()) == expected
