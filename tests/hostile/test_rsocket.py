"""Hostile RSocket peers over a bare engine: one case, or more, for each row of the catalogue that an engine decides.

Cases that stand among the conversations already are cited in ELSEWHERE, not told twice; rows that only a driver, a
listener or a transport can keep are in NOT_HERE with the reason. The last tests check both tables.
"""

from __future__ import annotations

import ast
import tracemalloc
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from afflux.core import events as ev
from afflux.core.errors import ConnectionClosed, LimitExceeded, LocalProtocolError, Rejected, RemoteProtocolError
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.protocols.rsocket import Engine, frames
from tests.protocols.rsocket.playbook import Playbook, closed, error, failed, ignored, requester, responder, setup

P = frames.PayloadFrame
N = frames.RequestN
TINY = Limits.tiny()
SERVER = Limits.server()

ELSEWHERE: dict[str, tuple[str, ...]] = {
    "FR-01": ("test_establishment::test_frames_shorter_than_a_header", "test_establishment::test_first_frame_is_setup"),
    "FR-02": ("test_establishment::test_frames_at_and_above_the_limit",),
    "FR-05": ("test_establishment::test_a_frame_that_never_ends", "test_pair::test_bytes_one_by_one_cost_the_same_each"),
    "FR-06": ("test_pair::test_every_truncation_ends_in_order",),
    "FR-08": (
        "test_pair::test_every_split_gives_the_same_events",
        "test_pair::test_random_splits_give_the_same_events",
    ),
    "FR-09": (
        "test_pair::test_constant_garbage",
        "test_pair::test_garbage_never_raises",
        "test_pair::test_framed_garbage_never_raises",
    ),
    "FR-11": ("test_establishment::test_unknown_frames_by_the_ignore_flag",),
    "FR-12": ("test_establishment::test_unknown_frames_by_the_ignore_flag",),
    "FR-14": ("test_establishment::test_unknown_frames_by_the_ignore_flag",),
    "FR-19": ("test_codes::test_arriving_text_may_hold_anything_and_is_cut", "test_streams::test_stream_fails"),
    "FR-29": ("test_pair::test_every_bit_flip_has_a_documented_outcome",),
    "HS-01": ("test_establishment::test_a_silent_stranger_is_closed_without_a_word",),
    "HS-02": ("test_establishment::test_first_frame_is_setup",),
    "HS-03": ("test_establishment::test_setup_on_a_stream_is_invalid",),
    "HS-04": ("test_establishment::test_second_setup_is_ignored",),
    "HS-06": ("test_establishment::test_setup_is_refused", "test_establishment::test_version_text_names_ours"),
    "HS-07": ("test_establishment::test_setup_is_refused",),
    "HS-08": ("test_establishment::test_setup_is_refused",),
    "HS-09": ("test_establishment::test_zero_times_are_invalid",),
    "HS-12": ("test_establishment::test_first_frame_too_large",),
    "HS-14": ("test_establishment::test_a_request_is_an_acceptance", "test_establishment::test_client_ignores_setup_frames"),
    "SI-01": ("test_streams::test_requests_that_make_no_sense",),
    "SI-02": ("test_streams::test_requests_that_make_no_sense",),
    "SI-03": ("test_streams::test_requests_that_make_no_sense",),
    "SI-04": ("test_streams::test_requests_that_make_no_sense",),
    "SI-09": (
        "test_establishment::test_connection_frames_on_a_stream_are_ignored",
        "test_establishment::test_keepalive_on_a_stream_is_not_echoed",
    ),
    "SI-11": ("test_streams::test_answer_is_received",),
    "SI-13": ("test_streams::test_a_payload_with_neither_flag",),
    "FC-01": ("test_streams::test_credit_of_zero",),
    "FC-02": ("test_streams::test_credit_of_zero",),
    "FC-08": ("test_streams::test_credit_frames_are_budgeted",),
    "FG-02": ("test_streams::test_fragments_without_progress", "test_streams::test_too_many_fragments"),
    "FG-06": ("test_streams::test_fragments_are_dropped_by_cancel_and_error",),
    "FG-08": ("test_streams::test_metadata_after_data",),
    "FG-12": ("test_streams::test_next_may_miss_and_complete_ends_fragments",),
    "FG-14": ("test_establishment::test_metadata_length_that_lies",),
    "FG-20": ("test_metadata::test_an_entry_past_the_end_is_an_error_that_keeps_the_entries_before_it",),
    "FG-21": ("test_metadata::test_tags_have_0_to_255_bytes",),
    "FG-22": ("test_streams::test_fragments_there_and_back",),
    "KA-01": ("test_establishment::test_setup_is_accepted",),
    "KA-03": ("test_establishment::test_keepalive_data_too_large",),
    "SL-02": ("test_establishment::test_a_frame_that_never_ends",),
    "SL-03": ("test_establishment::test_eof",),
    "SL-08": ("test_streams::test_unconsumed_items_stop_the_reading",),
}
"Row to the conversations in tests/protocols/rsocket that tell it."

NOT_HERE: dict[str, str] = {
    "FR-28": "turns of the loop are the driver's",
    "HS-27": "accepting is the listener's",
    "KA-07": "the position is looked at with resumption only",
    "SL-01": "how fast bytes leave is the driver's to see",
    "SL-05": "a dead link is the lifetime's: KA-04 and KA-05; the blackhole is the transport's",
    "SL-07": "handlers are the driver's",
    "SL-10": "allocations, sends and receives that fail are the driver's",
}
"Rows that no engine can keep, and who does."

ROWS = (
    *(f"FR-{n:02}" for n in (1, 2, 5, 6, 8, 9, 11, 12, 14, 15, 19, 20, 21, 28, 29)),
    *(f"HS-{n:02}" for n in (1, 2, 3, 4, 6, 7, 8, 9, 11, 12, 14, 16, 27)),
    *(f"SI-{n:02}" for n in (1, 2, 3, 4, 6, 7, 9, 10, 11, 13, 15, 16)),
    *(f"FC-{n:02}" for n in (1, 2, 3, 4, 5, 8, 9, 10, 24)),
    *(f"FG-{n:02}" for n in (1, 2, 3, 4, 6, 7, 8, 10, 12, 14, 20, 21, 22)),
    *(f"KA-{n:02}" for n in (1, 2, 3, 4, 5, 7)),
    *(f"FL-{n:02}" for n in (1, 2, 3, 4, 6, 10)),
    *(f"SL-{n:02}" for n in (1, 2, 3, 5, 7, 8, 10)),
)
"Every row of sections 3.1 to 3.6 and 3.8 that is tagged RS1 or all, resumption and leases apart."


def item(stream: int, data: bytes = b"x", complete: bool = False) -> P:
    return P(stream=stream, next=True, complete=complete, data=data)


def part(stream: int, size: int = 60) -> P:
    return P(stream=stream, next=True, follows=True, data=bytes(size))


def opened(engine: Engine, verb: ev.Verb = "stream", credit: int = 9) -> Playbook:
    """A playbook of an engine that has opened stream 1 and said so."""
    play = Playbook.__new__(Playbook)
    Playbook.__init__(play, engine)
    play.sent.clear()
    return play


def asked(verb: str, id: int = 1, n: int = 5, **fields: Any) -> frames.StreamFrame:
    """A request frame."""
    kinds = {"request": frames.RequestResponse, "fire": frames.RequestFnf}
    if verb in kinds:
        return kinds[verb](stream=id, data=b"", **fields)
    kind = frames.RequestStream if verb == "stream" else frames.RequestChannel
    return kind(stream=id, initial_n=n, data=b"", **fields)


def streaming(credit: int, limits: Limits | None = None, verb: ev.Verb = "stream") -> Playbook:
    play = requester(limits=limits).do(lambda engine: engine.open(verb, b"", credit=credit))
    return play << frames.StreamFrame


def serving(verb: str = "stream", limits: Limits | None = None, n: int = 5) -> Playbook:
    return responder(limits=limits) >> asked(verb, n=n) << ev.Opened


def raw(hex: str) -> bytes:
    """A frame in hexadecimal, without its prefix."""
    data = bytes.fromhex(hex)
    return len(data).to_bytes(3, "big") + data


# -- 3.1 framing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hex", "event"),
    [
        ("00000000 0c1f 0000000000000000", None),
        ("00000001 101f 61", ev.Opened),
        ("00000001 141f 61", ev.Opened),
        ("00000001 183f 00000001 61", ev.Opened),
        ("00000001 1c1f 00000001 61", ev.Opened),
        ("00000000 301f 61", ev.Pushed),
    ],
)
def test_FR_15_flags_without_a_meaning_are_zero(hex: str, event: type | None) -> None:
    play = responder() >> raw(hex)
    if event is not None:
        play << event
    play.quiet()


def test_FR_15_flags_without_a_meaning_on_the_frames_of_a_stream() -> None:
    play = streaming(5) >> raw("00000001 283f 61") << ev.Items(1, [Payload(b"a")])
    play >> raw("00000001 2c1f 00000201") << (ev.Failed, {"stream": 1})
    play = serving() >> raw("00000001 23ff 00000007") << ev.Granted(1, 7)
    play >> raw("00000001 27ff") << ev.Canceled(1, True)
    play.quiet()


@pytest.mark.parametrize(
    "hex", ["00000000 0c80 00000000000000", "00000001 2000", "00000001 2000 000000", "00000001 2c00 000002", "00000000 fc00 0000"]
)
def test_FR_20_bodies_cut_short(hex: str) -> None:
    serving() >> raw(hex) << failed(1, RemoteProtocolError) << closed(RemoteProtocolError, rule="R-7") << error(0, 0x101)
    ignorable = bytearray(raw(hex))
    ignorable[7] |= 0x02
    serving() >> bytes(ignorable) << ignored(1)


def test_FR_20_a_resume_cut_inside_its_token() -> None:
    cut = raw("00000000 3400 0001 0000 0010 746f6b")
    play = Playbook(Engine("server")) >> cut << closed(RemoteProtocolError) << error(0, 0x004)
    play.quiet()


def test_FR_21_bytes_after_the_end() -> None:
    play = serving() >> raw("00000001 2400 ff") << ignored(1, "FR-21") << ev.Canceled(1, True)
    play = requester() >> raw("00000000 3800 0000000000000000 ff") << ignored(1, "FR-21") << ignored(10)
    play.quiet()


def test_FR_05_a_deadline_is_never_in_the_past() -> None:
    """A driver that is called at the deadline must not be called for nothing again and again."""
    limits = SERVER.replace(frame_s=1)
    play = Playbook(Engine("server", limits=limits)) >> b"\0\0"
    assert play.engine.deadline == 10.0
    play.at(1.0).quiet()
    play.at(10.0) << closed(ConnectionClosed)


# -- 3.2 handshake --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "rule"), [(1, "R-15"), (1024, "R-15"), (1025, "R-53"), (65535, "R-53")])
def test_HS_11_tokens(size: int, rule: str) -> None:
    limits = SERVER.replace(first_frame_bytes=0x20000)
    play = Playbook(Engine("server", limits=limits)) >> setup(token=bytes(size))
    play << closed(RemoteProtocolError, rule=rule) << error(0, 0x003)


def test_HS_11_a_token_beyond_the_frame() -> None:
    data = bytearray(setup(token=b"token").encode(prefixed=True))
    data[21:23] = b"\xff\xff"
    Playbook(Engine("server")) >> bytes(data) << closed(RemoteProtocolError, rule="R-7") << error(0, 0x001)


def test_HS_16_nothing_runs_before_the_decision() -> None:
    request = frames.RequestResponse(stream=1, data=b"").encode(prefixed=True)
    crowd = b"".join(
        frames.RequestResponse(stream=1 + 2 * n, data=b"").encode(prefixed=True) for n in range(SERVER.streams + 9)
    )
    play = Playbook(Engine("server", decide=True)) >> (setup(), crowd) << ev.Established
    play.do(lambda engine: engine.refuse("no", 0.0)) << closed(ConnectionClosed, code=0x003) << error(0, 0x003, b"no")
    play.quiet()
    play = Playbook(Engine("server", decide=True)) >> (setup(), crowd, request) << ev.Established
    play.do(lambda engine: engine.accept(0.0))
    for n in range(SERVER.streams):
        play << (ev.Opened, {"stream": 1 + 2 * n})
    for n in range(SERVER.streams, SERVER.streams + 9):
        play << ignored(1, "REJECTED") << error(1 + 2 * n, 0x202, b"too-many-streams")
    play << ignored(10, "R-31")
    play.quiet()


def test_HS_16_a_decision_is_made_once() -> None:
    """A second decision is a mistake of this side: the peer is not charged for it."""
    play = responder()
    for engine in (play.engine, requester().engine, Engine("server")):
        with pytest.raises(LocalProtocolError, match="nothing to decide"):
            engine.accept(0.0)
        with pytest.raises(LocalProtocolError, match="nothing to decide"):
            engine.refuse("no", 0.0)
    play.quiet()


@pytest.mark.parametrize(
    ("code", "said"), [(None, 3), (1, 1), (2, 2), (3, 3), (4, 3), (0, 3), (0x202, 3), (1 << 40, 3)]
)
def test_HS_16_refusals_have_a_code_of_their_own(code: int | None, said: int) -> None:
    play = Playbook(Engine("server", decide=True)) >> setup() << ev.Established
    play.do(lambda engine: engine.refuse("no", 0.0, code)) << closed(ConnectionClosed, code=said) << error(0, said)


# -- 3.3 ids and states ---------------------------------------------------------------------------------------


def test_SI_03_an_id_with_its_top_bit_set_is_the_id_without_it() -> None:
    play = serving("request")
    play >> raw("80000001 1000 61") << ignored(10, "R-31")
    play >> raw("80000003 1000 61") << (ev.Opened, {"stream": 3})
    play >> raw("80000003 2400") << ev.Canceled(3, True)
    play.quiet()


def test_SI_06_our_ids_wrap_and_skip_the_busy_ones() -> None:
    play = streaming(5)
    ids = play.engine._streams._ids
    ids._next = 0x7FFFFFFD
    sent = [play.engine.open("request", b"") for _ in range(3)]
    assert sent == [0x7FFFFFFD, 0x7FFFFFFF, 3]
    assert ids.wrapped
    play._collect([])
    play.sent.clear()
    play >> item(1) << ev.Items(1, [Payload(b"x")])


def test_SI_06_an_id_that_is_used_again_has_no_past() -> None:
    play = streaming(1).do(lambda engine: engine.cancel(1)) << frames.Cancel
    play.engine._streams._ids._next = 0x7FFFFFFF
    assert [play.engine.open("fire", b""), play.engine.open("stream", b"", credit=1)] == [0x7FFFFFFF, 1]
    play._collect([])
    play.sent.clear()
    play >> item(1, complete=True) << ev.Items(1, [Payload(b"x")], True)
    play >> item(1) << ignored(10, "SI-10")


def test_SI_06_all_ids_busy() -> None:
    engine = requester().engine
    engine._streams._ids._count = 2
    engine.open("request", b"")
    engine.open("request", b"")
    engine._streams._ids._next = 1
    with pytest.raises(LimitExceeded, match="stream ids"):
        engine.open("request", b"")


@pytest.mark.parametrize("frame", [item(0), frames.Cancel(stream=0), N(stream=0, n=1), item(99), N(stream=99, n=1)])
def test_SI_07_unknown_ids_and_id_0(frame: frames.StreamFrame) -> None:
    responder() >> frame << ignored(1, "R-31")


@pytest.mark.parametrize("credit", [1, 255, 256, 257, 5000])
def test_SI_07_what_was_under_way_when_we_canceled_is_free(credit: int) -> None:
    """256 frames, or all that the peer had credit for: the application that leaves a fast stream keeps its peer."""
    play = streaming(credit).do(lambda engine: engine.cancel(1)) << frames.Cancel
    play >> tuple(item(1) for _ in range(max(256, credit)))
    for _ in range(max(256, credit)):
        play << ignored(0, "SI-07")
    play >> item(1) << ignored(1, "R-31")


def test_SI_07_what_was_under_way_when_we_failed_is_free() -> None:
    play = serving("channel").do(lambda engine: engine.request(1, 1001)) << N(stream=1, n=1000)
    play.do(lambda engine: engine.fail(1, Rejected("no"))) << error(1, 0x202)
    play >> tuple(item(1) for _ in range(1000))
    for _ in range(1000):
        play << ignored(0, "SI-07")
    play >> item(1) << ignored(1)


def test_SI_07_what_was_under_way_when_we_canceled_one_half_is_free() -> None:
    """D-6: the responder's half goes on, the requester's items cross the CANCEL."""
    play = serving("channel").do(lambda engine: engine.request(1, 501)) << N(stream=1, n=500)
    play.do(lambda engine: engine.cancel(1)) << frames.Cancel(stream=1)
    play >> (*(item(1) for _ in range(498)), part(1), P(stream=1, complete=True, data=b""))
    for _ in range(500):
        play << ignored(0, "SI-07")
    play >> item(1) << ignored(10, "R-31")
    play.do(lambda engine: engine.send(1, [b"on"])) << item(1, b"on")
    play >> frames.Cancel(stream=1) << ev.Canceled(1, True)


def test_SI_07_some_requesters_cancel_and_go_on_within_their_credit() -> None:
    play = serving("channel").do(lambda engine: engine.request(1, 4)) << N(stream=1, n=3)
    play >> frames.Cancel(stream=1) << ev.Canceled(1, True)
    play >> item(1) << ignored(0) >> item(1) << ignored(0) >> item(1) << ignored(0) >> item(1) << ignored(1)


def test_SI_07_a_cancel_may_cross_the_answer() -> None:
    """One for each answer, however many; no more than that."""
    play = responder()
    for n in range(2000):
        play >> frames.RequestResponse(stream=1 + 2 * n, data=b"") << ev.Opened
        play.do(lambda engine, id=1 + 2 * n: engine.send(id, [b""])) << P  # type: ignore[misc]  # bound at once
        play.engine.release(1 + 2 * n)
        play >> frames.Cancel(stream=1 + 2 * n) << ignored(0, "SI-07")
    play >> frames.Cancel(stream=1) << ignored(1)
    play.quiet()


def test_SI_07_free_cancels_are_not_saved_up() -> None:
    limits = TINY
    engine = responder(limits=limits).engine
    for n in range(limits.tombstones + 1):
        engine.receive(frames.RequestResponse(stream=1 + 2 * n, data=b"").encode(prefixed=True), 0.0)
        engine.send(1 + 2 * n, [b""])
        engine.release(1 + 2 * n)
    engine.outgoing(1 << 20)
    prices = []
    for _ in range(limits.tombstones + 1):
        (told,) = engine.receive(frames.Cancel(stream=1).encode(prefixed=True), 0.0)
        prices.append(told.price)  # type: ignore[union-attr]  # an Ignored event
    assert prices == [0] * limits.tombstones + [1]


def test_SI_07_credit_may_cross_the_end() -> None:
    """A peer that grants one by one has as much credit under way as items; its budget is that of FC-08."""
    play = serving(n=1000)
    play.do(lambda engine: engine.send(1, [b"x"] * 1000, complete=True))
    play.sent.clear()
    for _ in range(1000):
        play >> N(stream=1, n=1) << ignored(0)
    play.quiet()


def test_SI_07_cancels_for_a_half_that_is_over_are_bounded() -> None:
    play = streaming(5, TINY)
    for _ in range(TINY.cancel_race_frames):
        play >> frames.Cancel(stream=1) << ignored(0)
    play >> frames.Cancel(stream=1) << ignored(1, "cancel_race_frames")


def test_SI_07_tombstones_are_bounded() -> None:
    limits = TINY.replace(cancel_bucket=(10_000, 0), glitch_bucket=(10_000, 0))
    engine = requester(limits=limits).engine
    for _ in range(limits.tombstones * 3):
        engine.cancel(engine.open("request", b""))
        while engine.outgoing():
            pass
    streams = engine._streams
    assert len(streams._late._given_up) == limits.tombstones
    assert not streams.live
    (told,) = engine.receive(item(1).encode(prefixed=True), 0.0)
    assert told == ev.Ignored(1, "R-31", "PAYLOAD for an unknown stream", 1)


def test_SI_10_nothing_follows_the_end_of_the_peers_half() -> None:
    late = (item(1), P(stream=1, complete=True, data=b""), frames.ErrorFrame(stream=1, code=0x201, data=b""))
    play = streaming(5) >> P(stream=1, complete=True, data=b"") << ev.Completed(1)
    for frame in late:
        play >> frame << ignored(10, "SI-10")
    play = streaming(5, verb="channel") >> P(stream=1, complete=True, data=b"") << ev.Completed(1)
    for frame in late[:2]:
        play >> frame << ignored(10, "R-31")
    play >> late[2] << (ev.Failed, {"stream": 1})
    play >> late[2] << ignored(10, "SI-10")
    play.quiet()


ENDS: dict[str, Any] = {
    "complete": P(stream=1, complete=True, data=b""),
    "error": frames.ErrorFrame(stream=1, code=0x201, data=b""),
    "cancel": frames.Cancel(stream=1),
}


@pytest.mark.parametrize("role", ["requester", "responder"])
@pytest.mark.parametrize("order", ["ours first", "theirs first"])
@pytest.mark.parametrize("theirs", [*ENDS])
@pytest.mark.parametrize("ours", [*ENDS])
def test_SI_15_every_pair_of_ends_of_a_channel(role: str, order: str, ours: str, theirs: str) -> None:
    """Whoever ends how, and who comes first: inbound ends once, and nothing is left behind but an open half."""
    play = streaming(5, verb="channel") if role == "requester" else serving("channel")
    engine = play.engine
    ends = {
        "complete": lambda: engine.complete(1),
        "error": lambda: engine.fail(1, Rejected("no")),
        "cancel": lambda: engine.cancel(1),
    }
    said = ENDS[theirs].encode(prefixed=True)
    events: list[ev.Event] = []
    for who in ("ours", "theirs") if order == "ours first" else ("theirs", "ours"):
        if who == "ours":
            ends[ours]()
        else:
            events += engine.receive(said, 0.0)
    terminal = [event for event in events if not isinstance(event, ev.Ignored)]
    assert len(terminal) <= 1
    halves = {"complete", "cancel"}
    half_open = ours in halves and theirs in halves and ours == theirs == "cancel" and role == "requester"
    assert (1 in engine._streams.live) in (half_open, not half_open)
    while engine.outgoing():
        pass
    for last in ("complete", "cancel"):
        ends[last]()
    engine.receive(ENDS["error"].encode(prefixed=True), 0.0)
    assert not engine._streams.live
    assert not engine._streams.reassembly.partials
    assert not engine.closed


@pytest.mark.parametrize("verb", ["request", "fire", "stream", "channel"])
@pytest.mark.parametrize("excess", [-1, 0, 1])
def test_SI_16_streams(verb: str, excess: int) -> None:
    play = responder(limits=TINY)
    for n in range(TINY.streams + excess):
        play >> asked(verb, 1 + 2 * n)
        if n < TINY.streams:
            play << ev.Opened
        else:
            play << ignored(1, "REJECTED")
            if verb != "fire":
                play << error(1 + 2 * n, 0x202, b"too-many-streams")
    play.quiet()


@pytest.mark.parametrize("verb", ["request", "fire", "stream", "channel"])
def test_SI_16_one_id_starts_one_handler(verb: str) -> None:
    """The id of a handler that still runs is in use, whatever the wire says of the stream."""
    play = responder() >> asked(verb) << ev.Opened
    if verb != "fire":
        play >> frames.Cancel(stream=1) << ev.Canceled(1, True)
    play >> asked(verb) << ignored(10, "R-31")
    play.do(lambda engine: engine.release(1)) >> asked(verb) << ev.Opened
    play.quiet()


@pytest.mark.parametrize("verb", ["request", "fire", "stream", "channel"])
def test_SI_16_requests_in_fragments_are_counted_when_they_are_whole(verb: str) -> None:
    limits = TINY.replace(streams=1)
    play = responder(limits=limits) >> asked(verb, 1, follows=True) >> asked(verb, 3, follows=True)
    play >> item(1) << ev.Opened
    play >> item(3) << ignored(1, "REJECTED")
    if verb != "fire":
        play << error(3, 0x202, b"too-many-streams")
    play.quiet()


def test_SI_16_the_short_way_sees_what_the_long_way_sees() -> None:
    """A whole request goes past the decoder: nothing that is wrong with it may get past."""
    play = responder() >> frames.RequestResponse(stream=5, follows=True, data=bytes(60))
    play >> frames.RequestResponse(stream=5, data=b"") << ignored(10, "R-31")
    play >> frames.RequestResponse(stream=4, data=b"") << ignored(10, "D-12")
    play >> raw("00000000 1000") << ignored(10, "D-12")
    play >> frames.RequestResponse(stream=3, data=b"") << ev.Opened  # lower, and never used
    play >> frames.RequestResponse(stream=3, data=b"") << ignored(10, "R-31")
    play >> frames.RequestResponse(stream=7, metadata=b"m", data=b"d")
    play << ev.Opened(7, "request", Payload(b"d", b"m"), 1, False)
    play >> frames.RequestResponse(stream=9, metadata=b"", data=b"")
    play << ev.Opened(9, "request", Payload(b"", b""), 1, False)
    play >> raw("0000000b 1100 0001 61") << (ev.Closed, {}) if False else play
    play.quiet()


@pytest.mark.parametrize("hex", ["0000000b 1100 000002 61", "0000000b 1100 ffffff", "0000000b 1100 0000", "0000000b 1100"])
def test_FG_14_a_request_whose_metadata_length_lies(hex: str) -> None:
    play = responder() >> raw(hex) << closed(RemoteProtocolError, rule="R-7") << error(0, 0x101)
    play.quiet()


@pytest.mark.parametrize("by", ["us", "them"])
def test_SI_01_requests_that_make_no_sense_while_draining(by: str) -> None:
    """A live stream is not refused a second time, and stream 0 is never refused anything."""
    play = serving()
    if by == "us":
        play.do(lambda engine: engine.close(0.0, drain=True)) << error(0, 0x102)
    else:
        play >> frames.ErrorFrame(stream=0, code=0x102, data=b"") << ev.Draining
    play >> asked("stream") << ignored(10, "R-31")
    play >> raw("00000000 1000") << ignored(10, "D-12")
    play >> asked("request", 2) << ignored(10, "D-12")
    play >> asked("request", 3) << ignored(1) << error(3, 0x202)
    play >> asked("fire", 5) << ignored(1)
    play.do(lambda engine: engine.complete(1)) << P
    play.eof() << ev.Closed(None)  # it had drained: nothing was lost
    play.quiet()


# -- 3.4 credit -----------------------------------------------------------------------------------------------


def test_FC_03_credit_saturates() -> None:
    play = serving(n=0x7FFFFFFF)
    stream = play.engine._streams.live[1]
    for start, left in ((2**31 - 2, 2**31 - 1), (2**63 - 3, 2**63 - 2), (2**63 - 2, 2**63 - 1), (2**63 - 1, 2**63 - 1)):
        stream.allowed = start
        play >> N(stream=1, n=1) << ev.Granted(1, 1)
        assert play.engine.credit(1) == left
    play.do(lambda engine: engine.send(1, [b"x"])) << item(1)
    assert play.engine.credit(1) == 2**63 - 2
    wanted = streaming(0x7FFFFFFF)
    wanted.engine._streams.live[1].owed = 2**63 - 2
    wanted.do(lambda engine: engine.request(1, 7)) << N(stream=1, n=7)
    assert wanted.engine._streams.live[1].owed == 2**63 - 1


@pytest.mark.parametrize("extra", ["plain", "metadata", "last", "fragment"])
@pytest.mark.parametrize("columnar", [False, True])
def test_FC_04_items_at_and_above_the_credit(extra: str, columnar: bool) -> None:
    play = requester().do(lambda engine: engine.open("stream", b"", credit=3, columnar=columnar)) << frames.StreamFrame
    play >> (item(1), item(1)) << ev.Event.__args__[ev.Event.__args__.index(ev.Block if columnar else ev.Items)]  # type: ignore[attr-defined]
    play >> item(1) << (ev.Block if columnar else ev.Items)
    play.quiet()
    surplus = {
        "plain": item(1),
        "metadata": P(stream=1, next=True, metadata=b"m", data=b""),
        "last": item(1, complete=True),
        "fragment": part(1),
    }[extra]
    play >> surplus << ignored(50, "R-27") << failed(1, RemoteProtocolError, rule="R-27") << frames.Cancel(stream=1)
    play.quiet()


def test_FC_04_one_end_when_the_bucket_is_empty_too() -> None:
    limits = SERVER.replace(glitch_bucket=(49, 0))
    play = streaming(1, limits) >> item(1) << ev.Items >> item(1) << ignored(50)
    play << failed(1, RemoteProtocolError, rule="glitch_bucket") << closed(RemoteProtocolError, rule="glitch_bucket")
    play << error(0, 0x101, b"protocol-abuse")
    play.quiet()


def test_FC_05_items_at_and_above_what_a_responder_granted() -> None:
    play = serving("channel") >> item(1) << ignored(50) << failed(1, RemoteProtocolError, rule="R-27") << error(1, 0x203)
    play = serving("channel").do(lambda engine: engine.request(1, 3)) << N(stream=1, n=2)
    play >> (item(1), item(1)) << (ev.Items, {"stream": 1})
    play >> item(1, complete=True) << ignored(50) << failed(1, RemoteProtocolError) << error(1, 0x203)
    assert not play.engine._streams.live
    play = serving("channel").do(lambda engine: engine.request(1, 3)) << N(stream=1, n=2)
    play >> (item(1), item(1)) << ev.Items >> P(stream=1, complete=True, data=b"") << ev.Completed(1)  # C needs none


def test_FC_09_a_peer_that_asks_for_all_and_reads_nothing() -> None:
    engine = serving(n=0x7FFFFFFF, limits=TINY).engine
    sent = 0
    while engine.room(0) > 0:
        engine.send(1, [bytes(1000)])
        sent += 1000
    assert sent <= TINY.outbound_high_bytes + 1000
    assert engine.wants_read  # its CANCEL must get through


@pytest.mark.parametrize("size", [1 << 20, 4 << 20])
def test_FC_09_two_ends_that_are_full_read_on(size: int) -> None:
    """Each end writes large payloads before either reads: reads never wait for writes (design rule 6)."""
    client = requester().engine
    server = responder().engine
    pipes = {client: bytearray(), server: bytearray()}
    got = dict.fromkeys(pipes, 0)
    left = dict.fromkeys(pipes, 4)
    for _ in range(10_000):
        for end, peer in ((client, server), (server, client)):
            while left[end] and end.room(0) > 0:
                end.open("fire", bytes(size))
                left[end] -= 1
            if len(pipes[peer]) < 0x20000:
                pipes[peer] += end.outgoing()
            if end.wants_read and pipes[end]:
                for event in end.receive(bytes(pipes[end]), 0.0):
                    assert isinstance(event, ev.Opened)
                    got[end] += len(event.payload)
                    end.consumed(len(event.payload))
                    end.release(event.stream)
                pipes[end].clear()
        if set(got.values()) == {4 * size}:
            return
    raise AssertionError(f"stuck: {got}")


def test_FC_10_a_stream_without_credit_stays() -> None:
    play = serving(n=1).do(lambda engine: engine.send(1, [b"x"])) << item(1)
    for now in range(80, 800, 80):
        play.now = float(now)
        play >> frames.Keepalive(stream=0)
        play.at(float(now)).quiet()
    with pytest.raises(LocalProtocolError):
        play.engine.send(1, [b"x"])
    play >> N(stream=1, n=1) << ev.Granted(1, 1)
    play.do(lambda engine: engine.send(1, [b"x"])) << item(1)


def test_FC_24_mistakes_of_the_application() -> None:
    play = streaming(3)
    for n in (0, -1, 0x80000000):
        with pytest.raises(LocalProtocolError):
            play.engine.request(1, n)
    play.do(lambda engine: engine.cancel(1)) << frames.Cancel
    play.do(lambda engine: engine.request(1, 1)).do(lambda engine: engine.cancel(1)).quiet()
    play = serving(n=2)
    with pytest.raises(TypeError):
        play.engine.send(1, [3])  # type: ignore[list-item]  # the mistake under test
    assert play.engine.credit(1) == 2
    play.do(lambda engine: engine.send(1, [])).quiet()
    play.do(lambda engine: engine.send(1, [b"a", b"b"], complete=True)) << item(1, b"a") << item(1, b"b", complete=True)
    play = serving("request").do(lambda engine: engine.send(1, [])).quiet()
    play.do(lambda engine: engine.send(1, [], complete=True)) << P(stream=1, complete=True, data=b"")


# -- 3.5 fragments --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["request", "fire", "stream", "channel"])
def test_FG_01_a_payload_too_large_is_refused_once(verb: str) -> None:
    """The rest is swallowed: it was under way, and may be long."""
    play = responder(limits=TINY) >> asked(verb, follows=True)
    size = 0
    while size + 1000 <= TINY.payload_bytes:
        play >> part(1, 1000)
        play.quiet()
        size += 1000
    play >> part(1, 1000)
    if verb != "fire":  # nothing is ever said to a fire
        play << error(1, 0x202, b"payload-too-large")
    assert not play.engine._streams.reassembly.size
    for _ in range(1000):
        play >> part(1, 1000) << ignored(0)
    play >> item(1) << ignored(0)
    play.quiet()


def test_FG_01_at_a_requester() -> None:
    play = streaming(5, TINY)
    for _ in range(TINY.payload_bytes // 1024):
        play >> part(1, 1024)
    play >> part(1, 1) << failed(1, LimitExceeded, rule="payload-too-large") << frames.Cancel(stream=1)
    for _ in range(1000):
        play >> part(1, 1024) << ignored(0)
    play.quiet()


@pytest.mark.parametrize("verb", ["request", "fire", "stream", "channel"])
def test_FG_01_a_large_request_that_is_refused_at_its_head(verb: str) -> None:
    limits = TINY.replace(streams=0)
    play = responder(limits=limits) >> asked(verb, follows=True) << ignored(1, "REJECTED")
    if verb != "fire":
        play << error(1, 0x202)
    for _ in range(1000):
        play >> part(1) << ignored(0)
    play.quiet()


def test_FG_02_empty_pieces_cost_no_time() -> None:
    """Metadata in as many fragments as there may be: each is looked at once."""
    limits = SERVER.replace(connection_bytes=64 << 20)
    play = responder(limits=limits) >> asked("request", follows=True)
    play >> tuple(P(stream=1, next=True, follows=True, metadata=bytes(60), data=b"") for _ in range(2000))
    (partial,) = play.engine._streams.reassembly.partials.values()
    assert partial.data == []
    play >> item(1, b"d") << ev.Opened(1, "request", Payload(b"d", bytes(120_000)), 1, False)


@pytest.mark.parametrize("size", [63, 64])
def test_FG_02_fragments_at_the_smallest_size(size: int) -> None:
    """64 bytes with the length field, of every kind of frame, are progress."""
    for verb, header in (("request", 9), ("fire", 9), ("stream", 13), ("channel", 13)):
        play = responder()
        first = asked(verb, follows=True)
        first.data = bytes(size - header)
        play >> first
        play >> part(1, 55) >> part(1, 54)
        if size == 63:
            play << ignored(20)
        play.quiet()


def test_FG_02_small_items_and_small_requests_have_one_each() -> None:
    play = streaming(9)
    for _ in range(3):
        play >> part(1, 1) >> item(1, b"") << ev.Items
    play.quiet()


@pytest.mark.parametrize("excess", [0, 1])
def test_FG_03_partial_payloads(excess: int) -> None:
    limits = TINY
    play = responder(limits=limits)
    for n in range(limits.partial_payloads + excess):
        play >> asked("request", 1 + 2 * n, follows=True)
    if excess:
        play << error(1 + 2 * limits.partial_payloads, 0x202, b"too-many-partials")
    play >> item(1) << ev.Opened
    play.quiet()


def test_FG_03_memory() -> None:
    """As many unfinished payloads as there may be, each of the greatest size: C bounds them all."""
    limits = SERVER
    engine = responder().engine
    block = part(1, 0x40000 - 100).encode(prefixed=True)
    for n in range(limits.partial_payloads):
        engine.receive(asked("request", 1 + 2 * n, follows=True).encode(prefixed=True), 0.0)
    tracemalloc.start()
    for n in range(limits.partial_payloads):
        for _ in range(3):
            engine.receive(block[:6] + bytes((1 + 2 * n,)) + block[7:], 0.0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert engine._streams.reassembly.size <= limits.connection_bytes
    assert peak <= limits.connection_bytes * 1.1
    assert not engine.closed


def test_FG_04_a_half_that_we_canceled_is_not_waited_for() -> None:
    """The peer stopped sending because it was told to: the other half lives."""
    play = serving("channel").do(lambda engine: engine.request(1, 5)) << N
    play >> part(1)
    play.do(lambda engine: engine.cancel(1)) << frames.Cancel(stream=1)
    assert not play.engine._streams.reassembly.partials
    play.at(31.0).quiet()
    play.do(lambda engine: engine.send(1, [b"on"])) << item(1, b"on")


@pytest.mark.parametrize(("verb", "told"), [("request", True), ("fire", False)])
def test_FG_04_at_and_after_the_time(verb: str, told: bool) -> None:
    play = responder(limits=TINY) >> asked(verb, follows=True)
    play.at(TINY.reassembly_s - 0.1).quiet()
    play.at(TINY.reassembly_s)
    if told:
        play << error(1, 0x203, b"reassembly-timeout")
    play >> part(1) << ignored(0)
    play.quiet()


def test_FG_04_a_cancel_of_an_unfinished_request_counts() -> None:
    play = responder(limits=TINY)
    for n in range(TINY.cancel_bucket[0]):
        play >> (asked("request", 1 + 2 * n, follows=True), frames.Cancel(stream=1 + 2 * n))
    play.quiet()
    play >> (asked("request", 999, follows=True), frames.Cancel(stream=999))
    play << closed(RemoteProtocolError, rule="cancel_bucket") << error(0, 0x101, b"cancel-flood")


def test_FG_07_interleaved() -> None:
    play = responder(mtu=64)
    data = {1 + 2 * n: bytes((n,)) * (100 + 50 * n) for n in range(64)}
    sender = Engine("client", mtu=64)
    for each in data.values():
        sender.open("request", each)
    said = bytearray()
    while chunk := sender.outgoing(64):
        said += chunk
    events = play.engine.receive(bytes(said[len(setup().encode(prefixed=True)) :]), 0.0)
    got = {event.stream: event.payload.data for event in events if isinstance(event, ev.Opened)}
    assert got == data
    order = [event.stream for event in events if isinstance(event, ev.Opened)]
    assert order == sorted(order)  # the short ones are not held up by the long ones


def test_FG_10_metadata_longer_than_one_field_can_say() -> None:
    limits = Limits.trusted()
    metadata = bytes(0x1000000 + 10)
    client, server = requester(limits=limits).engine, responder(limits=limits).engine
    client.open("fire", Payload(b"data", metadata))
    (event,) = carried(client, server)
    assert isinstance(event, ev.Opened)
    assert event.payload.metadata == metadata
    assert event.payload.data == b"data"


def carried(sender: Engine, receiver: Engine) -> list[ev.Event]:
    events: list[ev.Event] = []
    while chunk := sender.outgoing():
        events += receiver.receive(chunk, 0.0)
    return events


def test_FG_10_twenty_mebibytes_there_and_back() -> None:
    """At most three times the payload is held: the sender's, the fragments, and what they become."""
    limits = Limits.trusted()
    client, server = requester(limits=limits).engine, responder(limits=limits).engine
    size = 20 << 20
    pieces: list[bytes] = [b"%020d" % n for n in range(size // 20)]
    data = b"".join(pieces)
    del pieces
    digest = sha256(data).digest()
    tracemalloc.start()
    held, _ = tracemalloc.get_traced_memory()
    data = bytes(memoryview(data))
    stream = client.open("request", data)
    del data
    (request,) = carried(client, server)
    assert isinstance(request, ev.Opened)
    assert sha256(request.payload.data).digest() == digest
    server.send(stream, [request.payload])
    server.consumed(len(request.payload))
    del request
    (answer,) = carried(server, client)
    assert isinstance(answer, ev.Items)
    assert answer.complete
    assert sha256(answer.payloads[0].data).digest() == digest
    client.consumed(size)
    del answer
    left, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak - held <= 3.1 * size
    assert left - held <= 0x40000  # and nothing is kept afterwards
    assert server.queued == client.queued == 0
    assert server._streams.delivered == client._streams.delivered == 0


def test_FG_22_a_payload_that_nobody_wants_any_more_is_not_written_on() -> None:
    """R-38: the stream is over here, its last payload is not; a CANCEL ends that too."""
    play = responder(mtu=1000) >> asked("request") << ev.Opened
    play.engine.send(1, [bytes(100_000)])
    assert play.engine.outgoing(1)
    play.engine.receive(frames.Cancel(stream=1).encode(prefixed=True), 0.0)
    assert play.engine.queued == 0
    assert play.engine.outgoing() == b""


def test_FG_22_the_frames_of_a_small_limit_still_fit() -> None:
    limits = TINY.replace(first_frame_bytes=64, frame_bytes=64)
    engine = Engine("client", limits=limits, mtu=0x20000)
    engine.outgoing()
    engine.open("channel", Payload(bytes(100), bytes(100)), credit=1)
    data = engine.outgoing(1000)
    assert max(len(frame) for frame in cut(data)) <= 64


def cut(data: bytes) -> Iterator[bytes]:
    while data:
        end = 3 + int.from_bytes(data[:3], "big")
        yield data[:end]
        data = data[end:]


# -- 3.6 keepalive and time -----------------------------------------------------------------------------------

PING = frames.Keepalive(respond=True)
PONG = frames.Keepalive()


def test_KA_02_echoes_and_the_rate() -> None:
    burst, rate = TINY.keepalive_rate[1], TINY.keepalive_rate[0]
    play = responder(limits=TINY)
    for _ in range(burst):
        play >> PING << PONG
    play.now = 1.0
    for _ in range(rate):
        play >> PING << PONG
    play >> PING << closed(RemoteProtocolError, rule="keepalive_rate") << error(0, 0x101, b"keepalive-flood")


def test_KA_02_echoes_that_have_left_are_not_counted() -> None:
    """A link that is never idle: the queue is never empty, the echoes are."""
    play = serving(n=0x7FFFFFFF)
    engine = play.engine
    engine.send(1, [bytes(1000)] * 900)
    for count in range(100):
        engine.receive(PING.encode(prefixed=True), float(count))
        assert PONG.encode(prefixed=True) in engine.outgoing(1)
        assert engine.queued
        assert engine.wants_read


def test_KA_02_echoes_at_the_limit_stop_the_reading() -> None:
    engine = responder(limits=TINY).engine
    for count in range(TINY.keepalive_echoes):
        assert engine.wants_read, count
        engine.receive(PING.encode(prefixed=True), 0.0)
    assert not engine.wants_read
    engine.outgoing(1)
    assert engine.wants_read


@pytest.mark.parametrize("position", [0, 1, 2**63 - 1])
def test_KA_01_the_position_is_not_looked_at(position: int) -> None:
    responder() >> frames.Keepalive(respond=True, position=position, data=b"d") << frames.Keepalive(data=b"d")


def test_KA_04_and_KA_05_the_lifetime_is_counted_from_the_last_frame() -> None:
    for play in (responder(), requester()):
        for now in (20.0, 40.0, 60.0):
            play.at(now)
            play.sent.clear()
        play >> PONG
        for now in (80.0, 100.0, 120.0, 140.0, 149.9):
            play.at(now)
            play.sent.clear()
        play.at(150.0) << closed(ConnectionClosed, rule="R-22") << error(0, 0x101)


def test_KA_05_time_in_which_we_do_not_read_is_not_the_peers() -> None:
    """The application is slow, or the link to the peer is full: its keepalives wait unread. Nothing runs out."""
    limits = TINY.replace(connection_bytes=TINY.connection_bytes)
    play = streaming(1000, limits) >> item(1)[:0] if False else streaming(1000, limits)
    size = 0
    while play.engine.wants_read:
        play >> item(1, bytes(60_000)) << ev.Items
        size += 60_000
    play >> (part(1, 60), item(1).encode(prefixed=True)[:5])
    for now in range(9, 400, 9):
        play.at(float(now))
        play.sent.clear()
        assert play.engine.deadline is not None
        assert play.engine.deadline > now
    play.engine.consumed(size)
    assert play.engine.wants_read
    play.at(405.0).sent.clear()
    play >> item(1).encode(prefixed=True)[5:] << ev.Items(1, [Payload(bytes(60) + b"x")])
    assert not play.engine.closed


def test_KA_05_the_time_begins_when_reading_begins_again() -> None:
    play = streaming(1000, TINY)
    size = 0
    while play.engine.wants_read:
        play >> item(1, bytes(60_000)) << ev.Items
        size += 60_000
    play >> item(1).encode(prefixed=True)[:5]
    play.now = 9.0
    play.engine.consumed(size)
    play >> item(1).encode(prefixed=True)[5:6]  # the frame was cut while nobody read: its ten seconds begin here
    play.at(18.9).sent.clear()
    play.quiet()
    play.at(19.0) << failed(1, RemoteProtocolError, rule="frame_s") << closed(RemoteProtocolError, rule="frame_s")
    play << error(0, 0x101, b"frame-timeout")


# -- 3.8 floods -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["cancel", "error"])
@pytest.mark.parametrize("verb", ["request", "stream", "channel"])
def test_FL_01_ask_and_take_back(verb: str, end: str) -> None:
    """At the bucket, and one above; it refills."""
    play = responder(limits=TINY)
    burst, rate = TINY.cancel_bucket
    frame = {"cancel": frames.Cancel, "error": lambda stream: frames.ErrorFrame(stream=stream, code=0x201)}[end]
    ids = iter(range(1, 1000, 2))
    for now, count in ((0.0, burst), (1.0, rate)):
        play.now = now
        for id, _ in zip(ids, range(count), strict=False):
            play >> asked(verb, id) << ev.Opened >> frame(stream=id) << (ev.Event.__args__)[0:0] if False else play
            play >> asked(verb, id) << ev.Opened
            play >> frame(stream=id)
            assert isinstance(play.events.popleft(), ev.Canceled | ev.Failed)
            play.engine.release(id)
    id = next(ids)
    play >> asked(verb, id) << ev.Opened >> frame(stream=id) << failed(id, RemoteProtocolError, rule="cancel_bucket")
    play << closed(RemoteProtocolError, rule="cancel_bucket") << error(0, 0x101, b"cancel-flood")
    play.quiet()


def test_FL_01_a_handler_that_ignores_the_cancel_keeps_its_slot() -> None:
    play = responder(limits=TINY)
    for n in range(TINY.streams):
        play >> asked("stream", 1 + 2 * n) << ev.Opened >> frames.Cancel(stream=1 + 2 * n) << ev.Canceled
    play >> asked("stream", 999) << ignored(1) << error(999, 0x202)
    play.do(lambda engine: engine.release(1)) >> asked("stream", 1001) << ev.Opened


def test_FL_01_cancels_of_our_own_channels_are_not_counted() -> None:
    """D-6: a responder that takes a little of each channel does no harm; we opened them."""
    play = requester()
    for n in range(SERVER.cancel_bucket[0] + 50):
        play.do(lambda engine: engine.open("channel", b"", credit=1)) << frames.RequestChannel
        play >> frames.Cancel(stream=1 + 2 * n) << ev.Canceled(1 + 2 * n, False)
        play >> P(stream=1 + 2 * n, complete=True, data=b"") << ev.Completed
    play.quiet()


@pytest.mark.parametrize("how", ["zero", "excess", "order"])
def test_FL_02_errors_that_the_peer_makes_us_send_are_counted(how: str) -> None:
    limits = TINY.replace(glitch_bucket=(100_000, 0))
    play = responder(limits=limits)
    bad: dict[str, tuple[Any, ...]] = {
        "zero": (raw("00000001 2000 00000000"),),
        "excess": (item(1),),
        "order": (P(stream=1, next=True, follows=True, data=bytes(60)), P(stream=1, next=True, metadata=b"", data=b"")),
    }
    for _ in range(TINY.cancel_bucket[0]):
        play >> asked("channel") << ev.Opened
        if how == "order":
            play.engine.request(1, 2)
            play._collect([])
        play >> bad[how]
        assert any(isinstance(event, ev.Failed) for event in play.events)
        play.events.clear()
        play.sent.clear()
        play.engine.release(1)
    play >> asked("channel") << ev.Opened
    play.engine.request(1, 2 if how == "order" else 1)
    play._collect([])
    play.sent.clear()
    play >> bad[how]
    ends = [event for event in play.events if isinstance(event, ev.Failed)]
    assert len(ends) == 1
    assert isinstance(play.events[-1], ev.Closed)
    play.events.clear()
    play << error(0, 0x101, b"cancel-flood")


def test_FL_03_fire_flood() -> None:
    play = responder()
    for n in range(SERVER.streams):
        play >> asked("fire", 1 + 2 * n) << ev.Opened
    for n in range(SERVER.streams, SERVER.streams + SERVER.glitch_bucket[0]):
        play >> asked("fire", 1 + 2 * n) << ignored(1, "REJECTED")
    play >> asked("fire", 9999) << ignored(1) << closed(RemoteProtocolError, rule="glitch_bucket") << error(0, 0x101)


@pytest.mark.parametrize(("size", "taken"), [(-1, True), (0, True), (1, False)])
def test_FL_04_metadata_push(size: int, taken: bool) -> None:
    size += SERVER.connection_metadata_bytes
    play = responder() >> frames.MetadataPush(metadata=bytes(size))
    play << (ev.Pushed(bytes(size)) if taken else ignored(10, "connection_metadata_bytes"))
    play.quiet()


def test_FL_06_a_flood_of_requests_that_reads_no_answer() -> None:
    """Reading stops; memory is what may be queued, and one read."""
    engine = responder().engine
    limits = engine.limits
    id, taken = 1, 0
    while engine.wants_read:
        for event in engine.receive(frames.RequestResponse(stream=id, data=b"").encode(prefixed=True), 0.0):
            assert isinstance(event, ev.Opened)
            engine.send(id, [bytes(100_000)])
            engine.release(id)
        id += 2
        taken += 1
        assert taken < 1000
    assert engine.queued <= limits.outbound_high_bytes + limits.payload_bytes + 110_000
    while engine.outgoing():
        pass
    assert engine.wants_read


def test_FL_06_the_same_with_answers_of_nothing() -> None:
    engine = responder().engine
    limits = engine.limits
    id = 1
    while engine.wants_read:
        engine.receive(frames.RequestResponse(stream=id, data=b"").encode(prefixed=True), 0.0)
        engine.fail(id, Rejected("no"))
        engine.release(id)
        id += 2
    assert id // 2 == limits.outbound_high_frames + limits.control_replies


def test_FL_10_a_million_requests_are_refused_at_a_token_each() -> None:
    limits = SERVER.replace(streams=0)
    play = responder(limits=limits)
    for n in range(SERVER.glitch_bucket[0]):
        play >> asked("request", 1 + 2 * n) << ignored(1) << error(1 + 2 * n, 0x202)
    play.now = 1.0
    for n in range(2000, 2000 + SERVER.glitch_bucket[1]):
        play >> asked("request", 1 + 2 * n) << ignored(1) << error(1 + 2 * n, 0x202)
    play >> asked("request", 9999) << ignored(1) << closed(RemoteProtocolError, rule="glitch_bucket") << error(0, 0x101)
    assert len(play.engine._streams._late._given_up) <= SERVER.tombstones


# -- post-conditions ------------------------------------------------------------------------------------------


def test_nothing_is_left_of_a_connection_that_is_over() -> None:
    play = serving("channel") >> part(1)[:0] if False else serving("channel")
    play.engine.request(1, 5)
    play.engine.receive(part(1).encode(prefixed=True), 0.0)
    play.engine.send(1, [bytes(1_000_000)])
    events = play.engine.receive_eof(0.0)
    assert [type(event) for event in events] == [ev.Failed, ev.Closed]
    streams = play.engine._streams
    assert not streams.live
    assert not streams.reassembly.partials
    assert not streams.reassembly.size
    assert not play.engine.queued
    assert not play.engine.outgoing()
    assert play.engine.deadline is None
    assert play.engine._events == streams.events == []


def test_a_thousand_streams_leave_nothing_behind() -> None:
    client, server = requester().engine, responder().engine
    verbs: tuple[ev.Verb, ...] = ("request", "fire", "stream", "channel")
    for n in range(1000):
        verb = verbs[n % 4]
        id = client.open(verb, b"x" * n, credit=5 if n % 4 > 1 else 0, complete=n % 8 > 4)
        for event in carried(client, server):
            assert isinstance(event, ev.Opened)
            if verb != "fire":
                server.send(id, [b"y"], complete=True)
            server.release(id)
        carried(server, client)
        client.complete(id)
        carried(client, server)
    for engine in (client, server):
        streams = engine._streams
        assert not streams.live
        assert not streams.handlers
        assert not streams.reassembly.partials
        assert not engine.queued
        assert not engine._out.frames


# -- the tables -----------------------------------------------------------------------------------------------


def told(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def test_every_cited_conversation_exists() -> None:
    home = Path(__file__).parent.parent / "protocols" / "rsocket"
    for row, cases in ELSEWHERE.items():
        for case in cases:
            module, name = case.split("::")
            assert name in told(home / f"{module}.py"), f"{row}: {case}"


def test_every_row_is_told_or_has_a_reason() -> None:
    names = told(Path(__file__))
    here = {row for row in ROWS if any(row.replace("-", "_") in name for name in names)}
    assert not set(ROWS) - here - set(ELSEWHERE) - set(NOT_HERE)
    assert set(ELSEWHERE) | set(NOT_HERE) <= set(ROWS)
    assert not set(NOT_HERE) & (here | set(ELSEWHERE))
