"""Conversations about leases: who may send how many requests, and for how long (section 3.3, R-13, R-40 to R-43)."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from afflux.core import events as ev
from afflux.core.errors import (
    ConnectionClosed,
    Error,
    LeaseExpired,
    LimitExceeded,
    LocalProtocolError,
    Rejected,
    RemoteProtocolError,
)
from afflux.core.limits import Limits
from afflux.protocols.family.lease import (
    MOST,
    UNMETERED,
    FixedLease,
    Granted,
    Held,
    Lease,
    LeaseGranter,
    LeasePolicy,
    RateLease,
)
from afflux.protocols.rsocket import Engine, frames

from .playbook import (
    TOKEN,
    Mode,
    Playbook,
    closed,
    error,
    failed,
    ignored,
    newcomer,
    position,
    requester,
    resumable_client,
    resumable_server,
    resume,
    resume_ok,
    setup,
)

P = frames.PayloadFrame


def lease(requests: int, ttl_ms: int, metadata: bytes = b"") -> frames.Lease:
    return frames.Lease(stream=0, ttl_ms=ttl_ms, requests=requests, metadata=metadata)


def client(mode: Mode = "whole", policy: LeasePolicy | None = None, limits: Limits | None = None) -> Playbook:
    """A client that wants leases and has heard from its server already."""
    play = Playbook(Engine("client", setup=setup(lease=True), lease=policy, limits=limits), mode) << frames.Setup
    return play >> position(0) << ev.Established << frames.Lease


def server(
    mode: Mode = "whole", policy: LeasePolicy | None = None, limits: Limits | None = None, **options: Any
) -> Playbook:
    """A server that has granted its first lease: 2 requests in a second."""
    play = Playbook(Engine("server", lease=policy or FixedLease(2), limits=limits, **options), mode)
    return play >> setup(lease=True) << ev.Established << frames.Lease


def ask(stream: int = 1) -> frames.RequestResponse:
    return frames.RequestResponse(stream=stream, data=b"q")


def opened(play: Playbook, now: float | None = None) -> int:
    """This side asks."""
    stream = play.engine.open("request", b"q", now=play.now if now is None else now)
    play.do(lambda engine: None) << ask(stream)
    return stream


# -- what a policy says ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ttl", "ms"),
    [(0, 0), (0.001, 1), (1.001, 1001), (0.29, 290), (4.35, 4350), (2.5, 2500), (0.0004, 0), (MOST / 1000, MOST)],
)
def test_time_is_stated_to_the_millisecond(ttl: float, ms: int) -> None:
    """1.001 seconds are 1000.9999 milliseconds to a machine, and 1001 on the wire."""
    assert Lease(1, ttl).ttl_ms == ms


@pytest.mark.parametrize(
    ("requests", "ttl"), [(-1, 1), (MOST + 1, 1), (1, -0.001), (1, MOST / 1000 + 1), (1, inf), (1, float("nan"))]
)
def test_a_lease_that_no_frame_can_carry(requests: int, ttl: float) -> None:
    for make in (Lease, FixedLease):
        with pytest.raises(ValueError, match="a lease has 0 to"):
            make(requests, ttl)
    Lease(0, 0)
    Lease(MOST, MOST / 1000)
    with pytest.raises(TypeError, match="a whole number of requests, and seconds"):
        Lease(1.5, 1)  # type: ignore[arg-type]  # what a user may write


def test_a_lease_that_is_renewed_takes_time() -> None:
    for make in (lambda: FixedLease(1, 0), lambda: FixedLease(1, 0.0009), lambda: RateLease(1, 1, 0)):
        with pytest.raises(ValueError, match="a millisecond or more"):
            make()
    FixedLease(1, 0.001)


@pytest.mark.parametrize("rate", [-1, float("nan"), float("inf")])
def test_a_rate_that_is_none(rate: float) -> None:
    with pytest.raises(ValueError, match="a rate is 0 or more"):
        RateLease(rate, 1)
    with pytest.raises(TypeError, match="a rate is a number of requests per second, not '5/s'"):
        RateLease("5/s", 1)  # type: ignore[arg-type]  # what a user may write


def test_a_burst_that_permits_nothing() -> None:
    with pytest.raises(ValueError, match="a burst of 0 permits no request, ever: give burst=1 or more"):
        RateLease(1, 0)


def test_a_fixed_lease_is_always_the_same() -> None:
    policy = FixedLease(5, 0.5)
    granter = policy.start()
    assert [granter.grant(now, used) for now, used in ((0, 0), (1, 5), (1, 99))] == [Lease(5, 0.5)] * 3
    assert UNMETERED.start().grant(0, 0) == Lease(MOST, MOST / 1000)


def test_a_rate_grants_what_is_left() -> None:
    """4 a second, 10 at once. Used 10 at 0 s; after half a second there are 2."""
    granter = RateLease(4, 10, 0.5).start()
    grants = [(0.0, 0, 10), (0.5, 10, 2), (1.0, 0, 4), (1.5, 3, 3), (10.0, 0, 10), (10.5, 1, 10), (10.5, 10, 0)]
    for now, used, left in grants:
        assert granter.grant(now, used) == Lease(left, 0.5), now


def test_each_connection_has_a_rate_of_its_own() -> None:
    policy = RateLease(0, 3)
    one, two = policy.start(), policy.start()
    assert one.grant(0, 0).requests == 3
    assert one.grant(1, 3).requests == 0
    assert one.grant(1000, 0).requests == 0
    assert two.grant(1000, 0).requests == 3


def test_a_rate_pays_for_a_lease_by_hand_as_far_as_it_can() -> None:
    granter = RateLease(1, 10).start()
    assert granter.grant(0, 500).requests == 0
    assert granter.grant(3, 0).requests == 3


@pytest.mark.parametrize(
    ("rate", "burst", "ttl"), [(10, 10, 1.0), (10, 1, 0.1), (3, 50, 0.1), (7, 7, 0.7), (100, 9, 0.01)]
)
def test_a_rate_is_reached_by_who_uses_all_of_it(rate: float, burst: int, ttl: float) -> None:
    """On average, whatever the length of a lease; and never more, but for the first burst."""
    granter = RateLease(rate, burst, ttl).start()
    used = total = 0
    for step in range(1000):
        used = granter.grant(step * ttl, used).requests
        assert used <= burst
        total += used
        assert total <= burst + rate * step * ttl + 1e-6
    assert total > min(rate, burst / ttl) * 999 * ttl * 0.98


def test_a_clock_that_goes_backwards_brings_nothing() -> None:
    granter = RateLease(1, 5).start()
    assert granter.grant(10, 0).requests == 5
    assert granter.grant(5, 5).requests == 0
    assert granter.grant(7, 0).requests == 2


# -- what each side holds -------------------------------------------------------------------------------------


def test_a_requester_stops_early() -> None:
    """50 ms of margin: clocks and wires are not exact."""
    held = Held(Limits.server())
    assert not held.take(0.0)
    held.replace(1000, 3, 10.0)
    assert held.take(10.0)
    assert held.left(10.9) == 2
    assert held.take(10.949)
    assert not held.take(10.95)
    assert held.left(10.95) == 0
    held.replace(1000, 1, 11.0)
    assert held.take(11.0)
    assert not held.take(11.0)


@pytest.mark.parametrize(("ttl_ms", "requests"), [(0, 5), (1000, 0), (0, 0), (50, 5), (49, 5), (1, 1)])
def test_a_lease_that_means_stop(ttl_ms: int, requests: int) -> None:
    """LE-04, D-5; or that is over before it could be used."""
    held = Held(Limits.server())
    held.replace(1000, 9, 0.0)
    held.replace(ttl_ms, requests, 0.0)
    assert held.left(0.0) == 0
    assert not held.take(0.0)


def test_a_margin_of_nothing() -> None:
    held = Held(Limits.server().replace(lease_margin_ms=0))
    held.replace(1000, 1, 0.0)
    assert held.left(0.999) == 1
    assert held.left(1.0) == 0


def test_a_responder_allows_nothing_for_clocks() -> None:
    granted = Granted(FixedLease(2, 1.0))
    assert not granted.take(0.0)
    assert granted.next(10.0) == Lease(2, 1.0)
    assert granted.take(10.999)
    assert not granted.take(11.0)
    assert granted.next(11.0) == Lease(2, 1.0)
    assert [granted.take(11.0) for _ in range(3)] == [True, True, False]
    granted.end()
    assert not granted.take(11.0)
    assert granted.until is None


def test_a_policy_gets_the_use_since_its_last_call() -> None:
    """Under its own lease and under one by hand."""
    heard: list[tuple[float, int]] = []

    class Policy:
        def start(self) -> LeaseGranter:
            return self

        def grant(self, now: float, used: int) -> Lease:
            heard.append((now, used))
            return Lease(5, 1.0)

    granted = Granted(Policy())
    granted.next(0.0)
    for _ in range(4):
        granted.take(0.5)
    granted.replace(Lease(2, 1.0), 0.5)
    granted.take(0.5)
    granted.next(1.5)
    granted.next(2.5)
    assert heard == [(0.0, 0), (1.5, 5), (2.5, 0)]


# -- a requester ----------------------------------------------------------------------------------------------


def test_a_requester_waits_for_its_lease(mode: Mode) -> None:
    """R-13, R-41, LE-08: it fails at once, and nothing is sent."""
    play = client(mode)
    assert play.engine.leases is not None
    assert play.engine.leases.lease(0.0) == (0, 0.0)
    with pytest.raises(LeaseExpired, match="no valid lease") as refused:
        play.engine.open("request", b"q", now=0.0)
    assert refused.value.rule == "R-41"
    play.quiet()
    play >> lease(2, 1000) << ev.Leased(2, 1.0)
    assert play.engine.leases.lease(0.0) == (2, 0.95)
    assert opened(play) == 1
    assert play.engine.leases.lease(0.5) == (1, pytest.approx(0.45))
    assert opened(play, 0.949) == 3
    assert play.engine.leases.lease(0.949) == (0, 0.0)
    for now in (0.949, 0.95):
        with pytest.raises(LeaseExpired):
            play.engine.open("fire", b"q", now=now)
    play.quiet()
    assert {status.stream for status in play.engine.streams()} == {1, 3}


def test_a_refused_request_takes_no_id_and_no_credit() -> None:
    play = client() >> lease(1, 1000) << ev.Leased
    with pytest.raises(LocalProtocolError):
        play.engine.open("stream", b"", credit=0, now=0.0)
    with pytest.raises(LocalProtocolError):
        play.engine.open("dance", b"", now=0.0)  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(TypeError):
        play.engine.open("request", 5, now=0.0)  # type: ignore[arg-type]  # the mistake under test
    assert play.engine.leases.lease(0.0)[0] == 1
    assert opened(play) == 1
    with pytest.raises(LeaseExpired):
        play.engine.open("request", b"", now=0.0)
    play >> lease(1, 1000) << ev.Leased
    assert opened(play) == 3


def test_time_is_an_argument_of_open() -> None:
    """Without it, the last that the engine heard of."""
    play = client() >> lease(9, 1000) << ev.Leased
    play.at(0.9)
    play.do(lambda engine: engine.open("request", b"q")) << ask()
    with pytest.raises(LeaseExpired):
        play.engine.open("request", b"q", now=0.95)
    play.now = 2.0
    play >> position(0)
    with pytest.raises(LeaseExpired):
        play.engine.open("request", b"q")


@pytest.mark.parametrize("verb", ["request", "fire", "stream", "channel"])
def test_every_verb_takes_one(verb: ev.Verb) -> None:
    play = client() >> lease(1, 1000) << ev.Leased
    how = {"credit": 1} if verb in ("stream", "channel") else {}
    play.do(lambda engine: engine.open(verb, b"", now=0.0, **how)) << frames.StreamFrame
    with pytest.raises(LeaseExpired):
        play.engine.open(verb, b"", now=0.0, **how)  # type: ignore[arg-type]  # credit alone


def test_a_request_in_fragments_takes_one() -> None:
    """R-35, at the requester; what follows a request takes none."""
    play = Playbook(Engine("client", setup=setup(lease=True), mtu=64)) << frames.Setup
    play >> lease(1, 1000) << ev.Established << ev.Leased << frames.Lease
    play.do(lambda engine: engine.open("channel", bytes(200), credit=1, now=0.0)) << frames.RequestChannel
    for _ in range(3):
        play << P
    assert play.engine.leases.lease(0.0)[0] == 0
    play >> frames.RequestN(stream=1, n=5) << ev.Granted
    play.do(lambda engine: engine.send(1, [bytes(100)])) << P << P
    play.do(lambda engine: engine.request(1, 5)) << frames.RequestN
    play.do(lambda engine: engine.cancel(1)) << frames.Cancel


def test_a_newer_lease_replaces_the_older(mode: Mode) -> None:
    """R-40: more, less, and none."""
    play = client(mode)
    for requests, ttl_ms, left in ((5, 1000, 5), (2, 60_000, 2), (7, 200, 7), (0, 1000, 0), (3, 1000, 3), (3, 0, 0)):
        play >> lease(requests, ttl_ms) << ev.Leased(requests, ttl_ms / 1000)
        assert play.engine.leases.lease(0.0)[0] == left
        if left:
            opened(play)
            assert play.engine.leases.lease(0.0)[0] == left - 1


def test_a_lease_may_carry_metadata(mode: Mode) -> None:
    """Section 6: old encoders set M, others leave it clear; the rest of the frame is metadata either way."""
    play = client(mode) >> lease(1, 1000, b"strategy") << ev.Leased(1, 1.0)
    data = lease(2, 1000).encode(prefixed=False) + b"strategy"
    play >> len(data).to_bytes(3, "big") + data << ev.Leased(2, 1.0)
    assert play.engine.leases.lease(0.0)[0] == 2
    play.quiet()


def test_the_first_word_of_the_server_may_be_a_lease(mode: Mode) -> None:
    """HS-14: it accepts."""
    play = Playbook(Engine("client", setup=setup(lease=True)), mode) << frames.Setup
    with pytest.raises(LeaseExpired):
        play.engine.open("request", b"q", now=0.0)
    play >> lease(2, 1000) << ev.Established(None) << ev.Leased(2, 1.0) << lease(MOST, MOST)
    opened(play)
    play.quiet()


def test_a_lease_on_a_stream_is_none() -> None:
    play = client()
    play >> bytes.fromhex("00000e 00000001 0800 000003e8 00000005") << ignored(10, "R-32")
    assert play.engine.leases.lease(0.0)[0] == 0


def test_more_leases_than_anyone_needs(mode: Mode) -> None:
    """LE-06: 10 a second; what is beyond is charged, and says nothing."""
    play = client(mode)
    for number in range(10):
        play >> lease(number + 1, 1000) << ev.Leased
    play >> lease(99, 1000) << ignored(1, "lease_frames_per_s")
    assert play.engine.leases.lease(0.0)[0] == 10
    play.now = 0.1
    play >> lease(5, 1000) << ev.Leased
    play >> lease(99, 1000) << ignored(1)
    assert play.engine.leases.lease(0.1)[0] == 5


def test_without_leases_everything_may_be_sent() -> None:
    play = requester()
    assert play.engine.leases is None
    play >> lease(0, 0) << ignored(10)  # LE-05
    play.do(lambda engine: engine.open("request", b"q", now=0.0)) << ask()
    play.quiet()


# -- a responder ----------------------------------------------------------------------------------------------


def test_a_responder_grants_and_enforces(mode: Mode) -> None:
    """R-42: the third of two is refused, and so is the first after the time; monotonic, to the moment."""
    play = server(mode)
    assert play.engine.leases.granted(0.0) == (2, 1.0)
    play >> ask(1) << ev.Opened
    assert play.engine.leases.granted(0.25) == (1, 0.75)
    play >> ask(3) << ev.Opened
    play >> ask(5) << ignored(1, "REJECTED") << error(5, 0x202, b"lease: none is left")
    play.quiet()
    assert set(play.engine.stream_table.handlers | play.engine.stream_table.work.fires) == {1, 3}
    assert play.engine.deadline == 1.0
    play.at(0.999).quiet()
    play.at(1.0) << lease(2, 1000)
    play >> ask(7) << ev.Opened
    assert play.engine.leases.granted(1.0) == (1, 1.0)
    play.now = 2.0
    play >> ask(9) << ignored(1, "REJECTED") << error(9, 0x202)  # its time is over; tick has not come yet
    assert play.engine.leases.granted(2.0) == (0, 0.0)
    play.at(2.0) << lease(2, 1000)
    play >> ask(11) << ev.Opened
    play.quiet()


def test_requests_before_the_first_lease() -> None:
    """LE-01, in a connection nobody has accepted yet: they wait, and the lease comes first."""
    play = Playbook(Engine("server", lease=FixedLease(1), decide=True)) >> (setup(lease=True), ask(1), ask(3))
    play << ev.Established
    assert play.engine.leases.granted(0.0) == (0, 0.0)
    play.do(lambda engine: engine.accept(0.0)) << (ev.Opened, {"stream": 1}) << ignored(1)
    play << lease(1, 1000) << error(3, 0x202)


@pytest.mark.parametrize("requests", [0, 5])
def test_a_server_that_grants_nothing(requests: int, mode: Mode) -> None:
    class Policy:
        def start(self) -> LeaseGranter:
            return self

        def grant(self, now: float, used: int) -> Lease:
            return Lease(requests, 0.0)

    play = server(mode, Policy())
    assert play.engine.leases.granted(0.0) == (0, 0.0)
    play >> ask() << ignored(1, "REJECTED") << error(1, 0x202)
    assert play.engine.deadline == 90.0  # it is not asked again
    play.do(lambda engine: engine.leases.grant(Lease(1, 5.0), 0.0)) << lease(1, 5000)
    play >> ask(3) << ev.Opened
    assert play.engine.deadline == 5.0
    play.at(5.0) << lease(requests, 0)


def test_fire_and_forget_beyond_the_lease_is_dropped(mode: Mode) -> None:
    """D-11: nothing is said, and it is charged."""
    play = server(mode, FixedLease(1))
    play >> frames.RequestFnf(stream=1, data=b"") << ev.Opened
    play >> frames.RequestFnf(stream=3, data=b"") << ignored(1, "REJECTED")
    play >> frames.RequestFnf(stream=5, follows=True, data=bytes(60)) << ignored(1, "REJECTED")
    play >> P(stream=5, next=True, data=b"rest") << ignored(0)
    play.quiet()


@pytest.mark.parametrize("beyond", [False, True])
def test_a_request_in_fragments_counts_once(beyond: bool, mode: Mode) -> None:
    """R-35, with its first fragment; what follows one that was refused is swallowed."""
    play = server(mode, FixedLease(1 if beyond else 2))
    if beyond:
        play >> ask(1) << ev.Opened
    play >> frames.RequestResponse(stream=3, follows=True, data=bytes(60))
    if beyond:
        play << ignored(1, "REJECTED") << error(3, 0x202)
        play >> P(stream=3, next=True, follows=True, data=bytes(60)) << ignored(0)
        play >> P(stream=3, next=True, data=b"rest") << ignored(0)
    else:
        assert play.engine.leases.granted(0.0)[0] == 1
        play >> P(stream=3, next=True, follows=True, data=bytes(60))
        play.now = 1.5  # the lease may end meanwhile
        play >> P(stream=3, next=True, data=b"rest") << ev.Opened
        assert play.engine.stream_table.leases.issued is not None
        assert play.engine.stream_table.leases.issued.left == 1
    play.quiet()


def test_requests_that_make_no_sense_take_none() -> None:
    play = server(policy=FixedLease(1))
    play >> ask(2) << ignored(10, "D-12")
    play >> frames.RequestStream(stream=1, initial_n=1, data=b"") << ev.Opened
    play >> ask(1) << ignored(10, "R-31")
    play >> ask(3) << ignored(1, "REJECTED") << error(3, 0x202)


def test_requests_too_many_for_the_streams_take_none() -> None:
    """They are refused before; the requester may try again under the same lease."""
    play = server(policy=FixedLease(5), limits=Limits.server(streams=1, pending_streams=0))
    play >> ask(1) << ev.Opened
    play >> ask(3) << ignored(1) << error(3, 0x202, b"too-many-streams")
    assert play.engine.leases.granted(0.0)[0] == 4


def test_requests_while_draining_take_none() -> None:
    play = server(policy=FixedLease(5)) >> frames.RequestStream(stream=1, initial_n=1, data=b"") << ev.Opened
    play.do(lambda engine: engine.close(0.0, drain=True)) << error(0, 0x102)
    play >> ask(3) << ignored(1) << error(3, 0x202, b"the connection is closing")
    assert play.engine.leases.granted(0.0)[0] == 4


def test_a_flood_beyond_the_lease() -> None:
    """LE-03: a token for each, until there are none."""
    play = server(policy=FixedLease(1))
    play >> ask(1) << ev.Opened
    for number in range(1000):
        play >> ask(3 + 2 * number) << ignored(1) << error(3 + 2 * number, 0x202)
    play >> ask(9001) << ignored(1) << failed(1, RemoteProtocolError)
    play << closed(RemoteProtocolError, rule="glitch_bucket") << error(0, 0x101, b"protocol-abuse")


def test_a_lease_by_hand(mode: Mode) -> None:
    """R-40: it replaces what the policy said; the policy goes on when its time is over."""
    play = server(mode, FixedLease(2, 10.0))
    play >> ask(1) << ev.Opened
    play.do(lambda engine: engine.leases.grant(Lease(1, 3.0), 1.0, b"why")) << lease(1, 3000, b"why")
    assert play.engine.leases.granted(1.0) == (1, 3.0)
    play >> ask(3) << ev.Opened >> ask(5) << ignored(1) << error(5, 0x202)
    assert play.engine.deadline == 4.0
    play.at(4.0) << lease(2, 10_000)
    assert play.engine.deadline == 14.0


def test_a_lease_by_hand_that_is_refused_changes_nothing() -> None:
    limits = Limits.server()
    play = server()
    most = limits.connection_metadata_bytes
    with pytest.raises(LimitExceeded, match="metadata"):
        play.engine.leases.grant(Lease(9, 9.0), 0.0, bytes(most + 1))
    assert play.engine.leases.granted(0.0) == (2, 1.0)
    play.do(lambda engine: engine.leases.grant(Lease(9, 9.0), 0.0, bytes(most))) << lease(9, 9000, bytes(most))
    play.do(lambda engine: engine.close(0.0)) << closed(ConnectionClosed) << error(0, 0x101)
    with pytest.raises(ConnectionClosed, match="the connection is closed"):
        play.engine.leases.grant(Lease(1, 1.0), 0.0)
    early = Playbook(Engine("client", setup=setup(lease=True))) << frames.Setup
    with pytest.raises(ConnectionClosed, match="setup_sent"):
        early.engine.leases.grant(Lease(1, 1.0), 0.0)


def test_a_rate_over_a_connection() -> None:
    """2 a second, 4 at once, a second each: 4, 0 left; a second later 2; nothing used for ten seconds, 4 again."""
    play = Playbook(Engine("server", lease=RateLease(2, 4))) >> setup(lease=True) << ev.Established << lease(4, 1000)
    for number in range(4):
        play >> ask(1 + 2 * number) << ev.Opened
    play >> ask(99) << ignored(1) << error(99, 0x202)
    play.at(1.0) << lease(2, 1000)
    play >> ask(101) << ev.Opened
    play.at(2.0) << lease(3, 1000)
    play.at(10.0) << lease(4, 1000)


# -- policies that are wrong ----------------------------------------------------------------------------------


class Faulty:
    """A policy that goes wrong at its second grant."""

    def __init__(self, second: Callable[[], Any]) -> None:
        self.second = second
        self.asked = 0

    def start(self) -> Faulty:
        return self

    def grant(self, now: float, used: int) -> Lease:
        self.asked += 1
        return Lease(5, 1.0) if self.asked == 1 else self.second()


def boom() -> Lease:
    raise RuntimeError("a secret")


FAULTS: dict[str, Callable[[], Any]] = {
    "raises": boom,
    "nothing": lambda: None,
    "lies": lambda: type("L", (), {"requests": -1, "ttl_ms": 1000})(),
    "impossible": lambda: Lease(-1, 1.0),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_policy_that_fails(fault: Callable[[], Any], mode: Mode) -> None:
    """It ends the connection; the peer is not told why, this side is."""
    play = server(mode, Faulty(fault)) >> ask() << ev.Opened
    play.at(1.0) << failed(1, LocalProtocolError, rule="R-13")
    event = play.events[0]
    assert isinstance(event, ev.Closed)
    assert isinstance(event.error, LocalProtocolError)
    assert event.error.__cause__ is not None
    play << closed(LocalProtocolError) << error(0, 0x101, b"closed")
    play.quiet()
    assert play.engine.deadline is None


def test_a_policy_that_fails_at_once() -> None:
    policy = Faulty(boom)
    policy.asked = 1
    play = Playbook(Engine("server", lease=policy)) >> (setup(lease=True), ask()) << ev.Established
    play << closed(LocalProtocolError, rule="R-13") << error(0, 0x101, b"closed")
    play.quiet()
    policy.asked = 1
    play = Playbook(Engine("server", lease=policy, decide=True)) >> (setup(lease=True), ask()) << ev.Established
    play.do(lambda engine: engine.accept(0.0)) << closed(LocalProtocolError) << error(0, 0x101, b"closed")
    play.quiet()
    policy.asked = 1
    play = Playbook(Engine("client", setup=setup(lease=True), lease=policy)) << frames.Setup
    play >> lease(1, 1000) << ev.Established << closed(LocalProtocolError) << error(0, 0x101)
    play.quiet()


@pytest.mark.parametrize("draining", ["no", "we", "they"])
def test_a_policy_that_fails_when_the_session_is_back(draining: str) -> None:
    """It ends there, once, whatever had been said before."""
    play = resumable_server(lease=Faulty(boom)) << frames.Lease
    play >> frames.RequestStream(stream=1, initial_n=1, data=b"") << ev.Opened
    if draining == "we":
        play.do(lambda engine: engine.close(0.0, drain=True)) << error(0, 0x102)
    elif draining == "they":
        play >> frames.ErrorFrame(stream=0, code=0x102, data=b"bye") << ev.Draining
    play.cut()
    play.adopt(newcomer(play, server=0, client=0)) << ev.Resumed << failed(1, LocalProtocolError)
    play << closed(LocalProtocolError) << resume_ok(10) << error(0, 0x101)
    play.quiet()
    assert play.engine.closed
    assert play.engine.deadline is None
    assert play.engine.receive_eof(0.0) == []


# -- both directions ------------------------------------------------------------------------------------------


def test_both_sides_grant_and_hold(mode: Mode) -> None:
    """What one holds and what it grants are two things."""
    play = Playbook(Engine("server", lease=FixedLease(1, 5.0)), mode) >> setup(lease=True)
    play << ev.Established << lease(1, 5000)
    with pytest.raises(LeaseExpired):
        play.engine.open("request", b"q", now=0.0)
    play >> lease(2, 1000) << ev.Leased
    assert play.engine.leases.lease(0.0)[0] == 2
    assert play.engine.leases.granted(0.0)[0] == 1
    assert opened(play) == 2
    play >> ask(1) << ev.Opened >> ask(3) << ignored(1) << error(3, 0x202)
    assert opened(play) == 4
    with pytest.raises(LeaseExpired):
        play.engine.open("request", b"q", now=0.0)
    play >> frames.ErrorFrame(stream=4, code=0x202, data=b"lease") << failed(4, Rejected)


def test_two_ends_with_rates() -> None:
    """Back to back: neither is ever refused what it was granted."""
    asking = Engine("client", setup=setup(lease=True), lease=RateLease(5, 3, 0.5))
    serving = Engine("server", lease=RateLease(20, 10, 0.25))
    ends = (asking, serving)
    sent = {asking: 0, serving: 0}
    for step in range(400):
        now = step * 0.01
        for end, other in (ends, ends[::-1]):
            if end.deadline is not None and end.deadline <= now:
                end.tick(now)
            while end.leases.lease(now)[0] and len(end.streams()) < 50:
                end.open("fire", b"x", now=now)
                sent[end] += 1
            for event in other.receive(end.outgoing(), now):
                assert not isinstance(event, ev.Ignored), event
                if isinstance(event, ev.Opened):
                    other.release(event.stream)
    # 4 s: 10 + 20 a second, 3 + 5 a second, but for what was not granted before the end of a lease
    assert 60 <= sent[asking] <= 90
    assert 15 <= sent[serving] <= 23


def test_a_client_that_wants_leases_grants_what_the_server_likes() -> None:
    play = client()
    assert play.engine.leases.granted(0.0) == (MOST, MOST / 1000)
    play = client(policy=FixedLease(3, 2.0))
    assert play.engine.leases.granted(0.0) == (3, 2.0)
    play >> ask(2) << ev.Opened


def test_leases_that_are_not_supported(mode: Mode) -> None:
    """HS-08."""
    play = Playbook(Engine("server"), mode) >> setup(lease=True)
    play << closed(RemoteProtocolError, code=0x002, rule="HS-08") << error(0, 0x002, b"leases are not supported")


def test_a_server_that_could_but_is_not_asked() -> None:
    play = Playbook(Engine("server", lease=FixedLease(1))) >> setup() << ev.Established
    play >> ask(1) << ev.Opened >> ask(3) << ev.Opened
    play.quiet()
    assert play.engine.leases is None


# -- with resumption ------------------------------------------------------------------------------------------


def test_no_lease_outlives_its_transport(mode: Mode) -> None:
    """R-43: nothing is left while it is away; both sides grant anew when it is back."""
    play = resumable_server(mode, lease=FixedLease(2, 100.0)) << lease(2, 100_000)
    play >> lease(5, 100_000) << ev.Leased
    play >> ask(1) << ev.Opened
    play.cut()
    assert play.engine.leases.lease(0.0) == (0, 0.0)
    assert play.engine.leases.granted(0.0) == (0, 0.0)
    for verb in (
        lambda: play.engine.open("request", b"q", now=0.0),
        lambda: play.engine.leases.grant(Lease(1, 1), 0.0),
    ):
        with pytest.raises(Error, match=r"no (valid )?lease"):
            verb()
    assert play.engine.deadline == 120.0
    play.now = 7.0
    play.adopt(newcomer(play, server=0, client=0)) << ev.Resumed << resume_ok(7) << lease(2, 100_000)
    assert play.engine.leases.granted(7.0) == (2, 100.0)
    with pytest.raises(LeaseExpired):
        play.engine.open("request", b"q", now=7.0)
    play >> lease(1, 1000) << ev.Leased
    play.do(lambda engine: engine.open("request", b"q", now=7.0)) << ask(2)
    play >> ask(3) << ev.Opened >> ask(5) << ev.Opened >> ask(7) << ignored(1) << error(7, 0x202)


def test_a_client_grants_anew(mode: Mode) -> None:
    play = resumable_client(mode, lease=FixedLease(4, 9.0)) << lease(4, 9000)
    play >> lease(5, 100_000) << ev.Leased
    opened(play)
    play.cut()
    play.do(lambda engine: engine.resumption.reconnect(3.0)) << resume(server=0, client=0)
    assert play.engine.leases.lease(3.0) == (0, 0.0)
    play.now = 3.0
    play >> resume_ok(0) << ev.Resumed << lease(4, 9000) << ask(1)
    assert play.engine.leases.granted(3.0) == (4, 9.0)
    with pytest.raises(LeaseExpired):
        play.engine.open("request", b"q", now=3.0)
    play >> lease(1, 1000) << ev.Leased
    opened(play, 3.0)
    play.quiet()


def test_a_request_that_is_repeated_counts_under_the_new_lease() -> None:
    """R-42, R-43: to the responder it comes now. One too many is refused, which makes it safe to try again."""
    play = resumable_server(lease=FixedLease(1)) << frames.Lease
    play.cut()
    play.adopt(newcomer(play, server=0, client=0)) << ev.Resumed << resume_ok(0) << lease(1, 1000)
    play >> (ask(1), ask(3)) << (ev.Opened, {"stream": 1}) << ignored(1, "REJECTED") << error(3, 0x202)


def test_leases_wait_until_the_session_is_back() -> None:
    play = resumable_client(lease=FixedLease(1)) << lease(1, 1000)
    play.at(1.0) << lease(1, 1000)
    play.cut()
    play.at(50.0).quiet()
    play.do(lambda engine: engine.resumption.reconnect(50.0)) << frames.Resume
    play.at(55.0).quiet()
    play >> lease(1, 1000) << ev.Suspended << error(0, 0x101)
    play.now = 56.0
    play.do(lambda engine: engine.resumption.reconnect(56.0)) << frames.Resume
    play >> resume_ok(0) << ev.Resumed << lease(1, 1000)
    assert play.engine.deadline == 57.0


def test_a_lease_has_no_position() -> None:
    play = resumable_server(lease=FixedLease(1)) << frames.Lease
    play >> lease(1, 1000, b"metadata") << ev.Leased
    retained = play.engine.resuming.retained
    assert retained is not None
    assert (retained.sent, retained.received) == (0, 0)
    assert TOKEN not in repr(play.engine.setup).encode()
