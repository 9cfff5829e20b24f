"""Connections that are whole in a batch of packets are decoded together: the tables are those of the other way, which
decodes them one by one. That way is taken where a port has a protocol, if only one that no connection uses."""

from __future__ import annotations

import gc
import io
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afflux.capture import Analysis, Capture
from afflux.capture.conversation import Conversation
from afflux.capture.schemas import TABLES
from afflux.capture.whole import Brief
from afflux.core.limits import Limits
from afflux.protocols.reactivesocket import frames as reactive
from afflux.protocols.registry import named
from afflux.protocols.rsocket import frames as wire
from afflux.protocols.rsocket.metadata import COMPOSITE_MIME
from tests.capture.tabling import SETUP, Tables, asks, brief, complete, item, packets, tables
from tests.capture.test_frames import DECLARED, damage, encoded, framed
from tests.capture.writing import ACK, FIN, RST, Packet, Talk, pcap
from tests.cli.test_decode import BOTH
from tests.examples import share

ONE_BY_ONE: dict[str, Any] = {"ports": {1: named("rsocket")}}
WHOLE = 0x8_0000
"Bytes of a batch that has all packets."


def both(file: bytes, chunk: int = WHOLE, **options: Any) -> tuple[Tables, Tables]:
    """The tables of both ways."""
    options |= {"tables": list(TABLES), "payload": True, "chunk": chunk}
    return tables(file, **options), tables(file, **options, **ONE_BY_ONE)


def mixed(connections: list[list[Packet]], noise: random.Random) -> list[Packet]:
    """The packets of connections that overlap in time."""
    found: list[Packet] = []
    while some := [one for one in connections if one]:
        chosen, count = noise.choice(some), noise.randint(1, 12)
        found += chosen[:count]
        del chosen[:count]
    return found


def ends(number: int, noise: random.Random) -> dict[str, Any]:
    """The ends and first numbers of a connection."""
    initial = (noise.choice([1_000, 2**32 - 40]), noise.getrandbits(32))
    if number % 5 == 4:
        return {"client": ("2001:db8::1", 1_000 + number), "server": ("2001:db8::2", 7_000), "initial": initial}
    low = noise.random() < 0.5
    return {"client": ("10.0.0.1" if low else "10.0.0.9", 1_000 + number), "initial": initial}


FIRST = {"rsocket": SETUP, "reactivesocket": framed("reactivesocket", reactive.Setup().encode())}


def conversation(noise: random.Random) -> tuple[bytes, bytes]:
    """What both sides of a connection send: known conversations, and frames of any type after a first one."""
    protocol = noise.choice([*sorted(BOTH), "rsocket", "rsocket", "rsocket", "reactivesocket"])
    ours, theirs = (b"".join(side) for side in BOTH[protocol][:2])
    ours = FIRST.get(protocol, b"") + ours
    if protocol in DECLARED and noise.random() < 0.7:
        ours, theirs = (
            side + framed(protocol, *(encoded(protocol, noise) for _ in range(noise.randrange(4))))
            for side in (ours, theirs)
        )
    if noise.random() < 0.15:
        theirs = noise.choice([b"", theirs[:-1], theirs + noise.randbytes(4), ours])
    if noise.random() < 0.1:
        ours = noise.choice([b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01", ours[:-1], noise.randbytes(40)])
    return ours, theirs


def connection(number: int, noise: random.Random) -> list[Packet]:
    """The packets of a connection, most of which are whole and in order."""
    talk = Talk(**ends(number, noise))
    ours, theirs = conversation(noise)
    found = talk.whole(ours, theirs, noise.choice([9, 60, 60, 1_448]))
    match noise.randrange(20):
        case 0:
            damage(found, noise)
        case 1:
            found.append(talk.packet(True, len(talk.sent[True]), flags=RST | ACK))
        case 2:
            del found[0 if noise.random() < 0.5 else -1]
        case 3:
            found.insert(noise.randrange(3, len(found)), found[noise.randrange(len(found))])
        case 4:
            found += Talk(**ends(number, noise)).whole(ours, theirs, 60)
        case 5:
            found = found[: noise.randrange(1, len(found))]
    return found


@given(st.integers(0, 1 << 60), st.sampled_from([700, 4_000, WHOLE, WHOLE]), st.booleans())
@settings(deadline=None, max_examples=share(1.0))
def test_both_ways_have_the_same_tables(seed: int, chunk: int, small: bool) -> None:
    """All protocols, any split into segments, lost, repeated, cut and swapped packets, ports that are used again, with
    few connections that are remembered as well."""
    noise = random.Random(seed)
    made = mixed([connection(number, noise) for number in range(noise.randint(1, 9))], noise)
    if noise.random() < 0.2:
        damage(made, noise)
    limits = Limits.tiny(capture_flows=noise.randint(1, 4)) if small else None
    together, one_by_one = both(pcap(made), chunk, limits=limits)
    assert together == one_by_one


def calls(number: int, route: str = "orders.find", port: int = 1_000) -> list[Packet]:
    """Connections with a routed request each."""
    found: list[Packet] = []
    for n in range(number):
        metadata = b"\xfe\0\0" + bytes([1 + len(route), len(route)]) + route.encode()
        ask = wire.RequestResponse(stream=1, metadata=metadata, data=b"ask").encode(prefixed=True)
        answer = item(1, b"answer", complete=True)
        found += packets([(0, True, SETUP + ask), (0, False, answer)], Talk(("10.0.0.1", port + n)))
    return found


def test_a_whole_connection_has_its_rows() -> None:
    found = tables(pcap(calls(3)), tables=list(TABLES))
    assert brief(found["connections"], "client", "server", "content", "closing", "closed_by", "frames", "streams") == [
        (f"10.0.0.1:{1_000 + n}", "10.0.0.2:7000", "rsocket", "fin", ">", 3, 1) for n in range(3)
    ]
    row = found["connections"][0]
    assert (row["client_packets"], row["server_packets"], row["lost_bytes"], row["one_way"]) == (5, 4, 0, False)
    assert COMPOSITE_MIME in row["setup"] and row["opened"] < row["closed"]
    assert brief(found["streams"], "route", "ended") == [("orders.find", "complete")] * 3
    assert len({row["conn"] for row in found["connections"]}) == 3 and len(found["latencies"]) == 3


def test_streams_that_the_end_of_a_connection_ends_are_in_the_order_of_the_connections() -> None:
    made: list[Packet] = []
    for n in range(4):
        said = [(0.0, True, SETUP + asks(1)), (0.0, False, item(1))]
        made += packets(said if n % 2 else [*said, (0, False, complete(1)[:5])], Talk(("10.0.0.1", 1_000 + n)))
    together, one_by_one = both(pcap(made))
    assert together == one_by_one
    assert brief(together["streams"], "ended") == [("connection",)] * 4
    assert [row["client"][-4:] for row in together["connections"]] == ["1000", "1001", "1002", "1003"]


def test_a_push_has_its_own_protocol() -> None:
    """Not that of the first frame of the capture."""
    push = framed("reactivesocket", reactive.MetadataPush(metadata=b"now").encode())
    other = Talk(("10.0.0.1", 2_000)).whole(FIRST["reactivesocket"] + push, b"")
    found = tables(pcap([*calls(1), *other]))
    assert brief(found["streams"], "protocol", "kind") == [("rsocket", "request"), ("reactivesocket", "push")]


def test_what_comes_after_the_end_is_a_copy() -> None:
    """In the batch of the end, and in a later one."""
    talk = Talk()
    made = talk.whole(SETUP + asks(1), item(1), 1_448)
    late = talk.packet(True, 0, SETUP, ACK)
    for chunk in (WHOLE, sum(16 + len(one.data) for one in made)):
        together, one_by_one = both(
            pcap([*made, late, talk.packet(True, len(talk.sent[True]), flags=FIN | ACK)]), chunk
        )
        assert together == one_by_one and len(together["connections"]) == 1


def test_the_same_ends_again() -> None:
    first, second = calls(1), calls(1)
    for chunk in (WHOLE, sum(16 + len(one.data) for one in first)):
        late = [Packet(one.data, one.time + 10**9) for one in second]
        together, one_by_one = both(pcap([*first, *late]), chunk)
        assert together == one_by_one
        assert [row["frames"] for row in together["connections"]][:1] == [3]


def test_malformed_frames_are_in_the_order_of_their_packets() -> None:
    made: list[list[Packet]] = []
    for n in range(4):
        bad = wire.RequestResponse(stream=1).encode()[:5]
        talk = Talk(("10.0.0.1", 1_000 + n), time=pcap_start(n))
        made.append(talk.whole(SETUP + len(bad).to_bytes(3, "big") + bad, b"" if n % 2 else item(1), 1_448))
    mixed_up = sorted((one for each in made for one in each), key=lambda one: one.time)
    together, one_by_one = both(pcap(mixed_up))
    assert together == one_by_one
    numbers = [row["packet"] for row in together["violations"] if row["kind"] == "malformed"]
    assert len(numbers) == 4 and numbers == sorted(numbers)


def pcap_start(number: int) -> int:
    return 1_790_000_000_000_000_000 + (3 - number) * 300_000


@pytest.mark.parametrize("capture_bytes", [600, 1_500])
def test_with_little_room_each_connection_is_decoded_alone(capture_bytes: int) -> None:
    limits = Limits.tiny(capture_bytes=capture_bytes)
    together, one_by_one = both(pcap(calls(20)), limits=limits)
    assert together == one_by_one


def kept() -> int:
    """How many connections are in memory."""
    gc.collect()
    return sum(issubclass(type(one), Brief | Conversation) for one in gc.get_objects())


def test_decoded_connections_are_not_kept() -> None:
    """Memory does not grow with the number of connections that have ended."""
    analysis, before = Analysis(), kept()
    for some in Capture(io.BytesIO(pcap(calls(300))), chunk=20_000):
        analysis.take(some)
    assert kept() - before < 60 and analysis.batches.tally == {"rsocket": 300}
