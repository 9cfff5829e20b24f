"""Directions that continue in a batch of packets are decoded together: what they bring is what the decoder finds, which
takes one direction after the other."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afflux.core.limits import Limits
from afflux.protocols.reactivesocket import frames as reactive
from afflux.protocols.rsocket import frames as wire
from tests.capture.reading import followed
from tests.capture.tabling import SETUP, item
from tests.capture.test_frames import both, encoded, framed, records
from tests.capture.writing import Packet, Talk, pcap
from tests.examples import share

FIRST = {"rsocket": SETUP, "reactivesocket": framed("reactivesocket", reactive.Setup().encode())}


def turns(noise: random.Random, connections: int, rounds: int) -> list[Packet]:
    """Connections of two protocols whose sides go on in turns, in segments that end anywhere. Some send bytes that are
    no frame."""
    talks = [(Talk(("10.0.0.1", 1_000 + n)), noise.choice(sorted(FIRST))) for n in range(connections)]
    found: list[Packet] = []
    for talk, protocol in talks:
        found += [*talk.open(), *talk.send(True, FIRST[protocol])]
    for _ in range(rounds):
        for talk, protocol in noise.sample(talks, noise.randint(1, connections)):
            size = noise.choice([5, 40, 1_448])
            for client in (True, False):
                data = framed(protocol, *(encoded(protocol, noise) for _ in range(noise.randrange(3))))
                found += talk.send(client, data if noise.random() < 0.98 else b"\xff\xff\xff\xff" + data, size)
    return found + [packet for talk, _ in talks if noise.random() < 0.7 for packet in talk.close()]


@given(st.integers(0, 1 << 60), st.sampled_from([600, 2_000, 9_000]), st.booleans())
@settings(deadline=None, max_examples=share(0.4))
def test_what_many_connections_bring_is_what_the_decoder_finds(seed: int, chunk: int, small: bool) -> None:
    """Frames over several batches, wrong lengths, two protocols; with few connections and few bytes as well."""
    noise = random.Random(seed)
    limits = Limits.tiny(capture_flows=noise.randint(2, 5), capture_bytes=noise.choice([900, 0x10_0000]))
    expected, batches = both(turns(noise, 5, 12), payload=True, chunk=chunk, limits=limits if small else None)
    assert records(batches) == expected and (small or len(expected) > 5)


@pytest.mark.parametrize("chunk", [500, 0x8_0000])
def test_a_wrong_length_ends_one_direction_only(chunk: int) -> None:
    talks = [Talk(("10.0.0.1", 1_000 + n)) for n in range(3)]
    ask = wire.RequestResponse(stream=1, data=bytes(60)).encode(prefixed=True)
    found = [packet for talk in talks for packet in [*talk.open(), *talk.send(True, SETUP)]]
    found += [packet for talk in talks for packet in [*talk.send(True, ask), *talk.send(False, item(1))]]
    found += talks[1].send(False, b"\xff\xff\xff")
    found += [packet for talk in talks for packet in [*talk.send(True, ask), *talk.send(False, item(3))]]
    expected, batches = both(found, chunk=chunk)
    assert records(batches) == expected
    assert [made["type"] for made in expected].count("REQUEST_RESPONSE") == 6
    assert [made["type"] for made in expected if made["error"] is None].count("PAYLOAD") == 5


@pytest.mark.parametrize(("back", "known"), [(600, True), (16_000, True), (16_500, False)])
def test_delivered_bytes_are_remembered_over_many_batches(back: int, known: bool) -> None:
    """The last 16 KiB of a direction: a copy that differs from them is a conflict."""
    talk = Talk()
    found = talk.open()
    for number in range(300):
        found += talk.send(True, bytes([number & 0xFF]) * 70)
    place = len(talk.sent[True]) - back
    found += [talk.packet(True, place, b"\xee" * 10), *talk.close()]
    flows = followed(pcap(found), chunk=1_000).flows
    assert flows.conflicts == int(known)
    assert [(one.position, one.size) for one in flows.disputes()] == [(place, 10)] * known
