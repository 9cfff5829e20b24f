"""Leases of the draft: three strategies, grants on EXT."""

from __future__ import annotations

from typing import Any

import pytest

from afflux.core import events as ev
from afflux.core.errors import LeaseExpired, Unsupported
from afflux.core.payload import Payload
from afflux.protocols.family.lease import FixedLease, Lease
from afflux.protocols.rsocket_draft import Engine, frames, payloads
from afflux.protocols.rsocket_draft.payloads import CONCURRENCY, FRAMES_COUNT, REQUESTS, Permits

from .pair import KEEPALIVE, client, exchange, frames_of, joined, said, server, wired


def leased(strategy: int | str, requests: int = 2, ttl: float = 5.0, **options: Any) -> tuple[Engine, Engine]:
    """Both ends, after the server has granted a lease."""
    a, b = (
        client(KEEPALIVE, payloads.lease_entry([strategy], ack=True), **options),
        server(lease=FixedLease(requests, ttl)),
    )
    heard, _ = exchange(a, b)
    assert ev.Leased(requests, ttl) in heard
    return a, b


def test_R_30_the_server_selects_the_first_strategy_that_it_knows() -> None:
    offers = payloads.lease_entry(["Own", FRAMES_COUNT, REQUESTS], ack=True)
    a, b = client(KEEPALIVE, offers), server(lease=FixedLease(1))
    b.receive(said(a), 0.0)
    ok, lease = frames_of(said(b))
    assert payloads.strategy_of(ok.extensions[0]) == FRAMES_COUNT
    assert payloads.permits_of(lease.extensions[0]) == (1000, 1)
    a = client(payloads.lease_entry(["Own"], ack=True))
    b = server(lease=FixedLease(1))
    b.receive(said(a), 0.0)
    assert [(frame.NAME, frame.code) for frame in frames_of(said(b))] == [("ERROR", 0x003)]


def test_R_32_requests_count() -> None:
    a, _ = leased(REQUESTS)
    assert a.leases is not None
    a.open("request", b"", now=0.0)
    a.open("fire", b"", now=0.0)
    with pytest.raises(LeaseExpired):
        a.open("request", b"", now=0.0)


def test_R_32_concurrency_limit() -> None:
    a, b = leased(CONCURRENCY)
    assert a.leases is not None
    first, _ = a.open("request", b"", now=0.0), a.open("stream", b"", credit=1, now=0.0)
    with pytest.raises(LeaseExpired):
        a.open("request", b"", now=0.0)
    exchange(a, b)
    b.answer([first], [Payload(b"")])
    exchange(a, b)
    assert a.leases.lease(0.0)[0] == 1
    a.open("request", b"", now=0.0)
    with pytest.raises(LeaseExpired):
        a.open("request", b"", now=5.0)


def test_a_peer_that_exceeds_the_concurrency_limit() -> None:
    _, b = leased(CONCURRENCY, 1)
    requests = [frames.RequestResponse(stream=id) for id in (1, 3)]
    events = b.receive(wired(*requests), 0.0)
    assert [type(event) for event in events] == [ev.Opened, ev.Ignored]
    assert [(frame.stream, frame.code) for frame in frames_of(said(b))] == [(3, 0x202)]
    b.receive(wired(frames.RequestResponse(stream=5)), 6.0)
    assert [(frame.stream, frame.code) for frame in frames_of(said(b))] == [(5, 0x202)]


def test_R_32_frames_count() -> None:
    """A stream frame beyond the grant waits for the next one; frames of stream 0 do not."""
    a, b = leased(FRAMES_COUNT, 3)
    ids = [a.open("stream", b"%d" % n, credit=1, now=0.0) for n in range(3)]
    a.request(ids[0], 5)
    a.push(b"p")
    sent = said(a)
    names = ["METADATA_PUSH", "REQUEST_STREAM", "REQUEST_N", "REQUEST_STREAM"]
    assert [frame.NAME for frame in frames_of(sent)] == names
    assert a.queued > 0
    with pytest.raises(LeaseExpired):
        a.open("request", b"", now=0.0)
    a.push(b"q")
    assert [frame.NAME for frame in frames_of(said(a))] == ["METADATA_PUSH"]
    assert [type(event) for event in b.receive(sent, 0.0)] == [
        ev.Pushed,
        ev.Opened,
        ev.Granted,
        ev.Opened,
    ]
    a.receive(wired(frames.ExtChain(extensions=(payloads.grant_entry(Permits(5000, 1)),))), 1.0)
    a.cancel(ids[1])
    assert [frame.NAME for frame in frames_of(said(a))] == ["REQUEST_STREAM"]
    a.receive(wired(frames.ExtChain(extensions=(payloads.grant_entry(Permits(5000, 9)),))), 1.0)
    assert [frame.NAME for frame in frames_of(said(a))] == ["CANCEL"]
    assert a.queued == 0


def test_frames_that_were_taken_and_exceed_the_permits_wait_in_order() -> None:
    a, b = leased(FRAMES_COUNT, 5)
    stream = a.open("channel", b"", credit=1, now=0.0)
    exchange(a, b)
    b.request(stream, 10)
    exchange(a, b)
    a.send(stream, [b"%d" % n for n in range(9)])
    first = frames_of(said(a))
    assert [frame.data for frame in first] == [b"0", b"1", b"2", b"3"]
    assert a.queued > 0
    grant = wired(frames.ExtChain(extensions=(payloads.grant_entry(Permits(5000, 100)),)))
    a.receive(grant, 1.0)
    a.complete(stream)
    rest = frames_of(said(a))
    assert [frame.data for frame in rest] == [b"4", b"5", b"6", b"7", b"8", b""]
    assert rest[-1].complete


def test_D_19_only_requests_beyond_the_frames_are_refused() -> None:
    _, b = leased(FRAMES_COUNT, 2)
    events = b.receive(wired(frames.RequestStream(stream=1, initial_n=1), frames.RequestN(stream=1, n=1)), 0.0)
    assert [type(event) for event in events] == [ev.Opened, ev.Granted]
    events = b.receive(wired(frames.RequestN(stream=1, n=1), frames.RequestResponse(stream=3)), 0.0)
    assert [type(event) for event in events] == [ev.Granted, ev.Ignored]
    assert [(frame.stream, frame.code) for frame in frames_of(said(b))] == [(3, 0x202)]


def test_R_33_zero_permits_and_expiry_stop() -> None:
    a, b = leased(REQUESTS)
    for permits in (Permits(5000, 0), Permits(0, 5)):
        a.receive(wired(frames.ExtChain(extensions=(payloads.grant_entry(permits),))), 0.0)
        with pytest.raises(LeaseExpired):
            a.open("request", b"", now=0.0)
    events = b.receive(wired(frames.RequestResponse(stream=1)), 5.0)
    assert [type(event) for event in events] == [ev.Ignored]


def test_R_31_both_sides_grant_and_the_last_grant_counts() -> None:
    a, b = leased(REQUESTS)
    assert a.leases is not None
    assert b.leases is not None
    assert b.leases.lease(0.0)[0] > 1_000_000  # the client limits nothing
    a.leases.grant(Lease(1, 9.0), 0.0)
    b.leases.grant(Lease(7, 9.0), 0.0)
    exchange(a, b)
    assert (a.leases.lease(0.0)[0], b.leases.lease(0.0)[0]) == (7, 1)
    with pytest.raises(Unsupported):
        b.leases.grant(Lease(7, 9.0), 0.0, b"metadata")


def test_R_34_the_legacy_lease_is_ignored() -> None:
    a, _ = leased(REQUESTS)
    legacy = wired(frames.Lease(ttl_ms=1000, requests=9))
    assert [type(event) for event in a.receive(legacy, 0.0)] == [ev.Ignored]
    a, _ = joined(KEEPALIVE)
    assert [type(event) for event in a.receive(legacy, 0.0)] == [ev.Ignored]


def test_a_grant_that_was_not_agreed_on() -> None:
    """R-17: an extension that is not negotiated counts as unknown."""
    a, _ = joined(KEEPALIVE)
    grant = frames.ExtChain(extensions=(payloads.grant_entry(Permits(1000, 1)),))
    (ignored,) = a.receive(wired(grant), 0.0)
    assert (ignored.rule, a.leases) == ("R-17", None)
    strict = frames.ExtChain(extensions=(payloads.Entry(2, bytes(8)),))
    events = a.receive(wired(strict), 0.0)
    assert (events[-1].error.code, events[-1].error.rule) == (0x101, "R-18")
