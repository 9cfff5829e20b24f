"""Hostile RSocket peers over a bare engine: one case, or more, for each row of the catalogue that an engine decides.
Framing, establishment and ids are here; credit, fragments, time and floods in test_rsocket_flow.py.

Cases that stand among the conversations already are cited in ELSEWHERE, not told twice; rows that only a driver, a
listener or a transport can keep are in NOT_HERE with the reason. The last tests check both tables.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from afflux.core import events as ev
from afflux.core.errors import ConnectionClosed, LimitExceeded, LocalProtocolError, Rejected, RemoteProtocolError
from afflux.core.ids import StreamIds
from afflux.core.payload import Payload
from afflux.protocols.rsocket import Engine, frames
from tests.hostile.peers import SERVER, TINY, N, P, asked, carried, item, part, raw, serving, streaming
from tests.protocols.rsocket.playbook import Playbook, closed, error, failed, ignored, requester, responder, setup

ELSEWHERE: dict[str, tuple[str, ...]] = {
    "FR-01": ("test_establishment::test_frames_shorter_than_a_header", "test_establishment::test_first_frame_is_setup"),
    "FR-02": ("test_establishment::test_frames_at_and_above_the_limit",),
    "FR-05": (
        "test_establishment::test_a_frame_that_never_ends",
        "test_bytes::test_bytes_one_by_one_cost_the_same_each",
    ),
    "FR-06": ("../generic/test_bytes::test_every_truncation_ends_in_order",),
    "FR-08": (
        "../generic/test_bytes::test_every_split_gives_the_same_events",
        "../generic/test_bytes::test_random_splits_give_the_same_events",
    ),
    "FR-09": (
        "../generic/test_bytes::test_constant_garbage",
        "../generic/test_bytes::test_garbage_never_raises",
        "test_bytes::test_framed_garbage_never_raises",
    ),
    "FR-11": ("test_establishment::test_unknown_frames_by_the_ignore_flag",),
    "FR-12": ("test_establishment::test_unknown_frames_by_the_ignore_flag",),
    "FR-14": ("test_establishment::test_unknown_frames_by_the_ignore_flag",),
    "FR-19": ("test_codes::test_arriving_text_may_hold_anything_and_is_cut", "test_streams::test_stream_fails"),
    "FR-29": ("../generic/test_bytes::test_every_flipped_bit_has_a_documented_outcome",),
    "HS-01": ("test_establishment::test_a_silent_stranger_is_closed_without_a_word",),
    "HS-02": ("test_establishment::test_first_frame_is_setup",),
    "HS-03": ("test_establishment::test_setup_on_a_stream_is_invalid",),
    "HS-04": ("test_establishment::test_second_setup_is_ignored",),
    "HS-06": ("test_establishment::test_setup_is_refused", "test_establishment::test_version_text_names_ours"),
    "HS-07": ("test_establishment::test_setup_is_refused",),
    "HS-08": ("test_establishment::test_setup_is_refused",),
    "HS-09": ("test_establishment::test_zero_times_are_invalid",),
    "HS-12": ("test_establishment::test_first_frame_too_large",),
    "HS-14": (
        "test_establishment::test_a_request_is_an_acceptance",
        "test_establishment::test_client_ignores_setup_frames",
    ),
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
    "FG-20": (
        "test_metadata::test_what_overruns_is_an_error_after_the_entries_before_it",
        "test_metadata::test_there_are_only_so_many_entries",
    ),
    "FG-21": (
        "test_metadata::test_a_malformed_tag_is_refused_after_those_before_it",
        "test_metadata::test_tags_have_0_to_255_bytes",
    ),
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
    "HS-28": "recognition is the server's",
    "SL-01": "how fast bytes leave is the driver's to see",
    "SL-05": "a dead link is the lifetime's: KA-04 and KA-05; the blackhole is the transport's",
    "SL-07": "handlers are the driver's",
    "SL-10": "allocations, sends and receives that fail are the driver's",
}
"Rows that no engine can keep, and who does."

ROWS = (
    *(f"FR-{n:02}" for n in (1, 2, 5, 6, 8, 9, 11, 12, 14, 15, 19, 20, 21, 28, 29)),
    *(f"HS-{n:02}" for n in (1, 2, 3, 4, 6, 7, 8, 9, 11, 12, 14, 16, 27, 28)),
    *(f"SI-{n:02}" for n in (1, 2, 3, 4, 6, 7, 9, 10, 11, 13, 15, 16)),
    *(f"FC-{n:02}" for n in (1, 2, 3, 4, 5, 8, 9, 10, 24)),
    *(f"FG-{n:02}" for n in (1, 2, 3, 4, 6, 7, 8, 10, 12, 14, 20, 21, 22)),
    *(f"KA-{n:02}" for n in (1, 2, 3, 4, 5, 7)),
    *(f"FL-{n:02}" for n in (1, 2, 3, 4, 6, 10)),
    *(f"SL-{n:02}" for n in (1, 2, 3, 5, 7, 8, 10)),
)
"Every case of docs/hostile.md that applies to RSocket, except resumption and leases."


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
    "hex",
    [
        "00000000 0c80 00000000000000",
        "00000001 2000",
        "00000001 2000 000000",
        "00000001 2c00 000002",
        "00000000 fc00 0000",
    ],
)
def test_FR_20_bodies_cut_short(hex: str) -> None:
    (
        serving()
        >> raw(hex)
        << failed(1, RemoteProtocolError)
        << closed(RemoteProtocolError, rule="R-7")
        << error(0, 0x101)
    )
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
    limits = SERVER.replace(pending_streams=0)
    play = Playbook(Engine("server", decide=True, limits=limits)) >> (setup(), crowd, request) << ev.Established
    play.do(lambda engine: engine.accept(0.0))
    for n in range(SERVER.streams):
        play << (ev.Opened, {"stream": 1 + 2 * n})
    for n in range(SERVER.streams, SERVER.streams + 9):
        play << ignored(int(n == SERVER.streams), "REJECTED") << error(1 + 2 * n, 0x202, b"too-many-streams")
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
    ids = play.engine.stream_table.ids
    ids.restore([0x7FFFFFFD, 0])
    sent = [play.engine.open("request", b"") for _ in range(3)]
    assert sent == [0x7FFFFFFD, 0x7FFFFFFF, 3]
    assert ids.wrapped
    play.collect([])
    play.sent.clear()
    play >> item(1) << ev.Items(1, [Payload(b"x")])


def test_SI_06_an_id_that_is_used_again_has_no_past() -> None:
    play = streaming(1).do(lambda engine: engine.cancel(1)) << frames.Cancel
    play.engine.stream_table.ids.restore([0x7FFFFFFF, 0])
    assert [play.engine.open("fire", b""), play.engine.open("stream", b"", credit=1)] == [0x7FFFFFFF, 1]
    play.collect([])
    play.sent.clear()
    play >> item(1, complete=True) << ev.Items(1, [Payload(b"x")], True)
    play >> item(1) << ignored(10, "SI-10")


def test_SI_06_all_ids_busy() -> None:
    engine = requester().engine
    engine.stream_table.ids = StreamIds(1, 3)
    engine.open("request", b"")
    engine.open("request", b"")
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
    """D-6: the responder's half goes on, the requester's items cross the CANCEL; a fragment counts with its last."""
    play = serving("channel").do(lambda engine: engine.request(1, 501)) << N(stream=1, n=500)
    play.do(lambda engine: engine.cancel(1)) << frames.Cancel(stream=1)
    play >> (*(item(1) for _ in range(498)), part(1), item(1), P(stream=1, complete=True, data=b""))
    for _ in range(501):
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
    streams = engine.stream_table
    assert len(streams.late.state()[0]) == limits.tombstones
    assert not streams.live
    free = limits.tombstones * limits.cancel_race_frames  # what forgotten ids had to spare, in one number
    late = engine.receive(item(1).encode(prefixed=True) * (free + 1), 0.0)
    assert late[:free] == [ev.Ignored(1, "SI-07", "PAYLOAD for a stream that has just ended", 0)] * free
    assert late[free:] == [ev.Ignored(1, "R-31", "PAYLOAD for an unknown stream", 1)]


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
    while engine.outgoing():
        pass
    for last in ("complete", "cancel"):
        ends[last]()
    engine.receive(ENDS["error"].encode(prefixed=True), 0.0)
    assert engine.streams() == []
    assert not engine.stream_table.reassembly.partials
    assert not engine.closed


@pytest.mark.parametrize("verb", ["request", "fire", "stream", "channel"])
@pytest.mark.parametrize("excess", [-1, 0, 1])
def test_SI_16_streams(verb: str, excess: int) -> None:
    most = TINY.streams + TINY.pending_streams
    play = responder(limits=TINY)
    for n in range(most + excess):
        play >> asked(verb, 1 + 2 * n)
        if n < most or verb == "fire":  # a fire waits until a handler may begin
            play << ev.Opened
        else:
            play << ignored(1, "REJECTED") << error(1 + 2 * n, 0x202, b"too-many-streams")
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
    limits = TINY.replace(streams=1, pending_streams=0)
    play = responder(limits=limits) >> asked(verb, 1, follows=True) >> asked(verb, 3, follows=True)
    play >> item(1) << ev.Opened
    if verb == "fire":
        play >> item(3) << ev.Opened
    else:
        play >> item(3) << ignored(1, "REJECTED") << error(3, 0x202, b"too-many-streams")
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
    play.quiet()


@pytest.mark.parametrize(
    "hex", ["0000000b 1100 000002 61", "0000000b 1100 ffffff", "0000000b 1100 0000", "0000000b 1100"]
)
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
    play.quiet()
    play >> asked("request", 2) << ignored(10, "D-12")
    play >> asked("request", 3) << ignored(1) << error(3, 0x202)
    play >> asked("fire", 5) << ignored(1)
    play.do(lambda engine: engine.complete(1)) << P
    play.eof() << ev.Closed(None)  # it had drained: nothing was lost
    play.quiet()


def test_SI_16_a_request_right_behind_the_peers_farewell_is_refused() -> None:
    play = serving() >> (frames.ErrorFrame(stream=0, code=0x102), frames.RequestResponse(stream=3))
    play << ev.Draining << ignored(1, "REJECTED") << error(3, 0x202)
    play.quiet()


# -- post-conditions ------------------------------------------------------------------------------------------


def test_nothing_is_left_of_a_connection_that_is_over() -> None:
    play = serving("channel")
    play.engine.request(1, 5)
    play.engine.receive(part(1).encode(prefixed=True), 0.0)
    play.engine.send(1, [bytes(1_000_000)])
    events = play.engine.receive_eof(0.0)
    assert [type(event) for event in events] == [ev.Failed, ev.Closed]
    streams = play.engine.stream_table
    assert not streams.live
    assert not streams.reassembly.partials
    assert not streams.reassembly.size
    assert not play.engine.queued
    assert not play.engine.outgoing()
    assert play.engine.deadline is None
    assert play.engine.current.events == []


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
        streams = engine.stream_table
        assert not streams.live
        assert not streams.handlers
        assert not streams.reassembly.partials
        assert not engine.queued
        assert not engine.outbound.scheduler.frames


# -- the tables -----------------------------------------------------------------------------------------------


@cache
def told(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def test_every_cited_conversation_exists() -> None:
    home = Path(__file__).parent.parent / "protocols" / "rsocket"
    for row, cases in ELSEWHERE.items():
        for case in cases:
            module, name = case.split("::")
            assert name in told(home / f"{module}.py"), f"{row}: {case}"


def test_every_row_is_tested_or_has_a_reason() -> None:
    names = set().union(*map(told, Path(__file__).parent.glob("test_rsocket*.py")))
    here = {row for row in ROWS if any(row.replace("-", "_") in name for name in names)}
    assert not set(ROWS) - here - set(ELSEWHERE) - set(NOT_HERE)
    assert set(ELSEWHERE) | set(NOT_HERE) <= set(ROWS)
    assert not set(NOT_HERE) & (here | set(ELSEWHERE))
