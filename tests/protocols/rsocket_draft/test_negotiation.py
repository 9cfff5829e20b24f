"""What client and server agree on: SETUP, its refusals, SETUP_OK, and what waits for it."""

from __future__ import annotations

from typing import Any

import pytest

from afflux.core import events as ev
from afflux.core.errors import ConnectionClosed, LocalProtocolError, RemoteProtocolError, SetupRefused
from afflux.core.payload import Payload
from afflux.protocols.rsocket import frames as v1
from afflux.protocols.rsocket_draft import Engine, Entry, ExtendedPayload, frames, payloads
from afflux.protocols.rsocket_draft.entries import BROKER, LEASE, RESUME
from afflux.protocols.rsocket_draft.frames import Setup, SetupOk
from afflux.protocols.rsocket_draft.payloads import Session, Times

from .pair import KEEPALIVE, client, exchange, frames_of, joined, said, server, wired
from .pair import RESUME as TOKEN_ENTRY

KEEPALIVE_ACK = payloads.keepalive_entry(Times(500, 2500), ack=True)
ROUTE_SETUP = b"\0\0\0\1\x04\0" + bytes(17)
STRICT = Entry("must", ack=True)


def closed(events: list[Any]) -> Any:
    assert isinstance(events[-1], ev.Closed)
    return events[-1].error


def refused(setup: Setup, **options: Any) -> tuple[int, str]:
    """The code and the rule with which a server refuses a SETUP."""
    end = server(**options)
    error = closed(end.receive(wired(setup), 0.0))
    (answer,) = frames_of(said(end))
    assert (answer.NAME, answer.stream) == ("ERROR", 0)
    assert answer.code == error.code
    return error.code, error.rule


def test_R_24_without_A_requests_follow_SETUP_directly() -> None:
    """D-1, D-16: version 2.0, and SETUP_OK is not sent (R-21)."""
    a, b = client(KEEPALIVE), server()
    stream = a.open("request", b"q")
    sent = said(a)
    assert [frame.NAME for frame in frames_of(sent)] == ["SETUP", "REQUEST_RESPONSE"]
    assert (frames_of(sent)[0].major, frames_of(sent)[0].minor) == (2, 0)
    events = b.receive(sent, 0.0)
    assert events[1:] == [ev.Opened(stream, "request", Payload(b"q"), 1, False)]
    assert said(b) == b""


def test_R_23_with_A_nothing_leaves_before_SETUP_OK() -> None:
    """R-21, R-22, D-9: the frame's A alone is answered by an empty SETUP_OK."""
    a, b = client(ack=True), server()
    stream = a.open("request", b"q")
    a.push(b"pushed")
    a.send_entries(Entry("own", b"", True))
    first = said(a)
    assert [frame.NAME for frame in frames_of(first)] == ["SETUP"]
    b.receive(first, 0.0)
    answer = said(b)
    assert frames_of(answer) == [SetupOk()]
    assert a.receive(answer, 0.0) == [ev.Established(None)]
    assert [frame.NAME for frame in frames_of(said(a))] == ["METADATA_PUSH", "EXT", "REQUEST_RESPONSE"]
    assert [status.stream for status in a.streams()] == [stream]


def test_R_22_SETUP_OK_lists_what_had_A_and_was_accepted() -> None:
    entries = (
        KEEPALIVE_ACK,
        Entry("own", b"", True, True),
        Entry("unknown", b"", True, True),
        Entry("quiet", b"", True),
    )
    a, b = client(*entries), server(extensions=("own", "quiet"))
    b.receive(said(a), 0.0)
    (answer,) = frames_of(said(b))
    assert [entry.name for entry in answer.extensions] == ["keepalive", "own"]
    a.receive(wired(answer), 0.0)
    assert a.deadline == 0.5


def test_extensions_that_are_not_offered_are_not_used() -> None:
    """R-29: without the extension there are no timers."""
    a, b = joined()
    assert (a.deadline, b.deadline) == (None, None)


@pytest.mark.parametrize(
    ("setup", "code", "rule"),
    [
        (Setup(major=1), 0x001, "R-3"),
        (Setup(major=3), 0x001, "R-3"),
        (Setup(stream=1), 0x001, "HS-03"),
        (Setup(extensions=(Entry("keepalive", b"\0\0\0\0\0\0\0\1", True),)), 0x001, "R-26"),
        (Setup(extensions=(Entry(0, b"\0\0\0\1\0\0\0\0", True),)), 0x001, "R-26"),
        (Setup(extensions=(Entry(0, b"\0\0\0\1\0\0\0\1", True),)), 0x003, "keepalive_rate"),
        (Setup(extensions=(Entry(0, b"short", True),)), 0x001, "R-16"),
        (Setup(extensions=(KEEPALIVE, Entry("keepalive", KEEPALIVE.payload, True))), 0x001, "R-19"),
        (Setup(extensions=(TOKEN_ENTRY,)), 0x002, "R-18"),
        (Setup(extensions=(Entry(LEASE, b"\x80", True, True),)), 0x003, "R-30"),
        (Setup(extensions=(Entry(BROKER, b"", True), STRICT)), 0x002, "R-18"),
        (Setup(metadata=b"m" * 70_000), 0x003, "connection_metadata_bytes"),
    ],
)
def test_a_setup_that_is_refused(setup: Setup, code: int, rule: str) -> None:
    """R-18 on SETUP, table 3.2."""
    limits = (
        {} if rule != "connection_metadata_bytes" else {"limits": server().limits.replace(first_frame_bytes=1 << 20)}
    )
    assert refused(setup, **limits) == (code, rule)


def test_I_3_a_client_of_1_0_is_refused_with_INVALID_SETUP() -> None:
    """A server of 1.0 refuses the draft likewise: the bytes decide nothing (R-1)."""
    end = server()
    assert closed(end.receive(wired(v1.Setup(stream=0)), 0.0)).code == 0x001
    for setup in (
        v1.Setup(stream=0),
        v1.Setup(stream=0, keepalive_ms=0x20000),
        v1.Setup(stream=0, metadata=b"m"),
        v1.Setup(stream=0, token=b"t" * 16, lease=True),
    ):
        end = server()
        error = closed(end.receive(wired(setup), 0.0))
        assert (error.code, error.rule) == (0x001, "R-3")
        assert "rsocket-draft, not rsocket: the SETUP has the version of RSocket 1.0" in error.message
    old = client()
    error = closed(old.receive(wired(frames.ErrorFrame(stream=0, code=0x001, data=b"version")), 0.0))
    assert isinstance(error, SetupRefused)


def test_R_46_only_ROUTE_SETUP_stands_on_SETUP() -> None:
    wrong = ROUTE_SETUP[:4] + b"\x14\0" + ROUTE_SETUP[6:]
    assert refused(Setup(extensions=(payloads.address_entry(wrong),)), extensions=("broker",)) == (0x001, "R-46")
    route = Entry(BROKER, ROUTE_SETUP, True, True)
    b = server(extensions=(BROKER,))
    (established,) = b.receive(wired(Setup(extensions=(route,))), 0.0)
    assert established.setup.entry(BROKER) == route
    assert frames_of(said(b)) == [SetupOk(extensions=(Entry(BROKER),))]
    quiet = server()
    quiet.receive(wired(Setup(extensions=(route,))), 0.0)
    assert frames_of(said(quiet)) == []  # nobody understands it, and it may be ignored


@pytest.mark.parametrize(
    ("offers", "answer", "rule"),
    [
        ((KEEPALIVE_ACK,), (Entry(RESUME),), "R-25"),
        ((KEEPALIVE_ACK,), (Entry(0), Entry("keepalive")), "R-19"),
        ((STRICT,), (), "R-22"),
        ((Entry(LEASE, b"\x80", True, True),), (), "R-22"),
        ((Entry(LEASE, b"\x80", True, True),), (Entry(LEASE, b"\x81"),), "R-30"),
        ((Entry(LEASE, b"\x80", True, True),), (Entry(LEASE, b"\x80\x81", True),), "R-16"),
    ],
)
def test_a_SETUP_OK_that_breaks_a_rule(offers: tuple[Entry, ...], answer: tuple[Entry, ...], rule: str) -> None:
    """Table 3.1: ERROR[CONNECTION_ERROR], and all streams fail."""
    a = client(*offers)
    waits = not a.setup.lease
    if waits:
        a.open("request", b"q")
    said(a)
    events = a.receive(wired(SetupOk(extensions=answer)), 0.0)
    assert [type(event) for event in events] == [ev.Failed] * waits + [ev.Closed]
    assert (closed(events).code, closed(events).rule) == (0x101, rule)
    assert [(frame.NAME, frame.code) for frame in frames_of(said(a))] == [("ERROR", 0x101)]


def test_unknown_entries_of_SETUP_OK() -> None:
    """R-17, R-18: skipped with I, otherwise the connection ends."""
    for entry, rule in ((Entry("x", b"", True), None), (Entry(9, b"", True), None)):
        a = client(KEEPALIVE_ACK)
        said(a)
        assert a.receive(wired(SetupOk(extensions=(Entry(0), entry))), 0.0) == [ev.Established(None)], rule
    a = client(KEEPALIVE_ACK)
    said(a)
    chain = bytes.fromhex("00000a" + "000000003e008000")
    raw = chain[:3] + chain[3:9] + bytes.fromhex("8080" + "8b00")
    error = closed(a.receive(len(raw[3:]).to_bytes(3, "big") + raw[3:], 0.0))
    assert (error.code, error.rule) == (0x101, "R-18")


@pytest.mark.parametrize(
    "frame",
    [
        Setup(),
        frames.Keepalive(stream=0, respond=True),
        frames.ExtChain(extensions=(Entry("x", b"", True),)),
        frames.Ext(stream=0, extended_type=1, ignore=True),
        frames.MetadataPush(stream=0, metadata=b"m"),
        frames.Lease(ttl_ms=1, requests=1),
        frames.ResumeOk(last_received_client_position=0),
        frames.Resume(token=b"t", last_received_server_position=0, first_available_client_position=0),
        frames.RequestResponse(stream=2),
        frames.PayloadFrame(stream=1, next=True),
    ],
)
def test_R_23_anything_else_than_SETUP_OK_ends_the_connection(frame: Any) -> None:
    a = client(ack=True)
    said(a)
    error = closed(a.receive(wired(frame), 0.0))
    assert isinstance(error, RemoteProtocolError)
    assert (error.code, error.rule) == (0x101, "R-23")


def test_D_15_SETUP_OK_that_does_not_come() -> None:
    a = client(ack=True)
    said(a)
    assert a.deadline == a.limits.handshake_s
    error = closed(a.tick(a.limits.handshake_s))
    assert error.rule == "handshake_s"


def test_a_transport_that_is_lost_before_SETUP_OK() -> None:
    a = client(ack=True)
    a.open("request", b"q")
    events = a.receive_eof(0.0)
    assert [type(event) for event in events] == [ev.Failed, ev.Closed]


def test_a_client_that_closes_while_it_waits() -> None:
    a, b = client(ack=True), server()
    a.open("request", b"q")
    assert a.close(0.0, drain=True) == []
    heard_a, heard_b = exchange(a, b)
    assert [type(event) for event in heard_a] == [ev.Established]
    assert [type(event) for event in heard_b] == [ev.Established, ev.Opened, ev.Draining]
    b.answer([heard_b[1].stream], [Payload(b"a")])
    assert [type(event) for event in exchange(a, b)[0]] == [ev.Items, ev.Closed]
    assert type(client(ack=True).close(0.0)[-1]) is ev.Closed


def test_SETUP_OK_without_a_request_for_it_is_ignored() -> None:
    a, _ = joined(KEEPALIVE)
    assert [type(event) for event in a.receive(wired(SetupOk()), 0.0)] == [ev.Ignored]
    first = client()
    said(first)
    assert [type(event) for event in first.receive(wired(SetupOk()), 0.0)] == [ev.Established, ev.Ignored]


def test_a_second_SETUP_is_ignored() -> None:
    _, b = joined(KEEPALIVE)
    assert [type(event) for event in b.receive(wired(Setup()), 0.0)] == [ev.Ignored]


@pytest.mark.parametrize(
    ("entries", "rule"),
    [
        ((Entry(0, b"\0\0\0\0\0\0\0\1", True),), "R-26"),
        ((Entry(0, b"\0\0\0\1\0\0\0\1", True),), "keepalive_rate"),
        ((payloads.resume_entry(Session(b"short", None)),), "R-38"),
        ((Entry(LEASE, b"\x80", True),), "R-30"),
        ((Entry(LEASE, b"", True, True),), "R-30"),
        ((Entry(BROKER, b"\0\0\0\1\x14\0", True),), "R-46"),
        ((KEEPALIVE, KEEPALIVE), "R-19"),
        ((Entry(RESUME, b"\0", True),), "R-16"),
    ],
)
def test_this_side_offers_nothing_that_servers_refuse(entries: tuple[Entry, ...], rule: str) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        client(*entries)
    assert caught.value.rule == rule


def test_the_default_offers_keepalive() -> None:
    a = Engine("client")
    assert (a.setup.keepalive_ms, a.setup.lifetime_ms, a.setup.lease, a.setup.token) == (20_000, 90_000, False, None)
    client(Entry("own", b"", True))
    client(payloads.address_entry(ROUTE_SETUP))


def test_the_application_decides() -> None:
    a, b = client(KEEPALIVE_ACK), server(decide=True)
    b.receive(said(a), 0.0)
    assert said(b) == b""
    b.accept(0.0)
    assert [frame.NAME for frame in frames_of(said(b))] == ["SETUP_OK"]
    b = server(decide=True)
    a = client(KEEPALIVE_ACK)
    b.receive(said(a), 0.0)
    b.refuse("no", 0.0)
    assert isinstance(closed(exchange(a, b)[0]), SetupRefused)


def test_what_is_not_sent_after_the_end() -> None:
    a, _ = joined(KEEPALIVE)
    a.close(0.0)
    with pytest.raises(ConnectionClosed):
        a.send_entries(Entry("x", b"", True))
    with pytest.raises(ConnectionClosed):
        a.push(b"")
    with pytest.raises(LocalProtocolError):
        client().send_entries(Entry("x" * 200))


def test_the_payload_of_a_setup() -> None:
    _, b = joined(Entry("own", b"1", True), extensions=("own",))
    assert b.setup.extensions == (Entry("own", b"1", True),)
    assert ExtendedPayload(entries=b.setup.extensions).entries == b.setup.extensions


# -- keepalive ------------------------------------------------------------------------------------------------


def test_R_27_R_28_keepalives_are_entries_of_EXT() -> None:
    a, b = joined(KEEPALIVE_ACK)
    assert a.tick(0.5) == []
    sent = said(a)
    assert frames_of(sent) == [frames.ExtChain(extensions=(payloads.ping_entry(b"", respond=True),))]
    b.receive(sent, 0.5)
    answer = said(b)
    assert frames_of(answer) == [frames.ExtChain(extensions=(payloads.ping_entry(b"", respond=False),))]
    assert a.receive(answer, 0.6) == []
    ping = frames.ExtChain(extensions=(payloads.ping_entry(b"data", respond=True),))
    b.receive(wired(ping), 0.7)
    assert frames_of(said(b))[0].extensions[0].payload == b"data"


def test_the_lifetime_of_a_silent_peer() -> None:
    a, b = joined(KEEPALIVE_ACK)
    for now in (0.5, 1.0, 1.5, 2.0):
        a.tick(now)
        said(a)
    assert type(a.tick(2.5)[-1]) is ev.Closed
    assert type(b.tick(2.5)[-1]) is ev.Closed


def test_D_18_without_acknowledgement_silence_counts_after_the_first_answer() -> None:
    a, b = joined(KEEPALIVE)
    a.tick(100.0)
    assert not a.closed
    said(a)
    a.receive(wired(frames.ExtChain(extensions=(payloads.ping_entry(b"", respond=False),))), 100.1)
    a.tick(102.0)
    assert type(a.tick(102.7)[-1]) is ev.Closed
    assert not b.closed


def test_R_29_D_10_the_legacy_keepalive() -> None:
    legacy = frames.Keepalive(stream=0, respond=True, data=b"k")
    _, b = joined()
    assert b.receive(wired(legacy), 0.0) == []
    assert frames_of(said(b)) == [frames.Keepalive(stream=0, data=b"k")]
    assert b.receive(wired(frames.Keepalive(stream=0, data=b"k")), 0.0) == []
    assert said(b) == b""
    _, b = joined(KEEPALIVE)
    assert [type(event) for event in b.receive(wired(legacy), 0.0)] == [ev.Ignored]
    assert said(b) == b""


def test_floods_of_legacy_keepalives_end() -> None:
    _, b = joined()
    error: Any = None
    for _ in range(1000):
        if b.closed:
            break
        events = b.receive(wired(frames.Keepalive(stream=0, respond=True)), 0.0)
        said(b)
        error = events and events[-1].error
    assert error.rule == "keepalive_rate"
    _, b = joined()
    large = frames.Keepalive(stream=0, respond=True, data=bytes(b.limits.connection_metadata_bytes + 1))
    assert closed(b.receive(wired(large), 0.0)).rule == "connection_metadata_bytes"
