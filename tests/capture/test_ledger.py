"""Streams, credit, stalls and broken rules: what conversations of known truth become, on every protocol.

Rule numbers are RSocket's, but for the tests of other protocols, which name theirs.
"""

from __future__ import annotations

import io
import random
from typing import Any

import pytest

from afflux.capture import analyze, ledger
from afflux.core.events import Closed, Failed, Ignored
from afflux.core.limits import Limits
from afflux.protocols.jmux import frames as jmux
from afflux.protocols.limit import frames as limit
from afflux.protocols.reactivesocket import frames as reactivesocket
from afflux.protocols.registry import PROTOCOLS, named
from afflux.protocols.rsio import frames as rsio
from afflux.protocols.rsocket import Engine
from afflux.protocols.rsocket import frames as wire
from afflux.protocols.rsocket.metadata import compose
from afflux.protocols.rsocket_draft import frames as draft
from tests.capture.tabling import LEASING, SETUP, asks, brief, complete, grant, item, packets, tables, told
from tests.capture.writing import ACK, FIN, RST, Talk, pcap
from tests.protocols.test_dissectors import TO_CLIENT, stream, vectors

STREAM = ("stream", "kind", "requester", "history", "items_in", "items_out", "granted_in", "granted_out", "ended")
WRONG = ("rule", "dir", "type", "stream", "kind")


def test_a_stream() -> None:
    found = told(
        (0, True, SETUP + asks(1, 2, metadata=compose(route="prices.eur"), data=b"?")),
        (0, False, item(1) + item(1)),
        (0, True, grant(1, 3)),
        (0, False, item(1) + complete(1)),
    )
    assert brief(found["streams"], *STREAM, "route", "bytes_in", "code") == [
        (1, "stream", ">", "SppNpp", 3, 0, 5, None, "complete", "prices.eur", 12, None)
    ]
    assert brief(found["credit"], "dir", "event", "n", "granted", "used", "balance") == [
        ("<", "grant", 2, 2, 0, 2),
        ("<", "empty", 0, 2, 2, 0),
        ("<", "grant", 3, 5, 2, 3),
        ("<", "end", 0, 5, 3, 2),
    ]
    (latency,) = found["latencies"]
    assert (latency["items"], latency["ended"], latency["route"]) == (3, "complete", "prices.eur")
    assert 0 < latency["first_s"] < latency["total_s"] < 0.1
    assert "violations" not in found and "stalls" not in found


def test_the_other_interactions() -> None:
    def sent(kind: Any, stream: int, **more: Any) -> bytes:
        return bytes(kind(stream=stream, **more).encode(prefixed=True))

    found = told(
        (0, True, SETUP + sent(wire.RequestResponse, 1) + sent(wire.RequestFnf, 3, data=b"line")),
        (0, True, wire.MetadataPush(metadata=b"hint").encode(prefixed=True)),
        (0, False, item(1) + sent(wire.RequestResponse, 2)),
        (0, True, sent(wire.ErrorFrame, 2, code=0x201, data=b"no")),
        (0, True, sent(wire.RequestChannel, 5, initial_n=1, data=b"first")),
        (0, False, grant(5, 1) + item(5)),
        (0, True, item(5) + complete(5)),
        (0, False, complete(5)),
        (0, True, asks(7)),
        (0, True, wire.Cancel(stream=7).encode(prefixed=True)),
        (0, False, item(7)),  # it was on its way
        (0, True, asks(9)),
    )
    assert sorted(brief(found["streams"], *STREAM, "code")) == [
        (0, "push", ">", "M", 0, 0, None, None, "complete", None),
        (1, "request", ">", "Rp", 1, 0, None, None, "complete", None),
        (2, "request", "<", "Re", 0, 0, None, None, "error", 0x201),
        (3, "fire", ">", "F", 0, 0, None, None, "complete", None),
        (5, "channel", ">", "CnpPPp", 1, 2, 1, 1, "complete", None),
        (7, "stream", ">", "SX", 0, 0, 8, None, "cancel", None),
        (9, "stream", ">", "S", 0, 0, 8, None, "connection", None),
    ]
    assert "violations" not in found


def test_fragments_are_one_item_and_one_request() -> None:
    def part(stream: int, *, follows: bool, next: bool = True) -> bytes:
        return wire.PayloadFrame(stream=stream, follows=follows, next=next, data=b"12345").encode(prefixed=True)

    found = told(
        (0, True, SETUP + asks(1, 1, follows=True)),
        (0, True, part(1, follows=True) + part(1, follows=False)),
        (0, False, part(1, follows=True) + part(1, follows=True, next=False) + part(1, follows=False) + complete(1)),
    )
    assert brief(found["streams"], *STREAM, "bytes_in", "bytes_out") == [
        (1, "stream", ">", "SPPpppp", 1, 0, 1, None, "complete", 15, 10)
    ]
    assert "violations" not in found


BROKEN = [
    ("R-27", "<", "PAYLOAD", (0, True, SETUP + asks(1, 1)), (0, False, item(1) + item(1))),
    ("D-5", ">", "REQUEST_N", (0, True, SETUP + asks(1, 1) + grant(1, 0))),
    ("R-31", ">", "REQUEST_N", (0, True, SETUP + grant(9, 1))),
    ("R-31", "<", "PAYLOAD", (0, True, SETUP), (0, False, item(9))),
    ("R-28", "<", "PAYLOAD", (0, True, SETUP + asks(1)), (0, False, complete(1) + item(1))),
    ("R-28", ">", "REQUEST_N", (0, True, SETUP + asks(1) + wire.Cancel(stream=1).encode(prefixed=True) + grant(1, 1))),
    ("R-8", ">", "REQUEST_STREAM", (0, True, SETUP + asks(2))),
    ("R-10", ">", "REQUEST_STREAM", (0, True, SETUP + asks(3) + asks(1))),
    ("R-31", ">", "REQUEST_STREAM", (0, True, SETUP + asks(1) + asks(1))),
    ("R-11", ">", "REQUEST_RESPONSE", (0, True, wire.RequestResponse(stream=1).encode(prefixed=True))),
    ("R-32", ">", "SETUP", (0, True, SETUP + SETUP)),
    ("R-41", ">", "REQUEST_STREAM", (0, True, LEASING + asks(1))),
    ("R-31", ">", "PAYLOAD", (0, True, SETUP + asks(1) + item(1))),
    ("R-31", "<", "REQUEST_N", (0, True, SETUP + asks(1)), (0, False, grant(1, 1))),
]


@pytest.mark.parametrize(("rule", "side", "kind", "said"), [(r, s, k, said) for r, s, k, *said in BROKEN])
def test_a_broken_rule(rule: str, side: str, kind: str, said: list[tuple[float, bool, bytes]]) -> None:
    found = told(*said, entries=(named("rsocket"),), ports={7000: named("rsocket")})
    assert [row[:3] for row in brief(found["violations"], "rule", "dir", "type")] == [(rule, side, kind)]
    (row,) = found["violations"]
    assert row["kind"] == "state" and row["reason"] and row["expected"]
    assert row["packet"] and row["offset"] is not None
    assert found["connections"][0]["violations"] == 1


UNLIKE = {
    "R-28": "the engine has seen only its own side, where the frame may have been on its way",
    "R-10": "the engine does not enforce the order of ids",
    "R-41": "the engine grants no leases here, and refuses the connection",
}
"Rules on which a server and an observer differ, and why."


@pytest.mark.parametrize(
    ("rule", "said"),
    [(rule, said) for rule, _, _, *said in BROKEN if rule not in UNLIKE and all(client for _, client, _ in said)],
)
def test_our_engine_has_the_same_verdict(rule: str, said: list[tuple[float, bool, bytes]]) -> None:
    """A live server reads the same bytes: it ignores the frame for a price, or ends the stream or the connection."""
    server = Engine("server", limits=Limits.server(), decide=False, now=0.0)
    found = [event for _, _, data in said for event in server.receive(data, 0.0)]
    ignored = [event for event in found if isinstance(event, Ignored)]
    assert any(event.price for event in ignored) or any(isinstance(event, Failed | Closed) for event in found)
    assert {event.rule for event in ignored} <= {rule, "D-12"}  # D-12 is how a server answers R-8


def test_our_engine_and_the_tables_find_nothing_wrong_with_what_is_right() -> None:
    said = SETUP + asks(1) + grant(1, 3) + wire.Cancel(stream=1).encode(prefixed=True) + asks(3)
    server = Engine("server", limits=Limits.server(), decide=False, now=0.0)
    assert not [event for event in server.receive(said, 0.0) if isinstance(event, Ignored | Failed | Closed)]
    assert "violations" not in told((0, True, said))


def test_what_may_cross_breaks_no_rule() -> None:
    found = told(
        (0, True, SETUP + asks(1, 4)),
        (0, False, item(1) + complete(1)),
        (0, True, grant(1, 4) + wire.Cancel(stream=1).encode(prefixed=True)),  # sent before the end arrived
        (0, True, asks(3) + wire.Cancel(stream=3).encode(prefixed=True)),
        (0, False, item(3) + item(3) + complete(3)),
    )
    assert "violations" not in found


def test_connections_without_data_have_rows_if_both_sides_opened_them() -> None:
    """PC-10: a flood of SYNs adds none."""
    ends = [Talk(("10.0.0.1", 10_000 + number)) for number in range(3)]
    whole = [packet for talk in ends[:2] for packet in talk.open()] + ends[0].close()
    flood = [Talk(("10.0.0.2", 10_000 + number)).open()[0] for number in range(50)]
    found = tables(pcap([*whole, *flood, *packets([(0, True, SETUP)], ends[2])]))["connections"]
    assert sorted(brief(found, "client", "content", "closing", "one_way", "client_bytes", "client_packets")) == [
        ("10.0.0.1:10000", "no data", "fin", False, 0, 3),
        ("10.0.0.1:10001", "no data", "open", False, 0, 2),
        ("10.0.0.1:10002", "rsocket", "fin", True, len(SETUP), 4),
    ]


@pytest.mark.parametrize(
    ("server_low", "ends", "closing", "closed_by"),
    [
        (False, [(False, FIN), (True, FIN)], "fin", "<"),
        (False, [(True, FIN), (False, FIN)], "fin", ">"),
        (True, [(False, FIN), (True, FIN)], "fin", "<"),
        (True, [(True, FIN), (False, FIN)], "fin", ">"),
        (False, [(False, RST)], "rst", "<"),
        (False, [(True, RST)], "rst", ">"),
        (False, [(False, FIN), (True, RST)], "rst", "<"),
        (False, [(False, FIN)], "open", "<"),
        (False, [], "open", None),
    ],
)
def test_the_connection_tells_who_ended_it(
    server_low: bool, ends: list[tuple[bool, int]], closing: str, closed_by: str | None
) -> None:
    """Whichever address sorts first."""
    talk = Talk(("10.0.0.3", 40_000)) if server_low else Talk()
    file = [*talk.open(), *talk.send(True, SETUP + asks(1, 4)), *talk.send(False, item(1))]
    file += [talk.packet(client, len(talk.sent[client]), flags=flag | ACK) for client, flag in ends]
    found = tables(pcap(file))
    assert brief(found["connections"], "closing", "closed_by") == [(closing, closed_by)]


HELLO = (rsio.ClientHello().encode(), rsio.ServerHello().encode())
HEADERS = (
    jmux.ClientConnectionHeader(initial_ration=1).encode(),
    jmux.ServerConnectionHeader(initial_ration=2).encode(),
)
FAILED = (SETUP + asks(1, 4) + asks(3, 4), item(1) + wire.ErrorFrame(stream=1, code=0x201).encode(prefixed=True))


@pytest.mark.parametrize(
    ("begin", "last", "announced_by"),
    [
        (FAILED, (True, b""), None),
        (FAILED, (True, wire.ErrorFrame(stream=0, code=0x101).encode(prefixed=True)), ">"),
        (FAILED, (False, wire.ErrorFrame(stream=0, code=0x101).encode(prefixed=True)), "<"),
        (HELLO, (True, rsio.Goodbye(reason="done").encode()), ">"),
        (HEADERS, (False, jmux.Shutdown(detail=b"done").encode()), "<"),
        (HEADERS, (True, jmux.ErrorMessage(detail=b"wrong").encode()), ">"),
    ],
)
def test_the_side_that_announces_the_end_is_told(
    begin: tuple[bytes, bytes], last: tuple[bool, bytes], announced_by: str | None
) -> None:
    """The other one may send the first FIN; an error of a stream announces nothing."""
    talk = Talk()
    file = [*talk.open(), *talk.send(True, begin[0]), *talk.send(False, begin[1])]
    file += talk.send(*last) if last[1] else []
    file += [talk.packet(client, len(talk.sent[client]), flags=FIN | ACK) for client in (False, True)]
    found = tables(pcap(file))
    assert brief(found["connections"], "closed_by", "announced_by") == [("<", announced_by)]


def test_a_malformed_frame_is_a_violation() -> None:
    found = told((0, True, SETUP + bytes.fromhex("000006 00000001 1100")))
    assert brief(found["violations"], *WRONG) == [("R-7", ">", "REQUEST_RESPONSE", 1, "malformed")]
    assert found["violations"][0]["expected"].startswith("send all fields")


@pytest.mark.parametrize("name", [*PROTOCOLS])
def test_what_would_have_been_right_is_told_for_every_malformed_frame(name: str) -> None:
    """Frames with changed bytes. What is cut off, or too large to be shown, may have been right."""
    random_ = random.Random(14)
    entry = named(name)
    frames = [stream(name, vector) for vector in vectors(name) if vector["direction"] not in TO_CLIENT]
    file = []
    for number in range(300):
        data = bytearray(random_.choice(frames))
        for _ in range(random_.randint(1, 3)):
            data[random_.randrange(len(data))] = random_.choice((0, 1, 255, random_.randrange(256)))
        file += packets([(0, True, frames[0] + bytes(data))], Talk(("10.0.0.1", 10_000 + number)))
    rows = tables(pcap(file), tables=["violations"], entries=(entry,), ports={7000: entry})["violations"]
    broken = [row for row in rows if row["kind"] == "malformed" and "not shown" not in row["reason"]]
    assert broken
    assert {(row["rule"], row["reason"]) for row in broken if not row["expected"]} == set()


def test_missing_bytes_prove_nothing_about_credit() -> None:
    talk = Talk()
    opened = [*talk.open(), *talk.send(True, SETUP + asks(1, 1))]
    lost = talk.send(True, grant(1, 9))[0]  # the capture does not have it
    rest = [*talk.send(False, item(1) + item(1) + complete(1)), *talk.send(True, asks(3)), *talk.close()]
    assert lost not in opened + rest
    found = tables(pcap(opened + rest))
    assert {row["kind"] for row in found["violations"]} == {"lost"}


def test_leases() -> None:
    def lease(requests: int, ttl_ms: int = 1_000) -> bytes:
        return wire.Lease(ttl_ms=ttl_ms, requests=requests).encode(prefixed=True)

    ask = [wire.RequestResponse(stream=2 * n + 1).encode(prefixed=True) for n in range(6)]
    found = told(
        (0, True, LEASING),
        (0, False, lease(2)),
        (0, True, ask[0] + ask[1]),
        (0, False, item(1) + item(3)),
        (0.7, False, lease(1)),  # the requester has waited for it
        (0, True, ask[2]),
        (0, False, item(5)),
        (0, True, ask[3]),
    )
    assert brief(found["violations"], *WRONG) == [("R-41", ">", "REQUEST_RESPONSE", 7, "state")]
    (stall,) = found["stalls"]
    assert (stall["cause"], stall["stream"], stall["dir"], stall["after_type"]) == ("lease", 5, ">", "REQUEST_RESPONSE")
    assert stall["seconds"] == pytest.approx(0.7, abs=0.01)


# -- other protocols ---------------------------------------------------------------------------------------------


def test_reactivesocket() -> None:
    def sent(frame: Any) -> bytes:
        return bytes(frame.encode(prefixed=True))

    kind = reactivesocket  # Rule numbers are ReactiveSocket's.
    found = told(
        (0, True, sent(kind.Setup()) + sent(kind.RequestSub(stream=2, initial_n=2))),
        (0, False, sent(kind.Response(stream=2, data=b"1")) * 3),
        (0, True, sent(kind.RequestChannel(stream=4, initial_n=1, data=b"a"))),
        (0, False, sent(kind.RequestN(stream=4, n=1))),
        (0, True, sent(kind.RequestChannel(stream=4, data=b"b", complete=True))),
        (0, False, sent(kind.Response(stream=4, complete=True))),
        (0, True, sent(kind.RequestResponse(stream=6)) + sent(kind.Cancel(stream=2))),
        (0, False, sent(kind.Response(stream=6, complete=True))),
    )
    assert sorted(brief(found["streams"], *STREAM)) == [
        (2, "subscription", ">", "BpppX", 3, 0, 2, None, "cancel"),
        (4, "channel", ">", "CnCp", 0, 2, 1, 1, "complete"),
        (6, "request", ">", "Rp", 1, 0, None, None, "complete"),
    ]
    assert brief(found["violations"], "rule", "stream") == [("R-39", 2)]


def test_the_draft() -> None:
    def sent(frame: Any) -> bytes:
        return bytes(frame.encode(prefixed=True))

    found = told(
        (0, True, sent(draft.Setup()) + sent(draft.RequestStream(stream=1, initial_n=1))),
        (0, False, sent(draft.PayloadFrame(stream=1, next=True)) * 2),
        ports={7000: named("rsocket-draft")},
        entries=(named("rsocket-draft"),),
    )
    assert brief(found["streams"], *STREAM) == [(1, "stream", ">", "Spp", 2, 0, 1, None, "connection")]
    assert brief(found["violations"], "rule") == [("RSocket R-27",)]


def test_jmux_counts_bytes() -> None:
    """Rule numbers are Jmux's."""
    header = jmux.ClientConnectionHeader(initial_ration=1).encode()
    answer = jmux.ServerConnectionHeader(initial_ration=2).encode()
    found = told(
        (0, True, header),
        (0, False, answer),
        (0, True, jmux.Data(open=True, session=0, data=bytes(100)).encode()),
        (0, True, jmux.Data(session=0, data=bytes(300), eof=True).encode()),
        (0, False, jmux.Data(session=0, data=bytes(200)).encode()),
        (0, True, jmux.IncrementRation(session=0, increment=50).encode()),
        (0, False, jmux.Data(session=0, data=bytes(107), eof=True, close=True).encode()),
        (0, True, jmux.Data(open=True, session=0, data=b"again", eof=True).encode()),
    )
    assert brief(found["streams"], *STREAM) == [
        (0, "session", ">", "DDdNd", 2, 2, 306, 512, "complete"),
        (0, "session", ">", "D", 0, 1, 256, 512, "connection"),
    ]
    assert brief(found["violations"], "rule", "reason") == [("R-33", "307 bytes with credit for 306")]


def test_rsio_has_ids_of_both_sides() -> None:
    """Rule numbers are rsio's."""
    subscribe = rsio.Subscribe(publisher="ticks", subscriber=1, initial_demand=2).encode()
    found = told(
        (0, True, rsio.ClientHello().encode() + subscribe),
        (0, False, rsio.ServerHello().encode() + subscribe),
        (0, False, rsio.Subscribed(subscriber=1, element_size=1).encode()),
        (0, False, rsio.OnNextPacked(subscriber=1, count=2, elements=b"ab", element_size=1).encode()),
        (0, True, rsio.Subscribed(subscriber=1).encode() + rsio.OnNext(subscriber=1, element=b"x").encode() * 3),
        (0, False, rsio.OnComplete(subscriber=1).encode()),
        (0, False, rsio.Cancel(subscriber=1).encode()),
        (0, True, rsio.Request(subscriber=7, demand=1).encode()),
    )
    assert sorted(brief(found["streams"], "requester", "route", *STREAM[3:])) == [
        ("<", "ticks", "SbpppX", 3, 0, 2, None, "cancel"),
        (">", "ticks", "Sbkc", 2, 0, 2, None, "complete"),
    ]
    assert brief(found["violations"], "rule", "dir") == [("R-23", ">"), ("R-18", ">")]


@pytest.mark.parametrize(("data", "items", "octets"), [(b"\x01", 3, 6), (b"", 2, 2)])
def test_limit_counts_values_and_no_choices(data: bytes, items: int, octets: int) -> None:
    """The first value is in SETUP, if that has data."""

    def sent(*frames: Any) -> bytes:
        return b"".join(frame.encode(prefixed=True) for frame in frames)

    value, choose = limit.PayloadFrame, limit.Choose
    setup = limit.Setup(metadata=b"sum", data=data)
    found = told(
        (0, True, sent(setup, value(stream=1, data=b"\x02"), value(stream=3, data=b"\x03"))),
        (0, True, sent(choose(stream=5, data=b"\x01"))),
        (0, False, sent(*(value(stream=at, data=b"\x01") for at in (8, 10, 12)), choose(stream=14, data=b"\x01"))),
        (0, False, sent(limit.End())),
        entries=(named("limit"),),
        ports={7000: named("limit")},
    )
    assert brief(found["streams"], "history", "items_in", "items_out", "bytes_out") == [
        ("SPPCpppcd", 3, items, octets),
    ]


def test_limit_has_one_session_at_a_time() -> None:
    def sent(frame: Any) -> bytes:
        return bytes(frame.encode(prefixed=True))

    value = limit.PayloadFrame
    found = told(
        (0, True, sent(limit.Setup(metadata=b"sum")) + sent(value(stream=1, data=b"\x01"))),
        (0, True, sent(limit.Choose(stream=3, data=b"\x01"))),
        (0, False, sent(value(stream=6, data=b"\x03")) + sent(limit.End())),
        (0, True, sent(limit.Setup(metadata=b"sum"))),
        entries=(named("limit"),),
        ports={7000: named("limit")},
    )
    assert brief(found["streams"], "route", *STREAM) == [
        ("sum", 0, "session", ">", "SPCpd", 1, 1, None, None, "complete"),
        ("sum", 0, "session", ">", "S", 0, 0, None, None, "connection"),
    ]


def test_every_protocol_declares_every_frame() -> None:
    for name in ("rsocket", "rsocket-draft", "reactivesocket", "jmux", "rsio", "limit"):
        entry = named(name)
        assert entry.dissector is not None and entry.meanings is not None
        declared = {frame.NAME for frame in entry.dissector(True, "none").declared}
        assert declared <= set(entry.meanings.frames), name
        assert all(len(meaning.letter) == 1 and meaning.letter.islower() for meaning in entry.meanings.frames.values())


# -- bounds, kernels ---------------------------------------------------------------------------------------------


def crowd(streams: int, size: int = 1) -> bytes:
    """Requests that are never answered, and one connection after the other."""
    found = []
    for number in range(size):
        talk = Talk(client=("10.0.0.1", 40_000 + number))
        asked = b"".join(asks(2 * n + 1) for n in range(streams))
        found += packets([(0, True, SETUP + asked), (0, False, item(2 * streams - 1))], talk)
    return pcap(found)


def test_live_streams_are_bounded() -> None:
    limits = Limits.tiny()
    most = limits.capture_streams // 4
    exact = tables(crowd(most), limits=limits)
    assert {row["ended"] for row in exact["streams"]} == {"connection"}
    more = tables(crowd(most + 10), limits=limits)
    assert len(more["streams"]) == most + 10
    assert brief(more["streams"], "stream", "ended")[:10] == [(2 * n + 1, "open") for n in range(10)]
    assert {row["ended"] for row in more["streams"][10:]} == {"connection"}
    assert "violations" not in more


def test_many_connections_share_the_bound() -> None:
    limits = Limits.tiny()
    found = tables(crowd(50, 20), limits=limits)
    assert len(found["streams"]) == 1_000 and len(found["connections"]) == 20
    assert "violations" not in found


def random_talk(seed: int) -> bytes:
    """Frames that are often wrong, on few streams."""
    choose = random.Random(seed)

    def frame() -> bytes:
        stream = choose.randrange(1, 9)
        kind, next = choose.randrange(8), choose.random() < 0.7
        flags = {name: choose.random() < 0.3 for name in ("follows", "complete")}
        made = (
            lambda: asks(stream, choose.randrange(1, 4)),
            lambda: wire.RequestChannel(stream=stream, initial_n=2, data=b"c", **flags).encode(prefixed=True),
            lambda: wire.RequestResponse(stream=stream).encode(prefixed=True),
            lambda: grant(stream, choose.randrange(3)),
            lambda: wire.PayloadFrame(stream=stream, next=next, data=b"d", **flags).encode(prefixed=True),
            lambda: item(stream),
            lambda: wire.Cancel(stream=stream).encode(prefixed=True),
            lambda: wire.ErrorFrame(stream=stream, code=0x201).encode(prefixed=True),
        )
        return made[kind]()

    said = [(choose.choice((0, 0, 0.2)), choose.random() < 0.5, frame()) for _ in range(300)]
    return pcap(packets([(0, True, SETUP), *said]))


@pytest.mark.parametrize("seed", range(3))
def test_compiled_kernels_do_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba", reason='compiled kernels need the extra "fast"')
    file = random_talk(seed)
    monkeypatch.setattr(ledger, "is_built", lambda function: False)
    plain = tables(file)
    monkeypatch.setattr(ledger, "FEW", 0)
    assert tables(file) == plain
    assert {"streams", "credit", "stalls", "violations", "latencies", "connections"} <= plain.keys()


def batched(file: bytes, chunk: int) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, batch in analyze(io.BytesIO(file), chunk=chunk):
        found.setdefault(name, []).extend(map(str, batch.to_pylist()))
    return found


@pytest.mark.parametrize("seed", range(3))
def test_batches_change_nothing(seed: int) -> None:
    file = random_talk(seed)
    assert batched(file, 300) == batched(file, 1 << 20)


def test_batches_of_a_single_frame_change_nothing_where_kernels_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba", reason='compiled kernels need the extra "fast"')
    file = pcap(packets([(0, True, SETUP), *((0, True, asks(2 * number + 1)) for number in range(9))], Talk()))
    monkeypatch.setattr(ledger, "is_built", lambda function: False)
    expected = batched(file, 1 << 20)
    monkeypatch.setattr(ledger, "FEW", 0)
    assert batched(file, 1) == expected
    assert len(expected["streams"]) == 9


def test_many_connections_that_end_in_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba", reason='compiled kernels need the extra "fast"')
    talks = [Talk(("10.0.0.1", 20_000 + number)) for number in range(40)]
    said = SETUP + asks(1) + asks(3)
    file = pcap([packet for talk in talks for packet in talk.whole(said, item(1))])
    monkeypatch.setattr(ledger, "is_built", lambda function: False)
    expected = batched(file, 1 << 20)
    assert [len(expected[table]) for table in ("connections", "streams")] == [40, 80]
    monkeypatch.setattr(ledger, "_ROUND", 7)
    assert batched(file, 1 << 20) == expected
    monkeypatch.setattr(ledger, "FEW", 0)
    assert batched(file, 1 << 20) == expected
