"""Leases. Rule numbers are RSocket's. R-13, R-35, R-40 to R-43."""

from __future__ import annotations

from typing import Any

import pytest

from afflux.core import events as ev
from afflux.core.errors import LeaseExpired, RemoteProtocolError
from afflux.core.payload import Payload
from afflux.protocols.family.sessions import Sessions
from afflux.protocols.rsocket import Engine, frames
from afflux.protocols.rsocket.frames import Lease as LeaseFrame
from afflux.protocols.rsocket.lease import FixedLease, Lease
from tests.hostile.peers import SERVER, asked, item, part, raw
from tests.protocols.rsocket.playbook import Playbook, closed, error, ignored, setup

LEASED = setup(lease=True)
TOKEN = bytes(range(16))
VERBS = ["request", "fire", "stream", "channel"]
MARGIN = SERVER.lease_margin_ms / 1000


def granting(requests: int, ttl: float = 60.0, **options: Any) -> Playbook:
    """A server with leases, and the one that it grants first."""
    play = Playbook(Engine("server", lease=FixedLease(requests, ttl), **options)) >> LEASED << ev.Established
    return play << LeaseFrame(ttl_ms=int(ttl * 1000), requests=requests)


def leased(requests: int, ttl_ms: int = 60_000) -> Playbook:
    """A client with leases, and the one that it was granted."""
    play = Playbook(Engine("client", setup=LEASED, lease=FixedLease(0, 600.0))) << LEASED
    play >> LeaseFrame(ttl_ms=ttl_ms, requests=requests) << ev.Established
    return play << ev.Leased(requests, ttl_ms / 1000) << LeaseFrame(ttl_ms=600_000, requests=0)


def ask(play: Playbook, verb: str = "request", payload: Payload | bytes = b"") -> Playbook:
    """The application asks, now."""
    credit = 5 if verb in ("stream", "channel") else 0
    return play.do(lambda engine: engine.open(verb, payload, credit=credit, now=play.now))  # type: ignore[arg-type]


@pytest.mark.parametrize("verb", VERBS)
def test_R_13_a_requester_waits_for_a_lease(verb: str) -> None:
    """Nothing is sent for a request without one, and the next has the id that it would have had."""
    play = Playbook(Engine("client", setup=LEASED)) << LEASED
    with pytest.raises(LeaseExpired) as caught:
        ask(play, verb)
    assert caught.value.rule == "R-41"
    play.quiet()
    play >> LeaseFrame(ttl_ms=60_000, requests=1) << ev.Established << ev.Leased(1, 60.0) << LeaseFrame
    ask(play, verb) << (frames.StreamFrame, {"stream": 1})
    play.quiet()


def test_R_13_each_responder_sends_one() -> None:
    """The server as soon as it has accepted, the client as soon as it knows that it was."""
    granting(7, 3.0).quiet()
    leased(1).quiet()
    play = Playbook(Engine("server", lease=FixedLease(1), decide=True)) >> LEASED << ev.Established
    play.quiet()
    play.do(lambda engine: engine.accept(0.0)) << LeaseFrame(ttl_ms=1000, requests=1)
    play.quiet()


def test_R_13_a_server_waits_for_a_lease_too() -> None:
    play = granting(1)
    with pytest.raises(LeaseExpired):
        ask(play)
    play >> LeaseFrame(ttl_ms=60_000, requests=1) << ev.Leased(1, 60.0)
    ask(play) << frames.RequestResponse(stream=2, data=b"")
    play.quiet()


def test_R_13_without_l_there_are_no_leases() -> None:
    play = Playbook(Engine("server", lease=FixedLease(0))) >> setup() << ev.Established
    play.quiet()
    play >> asked("request") << ev.Opened
    play >> LeaseFrame(ttl_ms=0, requests=0) << ignored(10, "R-32")
    ask(play) << frames.RequestResponse(stream=2, data=b"")
    play.quiet()


def test_R_13_l_without_support_is_an_unsupported_setup() -> None:
    play = Playbook(Engine("server")) >> LEASED << closed(RemoteProtocolError, code=0x002)
    play << error(0, 0x002)


@pytest.mark.parametrize("requests", [0, 1, 3])
def test_R_35_a_fragmented_request_is_one_unit_of_a_lease(requests: int) -> None:
    """At the requester, which cuts it, and at the responder, which puts it together."""
    play = leased(requests + 1)
    for n in range(requests + 1):
        ask(play, "fire", bytes(500_000))
        assert len(play.sent) > 3
        play.sent.clear()
        assert play.engine.leases.lease(0.0)[0] == requests - n
    with pytest.raises(LeaseExpired):
        ask(play)
    play = granting(requests)
    for n in range(requests):
        play >> asked("request", 1 + 2 * n, follows=True) >> part(1 + 2 * n) >> item(1 + 2 * n) << ev.Opened
    assert play.engine.leases.granted(0.0)[0] == 0
    play >> asked("request", 99, follows=True) << ignored(1, "REJECTED") << error(99, 0x202)
    play >> part(99) << ignored(0) >> item(99) << ignored(0)
    play.quiet()


def test_R_40_a_newer_lease_replaces_the_older_at_the_requester() -> None:
    """Its number and its time, be they less or more: nothing is added up."""
    play = leased(5)
    for requests, ttl_ms in ((2, 60_000), (9, 1000), (0, 60_000), (3, 0), (1, 60_000)):
        play >> LeaseFrame(ttl_ms=ttl_ms, requests=requests) << ev.Leased(requests, ttl_ms / 1000)
        left = requests if ttl_ms else 0
        assert play.engine.leases.lease(0.0) == (left, pytest.approx(ttl_ms / 1000 - MARGIN) if left else 0.0)
    ask(play) << frames.RequestResponse
    with pytest.raises(LeaseExpired):
        ask(play)


def test_R_40_a_newer_lease_replaces_the_older_at_the_responder() -> None:
    play = granting(5)
    play.do(lambda engine: engine.leases.grant(Lease(1, 60.0), 0.0)) << LeaseFrame(ttl_ms=60_000, requests=1)
    play >> asked("request", 1) << ev.Opened
    play >> asked("request", 3) << ignored(1, "REJECTED") << error(3, 0x202)
    play.do(lambda engine: engine.leases.grant(Lease(0, 60.0), 0.0)) << LeaseFrame(ttl_ms=60_000, requests=0)
    play >> asked("request", 5) << ignored(1, "REJECTED") << error(5, 0x202)
    play.quiet()


def test_R_40_the_next_lease_comes_when_the_time_is_over() -> None:
    play = granting(1, 7.0)
    play >> asked("request") << ev.Opened
    assert play.engine.deadline == 7.0
    play.at(6.9).quiet()
    play.at(7.0) << LeaseFrame(ttl_ms=7000, requests=1)
    play >> asked("request", 3) << ev.Opened
    play.quiet()


@pytest.mark.parametrize("verb", VERBS)
def test_R_41_no_more_requests_than_the_lease_has(verb: str) -> None:
    play = leased(2)
    for _ in range(2):
        ask(play, verb) << frames.StreamFrame
    with pytest.raises(LeaseExpired, match="no valid lease") as caught:
        ask(play, verb)
    assert caught.value.rule == "R-41"
    play.quiet()


def test_R_41_no_request_when_the_time_is_over() -> None:
    """A little earlier: clocks and wires are not exact."""
    play = leased(9, 10_000)
    play.now = 10.0 - MARGIN - 0.001
    ask(play) << frames.RequestResponse
    play.now = 10.0 - MARGIN
    with pytest.raises(LeaseExpired):
        ask(play)
    assert play.engine.leases.lease(play.now) == (0, 0.0)
    play.quiet()


def test_R_41_what_is_open_goes_on() -> None:
    """Items, credit and cancels are no requests."""
    play = leased(1)
    ask(play, "channel") << frames.RequestChannel
    play >> LeaseFrame(ttl_ms=0, requests=0) << ev.Leased(0, 0.0)
    play >> frames.RequestN(stream=1, n=2) << ev.Granted
    play.do(lambda engine: engine.send(1, [b"x"])) << item(1)
    play.do(lambda engine: engine.request(1, 3)) << frames.RequestN(stream=1, n=3)
    play.do(lambda engine: engine.cancel(1)) << frames.Cancel(stream=1)
    play.quiet()


@pytest.mark.parametrize("verb", VERBS)
def test_R_42_a_request_beyond_the_lease_is_rejected(verb: str) -> None:
    """By its number; a fire hears nothing (D-11), and no handler runs."""
    play = granting(1) >> asked(verb, 1) << ev.Opened
    play >> asked(verb, 3) << ignored(1, "REJECTED")
    if verb != "fire":
        play << error(3, 0x202)
    play.quiet()


@pytest.mark.parametrize("ttl", [0.0, 5.0])
def test_R_42_a_request_after_its_time_is_rejected(ttl: float) -> None:
    """The responder's clock counts, and it allows nothing; without a lease there is no time at all."""
    play = Playbook(Engine("server", lease=FixedLease(5, 60.0))) >> LEASED << ev.Established << LeaseFrame
    play.do(lambda engine: engine.leases.grant(Lease(5, ttl), 0.0)) << LeaseFrame(ttl_ms=int(ttl * 1000), requests=5)
    if ttl:
        play.now = ttl - 0.001
        play >> asked("request", 1) << ev.Opened
    play.now = ttl
    play >> asked("request", 3) << ignored(1, "REJECTED") << error(3, 0x202)
    play >> asked("stream", 5) << ignored(1, "REJECTED") << error(5, 0x202)
    play.quiet()


def test_R_42_requests_that_did_not_wait_are_rejected() -> None:
    """They came with the SETUP, before any lease was granted."""
    play = Playbook(Engine("server", lease=FixedLease(0, 60.0))) >> (LEASED, asked("request"), asked("fire", 3))
    play << ev.Established << LeaseFrame << ignored(1, "REJECTED") << error(1, 0x202) << ignored(1, "REJECTED")
    play.quiet()


def test_R_43_a_client_waits_again_after_it_resumed() -> None:
    wanted = setup(lease=True, token=TOKEN)
    play = Playbook(Engine("client", setup=wanted)) << wanted
    play >> LeaseFrame(ttl_ms=600_000, requests=100) << ev.Established << ev.Leased << LeaseFrame
    ask(play) << frames.RequestResponse
    play.eof() << ev.Suspended
    with pytest.raises(LeaseExpired):
        ask(play)
    play.do(lambda engine: engine.resumption.reconnect(1.0)) << frames.Resume
    play >> frames.ResumeOk(last_received_client_position=6) << ev.Resumed << LeaseFrame
    with pytest.raises(LeaseExpired):
        ask(play)
    play >> LeaseFrame(ttl_ms=600_000, requests=1) << ev.Leased(1, 600.0)
    ask(play) << frames.RequestResponse(stream=3, data=b"")
    play.quiet()


def test_R_43_a_server_grants_anew_after_it_resumed() -> None:
    """What was left of the old lease is gone, and there is one again at once."""
    wanted = setup(lease=True, token=TOKEN)
    sessions = Sessions(SERVER)
    play = Playbook(Engine("server", lease=FixedLease(2, 600.0), sessions=sessions)) >> wanted << ev.Established
    play << LeaseFrame(ttl_ms=600_000, requests=2)
    play >> asked("request", 1) << ev.Opened
    play.eof() << ev.Suspended
    assert play.engine.leases.granted(0.0) == (0, 0.0)
    resume = frames.Resume(token=TOKEN, last_received_server_position=0, first_available_client_position=0)
    play.do(lambda engine: engine.resumption.resume(resume, 1.0)) << ev.Resumed
    play << frames.ResumeOk(last_received_client_position=6) << LeaseFrame(ttl_ms=600_000, requests=2)
    play >> asked("request", 3) << ev.Opened >> asked("request", 5) << ev.Opened
    play >> asked("request", 7) << ignored(1, "REJECTED") << error(7, 0x202)
    play.quiet()


def test_D_5_a_lease_of_0_stops_the_requester() -> None:
    for stop in ("00000000 0800 00000000 00000005", "00000000 0800 0000ea60 00000000"):
        play = leased(5) >> raw(stop) << ev.Leased
        with pytest.raises(LeaseExpired):
            ask(play)
        play.quiet()
