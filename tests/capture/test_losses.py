"""Captures that lack packets: each packet in turn, and each direction. What is missing proves nothing about a peer."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from afflux.protocols.jmux import frames as jmux
from afflux.protocols.limit import frames as limit
from afflux.protocols.reactivesocket import frames as old
from afflux.protocols.rsio import frames as rsio
from afflux.protocols.rsocket import frames as wire
from tests.capture.tabling import SETUP, Said, Tables, asks, brief, complete, grant, item, packets, tables, told
from tests.capture.writing import CLIENT, Packet, Talk, pcap
from tests.cli.test_decode import BOTH

STALL_S = 0.2


def _rsocket() -> list[Said]:
    request = wire.RequestResponse(stream=3, data=b"q").encode(prefixed=True)
    channel = wire.RequestChannel(stream=5, initial_n=1, data=b"a").encode(prefixed=True)
    return [
        (0, True, SETUP), (0, True, asks(1, 2)), (0.3, False, item(1)), (0.01, False, item(1)), (0.5, True, grant(1, 3)),
        (0.3, False, item(1, bytes(40))), (0.01, True, request), (0.01, False, item(1)),
        (0.4, False, item(3, complete=True)), (0.01, True, channel), (0.01, False, grant(5, 2)), (0.3, True, item(5)),
        (0.01, False, item(5)), (0.3, False, complete(5)), (0.01, True, complete(5)), (0.01, True, grant(1, 9)),
        (0.01, False, item(1)), (0.3, True, wire.Cancel(stream=1).encode(prefixed=True)), (0.5, True, asks(7, 4)),
        (0.01, False, item(7)), (0.01, False, complete(7)),
    ]  # fmt: skip


def _old() -> list[Said]:
    ask = old.RequestStream(stream=2, initial_n=2, data=b"x").encode(prefixed=True)
    answer = old.Response(stream=2, data=b"y").encode(prefixed=True)
    more = old.RequestN(stream=2, n=3).encode(prefixed=True)
    last = old.Response(stream=2, complete=True).encode(prefixed=True)
    return [
        (0, True, old.Setup().encode(prefixed=True)), (0, True, ask), (0.3, False, answer), (0, False, answer),
        (0.3, True, more), (0.3, False, answer), (0, False, answer), (0.3, False, last),
    ]  # fmt: skip


def _rsio() -> list[Said]:
    subscribe = rsio.Subscribe(publisher="p", subscriber=1, initial_demand=2).encode()
    element = rsio.OnNext(subscriber=1, element=b"abc", element_size=0).encode()
    return [
        (0, True, rsio.ClientHello().encode()), (0, False, BOTH["rsio"][1][0]), (0, True, subscribe),
        (0.3, False, element), (0, False, element), (0.3, True, rsio.Request(subscriber=1, demand=2).encode()),
        (0.3, False, element), (0.3, False, element), (0.3, False, rsio.OnComplete(subscriber=1).encode()),
    ]  # fmt: skip


def _jmux() -> list[Said]:
    first, answer = BOTH["jmux"][:2]
    said: list[Said] = [(0, True, first[0]), (0, False, answer[0])]
    for session in (1, 2, 1):
        said += [
            (0.3, True, jmux.Data(session=session, data=b"ask", open=True, eof=True).encode()),
            (0.3, False, jmux.Data(session=session, data=b"part").encode()),
            (0.3, False, jmux.Data(session=session, data=b"end", eof=True).encode()),
        ]
    return said


def _limit() -> list[Said]:
    return [
        (0, True, limit.Setup(metadata=b"sum").encode(prefixed=True)),
        *(
            (0.3, bool(n % 2), limit.PayloadFrame(stream=n + 1, data=bytes([n])).encode(prefixed=True))
            for n in range(6)
        ),
    ]


TALKS = {"rsocket": _rsocket, "reactivesocket": _old, "rsio": _rsio, "jmux": _jmux, "limit": _limit}


def _spans(found: Tables) -> list[tuple[int, str, datetime, datetime]]:
    return [(one["stream"], one["dir"], one["start"], one["stop"]) for one in found.get("stalls", [])]


def _within(one: tuple[Any, ...], spans: list[tuple[Any, ...]]) -> bool:
    """Whether a stall is a part of one that the whole capture has."""
    return any(one[:2] == other[:2] and other[2] <= one[2] and one[3] <= other[3] for other in spans)


def _proven(found: Tables, whole: Tables) -> None:
    """Compare the tables of a capture with those of the whole one: nothing is invented."""
    kinds = {one["kind"] for one in found.get("violations", [])}
    assert kinds <= {"lost", "cut", "undecoded"}
    spans = _spans(whole)
    assert [one for one in _spans(found) if not _within(one, spans)] == []
    causes = {span: one["cause"] for span, one in zip(spans, whole.get("stalls", []), strict=True)}
    for span, one in zip(_spans(found), found.get("stalls", []), strict=True):
        assert one["cause"] in ("unknown", causes.get(span, one["cause"]))
    ends = {(one["stream"], one["first"]): one["ended"] for one in whole["streams"]}
    for one in found.get("streams", []):
        key = one["stream"], one["first"]
        whole_end = ends.get(key, one["ended"])
        assert one["ended"] in ("unknown", whole_end, "open" if whole_end == "connection" else whole_end)


def _captures(protocol: str) -> tuple[list[Packet], Tables]:
    sent = packets(TALKS[protocol]())
    return sent, tables(pcap(sent), stall_s=STALL_S)


def _losses() -> Iterator[tuple[str, int]]:
    for protocol in TALKS:
        yield from ((protocol, number) for number in range(len(packets(TALKS[protocol]()))))


@pytest.mark.parametrize("protocol", TALKS)
def test_the_whole_captures_have_stalls_and_break_no_rule(protocol: str) -> None:
    _, whole = _captures(protocol)
    assert "violations" not in whole and whole.get("stalls") or protocol == "limit"
    assert whole["connections"][0]["lost_bytes"] == 0


@pytest.mark.parametrize("protocol", TALKS)
@pytest.mark.parametrize("size", [1_448, 7])
def test_each_packet_in_turn_may_be_missing(protocol: str, size: int) -> None:
    """Size: the bytes of data in a packet; with few, packets contain parts of frames."""
    talk, sent = Talk(), list[Packet]()
    sent += talk.open()
    for pause, client, data in TALKS[protocol]():
        talk.time += round(pause * 1e9)
        sent += talk.send(client, data, size)
    sent += talk.close()
    whole = tables(pcap(sent), stall_s=STALL_S)
    for number, packet in enumerate(sent):
        found = tables(pcap([*sent[:number], *sent[number + 1 :]]), stall_s=STALL_S)
        carried = len(packet.data) - 54
        try:
            _proven(found, whole)
            assert found["connections"][0]["lost_bytes"] == carried
        except AssertionError as error:
            raise AssertionError(f"packet {number} of {len(sent)}, {carried} bytes") from error


@pytest.mark.parametrize("protocol", TALKS)
@pytest.mark.parametrize("client", [True, False])
def test_one_direction(protocol: str, client: bool) -> None:
    sent, whole = _captures(protocol)
    talk = Talk()
    port = (talk.client if client else talk.server)[1].to_bytes(2, "big")
    found = tables(pcap([one for one in sent if one.data[34:36] == port]), stall_s=STALL_S)
    assert "stalls" not in found
    _proven(found, whole)
    assert found["connections"][0]["one_way"] and found["connections"][0]["lost_bytes"] == 0
