"""Runs of items that share their entries and MIME types, beside items that don't."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence
from typing import Any

import pytest

import afflux
from afflux.core import events as ev
from afflux.core.errors import LimitExceeded, LocalProtocolError
from afflux.core.payload import Payload, Run
from afflux.protocols.rsocket_draft import Engine, Entry, ExtendedPayload, frames, payloads, resumable
from afflux.protocols.rsocket_draft.payload import MOST_PRELUDE, ExtendedItems

from .pair import KEEPALIVE as PING
from .pair import client, exchange, frames_of, greet, joined, plain, said, server, wired

OWN = Entry("own", b"1", True)
THREE = (OWN, Entry("own", b"22", True), Entry("own", b"333", True))
SKIPPED = Entry("unknown", b"x", True)


def streaming(credit: int = 1000, *, mtu: int = 4096, columnar: bool = False, **terms: Any) -> tuple[Engine, Engine]:
    """A client with one stream, and the server that sends its items; both understand ``own``."""
    a, b = client(PING, extensions=("own",), mtu=mtu), server(extensions=("own",), mtu=mtu, **terms)
    greet(a, b)
    a.open("stream", b"", credit=credit, columnar=columnar)
    exchange(a, b)
    return a, b


def items(data: Sequence[bytes], **own: Any) -> list[ExtendedPayload]:
    return [ExtendedPayload(one, **own) for one in data]


def heard(a: Engine, data: bytes, mode: str = "whole") -> list[Any]:
    """What a program hears of some bytes."""
    pieces = [data] if mode == "whole" else [data[at : at + 1] for at in range(len(data))]
    return [event for piece in pieces for event in a.receive(piece, 0.0) if not isinstance(event, ev.Ignored)]


def taken(events: Sequence[Any]) -> list[Payload]:
    return [payload for event in events for payload in event.payloads]


OWNS: dict[str, dict[str, Any]] = {
    "three entries": {"entries": THREE},
    "a MIME type": {"data_mime": "application/json"},
    "all": {"entries": THREE, "data_mime": "application/json", "metadata_mime": "x/y"},
}


@pytest.mark.parametrize("own", OWNS.values(), ids=list(OWNS))
@pytest.mark.parametrize("sizes", [[5] * 40, [5, 0, 7, 5] * 10, [600] * 40], ids=["one size", "many sizes", "large"])
def test_items_that_share_their_entries(mode: str, own: dict[str, Any], sizes: list[int]) -> None:
    a, b = streaming()
    sent = items([b"x" * size for size in sizes], **own)
    b.send(1, sent)
    assert taken(heard(a, said(b), mode)) == sent


def test_a_run_of_one_size_creates_its_payloads_when_they_are_accessed() -> None:
    a, b = streaming()
    sent = items([b"%04d" % number for number in range(100)], entries=THREE)
    b.send(1, sent)
    (event,) = heard(a, said(b))
    run = event.payloads
    assert isinstance(run, ExtendedItems)
    assert (len(run), run.size) == (100, 400)
    assert list(run) == sent
    assert (run[3], run[-1]) == (sent[3], sent[99])
    assert isinstance(run[10:20], ExtendedItems)
    assert run[10:20] == sent[10:20]
    assert run[0].entries is run[1].entries  # parsed once


def test_items_of_many_sizes_create_their_payloads_too_when_they_are_accessed() -> None:
    a, b = streaming()
    sent = items([b"x" * number for number in range(10)], entries=THREE)
    b.send(1, sent)
    (event,) = heard(a, said(b))
    found = event.payloads
    assert isinstance(found, ExtendedItems)
    assert (len(found), found.size) == (10, 45)
    assert list(found.parts()) == [payload.data for payload in sent]
    assert (found[3], found[-1], found[2:4]) == (sent[3], sent[9], sent[2:4])


@pytest.mark.parametrize("entries", [(OWN,), THREE], ids=["a short prelude", "a long prelude"])
@pytest.mark.parametrize("count", [24, 25, 200])
def test_long_runs_of_many_sizes_are_one_event(entries: tuple[Entry, ...], count: int) -> None:
    a, b = streaming(credit=count)
    sent = items([b"%d" % number * (number % 50 + 1) for number in range(count)], entries=entries)
    b.send(1, sent)
    (event,) = heard(a, said(b))
    assert list(event.payloads) == sent


def test_long_runs_of_many_sizes_without_what_is_skipped() -> None:
    a, b = streaming()
    data = [b"%d" % number * (number % 50 + 1) for number in range(200)]
    b.send(1, items(data, entries=(SKIPPED,)))
    assert [payload.data for payload in taken(heard(a, said(b)))] == data


def test_runs_without_data() -> None:
    a, b = streaming()
    sent = items([b""] * 30, entries=THREE)
    b.send(1, sent)
    assert taken(heard(a, said(b))) == sent


def test_a_frame_that_ends_within_the_entries_of_the_one_before() -> None:
    """Its own entries are shorter."""
    a, _ = streaming()
    long = frames.PayloadFrame(stream=1, next=True, extensions=THREE, data=b"x" * 50)
    short = frames.PayloadFrame(stream=1, next=True, extensions=THREE[:1], data=b"")
    assert [len(one.entries) for one in taken(heard(a, wired(long, short, long)))] == [3, 1, 3]
    broken = wired(long)[:-50]
    data = (len(broken) - 13).to_bytes(3, "big") + broken[3:-10]
    events = a.receive(wired(long) + data + wired(long), 0.0)
    assert isinstance(events[-1], ev.Closed)


def test_a_run_can_be_sent_on() -> None:
    a, b = streaming()
    b.send(1, items([b"%04d" % number for number in range(100)], entries=THREE))
    first = said(b)
    (event,) = heard(a, first)
    c, d = streaming()
    d.send(1, event.payloads)
    assert said(d) == first
    assert c.streams()


def test_a_run_beside_other_data_keeps_only_its_own_bytes_alive() -> None:
    a, b = streaming()
    small = items([b"%02d" % number for number in range(20)], entries=(OWN,))
    b.send(1, [*small, *[b"y" * 500] * 20])
    assert taken(heard(a, said(b))) == [*small, *[Payload(b"y" * 500)] * 20]


def test_entries_that_are_all_skipped_leave_plain_payloads() -> None:
    for count in (3, 100):
        a, b = streaming()
        b.send(1, items([b"%04d" % number for number in range(count)], entries=(SKIPPED,)))
        (event,) = heard(a, said(b))
        assert [type(payload) for payload in event.payloads] == [Payload] * count
        assert isinstance(event.payloads, Run) is (count == 100)


def test_entries_that_change(mode: str) -> None:
    """Each change is parsed, in runs and alone."""
    a, b = streaming()
    sent: list[Any] = [
        *items([b"a"] * 20, entries=THREE),
        *items([b"b"] * 3, entries=THREE[:1]),
        *[Payload(b"plain")] * 20,
        ExtendedPayload(b"m", b"metadata", entries=THREE),
        *items([b"c"] * 20, entries=THREE, data_mime="x/y"),
        *items([b"d"] * 20, entries=(OWN, SKIPPED)),
        *items([b"e" * 5000, b"f", b"g"], entries=THREE),
    ]
    b.send(1, sent, complete=True)
    got = heard(a, said(b), mode)
    assert got[-1].complete
    assert taken(got) == [ExtendedPayload(one.data, entries=(OWN,)) if one.data == b"d" else one for one in sent]


@pytest.mark.parametrize("before", [7, 8, 9, 15, 16, 17, 79, 80, 81, 150])
def test_entries_that_change_at_any_place_of_a_long_run(before: int) -> None:
    """Items have one size: only the bytes of an entry tell the runs apart."""
    one, other = Entry("own", b"1", True), Entry("own", b"2", True)
    sent = [*items([b"ab"] * before, entries=[one]), *items([b"cd"] * 100, entries=[other])]
    a, b = streaming()
    b.send(1, sent)
    assert taken(heard(a, said(b))) == sent


def test_programs_may_give_equal_entries_again_and_again() -> None:
    a, b = streaming()
    sent = [ExtendedPayload(b"ab", entries=iter([Entry("own", b"1", True)])) for _ in range(20)]
    sent += [ExtendedPayload(b"ab", entries=[OWN], data_mime=mime) for mime in ("a/b", None, "a/b")]
    b.send(1, sent)
    assert taken(heard(a, said(b))) == sent
    assert [one.data_mime for one in sent[-3:]] == ["a/b", None, "a/b"]


def test_the_last_item_of_a_run_completes_the_stream() -> None:
    for sent in (items([b"a"] * 20, entries=THREE), [*items([b"a"] * 3, entries=THREE), b"z"]):
        a, b = streaming()
        b.send(1, sent, complete=True)
        said_all = said(b)
        assert [frame.complete for frame in frames_of(said_all)] == [False] * (len(sent) - 1) + [True]
        got = heard(a, said_all)
        assert got[-1].complete
        assert len(taken(got)) == len(sent)
        assert a.streams() == b.streams() == []


def test_large_runs_are_queued_in_parts() -> None:
    a, b = streaming()
    sent = items([b"x" * 3000] * 100, entries=THREE)
    b.send(1, sent)
    assert taken(heard(a, said(b))) == sent


def test_items_and_entries_that_do_not_fit_the_mtu() -> None:
    a, b = streaming(mtu=64)
    sent = items([b"x" * 10, b"y" * 100, b"z" * 10], entries=(*THREE, Entry("own", b"long" * 20, True)))
    b.send(1, sent)
    assert taken(heard(a, said(b))) == sent


def test_data_that_is_not_bytes() -> None:
    a, b = streaming()
    parts: Any = [bytearray(b"a"), memoryview(b"b"), b"c"]
    b.send(1, items(parts, entries=THREE))
    assert taken(heard(a, said(b))) == items([b"a", b"b", b"c"], entries=THREE)


def test_credit_ends_within_a_run() -> None:
    """An item beyond the credit is a violation as without entries."""
    for size in (3, 30):
        a, _ = streaming(credit=size)
        data = wired(*[frames.PayloadFrame(stream=1, next=True, extensions=THREE, data=b"x")] * (size + 1))
        (items_, *rest) = heard(a, data)
        assert len(items_.payloads) == size
        assert rest


def test_items_of_two_streams() -> None:
    a, b = streaming()
    a.open("stream", b"", credit=100)
    exchange(a, b)
    frame = frames.PayloadFrame
    one = frame(stream=1, next=True, extensions=THREE, data=b"x")
    other = frame(stream=3, next=True, extensions=THREE, data=b"x")
    events = heard(a, wired(one, other, one, one, other))
    assert [(event.stream, len(event.payloads)) for event in events] == [(1, 1), (3, 1), (1, 2), (3, 1)]


def test_an_unfinished_frame_ends_a_run() -> None:
    a, _ = streaming()
    frame = wired(frames.PayloadFrame(stream=1, next=True, extensions=THREE, data=b"x" * 20))
    assert len(taken(heard(a, frame * 2 + frame[:-1]))) == 2
    assert len(taken(heard(a, frame[-1:] + frame * 10 + frame[:4]))) == 11


def test_a_columnar_stream_takes_items_with_entries_one_by_one() -> None:
    a, b = streaming(columnar=True)
    b.send(1, items([b"x"] * 20, entries=THREE))
    events = heard(a, said(b))
    assert sum(len(event.payloads) if isinstance(event, ev.Items) else len(event.starts) for event in events) == 20


def test_entries_that_are_refused_go_through_the_tables() -> None:
    a, _ = streaming()
    must = frames.PayloadFrame(stream=1, next=True, extensions=(Entry("must"),), data=b"x")
    good = frames.PayloadFrame(stream=1, next=True, extensions=THREE, data=b"x")
    events = heard(a, wired(good, must, good))
    assert [type(event) for event in events] == [ev.Items, ev.Failed]
    assert [(frame.NAME, frame.code) for frame in frames_of(said(a))] == [("ERROR", 0x204)]


def test_skipped_entries_are_not_retained() -> None:
    """More than an item may have is not remembered for the next."""
    a, _ = streaming()
    long = Entry("unknown", bytes(MOST_PRELUDE), True)
    frame = frames.PayloadFrame(stream=1, next=True, extensions=(long,), data=b"x")
    assert taken(heard(a, wired(frame, frame))) == [Payload(b"x")] * 2


def test_what_cannot_be_sent() -> None:
    a, b = streaming()
    long = Entry("own", bytes(MOST_PRELUDE), True)
    with pytest.raises(LimitExceeded):
        b.send(1, items([b"a"] * 2, entries=(long,)))
    with pytest.raises(LocalProtocolError):
        b.send(1, items([b"a"] * 2, data_mime="x" * 200))
    assert heard(a, said(b)) == []


def test_Frames_Count_counts_each_item_of_a_run() -> None:
    """R-32."""
    lease = payloads.lease_entry([payloads.FRAMES_COUNT], ack=True)
    a, b = joined(PING, lease, lease=afflux.FixedLease(100, 60.0))
    channel = a.open("channel", b"", credit=1)
    exchange(a, b)
    b.request(channel, 50)
    exchange(a, b)
    assert b.leases is not None
    before, _ = b.leases.granted(0.0)
    a.send(channel, items([b"x"] * 20, entries=THREE))
    _, got = exchange(a, b)
    assert len(taken(got)) == 20
    assert before - b.leases.granted(0.0)[0] == 20


def test_a_chain_of_other_words_is_left_to_the_tables() -> None:
    """A fragment, and an item with metadata."""
    a, _ = streaming()
    part = frames.PayloadFrame(stream=1, next=True, follows=True, extensions=THREE, data=b"x" * 100)
    rest = frames.PayloadFrame(stream=1, next=True, data=b"y" * 100)
    whole = frames.PayloadFrame(stream=1, next=True, extensions=THREE, metadata=b"m", data=b"z")
    assert plain(a.receive(wired(part, rest, whole), 0.0)) == [
        ev.Items(1, [ExtendedPayload(b"x" * 100 + b"y" * 100, entries=THREE)]),
        ev.Items(1, [ExtendedPayload(b"z", b"m", entries=THREE)]),
    ]


# -- entries of their own -------------------------------------------------------------------------------------


def numbered(count: int, data: Sequence[bytes] | None = None) -> list[ExtendedPayload]:
    """Payloads whose entries differ in nothing but their content."""
    return [
        ExtendedPayload(b"x" * (number % 3) if data is None else data[number], entries=(OWN, trace(number)))
        for number in range(count)
    ]


def trace(number: int) -> Entry:
    return Entry("own", b"%06d" % number, True)


@pytest.mark.parametrize("sizes", [[5] * 40, [5, 0, 7, 5] * 10], ids=["one size", "many sizes"])
def test_items_with_entries_of_their_own(mode: str, sizes: list[int]) -> None:
    a, b = streaming()
    sent = numbered(40, [b"x" * size for size in sizes])
    b.send(1, sent)
    got = taken(heard(a, said(b), mode))
    assert got == sent
    assert got[7].entries == (OWN, trace(7))  # type: ignore[attr-defined]


def test_items_with_entries_of_their_own_are_one_event() -> None:
    a, b = streaming()
    sent = numbered(30)
    b.send(1, sent)
    (event,) = heard(a, said(b))
    found = event.payloads
    assert (found[3], found[-1], found[2:4], found.size) == (sent[3], sent[29], sent[2:4], 30)


def test_skipped_entries_that_differ_leave_plain_payloads() -> None:
    a, b = streaming()
    b.send(1, [ExtendedPayload(b"x", entries=(Entry("unknown", b"%d" % number, True),)) for number in range(5)])
    (event,) = heard(a, said(b))
    assert event.payloads == [Payload(b"x")] * 5


def test_entries_of_their_own_with_a_MIME_type() -> None:
    a, b = streaming()
    sent = [ExtendedPayload(b"x", entries=(trace(number),), data_mime="x/y") for number in range(20)]
    b.send(1, sent)
    assert taken(heard(a, said(b))) == sent


def test_a_well_known_extension_is_parsed_each_time() -> None:
    """Its payload decides whether it is valid."""
    a, b = streaming()
    resume = Entry("resume", b"", True)
    sent = [ExtendedPayload(b"x", entries=(resume, trace(number))) for number in range(5)]
    b.send(1, sent)
    got = taken(heard(a, said(b)))
    assert [one.entries for one in got] == [(trace(number),) for number in range(5)]  # type: ignore[attr-defined]


def test_other_frames_within_items_of_one_shape() -> None:
    a, b = streaming()
    a.open("stream", b"", credit=100)
    exchange(a, b)
    frame = frames.PayloadFrame
    one = [frame(stream=1, next=True, extensions=(trace(number),), data=b"x") for number in range(4)]
    other = frame(stream=3, next=True, extensions=(trace(7),), data=b"x")
    longer = frame(stream=1, next=True, extensions=(Entry("own", b"1234567", True),), data=b"x")
    events = heard(a, wired(*one, other, *one, longer, *one))
    assert [(event.stream, len(event.payloads)) for event in events] == [(1, 4), (3, 1), (1, 4), (1, 1), (1, 4)]
    half = wired(*one)
    assert len(taken(heard(a, half[:-1]))) == 3
    assert len(taken(heard(a, half[-1:]))) == 1


def test_a_length_that_ends_within_the_entries_ends_a_run() -> None:
    """The frame is malformed, although its first bytes are those of the frames before."""
    for first in (trace(1), trace(2)):
        a, _ = streaming()
        good = [frames.PayloadFrame(stream=1, next=True, extensions=(entry,)) for entry in (trace(1), first)]
        broken = wired(good[1])
        broken = (len(broken) - 3 - 1).to_bytes(3, "big") + broken[3:-1]
        events = a.receive(wired(*good) + broken + wired(*good), 0.0)
        assert len(taken([event for event in events if isinstance(event, ev.Items)])) == 2
        assert isinstance(events[-1], ev.Closed)


def test_items_with_entries_of_their_own_beside_others_are_sent_in_order() -> None:
    a, b = streaming()
    sent: list[Any] = [
        *numbered(3),
        b"bytes",
        Payload(b"p"),
        ExtendedPayload(b"m", b"metadata", entries=(trace(9),)),
        *numbered(2),
        ExtendedPayload(b"y" * 5000, entries=(trace(8),)),
        *numbered(2),
        *[ExtendedPayload(b"z" * 3000, entries=(trace(number),)) for number in range(50)],
    ]
    b.send(1, sent)
    assert taken(heard(a, said(b))) == [Payload(one) if isinstance(one, bytes) else one for one in sent]


def test_an_item_that_cannot_be_sent_ends_a_list() -> None:
    """The items before it are queued."""
    a, b = streaming()
    long = ExtendedPayload(b"", entries=(Entry("own", bytes(MOST_PRELUDE), True),))
    assert not long.proper
    with pytest.raises(LimitExceeded):
        b.send(1, [*numbered(3), long, *numbered(2)])
    assert taken(heard(a, said(b))) == numbered(3)


# -- requests and answers -------------------------------------------------------------------------------------


def calling(**terms: Any) -> tuple[Engine, Engine]:
    a, b = client(PING, extensions=("own",)), server(extensions=("own",), **terms)
    greet(a, b)
    return a, b


def singles(events: Sequence[Any]) -> list[Any]:
    """Requests as Opened, and answers as Items."""
    batches = (ev.Requests, ev.Answers)
    return [one for event in events for one in (event.each() if isinstance(event, batches) else [event])]


CALLS: dict[str, list[Any]] = {
    "equal entries": items([b"a", b"bb", b""] * 5, entries=THREE),
    "entries of their own": numbered(15),
    "metadata": [ExtendedPayload(b"data", b"metadata", entries=THREE), *numbered(3)],
    "alone": [ExtendedPayload(b"data", b"metadata", entries=THREE)],
    "beside plain ones": [Payload(b"1"), *numbered(2), Payload(b"2", b"m"), *numbered(3)],
    "of a frame's size": [*numbered(2), ExtendedPayload(b"x" * 5000, b"m" * 5000, entries=THREE), *numbered(2)],
    "many": [ExtendedPayload(b"z" * 3000, entries=(trace(number),)) for number in range(50)],
}


@pytest.mark.parametrize("mode", ["whole", pytest.param("bytewise", marks=pytest.mark.repetitive)])
@pytest.mark.parametrize("sent", CALLS.values(), ids=list(CALLS))
def test_requests_and_answers(mode: str, sent: list[Any]) -> None:
    a, b = calling()
    ids = a.ask(sent)
    asked = singles(heard(b, said(a), mode))
    assert [(event.stream, event.verb, event.payload) for event in asked] == [
        (id, "request", payload) for id, payload in zip(ids, sent, strict=True)
    ]
    b.answer(ids, [event.payload for event in asked])
    answers = singles(heard(a, said(b), mode))
    assert [(event.stream, event.payloads, event.complete) for event in answers] == [
        (id, [payload], True) for id, payload in zip(ids, sent, strict=True)
    ]
    assert a.streams() == b.streams() == []
    assert a.stream_table.delivered == sum(map(len, sent))
    assert b.stream_table.delivered > sum(map(len, sent))  # and the entries
    b.consumed(sum(map(len, sent)), len(sent))
    assert b.stream_table.delivered == 0


def test_requests_with_entries_are_one_event() -> None:
    a, b = calling()
    a.ask(numbered(20))
    (event,) = heard(b, said(a))
    assert isinstance(event, ev.Requests)
    b.answer(event.streams, event.payloads)
    (event,) = heard(a, said(b))
    assert isinstance(event, ev.Answers)
    assert event.payloads == numbered(20)


def test_answers_with_MIME_types() -> None:
    a, b = calling()
    ids = a.ask(items([b"x"] * 3, entries=THREE))
    heard(b, said(a))
    sent = items([b"y"] * 3, data_mime="application/json")
    b.answer(ids, sent)
    assert [event.payloads for event in singles(heard(a, said(b)))] == [[one] for one in sent]


def test_skipped_entries_of_requests() -> None:
    a, b = calling()
    a.ask(items([b"x"] * 3, entries=(SKIPPED,)))
    assert [type(event.payload) for event in singles(heard(b, said(a)))] == [Payload] * 3


def test_requests_that_cannot_be_sent_open_no_stream() -> None:
    a, _ = calling()
    for payload, rule in (
        (ExtendedPayload(b"", data_mime="x/y"), "D-3"),
        (ExtendedPayload(b"", entries=(Entry("own", bytes(MOST_PRELUDE), True),)), "D-17"),
        (resumable(b""), "R-36"),
    ):
        with pytest.raises((LimitExceeded, LocalProtocolError)) as caught:
            a.ask([payload, *numbered(2)])
        assert caught.value.rule == rule
        assert a.streams() == []
        assert said(a) == b""


def test_requests_that_the_tables_refuse() -> None:
    """Beside requests of the short path: of a wrong id, too many, and with an entry that is not understood."""

    def request(id: int, *entries: Entry) -> Any:
        return frames.RequestResponse(stream=id, extensions=entries or THREE, data=b"x")

    a, b = calling(limits=afflux.Limits.server(streams=3, pending_streams=0))
    events = heard(b, wired(request(1), request(1), request(2), request(3, Entry("must")), request(5), request(7)))
    assert [event.stream for event in singles(events)] == [1, 5, 7]
    assert [(frame.stream, frame.code) for frame in frames_of(said(b))] == [(3, 0x204)]
    assert singles(heard(b, wired(request(9)))) == []
    assert [(frame.stream, frame.code) for frame in frames_of(said(b))] == [(9, 0x202)]
    assert a.streams() == []


def test_metadata_that_overruns_a_request_goes_through_the_tables() -> None:
    a, b = calling()
    data = wired(frames.RequestResponse(stream=1, extensions=THREE, metadata=b"m", data=b"x"))
    at = data.index(b"\0\0\1mx")
    for length in (b"\0\0\x09", b"\xff\xff\xff"):
        a, b = calling()
        events = b.receive(data + data[:3] + b"\0\0\0\3" + data[7:at] + length + data[at + 3 :], 0.0)
        assert isinstance(events[0], ev.Opened)
        assert isinstance(events[-1], ev.Closed)
        assert not a.closed


def test_answers_that_nobody_waits_for() -> None:
    a, _ = calling()
    (id,) = a.ask(numbered(1))
    answer = frames.PayloadFrame(stream=id, next=True, complete=True, extensions=THREE, data=b"x")
    must = frames.PayloadFrame(stream=id + 2, next=True, complete=True, extensions=(Entry("must"),), data=b"x")
    assert len(heard(a, wired(answer, answer))) == 1
    (id,) = a.ask(numbered(1))
    events = heard(a, wired(must))
    assert [type(event) for event in events] == [ev.Failed]


def test_half_a_request_waits() -> None:
    a, b = calling()
    a.ask(numbered(3))
    data = said(a)
    assert len(singles(heard(b, data[:-1]))) == 2
    assert len(singles(heard(b, data[-1:]))) == 1


# -- received payloads ----------------------------------------------------------------------------------------


def test_received_payloads_are_values() -> None:
    a, b = streaming()
    sent = numbered(20)
    b.send(1, sent)
    got = taken(heard(a, said(b)))
    assert pickle.loads(pickle.dumps(got)) == copy.deepcopy(got) == sent
    assert hash(got[0]) == hash(sent[0])
    assert repr(got[3]) == repr(sent[3])
    assert got[3] != got[4]
    for one in got:
        assert isinstance(one, ExtendedPayload)
        assert one.proper
        assert (one.data_mime, one.metadata_mime) == (None, None)


def test_what_was_received_is_sent_on_as_it_came() -> None:
    a, b = streaming()
    for sent in (numbered(20), items([b"x" * number for number in range(20)], entries=THREE)):
        b.send(1, sent)
        first = said(b)
        got = taken(heard(a, first))
        _, d = streaming()
        d.send(1, got)
        assert said(d) == first


def test_skipped_entries_and_reserved_bits_are_not_sent_on() -> None:
    """R-20."""
    a, _ = streaming()
    data = wired(*[frames.PayloadFrame(stream=1, next=True, extensions=(OWN, SKIPPED), data=b"x")] * 3)
    reserved = wired(frames.PayloadFrame(stream=1, next=True, extensions=(OWN,), data=b"y"))
    at = reserved.index(b"own") + 3
    reserved = reserved[:at] + bytes((reserved[at] | 0x10,)) + reserved[at + 1 :]
    got = taken(heard(a, data + reserved))
    assert got == [*items([b"x"] * 3, entries=(OWN,)), ExtendedPayload(b"y", entries=(OWN,))]
    _, d = streaming()
    d.send(1, got)
    assert [frame.extensions for frame in frames_of(said(d))] == [(OWN,)] * 4


@pytest.mark.parametrize("own", [trace, lambda number: trace(1)], ids=["of their own", "equal"])
def test_DR_4_entries_of_items_that_wait_count(own: Any) -> None:
    """They are free when their items are consumed, each by the average share."""
    a, b = streaming()
    chain = 9 + len(own(1).payload) - 1
    b.send(1, [ExtendedPayload(b"xy", entries=(own(number),)) for number in range(10)])
    heard(a, said(b))
    fragments = wired(
        frames.PayloadFrame(stream=1, next=True, follows=True, extensions=(trace(1),), data=b"x" * 100),
        frames.PayloadFrame(stream=1, next=True, data=b"y"),
    )
    assert a.stream_table.delivered == 10 * (2 + chain)
    a.consumed(4, 2)
    assert a.stream_table.delivered == 8 * (2 + chain)
    a.consumed(16, 8)
    assert a.stream_table.delivered == 0
    heard(a, fragments)
    assert a.stream_table.delivered == 101 + chain
    a.consumed(101, 1)
    assert a.stream_table.delivered == 0
