"""Extension entries and MIME types on stream frames, and entries on EXT."""

from __future__ import annotations

from typing import Any

import pytest

from afflux.core import events as ev
from afflux.core.errors import ApplicationError, ConnectionClosed, Invalid, LimitExceeded, LocalProtocolError
from afflux.core.payload import Payload
from afflux.protocols.rsocket_draft import Engine, Entry, ExtendedPayload, frames, payloads, resumable
from afflux.protocols.rsocket_draft.entries import BROKER, KEEPALIVE, RESUME
from afflux.protocols.rsocket_draft.payload import MOST_PRELUDE, WISH

from .pair import KEEPALIVE as PING
from .pair import client, exchange, frames_of, greet, joined, plain, said, server, wired

OWN = Entry("own", b"1", True)
ADDRESS = payloads.address_entry(b"\0\0\0\1\x14\x80" + bytes(16))
ROUTE_SETUP = payloads.address_entry(b"\0\0\0\1\x04\0" + bytes(17))
SKIPPED = Entry("unknown", b"x", True)
STRICT = bytes.fromhex("8b00")
"An entry that nobody knows, without a length."


def knowing(*names: Any, mtu: int = 4096) -> tuple[Engine, Engine]:
    """Both ends understand these extensions."""
    a, b = client(PING, ROUTE_SETUP, extensions=names, mtu=mtu), server(extensions=names, mtu=mtu)
    greet(a, b)
    return a, b


def strict(frame: Any) -> bytes:
    """A frame with a chain whose only entry is unknown and may not be ignored; it has a fixed part of ``N``."""
    data = frame.encode()
    fixed = 10 if frame.NAME in ("REQUEST_STREAM", "REQUEST_CHANNEL", "REQUEST_N") else 6
    data = data[:4] + bytes((data[4] | 2,)) + data[5:fixed] + STRICT + data[fixed:]
    return len(data).to_bytes(3, "big") + data


def test_entries_that_the_application_understands_reach_it() -> None:
    """R-17: others are skipped; R-45: frames of brokers are carried as they are."""
    a, b = knowing("own", "broker")
    sent = ExtendedPayload(b"d", b"m", entries=(OWN, SKIPPED, ADDRESS))
    stream = a.open("request", sent)
    _, (opened,) = exchange(a, b)
    assert opened == ev.Opened(stream, "request", ExtendedPayload(b"d", b"m", entries=(OWN, ADDRESS)), 1, False)
    answer = ExtendedPayload(b"a", entries=(OWN,), data_mime="application/json", metadata_mime="x/y")
    b.answer([stream], [answer])
    assert exchange(a, b)[0] == [ev.Items(stream, [answer], True)]


def test_unknown_entries_leave_a_plain_payload() -> None:
    a, b = joined(PING)
    a.open("request", ExtendedPayload(b"d", entries=(SKIPPED, ADDRESS)))
    _, (opened,) = exchange(a, b)
    assert type(opened.payload) is Payload


@pytest.mark.parametrize("mtu", [64, 100, 4096])
def test_R_8_a_fragmented_payload_has_its_entries_on_the_first_fragment(mtu: int) -> None:
    a, b = knowing("own", mtu=mtu)
    request = ExtendedPayload(b"d" * 300, b"m" * 100, entries=(OWN, Entry("own", b"e" * 90, True)))
    stream = a.open("channel", request, credit=5)
    sent = said(a)
    assert [bool(frame.extensions) for frame in frames_of(sent)] == [True] + [False] * (len(frames_of(sent)) - 1)
    assert plain(b.receive(sent, 0.0)) == [ev.Opened(stream, "channel", request, 5, False)]
    item = ExtendedPayload(b"i" * 300, entries=(OWN,), data_mime="application/json")
    b.send(stream, [b"plain", item, Payload(b"p" * 200)])
    sent = said(b)
    events = [(event.stream, payload) for event in plain(a.receive(sent, 0.0)) for payload in event.payloads]
    assert events == [(stream, Payload(b"plain")), (stream, item), (stream, Payload(b"p" * 200))]
    assert [frame.data_mime for frame in frames_of(sent) if frame.data_mime] == ["application/json"]


def test_what_is_left_of_fragments_that_never_end() -> None:
    a, b = knowing("own", mtu=64)
    for _ in range(3):
        stream = a.open("request", ExtendedPayload(b"d" * 200, entries=(OWN,)))
        b.receive(a.outgoing(64), 0.0)
        a.cancel(stream)
        b.receive(said(a), 0.0)
    assert b.negotiation.extras == {}
    for number in range(3):
        a.open("request", ExtendedPayload(b"d" * 200, entries=(OWN,)))
        b.receive(a.outgoing(64), 100.0 * number)
        b.tick(100.0 * number + b.limits.reassembly_s)
        exchange(a, b, 100.0 * number)
        assert len(b.negotiation.extras) <= 1


def test_runs_with_and_without_entries() -> None:
    a, b = knowing("own")
    stream = a.open("stream", b"", credit=100)
    exchange(a, b)
    items: list[Any] = [b"a", ExtendedPayload(b"b", entries=(OWN,)), b"c", b"c", ExtendedPayload(b"", data_mime="x")]
    b.send(stream, items, complete=True)
    heard, _ = exchange(a, b)
    assert [payload for event in heard for payload in event.payloads] == [
        Payload(b"a"),
        items[1],
        Payload(b"c"),
        Payload(b"c"),
        items[4],
    ]
    assert heard[-1].complete


def test_R_18_an_entry_that_must_be_understood_ends_the_stream() -> None:
    """D-7: ERROR[INVALID], and the frame is dropped."""
    a, b = knowing("own")
    stream = a.open("channel", b"", credit=5)
    exchange(a, b)
    for engine, frame in (
        (a, frames.PayloadFrame(stream=stream, next=True)),
        (b, frames.RequestN(stream=3, n=1)),
    ):
        if engine is b:
            stream = a.open("stream", b"", credit=1)
            exchange(a, b)
        (failed,) = plain(engine.receive(strict(frame), 0.0))
        assert isinstance(failed.error, Invalid)
        assert (failed.stream, failed.error.rule) == (stream, "R-18")
        assert [(answer.NAME, answer.code) for answer in frames_of(said(engine))] == [("ERROR", 0x204)]
        assert stream not in [status.stream for status in engine.streams()]


@pytest.mark.parametrize("kind", ["RequestResponse", "RequestStream", "RequestChannel", "RequestFnf"])
@pytest.mark.parametrize("follows", [False, True])
def test_R_18_a_request_with_an_entry_that_must_be_understood(kind: str, follows: bool) -> None:
    """D-7: a fire-and-forget gets no answer; the rest of a fragmented request is dropped."""
    _, b = joined(PING)
    fields: dict[str, Any] = {"initial_n": 1} if kind in ("RequestStream", "RequestChannel") else {}
    frame = getattr(frames, kind)(stream=1, follows=follows, **fields, data=b"x" * 80)
    assert plain(b.receive(strict(frame), 0.0)) == []
    answers = [(answer.stream, answer.code) for answer in frames_of(said(b))]
    assert answers == ([] if kind == "RequestFnf" else [(1, 0x204)])
    rest = frames.PayloadFrame(stream=1, next=True, data=b"x" * 80)
    (ignored,) = b.receive(wired(rest), 0.0)
    assert ignored.price == 0


def test_entries_on_streams_that_are_over_or_not_the_peers() -> None:
    a, b = joined(PING)
    for frame in (
        frames.PayloadFrame(stream=9, next=True),
        frames.Cancel(stream=9),
        frames.RequestResponse(stream=2),
    ):
        (ignored,) = b.receive(strict(frame), 0.0)
        assert isinstance(ignored, ev.Ignored)
    assert said(b) == b""
    assert a.streams() == []


def test_entries_with_a_length_that_must_be_understood() -> None:
    """A known extension that was not negotiated counts as unknown (3.3); so does one that nobody declared."""
    _, b = joined(PING)
    for id, entry in ((1, Entry(RESUME, flags=8)), (3, Entry("resume"))):
        b.receive(wired(frames.RequestStream(stream=id, initial_n=1, extensions=(entry,))), 0.0)
    assert [(answer.stream, answer.code) for answer in frames_of(said(b))] == [(1, 0x204), (3, 0x204)]


def test_R_46_only_ADDRESS_stands_on_a_stream_frame() -> None:
    _, b = knowing("broker")
    b.receive(wired(frames.RequestResponse(stream=1, extensions=(ROUTE_SETUP,))), 0.0)
    assert [(answer.stream, answer.code) for answer in frames_of(said(b))] == [(1, 0x204)]


def test_R_46_what_of_a_broker_stands_on_EXT() -> None:
    a, b = knowing("broker")
    join = payloads.address_entry(b"\0\0\0\1\x08\0" + bytes(41))
    a.send_entries(join)
    assert exchange(a, b)[1] == [ev.Extended(0, "broker", join.payload)]
    events = b.receive(wired(frames.ExtChain(extensions=(ADDRESS,))), 0.0)
    assert (events[-1].error.code, events[-1].error.rule) == (0x101, "R-46")


def test_D_17_long_entries_on_a_payload() -> None:
    a, b = knowing("own")
    long = Entry("own", bytes(MOST_PRELUDE), True)
    with pytest.raises(LimitExceeded) as caught:
        a.open("request", ExtendedPayload(entries=(long,)))
    assert caught.value.rule == "D-17"
    assert a.streams() == []
    b.receive(wired(frames.RequestResponse(stream=1, extensions=(long,))), 0.0)
    assert [(answer.stream, answer.code) for answer in frames_of(said(b))] == [(1, 0x204)]


@pytest.mark.parametrize("name", ["RESUME twice", "resume with a payload"])
def test_R_19_R_16_entries_that_end_the_connection(name: str) -> None:
    from .pair import LIMITS, Sessions
    from .pair import RESUME as TOKEN

    a, b = client(PING, TOKEN), server(sessions=Sessions(LIMITS))
    exchange(a, b)
    entries = (WISH, WISH) if name == "RESUME twice" else (Entry(RESUME, b"x", True),)
    events = b.receive(wired(frames.RequestStream(stream=1, initial_n=1, extensions=entries)), 0.0)
    assert events[-1].error.code == 0x101
    assert events[-1].error.rule == ("R-19" if name == "RESUME twice" else "R-16")


def test_entries_on_EXT() -> None:
    a, b = knowing("own", 9)
    a.send_entries(OWN, Entry(9, b"n", True), SKIPPED)
    _, heard = exchange(a, b)
    assert heard == [ev.Extended(0, "own", b"1"), ev.Extended(0, 9, b"n")]
    events = b.receive(wired(frames.ExtChain(extensions=(Entry(KEEPALIVE, b"", True), Entry(0, b"", True)))), 0.0)
    assert events[-1].error.rule == "R-19"
    a, b = joined()
    events = b.receive(wired(frames.ExtChain(extensions=(Entry(RESUME, b"\0\0\0"),))), 0.0)
    assert (events[-1].error.code, events[-1].error.rule) == (0x101, "R-18")


def test_R_9_EXT_with_a_chain_belongs_on_stream_0() -> None:
    _, b = joined(PING)
    (ignored,) = b.receive(wired(frames.ExtChain(stream=5, extensions=(OWN,))), 0.0)
    assert isinstance(ignored, ev.Ignored)


def test_R_10_EXT_of_1_0() -> None:
    a, b = knowing(7)
    assert a.extensions is not None
    a.extensions.extend(7, b"body", stream=3)
    assert exchange(a, b)[1] == [ev.Extended(3, 7, b"body")]
    for type in (0, 1 << 31):
        with pytest.raises(LocalProtocolError) as caught:
            a.extensions.extend(type, b"")
        assert caught.value.rule == "R-10"
    with pytest.raises(LocalProtocolError):
        a.extensions.extend(7, b"", stream=-1)


@pytest.mark.parametrize("ack", [False, True])
def test_what_belongs_to_no_stream_waits_for_SETUP_OK(ack: bool) -> None:
    """R-23: an entry, an extended type, and metadata."""
    a, b = client(PING, ack=ack), server(extensions=("own", 7))
    part: Any = a.extensions
    part.extend(OWN)
    part.extend(7, b"body", stream=3)
    a.push(b"metadata")
    later = [] if ack else ["EXT", "EXT", "METADATA_PUSH"]
    assert [frame.NAME for frame in frames_of(said(a))] == ["SETUP", *later]
    a, b = client(PING, ack=ack), server(extensions=("own", 7))
    part = a.extensions
    part.extend(OWN)
    part.extend(7, b"body", stream=3)
    _, heard = exchange(a, b)
    assert heard[1:] == [ev.Extended(0, "own", b"1"), ev.Extended(3, 7, b"body")]


def test_entries_that_cannot_be_sent_on_EXT() -> None:
    a, _ = joined(PING)
    for arguments in ({"body": b"x"}, {"stream": 1}):
        with pytest.raises(LocalProtocolError) as caught:
            a.extensions.extend(OWN, **arguments)  # type: ignore[arg-type]
        assert caught.value.rule == "R-9"
    with pytest.raises(LimitExceeded):
        a.send_entries(Entry("own", bytes(a.limits.frame_bytes), True))
    with pytest.raises(LimitExceeded):
        a.extensions.extend(7, bytes(a.limits.frame_bytes))
    a.close(0.0)
    for entry in (OWN, 7):
        with pytest.raises(ConnectionClosed):
            a.extensions.extend(entry)


def test_malformed_frames_end_the_connection() -> None:
    """Section 3: 0x200 is no ignore flag where it is X (R-4); frames of 1.0 keep theirs (D-10)."""
    truncated = {
        "000000012a20": bytes((0x8B, 0x40, 0, 0, 9)),
        "000000002100": b"",
    }
    for head, chain in truncated.items():
        _, b = joined(PING)
        data = bytes.fromhex(head) + chain
        events = b.receive(len(data).to_bytes(3, "big") + data, 0.0)
        assert events[-1].error.code == 0x101
    _, b = joined(PING)
    lease = bytes.fromhex("000000000a00ff")
    (ignored,) = b.receive(len(lease).to_bytes(3, "big") + lease, 0.0)
    assert ignored.price == 1


@pytest.mark.parametrize(
    ("first", "code"),
    [
        ("00000000060086", 0x001),
        ("0000000006008686000200008b00", 0x002),
        ("00000000340000", 0x004),
        ("0000000134000001000000017400000000000000000000000000000000", 0x004),
        ("00000000fc808b00", 0x001),
    ],
)
def test_first_frames_that_cannot_be_read(first: str, code: int) -> None:
    """Table 3.2, D-10."""
    b = server()
    data = bytes.fromhex(first)
    events = b.receive(len(data).to_bytes(3, "big") + data, 0.0)
    assert events[-1].error.code == code


# -- payloads -------------------------------------------------------------------------------------------------


def test_D_3_a_request_has_no_MIME_types_of_its_own() -> None:
    a, _ = joined(PING)
    with pytest.raises(LocalProtocolError) as caught:
        a.open("request", ExtendedPayload(b"", data_mime="application/json"))
    assert caught.value.rule == "D-3"
    with pytest.raises(LocalProtocolError) as caught:
        a.open("request", ExtendedPayload(b"", entries=(Entry("x" * 200),)))
    assert caught.value.rule == "R-11"


def test_extended_payloads_are_values() -> None:
    one = ExtendedPayload(b"d", b"m", entries=[OWN], data_mime="x", metadata_mime="y")
    assert one == ExtendedPayload(b"d", b"m", entries=(OWN,), data_mime="x", metadata_mime="y")
    assert hash(one) == hash(ExtendedPayload(b"d", b"m", entries=(OWN,), data_mime="x", metadata_mime="y"))
    assert one != ExtendedPayload(b"d", b"m")
    assert ExtendedPayload(b"d") != Payload(b"d")
    assert Payload(b"d") != ExtendedPayload(b"d")
    assert ExtendedPayload(b"d") != b"d"
    assert repr(one) == (
        "ExtendedPayload(b'd', metadata=(1 bytes), entries=[Entry('own', (1 bytes), ignorable)], "
        "data_mime='x', metadata_mime='y')"
    )
    assert repr(ExtendedPayload(b"d")) == "ExtendedPayload(b'd')"


def test_a_payload_of_another_class_is_plain() -> None:
    class Own(Payload):
        """An application's class."""

    a, b = joined(PING)
    stream = a.open("request", Own(b"d", b"m"))
    assert exchange(a, b)[1] == [ev.Opened(stream, "request", Payload(b"d", b"m"), 1, False)]


def test_resumable_payloads() -> None:
    assert resumable(b"d") == ExtendedPayload(b"d", entries=(WISH,))
    assert resumable(ExtendedPayload(b"d", entries=(OWN,))).entries == (OWN, WISH)
    a, _ = joined(PING)
    with pytest.raises(LocalProtocolError) as caught:
        a.open("request", resumable(b""))
    assert caught.value.rule == "R-36"


def test_errors_and_ends_pass_as_in_1_0() -> None:
    a, b = joined(PING)
    stream = a.open("stream", b"", credit=1)
    exchange(a, b)
    b.fail(stream, ApplicationError(0x301, "no"))
    (failed,) = exchange(a, b)[0]
    assert (failed.error.code, failed.error.message) == (0x301, "no")
    b.close(0.0, drain=True)
    assert [type(event) for event in exchange(a, b)[0]] == [ev.Draining, ev.Closed]


def test_requests_on_a_closing_connection_are_rejected() -> None:
    a, b = joined(PING)
    stream = a.open("stream", b"", credit=1)
    exchange(a, b)
    b.close(0.0, drain=True)
    said(b)
    b.receive(wired(frames.RequestResponse(stream=stream + 2)), 0.0)
    assert [(answer.stream, answer.code) for answer in frames_of(said(b))] == [(stream + 2, 0x202)]


def test_R_45_frames_of_brokers_are_carried_and_not_interpreted() -> None:
    a, b = knowing(BROKER)
    a.open("request", ExtendedPayload(b"", entries=(ADDRESS,)))
    _, (opened,) = exchange(a, b)
    assert opened.payload.entries == (ADDRESS,)
