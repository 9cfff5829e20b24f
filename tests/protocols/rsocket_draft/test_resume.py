"""The rules of resumption: what is asked, listed, refused, counted and reported."""

from __future__ import annotations

from typing import Any

import pytest

from afflux.core import events as ev
from afflux.core.errors import ConnectionClosed, Invalid, LocalProtocolError, Rejected, SetupRefused
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.protocols.family.lease import FixedLease
from afflux.protocols.family.sessions import Sessions
from afflux.protocols.rsocket_draft import Engine, Entry, ExtendedPayload, frames, payloads, resumable
from afflux.protocols.rsocket_draft.entries import RESUME as ID
from afflux.protocols.rsocket_draft.frames import ExtChain, Setup, SetupOk
from afflux.protocols.rsocket_draft.payload import WISH
from afflux.protocols.rsocket_draft.payloads import Position, Session

from .pair import KEEPALIVE, LIMITS, RESUME, TOKEN, client, exchange, frames_of, resumed, said, server, wired


def pair(*entries: Entry, limits: Limits = LIMITS, **options: Any) -> tuple[Engine, Engine, Sessions]:
    """Both ends of a session, established."""
    sessions = Sessions(limits)
    a = client(KEEPALIVE, *entries, RESUME, limits=limits)
    b = server(sessions=sessions, limits=limits, **options)
    exchange(a, b)
    return a, b, sessions


def streaming(a: Engine, b: Engine, verb: Any = "stream", credit: int = 5) -> int:
    """A stream that survives the transport, whose responder has sent an item."""
    stream = a.open(verb, resumable(b"s"), credit=credit)
    exchange(a, b)
    b.send(stream, [b"0"])
    exchange(a, b)
    return stream


def lose(*engines: Engine, now: float = 1.0) -> list[list[Any]]:
    found = []
    for engine in engines:
        found.append(engine.receive_eof(now))
        said(engine)
    return found


def asking(sessions: Sessions, setup: Setup, now: float = 2.0, **options: Any) -> tuple[Engine, list[Any]]:
    """A new connection whose first frame is this SETUP."""
    newcomer = server(sessions=sessions, now=now, **options)
    return newcomer, newcomer.receive(wired(setup), now)


def resuming(*positions: Position, token: bytes = TOKEN, **fields: Any) -> Setup:
    return Setup(ack=True, extensions=(KEEPALIVE, payloads.resume_entry(Session(token, positions))), **fields)


def test_R_38_R_39_what_a_client_asks() -> None:
    a, b, _ = pair()
    stream = streaming(a, b, "channel")
    undecided = a.open("stream", resumable(b"u"), credit=1)
    said(a)
    unsent = a.open("stream", resumable(b"n"), credit=1)
    ((suspended,),) = lose(a)
    assert isinstance(suspended, ev.Suspended)
    assert a.resumption is not None
    assert a.resumption.suspended
    assert a.resumption.away == 1.0
    assert a.resumption.reconnect(2.0) == []
    (setup,) = frames_of(said(a))
    assert setup.ack
    assert (setup.data_mime, setup.metadata_mime) == (a.setup.data_mime, a.setup.metadata_mime)
    token, positions = payloads.session_of(setup.entry(ID))
    assert token == TOKEN
    assert positions == (Position(stream, 1), Position(undecided, 0))
    assert unsent not in dict(positions)
    b.receive_eof(1.0)


def test_a_client_that_wants_no_session() -> None:
    sessions = Sessions(LIMITS)
    a, b = client(KEEPALIVE), server(sessions=sessions)
    exchange(a, b)
    assert len(sessions) == 0
    assert a.resumption is None
    assert b.resumption is not None
    assert not b.resumption.resumable
    assert b.deadline == 2.5


def test_R_36_requests_do_not_survive() -> None:
    """R-40: a request that was sent ends with REJECTED, one that was not waits."""
    a, b, sessions = pair()
    stream = streaming(a, b)
    sent = a.open("request", b"q")
    exchange(a, b)
    unsent = a.open("request", b"later")
    heard_a, heard_b = lose(a, b)
    (failed, suspended) = heard_a
    assert (failed.stream, failed.error.code, failed.error.rule) == (sent, 0x202, "R-40")
    assert isinstance(failed.error, Rejected)
    assert failed.error.may_have_been_processed
    assert isinstance(suspended, ev.Suspended)
    assert [getattr(event, "stream", None) for event in heard_b] == [sent, None]
    b, heard_a, heard_b = resumed(a, sessions, 2.0)
    assert heard_a == [ev.Resumed()]
    assert [type(event) for event in heard_b] == [ev.Resumed, ev.Opened]
    assert heard_b[1].stream == unsent
    assert sorted(status.stream for status in a.streams()) == [stream, unsent]


def test_R_37_a_responder_that_does_not_agree() -> None:
    """Table 3.4: without the entry on the responder's first frame the stream is plain."""
    a, b, _ = pair()
    stream = a.open("stream", resumable(b""), credit=5)
    said(a)
    a.receive(wired(frames.PayloadFrame(stream=stream, next=True, data=b"0")), 0.0)
    assert a.resumption is not None
    assert not a.resumption.resumable
    assert [type(event) for event in a.receive_eof(1.0)] == [ev.Failed, ev.Closed]
    assert not b.closed


def test_R_37_the_agreement_stands_on_the_first_frame() -> None:
    a, b, _ = pair()
    for verb, first in (("stream", "PAYLOAD"), ("channel", "REQUEST_N"), ("stream", "complete"), ("stream", "ERROR")):
        stream = a.open(verb, resumable(b""), credit=5)  # type: ignore[arg-type]
        exchange(a, b)
        if first == "REQUEST_N":
            b.request(stream, 5)
        elif first == "complete":
            b.complete(stream)
        elif first == "ERROR":
            b.fail(stream, Invalid("no"))
        b.send(stream, [ExtendedPayload(b"x", entries=(Entry("own", b"1", True),)), b"y"])
        sent = frames_of(said(b))
        if first == "ERROR":
            assert not hasattr(sent[0], "extensions")
        else:
            assert sent[0].extensions[0] == WISH
        assert all(WISH not in frame.extensions for frame in sent[1:])
        a.receive(wired(*sent), 0.0)
    assert b.resumption is not None


def test_R_35_R_42_positions_go_with_keepalives() -> None:
    """R-43: a stream of which nothing was received has position 0; unchanged streams are left out."""
    a, b, _ = pair()
    stream = streaming(a, b)
    a.tick(0.5)
    ping, report = frames_of(said(a))
    assert ping.extensions[0].marked
    assert payloads.positions_of(report.extensions[0]) == (Position(stream, 1),)
    assert b.receive(wired(ping, report), 0.5) == []
    answer, own = frames_of(said(b))
    assert payloads.positions_of(own.extensions[0]) == (Position(stream, 1),)
    a.receive(wired(answer, own), 0.5)
    a.tick(1.0)
    assert len(frames_of(said(a))) == 1
    assert b.held_bytes == b.held_bytes
    b.receive(wired(ExtChain(extensions=(payloads.list_entry([Position(99, 5), Position(stream, 0)]),))), 0.5)
    assert not b.closed


def test_a_report_is_due_when_the_peer_would_stop() -> None:
    a, b, _ = pair(limits=Limits.server(resume_bytes=0x10000))
    stream = streaming(a, b, credit=1000)
    for _ in range(20):
        b.send(stream, [bytes(1000)])
        exchange(a, b)
    assert b.resumption is not None
    retained: Any = b.resumption
    assert retained.part.size < 0x4000


@pytest.mark.parametrize(
    "entry",
    [
        payloads.list_entry([Position(1, 2)]),
        Entry(ID, b"\0\0\1", True),
    ],
)
def test_R_35_a_position_beyond_what_was_sent(entry: Entry) -> None:
    a, b, _ = pair()
    streaming(a, b)
    events = b.receive(wired(ExtChain(extensions=(entry,))), 0.0)
    assert events[-1].error.code == 0x101
    assert not a.closed


def test_positions_of_a_session_that_is_not_resumable() -> None:
    """The store was discarded, or resumption was never negotiated on this side."""
    a, b, _ = pair()
    b.resuming.declined(b)  # type: ignore[union-attr]  # the part's own method
    assert b.receive(wired(ExtChain(extensions=(payloads.list_entry([Position(1, 1)]),))), 0.0) == []
    assert b.resumption is not None
    assert not b.resumption.resumable
    assert b.held_bytes == 0
    a.open("stream", resumable(b""), credit=1)
    exchange(a, b)


def test_SETUP_OK_without_resume_declines_it() -> None:
    a = client(KEEPALIVE, payloads.resume_entry(Session(TOKEN, None)))
    stream = a.open("stream", resumable(b""), credit=1)
    said(a)
    assert a.receive(wired(SetupOk()), 0.0) == [ev.Established(None)]
    assert [frame.stream for frame in frames_of(said(a))] == [stream]
    assert [type(event) for event in a.receive_eof(1.0)] == [ev.Failed, ev.Closed]


def test_a_session_without_resumable_streams_ends_with_its_transport() -> None:
    a, b, sessions = pair()
    a.open("stream", b"plain", credit=1)
    exchange(a, b)
    heard_a, heard_b = lose(a, b)
    assert [type(event) for event in heard_a] == [ev.Failed, ev.Closed]
    assert [type(event) for event in heard_b] == [ev.Failed, ev.Closed]
    assert len(sessions) == 0


def test_R_40_the_server_does_not_continue_a_stream() -> None:
    """Of two streams one is unknown to the server: it ends with REJECTED, the other continues."""
    a, b, sessions = pair()
    stream = streaming(a, b)
    lost = a.open("stream", resumable(b"lost"), credit=1)
    said(a)  # it does not arrive
    lose(a, b)
    b, heard_a, heard_b = resumed(a, sessions, 2.0)
    assert [(type(event), getattr(event, "stream", 0)) for event in heard_a] == [(ev.Failed, lost), (ev.Resumed, 0)]
    assert heard_a[0].error.code == 0x202
    assert heard_b == [ev.Resumed()]
    b.send(stream, [b"1"], complete=True)
    assert [type(event) for event in exchange(a, b)[0]] == [ev.Items]


def test_R_40_the_client_does_not_list_a_stream() -> None:
    a, b, sessions = pair()
    first, second = streaming(a, b), streaming(a, b)
    lose(b)
    session, (resuming_,) = asking(sessions, resuming(Position(first, 1)))
    assert b.resumption is not None
    heard = b.resumption.resume(resuming_.request, 2.0)
    assert [(type(event), getattr(event, "stream", 0)) for event in heard] == [(ev.Failed, second), (ev.Resumed, 0)]
    assert session.resumption is not None
    assert session.resumption.hand_over() == b""
    (ok,) = frames_of(said(b))
    assert payloads.positions_of(ok.extensions[0]) == (Position(first, 1),)
    assert not a.closed


def test_R_41_each_stream_is_repeated_from_the_peers_position() -> None:
    a, b, sessions = pair()
    stream = streaming(a, b)
    b.send(stream, [b"1", b"2"])
    lost = said(b)
    assert len(frames_of(lost)) == 2
    lose(a, b)
    b, heard_a, _ = resumed(a, sessions, 2.0)
    assert [payload.data for event in heard_a[1:] for payload in event.payloads] == [b"1", b"2"]


@pytest.mark.parametrize(
    ("setup", "code", "rule"),
    [
        (resuming(Position(1, 1), token=b"another token 123"), 0x004, "RE-02"),
        (resuming(Position(1, 1), major=1), 0x001, "R-3"),
        (resuming(Position(1, 1), stream=1), 0x001, "HS-03"),
        (Setup(extensions=(Entry(ID, b"\0\1", True, True, 8),)), 0x001, "R-16"),
    ],
)
def test_a_resuming_SETUP_that_is_refused(setup: Setup, code: int, rule: str) -> None:
    """Table 3.2."""
    a, b, sessions = pair()
    streaming(a, b)
    newcomer, events = asking(sessions, setup)
    assert (events[-1].error.code, events[-1].error.rule) == (code, rule)
    assert [frame.code for frame in frames_of(said(newcomer))] == [code]
    assert not b.closed


def test_a_server_without_resumption_refuses_a_resuming_SETUP() -> None:
    b = server()
    assert b.receive(wired(resuming(Position(1, 1))), 0.0)[-1].error.rule == "RE-01"


def test_an_unknown_session_for_a_driver_that_asks() -> None:
    newcomer, (asked,) = asking(Sessions(LIMITS, asks=True), resuming(Position(1, 1)))
    assert asked.session is None
    newcomer.refuse("no such session", 2.0)
    assert [(frame.code, frame.data) for frame in frames_of(said(newcomer))] == [(0x004, b"no such session")]
    assert newcomer.closed


@pytest.mark.parametrize(
    "setup",
    [
        resuming(),
        resuming(Position(3, 1)),
        resuming(Position(1, 9)),
        resuming(Position(1, 1), data_mime="text/plain"),
    ],
)
def test_what_a_session_refuses(setup: Setup) -> None:
    """R-38: it keeps its MIME types. Without a stream to continue there is nothing to resume (3.2)."""
    a, b, sessions = pair()
    streaming(a, b)
    newcomer, (asked,) = asking(sessions, setup)
    with pytest.raises(Rejected) as caught:
        asked.session.resumption.resume(asked.request, 2.0)
    assert caught.value.code == 0x004
    assert not b.closed
    newcomer.refuse(str(caught.value), 2.0)
    assert frames_of(said(newcomer))[0].code == 0x004


def test_resumptions_that_are_too_frequent() -> None:
    """RE-19; RE-14: a newer transport replaces one that is still there."""
    a, b, sessions = pair()
    streaming(a, b)
    _, (asked,) = asking(sessions, resuming(Position(1, 1)))
    assert b.resumption is not None
    heard = b.resumption.resume(asked.request, 2.0)
    assert [type(event) for event in heard] == [ev.Suspended, ev.Resumed]
    with pytest.raises(Rejected, match="too often"):
        b.resumption.resume(asked.request, 2.0)
    b.close(3.0)
    with pytest.raises(Rejected, match="no such session"):
        b.resumption.resume(asked.request, 4.0)
    assert len(sessions) == 0


def test_a_client_whose_resumption_is_refused() -> None:
    a, b, _ = pair()
    streaming(a, b)
    lose(a)
    assert a.resumption is not None
    a.resumption.reconnect(2.0)
    events = a.receive(wired(frames.ErrorFrame(stream=0, code=0x004, data=b"gone")), 2.0)
    assert [type(event) for event in events] == [ev.Failed, ev.Closed]
    assert isinstance(events[-1].error, SetupRefused)


def test_answers_to_a_resuming_SETUP() -> None:
    """Table 3.1: another error, or the loss of the transport, is one more try; other frames are ignored."""
    a, b, sessions = pair()
    streaming(a, b)
    lose(a, b)
    assert a.resumption is not None
    a.resumption.reconnect(2.0)
    assert [type(event) for event in a.receive(wired(frames.PayloadFrame(stream=1, next=True)), 2.0)] == [ev.Ignored]
    (suspended,) = a.receive(wired(frames.ErrorFrame(stream=0, code=0x101, data=b"no")), 2.0)
    assert (type(suspended), suspended.error.message) == (ev.Suspended, "no")
    a.resumption.reconnect(3.0)
    assert [type(event) for event in a.receive_eof(3.0)] == [ev.Suspended]
    a.resumption.reconnect(4.0)
    assert a.deadline == 4.0 + LIMITS.handshake_s
    assert a.tick(4.0) == []
    assert [type(event) for event in a.tick(4.0 + LIMITS.handshake_s)] == [ev.Suspended]
    with pytest.raises(LocalProtocolError):
        b.resumption.reconnect(5.0)  # type: ignore[union-attr]  # a server has the ability
    assert [type(event) for event in resumed(a, sessions, 20.0)[1]] == [ev.Resumed]


@pytest.mark.parametrize(
    ("answer", "rule"),
    [
        (SetupOk(), "3.1"),
        (SetupOk(extensions=(Entry(ID),)), "3.1"),
        (SetupOk(extensions=(payloads.list_entry([Position(9, 0)], marked=True),)), "R-40"),
        (SetupOk(extensions=(payloads.list_entry([Position(1, 9)], marked=True),)), "R-35"),
    ],
)
def test_a_SETUP_OK_that_does_not_fit(answer: SetupOk, rule: str) -> None:
    a, b, _ = pair()
    streaming(a, b)
    lose(a)
    a.resumption.reconnect(2.0)  # type: ignore[union-attr]  # a suspended client has it
    events = a.receive(wired(answer), 2.0)
    assert (events[-1].error.code, events[-1].error.rule) == (0x101, rule)
    assert [frame.NAME for frame in frames_of(said(a))][-1] == "ERROR"


def test_D_15_a_session_that_is_not_resumed_in_time() -> None:
    a, b, sessions = pair()
    streaming(a, b)
    lose(a, b)
    for engine in (a, b):
        assert engine.deadline == 1.0 + LIMITS.resume_s
        assert engine.receive(b"whatever", 2.0) == []
        events = engine.tick(1.0 + LIMITS.resume_s)
        assert [type(event) for event in events] == [ev.Failed, ev.Closed]
        assert isinstance(events[-1].error, ConnectionClosed)
    assert len(sessions) == 0


def test_what_the_application_does_while_there_is_no_transport() -> None:
    a, b, sessions = pair()
    stream = streaming(a, b, "channel")
    b.request(stream, 10)
    exchange(a, b)
    lose(a, b)
    a.send(stream, [b"while away"])
    b.send(stream, [b"too"])
    a.close(1.5, drain=True)
    b, heard_a, heard_b = resumed(a, sessions, 2.0)
    assert [type(event) for event in heard_a] == [ev.Resumed, ev.Items]
    assert ev.Draining("closed") in heard_b
    a.complete(stream)
    b.complete(stream)
    heard_a, heard_b = exchange(a, b, 2.0)
    assert type(heard_a[-1]) is ev.Closed


def test_a_peer_that_drains_is_still_drained() -> None:
    a, b, sessions = pair()
    streaming(a, b)
    b.close(0.5, drain=True)
    exchange(a, b)
    lose(a, b)
    b, heard_a, _ = resumed(a, sessions, 2.0)
    assert heard_a[0] == ev.Resumed()
    assert a.state.name == "DRAINING"


def test_a_session_that_is_closed_while_it_is_away() -> None:
    a, b, _ = pair()
    streaming(a, b)
    lose(a, b)
    for engine in (a, b):
        assert type(engine.close(2.0)[-1]) is ev.Closed


def test_R_44_leases_begin_again() -> None:
    a, b, sessions = pair(payloads.lease_entry([payloads.REQUESTS], ack=True), lease=FixedLease(1, 100.0))
    stream = a.open("stream", resumable(b""), credit=5, now=0.0)
    exchange(a, b)
    b.send(stream, [b"0"])
    exchange(a, b)
    lose(a, b)
    assert a.leases is not None
    assert a.leases.lease(1.0) == (0, 0.0)
    _, heard_a, _ = resumed(a, sessions, 2.0)
    assert [event for event in heard_a if isinstance(event, ev.Leased)] == [ev.Leased(1, 100.0)]


def test_a_store_that_stays_full_is_discarded() -> None:
    """RE-17: the streams continue, and do not survive the transport any more."""
    limits = Limits.server(resume_bytes=0x4000)
    a, b, _ = pair(limits=limits)
    stream = streaming(a, b, credit=1000)
    for _ in range(6):
        b.send(stream, [bytes(0x1000)])
        said(b)
    assert b.queued
    assert b.deadline == 0.0
    b.tick(0.0)
    b.tick(1.0)
    assert b.queued
    b.receive(b"", 80.0)
    b.tick(limits.write_stall_s)
    assert b.resumption is not None
    assert not b.resumption.resumable
    assert said(b)
    assert not a.closed


def test_a_store_that_has_room_again_is_kept() -> None:
    limits = Limits.server(resume_bytes=0x4000)
    a, b, _ = pair(limits=limits)
    stream = streaming(a, b, credit=1000)
    sent = b""
    for _ in range(6):
        b.send(stream, [bytes(0x1000)])
        sent += said(b)
    b.tick(0.0)
    assert not b.receive(wired(ExtChain(extensions=(payloads.list_entry([Position(stream, 1)]),))), 0.5)
    b.receive(wired(ExtChain(extensions=(payloads.list_entry([Position(stream, 1 + len(frames_of(sent)))]),))), 1.0)
    b.tick(limits.write_stall_s)
    assert b.resumption is not None
    assert b.resumption.resumable
    assert not a.closed


def test_fragments_of_a_plain_request_are_dropped_with_its_transport() -> None:
    a, b, sessions = pair()
    stream = streaming(a, b)
    b.receive(wired(frames.RequestResponse(stream=99, follows=True, data=bytes(100))), 0.0)
    b.receive(
        wired(frames.RequestStream(stream=101, initial_n=1, follows=True, extensions=(WISH,), data=bytes(100))), 0.0
    )
    assert sorted(b.stream_table.reassembly.partials) == [99, 101]
    lose(b)
    assert sorted(b.stream_table.reassembly.partials) == [101]
    assert stream in [status.stream for status in b.streams()]
    assert len(sessions) == 1


@pytest.mark.parametrize(
    ("token", "text"),
    [(TOKEN, b"the token is in use"), (b"", b"bad-token"), (b"another one 12345", b"too many sessions")],
)
def test_a_token_that_cannot_be_used(token: bytes, text: bytes) -> None:
    limits = Limits.server(resume_sessions=1)
    _, _, sessions = pair(limits=limits)
    setup = Setup(extensions=(payloads.resume_entry(Session(token, None)),))
    newcomer = server(sessions=sessions, limits=limits)
    newcomer.receive(wired(setup), 0.0)
    (answer,) = frames_of(said(newcomer))
    assert answer.code == 0x003
    assert answer.data.startswith(text)


def test_what_a_driver_sees_of_a_session() -> None:
    a, b, _ = pair()
    stream = streaming(a, b, "channel")
    assert a.resumption is not None
    assert b.resumption is not None
    assert (a.resumption.opened, list(b.resumption.handlers)) == ([stream], [stream])
    assert b.resumption.stream_counters(stream) == (1, 4, 0)
    assert a.resumption.stream_counters(stream) == (1, 0, 4)
    assert a.resumption.stream_counters(99) is None
    b.complete(stream)
    assert b.resumption.stream_counters(stream) == (0, 4, 0)
    assert not a.resumption.begins_anew
    with pytest.raises(LocalProtocolError):
        b.resumption.hand_over()


def test_old_streams_are_forgotten() -> None:
    a, b, _ = pair()
    for _ in range(200):
        stream = a.open("request", b"")
        exchange(a, b)
        b.answer([stream], [Payload(b"")])
        exchange(a, b)
    a.tick(0.5)
    exchange(a, b, 0.5)
    part: Any = a.resumption
    assert len(part.part.retained.started) <= 64


def test_records_of_streams_that_are_over_are_dropped_when_reported() -> None:
    a, b, _ = pair()
    stream = streaming(a, b)
    b.send(stream, [b"1"], complete=True)
    exchange(a, b)
    for now in (0.5, 1.0):
        a.tick(now)
        exchange(a, b, now)
    for engine in (a, b):
        part: Any = engine.resumption
        assert part.part.retained.records == {}
        assert part.part.size == 0
        assert not part.resumable
