"""Leases and resumption of the blocking client, against a real server on another thread's loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import afflux
import afflux.sync
from afflux import Backoff, FixedLease, Limits
from afflux.testing import Faults, Proxy
from tests.aio.handlers import Demo

LIMITS = Limits.server(resume_rate=(1_000_000, 0.0))
SOON = Backoff(first=0.001, most=0.001)


@contextmanager
def served(after: tuple[int, int] | None = None, **terms: Any) -> Iterator[tuple[str, Any]]:
    """A demo server behind a proxy, in another thread: its address, and what calls in its loop."""
    started, stop = threading.Event(), asyncio.Event()
    found: dict[str, Any] = {}
    cuts = after or (None, None)
    faults = {"to_server": Faults(cut_after=cuts[0]), "to_client": Faults(cut_after=cuts[1])}

    async def main() -> None:
        server = afflux.serve("tcp://127.0.0.1:0", Demo(), limits=LIMITS, **terms)
        async with server, Proxy((await server).uri, **faults) as proxy:
            found.update(uri=proxy.uri, proxy=proxy, loop=asyncio.get_running_loop())
            started.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    started.wait(30)

    def call(work: Callable[[], Any]) -> None:
        done = threading.Event()
        found["loop"].call_soon_threadsafe(lambda: (work(), done.set()))
        done.wait(30)

    try:
        yield found["uri"], (call, found["proxy"])
    finally:
        found["loop"].call_soon_threadsafe(stop.set)
        thread.join(30)


def test_nothing_is_lost_however_often_it_is_cut() -> None:
    with (
        served((600, 2500), resume=True) as (uri, (_, proxy)),
        afflux.sync.connect(uri, resume=SOON, limits=LIMITS, mtu=128) as peer,
    ):
        large = bytes(range(256)) * 8
        assert peer.request(large).data == large
        assert [int(item.data) for item in peer.stream(b"300", credit=8)] == list(range(300))
        with peer.channel([b"%d" % i for i in range(40)], credit=3) as items:
            assert [item.data for item in items] == [b"%d" % i for i in range(40)]
        assert proxy.connections > 5


def test_the_next_verb_brings_it_back() -> None:
    with (
        served(resume=True) as (uri, (call, proxy)),
        afflux.sync.connect(uri, resume=SOON, limits=LIMITS) as peer,
    ):
        assert peer.request(b"1").data == b"1"
        call(proxy.cut)
        assert peer.request(b"2").data == b"2"
        assert proxy.connections == 2
        assert not peer.suspended


def test_a_timeout_holds_while_it_is_away() -> None:
    with (
        served(resume=True) as (uri, (call, proxy)),
        afflux.sync.connect(uri, resume=Backoff(first=60, most=60), limits=LIMITS) as peer,
    ):
        peer.request(b"1")
        call(proxy.cut)
        with pytest.raises(TimeoutError):
            peer.request(b"2", timeout=0.05)
        assert peer.suspended


def test_tries_end() -> None:
    with served(resume=True) as (uri, _):
        peer = afflux.sync.connect(uri, resume=Backoff(first=0.001, most=0.001, tries=2), limits=LIMITS)
        peer.request(b"1")
    with pytest.raises(afflux.ConnectFailed, match="refused"):
        peer.request(b"2")
    peer.close()


def test_a_session_ends_in_time() -> None:
    limits = LIMITS.replace(resume_s=0.05)
    with (
        served(resume=True) as (uri, (call, proxy)),
        afflux.sync.connect(uri, resume=Backoff(first=60, most=60), limits=limits) as peer,
    ):
        peer.request(b"1")
        call(proxy.cut)
        with pytest.raises(afflux.ConnectionClosed, match=r"not resumed within 0\.05 s"):
            peer.request(b"2")


def test_closing_while_away() -> None:
    with (
        served(resume=True) as (uri, (call, proxy)),
        afflux.sync.connect(uri, resume=Backoff(first=60, most=60), limits=LIMITS) as peer,
    ):
        peer.request(b"1")
        call(proxy.cut)
        with pytest.raises(TimeoutError):
            peer.request(b"2", timeout=0.01)
        peer.close()
        assert peer.closed


def test_a_refused_session() -> None:
    with (
        served() as (uri, _),
        afflux.sync.connect(uri, resume=True) as peer,
        pytest.raises(afflux.SetupRefused, match="resumption is not supported"),
    ):
        peer.request(b"1")


def test_leases_fail_fast() -> None:
    with served(lease=FixedLease(2, 600.0)) as (uri, _), afflux.sync.connect(uri, lease=True) as peer:
        assert peer.lease is not None and peer.lease.requests == 2
        assert peer.request(b"1").data == b"1"
        peer.fire(b"2")
        with pytest.raises(afflux.LeaseExpired):
            peer.request(b"3")
        with pytest.raises(afflux.LeaseExpired):
            list(peer.stream(b"3"))


def test_leases_are_waited_for() -> None:
    with (
        served(lease=FixedLease(2, 0.15)) as (uri, _),
        afflux.sync.connect(uri, lease=True, lease_wait=30.0) as peer,
    ):
        assert [peer.request(b"%d" % i).data for i in range(5)] == [b"0", b"1", b"2", b"3", b"4"]


def test_no_lease_comes() -> None:
    with (
        served(lease=FixedLease(0, 600.0)) as (uri, _),
        afflux.sync.connect(uri, lease=True, lease_wait=0.02) as peer,
        pytest.raises(afflux.LeaseExpired, match=r"within 0\.02 s"),
    ):
        peer.request(b"")


def test_leases_are_refused() -> None:
    with served() as (uri, _), pytest.raises(afflux.SetupRefused, match="leases are not supported"):
        afflux.sync.connect(uri, lease=True)


def test_without_leases_there_is_none() -> None:
    with served() as (uri, _), afflux.sync.connect(uri) as peer:
        assert peer.lease is None
