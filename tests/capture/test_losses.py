"""Captures that lack packets: each packet in turn, and each direction. What is missing proves nothing about a peer."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from afflux.capture import analyze
from afflux.capture.places import captures_in
from afflux.capture.schemas import TABLES
from afflux.capture.units import Decoding, units_of
from afflux.core.limits import Limits
from afflux.protocols.jmux import frames as jmux
from afflux.protocols.limit import frames as limit
from afflux.protocols.reactivesocket import frames as old
from afflux.protocols.rsio import frames as rsio
from afflux.protocols.rsocket import frames as wire
from tests.capture.tabling import SETUP, Said, Tables, asks, brief, complete, grant, item, packets, tables, told
from tests.capture.writing import ACK, PSH, Packet, Talk, pcap
from tests.cli.test_decode import BOTH

STALL_S = 0.2


def _rsocket() -> list[Said]:
    request = wire.RequestResponse(stream=3, data=b"q").encode(prefixed=True)
    channel = wire.RequestChannel(stream=5, initial_n=1, data=b"a").encode(prefixed=True)
    return [
        (0, True, SETUP), (0, True, asks(1, 2)),
        (0.3, False, item(1)), (0.01, False, item(1)), (0.5, True, grant(1, 3)),
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


@pytest.mark.parametrize("protocol", TALKS)
def test_the_whole_captures_have_stalls_and_break_no_rule(protocol: str) -> None:
    _, whole = _captures(protocol)
    assert "violations" not in whole
    assert whole.get("stalls") or protocol == "limit"
    assert whole["connections"][0]["lost_bytes"] == 0


@pytest.mark.parametrize("protocol", TALKS)
@pytest.mark.parametrize("size", [1_448, 7])
def test_each_packet_in_turn_may_be_missing(protocol: str, size: int) -> None:
    """``size`` is the bytes of data in a packet; if they are few, packets contain parts of frames."""
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


@pytest.mark.parametrize("protocol", TALKS)
def test_frames_after_a_gap_have_the_time_of_their_packet(protocol: str) -> None:
    sent, _ = _captures(protocol)
    whole = tables(pcap(sent), tables=["frames"])["frames"]
    times = {(one["dir"], one["offset"]): one["ts"] for one in whole}
    for number in range(3, len(sent)):
        found = tables(pcap([*sent[:number], *sent[number + 1 :]]), tables=["frames"]).get("frames", [])
        right = [one for one in found if one["error"] is None]
        assert [one["ts"] for one in right] == [times[one["dir"], one["offset"]] for one in right]


def _rows(found: Tables) -> dict[str, list[str]]:
    return {name: sorted(map(repr, rows)) for name, rows in found.items() if rows}


@pytest.mark.parametrize("protocol", TALKS)
def test_batches_and_groups_give_the_same_tables(protocol: str, tmp_path: Path) -> None:
    """A loss may be known only from a later batch, whichever packets a batch has."""
    sent, _ = _captures(protocol)
    path = tmp_path / "lossy.pcap"
    for number in range(3, len(sent), 2):
        file = pcap([*sent[:number], *sent[number + 1 :]])
        whole = _rows(tables(file, tables=TABLES, stall_s=STALL_S))
        assert _rows(tables(file, tables=TABLES, stall_s=STALL_S, chunk=300)) == whole
        path.write_bytes(file)
        decoding, named = Decoding(stall_s=STALL_S), dict[str, list[dict[str, Any]]]()
        units = units_of(captures_in([str(path)]), Limits.server(), index_dir=tmp_path)
        for name, batch in (one for unit in units for one in decoding.of(unit)):
            named.setdefault(name, []).extend(
                {**row, "file": ""} if "file" in row else row for row in batch.to_pylist()
            )
        assert _rows(named) == whole


def _lossy(lost: int, *said: Said) -> Tables:
    """The tables of a connection without the packet with the data of one who speaks."""
    sent = packets(said)
    carrying = [number for number, one in enumerate(sent) if len(one.data) > 54]
    del sent[carrying[lost]]
    return tables(pcap(sent), stall_s=STALL_S)


def test_a_loss_at_the_end_of_a_direction() -> None:
    """The FIN, or the acknowledgement of the other side, counts the bytes before it."""
    said = [(0, True, SETUP + asks(1)), (0, False, item(1)), (0.3, False, item(1) + complete(1))]
    found = _lossy(2, *said)
    assert brief(found["connections"], "lost_bytes", "violations") == [(22, 0)]
    assert brief(found["streams"], "ended", "items_in", "stalls") == [("unknown", 1, 0)]
    assert brief(found["violations"], "kind", "rule", "dir") == [("lost", "lost", "<")]


def test_what_was_acknowledged_before_it_is_in_the_capture_is_not_lost() -> None:
    """A capture of several queues has packets out of order."""
    said = [(0, True, SETUP + asks(1)), (0, False, item(1)), (0.3, False, item(1) + complete(1))]
    sent = packets(said)
    whole = tables(pcap(sent), stall_s=STALL_S)
    for number in range(3, len(sent) - 3):
        swapped = [*sent[:number], sent[number + 1], sent[number], *sent[number + 2 :]]
        found = tables(pcap(swapped), stall_s=STALL_S)
        assert {row["kind"] for row in found.get("violations", [])} <= {"order"}
        assert found["connections"][0]["lost_bytes"] == 0
        assert brief(found["streams"], "ended", "items_in") == brief(whole["streams"], "ended", "items_in")


def test_bytes_that_are_sent_again_within_a_second_are_not_lost() -> None:
    talk = Talk()
    sent = [*talk.open(), *talk.send(True, SETUP + asks(1))]
    data = item(1) + complete(1)
    late = talk.packet(False, 0, data[:9], ACK | PSH)
    sent.append(talk.packet(False, 9, data[9:], ACK | PSH))
    talk.time += 800_000_000
    talk.sent[False] += data
    sent += [Packet(late.data, talk.time), *talk.close()]
    found = tables(pcap(sent))
    assert brief(found["connections"], "lost_bytes") == [(0,)]
    assert brief(found["streams"], "ended", "items_in") == [("complete", 1)]


def test_a_lost_grant_breaks_no_rule_and_ends_what_is_told_of_credit() -> None:
    found = _lossy(
        2, (0, True, SETUP + asks(1, 1)), (0, False, item(1)), (0.3, True, grant(1, 5)), (0.3, False, item(1)),
        (0.5, False, item(1)), (0.3, False, complete(1)),
    )  # fmt: skip
    assert brief(found["violations"], "kind") == [("lost",)]
    assert "stalls" not in found
    assert brief(found["streams"], "ended", "items_in", "granted_in") == [("complete", 3, 1)]
    assert {one["event"] for one in found["credit"]} == {"grant", "empty"}


def test_a_cut_item_hides_the_causes_of_later_stalls() -> None:
    """It may have used the last credit."""
    said = [(0, True, SETUP + asks(1)), (0, False, item(1, bytes(3_000))), (0.1, False, item(1)), (0.5, False, item(1))]
    assert brief(tables(pcap(packets(said)), stall_s=STALL_S)["stalls"], "cause") == [("producer",)]
    found = _lossy(2, *said)
    assert brief(found["violations"], "kind", "stream") == [("lost", 1)]
    assert brief(found["stalls"], "cause") == [("unknown",)]


def test_a_lost_request_leaves_a_stream_of_unknown_kind() -> None:
    found = _lossy(1, (0, True, SETUP), (0, True, asks(1)), (0, False, item(1)), (0, False, complete(1)))
    assert brief(found["streams"], "stream", "kind", "items_in") == [(1, "unknown", 1)]


def test_a_frame_in_which_a_connection_is_reset_is_cut_not_lost() -> None:
    talk = Talk()
    sent = [*talk.open(), *talk.send(True, SETUP + asks(1)), talk.packet(False, 0, item(1)[:9], ACK | PSH)]
    sent.append(talk.packet(False, 9, flags=0x14))
    found = tables(pcap(sent))
    assert brief(found["violations"], "kind", "rule") == [("cut", "cut")]
    assert brief(found["connections"], "lost_bytes", "closing") == [(0, "rst")]


def test_an_absent_first_answer_has_no_time() -> None:
    found = _lossy(1, (0, True, SETUP + asks(1)), (0.1, False, item(1)), (0.1, False, item(1)), (0, False, complete(1)))
    assert brief(found["latencies"], "first_s", "ended") in ([(None, "complete")], [(None, "unknown")])


def test_a_snap_length_is_named() -> None:
    sent = [one.cut(60) for one in packets([(0, True, SETUP + asks(1)), (0, False, item(1, bytes(99)))])]
    (row,) = tables(pcap(sent))["connections"]
    assert row["content"] == "mid-stream, not decoded (a snap length cuts packets after 6 bytes of data)"


def test_a_loss_at_the_border_of_two_files(tmp_path: Path) -> None:
    """Segments that wait for the next file keep the names and the numbers of their packets."""
    sent, _ = _captures("rsocket")
    paths = [tmp_path / "1.pcap", tmp_path / "2.pcap"]
    for cut in range(5, len(sent) - 3, 4):
        kept = [*sent[:cut], *sent[cut + 1 :]]
        paths[0].write_bytes(pcap(kept[: cut + 1]))
        paths[1].write_bytes(pcap(kept[cut + 1 :]))
        found = [row for _, batch in analyze(paths, tables=["frames"]) for row in batch.to_pylist()]
        for row, one in zip(found, tables(pcap(kept), tables=["frames"])["frames"], strict=True):
            number = one["packet"] or 1 << 20
            place = (0, number) if number <= cut + 1 else (1, number - cut - 1)
            assert (row["file"], row["packet"] or (1 << 20) - cut - 1) == (str(paths[place[0]]), place[1])


def test_a_frame_above_the_limit_breaks_no_rule_and_explains_what_follows() -> None:
    """It may be legal: the request of a stream, or its last item. It is no broken rule, and neither is its answer."""
    large = bytes(Limits.server().frame_bytes)
    found = told(
        (0, True, SETUP), (0, True, asks(1, data=large)), (0.01, False, item(1)), (0.01, False, complete(1)),
        (0.01, True, asks(3)), (0.5, False, item(3, large, complete=True)),
        (0.5, True, asks(5)), (0.01, False, item(5, complete=True)), (0.5, True, asks(7)), (0.01, False, item(7)),
    )  # fmt: skip
    assert brief(found["violations"], "kind", "rule", "dir", "expected") == [
        ("limit", "limit", ">", None),
        ("limit", "limit", "<", None),
    ]
    ended = dict(brief(found["streams"], "stream", "ended"))
    assert (ended[1], ended[3], ended[5]) == ("complete", "unknown", "complete")
    assert "stalls" not in found
