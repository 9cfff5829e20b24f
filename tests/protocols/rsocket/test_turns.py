"""Whose turn it is to send: shares, debts, patience, and how many large payloads are begun at once."""

from __future__ import annotations

import pytest

from afflux.core import events as ev
from afflux.core.limits import Limits
from afflux.core.payload import Payload
from afflux.protocols.family import scheduler as turns
from afflux.protocols.family.outbound import Outbound
from afflux.protocols.rsocket import frames
from afflux.protocols.rsocket.member import LAYOUT, MEMBER

from .playbook import responder

MTU = 0x1000
MI = 1 << 20


def taken(out: Outbound, limit: int = 0x10000) -> list[tuple[int, int]]:
    """One take: the stream and the size of each frame."""
    data, at = out.take(limit), 0
    found = []
    while at < len(data):
        size = 3 + int.from_bytes(data[at : at + 3], "big")
        found.append((int.from_bytes(data[at + 3 : at + 7], "big"), size))
        at += size
    return found


def put(out: Outbound, stream: int, size: int, *, request: bool = False) -> None:
    """One payload, cut when it is above the MTU."""
    if request:
        out.request(stream, MEMBER.openings["request"], b"", Payload(bytes(size)), False)
    else:
        out.item(stream, MEMBER.requester, Payload(bytes(size)), False)


def grant(n: int, stream: int = 1) -> bytes:
    return frames.RequestN(stream=stream, n=n).encode(prefixed=True)


def drained(out: Outbound) -> dict[int, int]:
    """Bytes of each stream, when all has been taken."""
    sizes: dict[int, int] = {}
    while out.scheduler.size:
        for stream, size in taken(out):
            sizes[stream] = sizes.get(stream, 0) + size
    return sizes


def test_streams_share_by_bytes() -> None:
    out = Outbound(LAYOUT, Limits.server(), MTU)
    put(out, 1, 8 * MI)
    for _ in range(64):
        put(out, 3, 1000)
    first = taken(out, 4 * turns.SHARE)
    sizes = [sum(size for stream, size in first if stream == id) for id in (1, 3)]
    assert abs(sizes[0] - sizes[1]) <= turns.SHARE + MTU


def test_a_dropped_payload_takes_later_items_with_it_but_not_credit() -> None:
    """R-38: one half of the stream has ended; the credit belongs to the other half."""
    out = Outbound(LAYOUT, Limits.server(), MTU)
    put(out, 1, 100)
    put(out, 1, 2 * MTU)
    put(out, 1, 200)
    out.frame(1, grant(5))
    out.scheduler.drop(1, credit=True)
    assert drained(out) == {1: 100 + 9 + len(grant(5))}


def test_only_so_many_bytes_of_large_payloads_are_begun() -> None:
    """What the peer has to hold in part is bounded: else it refuses what everybody may send."""
    out = Outbound(LAYOUT, Limits.server(), MTU)
    for stream in range(1, 17, 2):
        put(out, stream, MI + 1)
    begun: set[int] = set()
    left = dict.fromkeys(range(1, 17, 2), 0)
    while out.scheduler.size:
        for stream, size in taken(out):
            begun.add(stream)
            left[stream] += size
        unfinished = [stream for stream in begun if left[stream] < MI]
        assert len(unfinished) <= 3  # 3 MiB and 3 bytes: a fourth would pass 4 MiB
    assert all(size > MI for size in left.values())
    for stream in (1, 3, 5, 7):
        put(out, stream, MI + 1)
    taken(out, 4 * turns.SHARE)
    assert {stream for stream, _ in taken(out, 4 * turns.SHARE)} == {1, 3, 5}  # what was sent takes no room


def test_one_is_begun_however_large_and_requests_always() -> None:
    out = Outbound(LAYOUT, Limits.server(), MTU)
    put(out, 1, 6 * MI)
    put(out, 3, 6 * MI)
    put(out, 5, 6 * MI, request=True)
    assert {stream for _ in range(8) for stream, _ in taken(out)} == {1, 5}
    out.scheduler.drop(1)
    assert {stream for _ in range(8) for stream, _ in taken(out)} == {5}  # 5 is on its way
    out.scheduler.drop(5)
    assert {stream for stream, _ in taken(out)} == {3}
    out.scheduler.forget()
    put(out, 7, 6 * MI)
    assert {stream for stream, _ in taken(out)} == {7}


def test_who_is_held_back_sends_what_stands_before_its_payload() -> None:
    out = Outbound(LAYOUT, Limits.server(), MTU)
    put(out, 1, 6 * MI)
    put(out, 3, 10)
    put(out, 3, 6 * MI)
    put(out, 3, 20)
    got = [frame for _ in range(4) for frame in taken(out) if frame[0] == 3]
    assert [size for _, size in got] == [19]
    sizes = drained(out)
    assert sizes[1] > 5 * MI
    assert sizes[3] > 6 * MI


def test_a_stream_that_is_alone_owes_nothing_though_it_had_company() -> None:
    """Being polite to nobody would slow it down for ever."""
    out = Outbound(LAYOUT, Limits.server(), 0x20000)
    put(out, 1, MI)
    put(out, 3, MI)
    drained(out)
    for _ in range(turns._YIELD_MS):
        put(out, 1, 0x18000)
        while out.scheduler.size:
            if out.scheduler.should_yield():
                out.scheduler.pace()
            out.take(0x10000)
    put(out, 1, MI)
    assert not out.scheduler.should_yield()
    assert out.take(0x100000)
    assert not out.scheduler.should_yield()


def test_who_owes_waits_while_others_are_busy_and_makes_up_for_it() -> None:
    out = Outbound(LAYOUT, Limits.server(), 0x40000)
    assert not out.scheduler.should_yield()
    put(out, 1, 0x30000)
    put(out, 1, 0x30000)
    put(out, 3, turns._BUSY)
    assert [stream for stream, _ in taken(out)] == [1]
    assert not out.scheduler.should_yield()  # 3 has something to send
    assert [stream for stream, _ in taken(out, turns._BUSY)] == [3]
    waited = 0
    while out.scheduler.should_yield():
        out.scheduler.pace()
        waited += 1
    assert waited == 3  # 64 KiB each time
    assert [stream for stream, _ in taken(out)] == [1]


def test_what_is_cut_makes_up_for_what_others_leave() -> None:
    """Turns in which others send make up for its debt; a pause gives it more only where they left something."""

    def pauses(others: int) -> int:
        out = Outbound(LAYOUT, Limits.server(), 0x40000)
        put(out, 1, MI)
        put(out, 3, turns._BUSY)
        taken(out)
        taken(out, turns._BUSY)
        waited = 0
        while out.scheduler.should_yield():
            out.scheduler._sent = others
            out.scheduler.pace()
            waited += 1
        return waited

    assert pauses(0) < pauses(0xC000) < pauses(0x10000) == pauses(0x100000)


def test_all_that_a_stream_grants_goes_before_its_payload() -> None:
    out = Outbound(LAYOUT, Limits.server(), MTU)
    put(out, 1, MI)
    for n in (1, 2, 3):
        out.scheduler.queue_credit(1, grant(n))
    first = taken(out)
    assert [size for _, size in first[:4]] == [13, 13, 13, MTU]
    out.scheduler.drop(1)
    assert out.scheduler.size == 0


@pytest.mark.parametrize("before", [0, 1])
def test_credit_keeps_its_place_behind_frames_and_requests(before: int) -> None:
    out = Outbound(LAYOUT, Limits.server(), MTU)
    if before:
        put(out, 1, 10)
    put(out, 1, 2 * MTU, request=True)
    out.scheduler.queue_credit(1, grant(7))
    assert taken(out)[-1] == (1, 13)


def test_a_credit_alone_is_a_frame_like_others() -> None:
    out = Outbound(LAYOUT, Limits.server(), MTU)
    out.scheduler.queue_credit(1, grant(7))
    out.scheduler.queue_credit(1, grant(8))
    assert taken(out) == [(1, 13), (1, 13)]


@pytest.mark.parametrize("waiting", [0, 100, 100_000])
def test_who_is_cut_gets_something_however_many_wait(waiting: int) -> None:
    out = Outbound(LAYOUT, Limits.server(), MTU)
    put(out, 1, MI)
    put(out, 3, MI)
    out.scheduler.crowd(waiting)
    turn = turns.SHARE // MTU if not waiting else 1
    first = [stream for stream, _ in taken(out)]
    assert first[: turn + 1] == [1] * turn + [3]
    assert len(first) >= 0x10000 // MTU
    out.scheduler.crowd(0)
    out.take(2 * turns.SHARE)  # turns that were cut short end
    assert [stream for stream, _ in taken(out, 2 * turns.SHARE)].count(1) == turns.SHARE // MTU


def test_an_engine_learns_how_many_wait() -> None:
    """Large payloads take turns by less, the more others wait for room."""
    for waiting, first in ((0, [1] * 16 + [3]), (100_000, [1, 3, 1, 3])):
        play = responder(mtu=0x400)
        for id in (1, 3):
            play >> frames.RequestStream(stream=id, initial_n=1, data=b"") << ev.Opened
        play.engine.scheduler.crowd(waiting)
        for id in (1, 3):
            play.engine.send(id, [bytes(MI)])
        data, at, order = play.engine.outgoing(0x10000), 0, []
        while at < len(data):
            order.append(int.from_bytes(data[at + 3 : at + 7], "big"))
            at += 3 + int.from_bytes(data[at : at + 3], "big")
        assert order[: len(first)] == first


def test_an_engine_is_patient_and_makes_up_for_it() -> None:
    play = responder(mtu=0x40000)
    for id in (1, 3):
        play >> frames.RequestStream(stream=id, initial_n=2, data=b"") << ev.Opened
    play.engine.send(1, [bytes(0x30000), bytes(0x30000)])
    play.engine.send(3, [bytes(turns._BUSY)])
    assert not play.engine.scheduler.should_yield()
    assert len(play.engine.outgoing(0x10000)) > 0x30000
    assert len(play.engine.outgoing(turns._BUSY)) < 2 * turns._BUSY
    waited = 0
    while play.engine.scheduler.should_yield():
        play.engine.scheduler.pace()
        waited += 1
    assert waited == 3
    assert len(play.engine.outgoing(0x10000)) > 0x30000


def test_a_late_reader_gets_an_event_when_it_has_caught_up() -> None:
    out = Outbound(LAYOUT, Limits.server(), MTU)
    assert not out.scheduler.behind(1)
    put(out, 1, MI)
    put(out, 3, MI)
    assert out.scheduler.behind(1)
    assert out.scheduler.caught_up() == []
    drained(out)
    assert out.scheduler.caught_up() == [1]
    assert out.scheduler.caught_up() == []
