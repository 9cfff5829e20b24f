"""Honest habits go on while floods run against the same server: the hostile suite and this one do not break each other.

The floods are bytes of the hostile suite's peers and of ``benchmarks/flood_ends.py``. All that an honest client asks is
answered rightly all the while, and the server's memory stays within what two attackers and one client may take.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from benchmarks.flood_ends import FLOODS, Attacker, Flood

from tests.cli.running import Server
from tests.honest.catalogue import HABITS, MiB, Place
from tests.honest.test_habits import bounded, place_of, run
from tests.hostile import jmux_peer, reactivesocket_peer, rsio_peer
from tests.protocols.jmux.playbook import abort, opening

ATTACKERS = 2
MEMORY = ATTACKERS * 9 * MiB + 48 * MiB

HONEST = {
    "rsocket": (
        "requests_in_the_segment_of_the_setup",
        "a_thousand_echoes_at_once",
        "a_mebibyte_in_one_frame",
        "fragments_of_64_bytes",
        "a_thousand_streams_at_once",
        "rsocket_js_0_sends_its_bytes",
        "cancels_behind_answers",
    ),
    "reactivesocket": (
        "old_requests_in_the_segment_of_the_setup",
        "old_a_thousand_echoes_at_once",
        "old_a_thousand_streams_at_once",
        "old_large_frames",
        "old_cancels_behind_answers",
    ),
    "jmux": ("jmux_a_hundred_calls_at_once", "jmux_40_answers_of_100_kb", "jmux_pings_of_a_client"),
    "rsio": (
        "rsio_subscriptions_in_the_segment_of_the_hello",
        "rsio_a_request_for_each_item",
        "rsio_large_items",
        "rsio_ids_are_used_again",
    ),
}
"Wire to the habits that go on."

OLD_SETUP = reactivesocket_peer.setup().encode(prefixed=True)
JMUX_HELLO = jmux_peer.frames.ClientConnectionHeader(initial_ration=0).encode()
RSIO_HELLO = rsio_peer.frames.ClientHello().encode()


def again(wire: str, row: str, first: bytes, *lines: bytes, reads: bool = True) -> Flood:
    """A flood of a hostile peer's bytes: the first, then the others again and again."""

    def says() -> Iterator[bytes]:
        yield first
        while True:
            yield from lines

    return Flood(wire, row, says, reads=reads)


HOSTILE = {
    "FL-03": again("reactivesocket", "FL-03", OLD_SETUP, b"".join(reactivesocket_peer.fires())),
    "SI-16": again("reactivesocket", "SI-16", OLD_SETUP, b"".join(reactivesocket_peer.more_requests(900)), reads=False),
    "KA-03": again("reactivesocket", "KA-03", OLD_SETUP, reactivesocket_peer.FRAMES["KA-03"]),
    "FG-15": again("reactivesocket", "FG-15", OLD_SETUP, reactivesocket_peer.FRAMES["FG-15"]),
    "FL-07": again(
        "jmux", "FL-07", JMUX_HELLO, *(opening(b"q", id=n).encode() + abort(id=n).encode() for n in range(128))
    ),
    "FR-28": again("jmux", "FR-28", JMUX_HELLO, jmux_peer.BURST[1][: 1 << 18]),
    "SI-31": again("rsio", "SI-31", RSIO_HELLO, rsio_peer.LONG_NAME),
    "HS-23": again("rsio", "HS-23", rsio_peer.OTHER_HELLO, rsio_peer.OTHER_HELLO),
}
"Row of the hostile catalogue to the flood of its bytes."

CASES = HOSTILE | {
    name: FLOODS[name]
    for name in ("pings", "keepalives", "cancels", "requests", "http", "fragments", "pushes", "resume", "jmux-pings")
}
FAILS: dict[str, str] = {}
"Flood to the issue for which an honest client is harmed by it today."
QUICK = ("FL-03", "SI-31", "jmux-pings", "pings", "cancels", "requests", "http", "fragments")
"The representative ones; the others are long."


@contextmanager
def attacked(flood: Flood, place: Place) -> Iterator[list[Attacker]]:
    """Attackers, until the end of the context."""
    threads = [Attacker(replace(flood, sockets=min(flood.sockets, 20)), place.port, 1e12) for _ in range(ATTACKERS)]
    for thread in threads:
        thread.start()
    try:
        yield threads
    finally:
        for thread in threads:
            thread.until = 0
        for thread in threads:
            thread.join()


def cases() -> Iterator[object]:
    """Floods as parameters."""
    for name, flood in CASES.items():
        marks: list[pytest.MarkDecorator] = (
            [pytest.mark.xfail(strict=True, reason=FAILS[name])] if name in FAILS else []
        )
        marks += [] if name in QUICK else [pytest.mark.slow, pytest.mark.long]
        yield pytest.param(flood, marks=marks, id=f"{flood.wire}-{name}")


@pytest.mark.parametrize("flood", list(cases()))
async def test_honest_habits_go_on_beside_a_flood(flood: Flood) -> None:
    habits = [habit for habit in HABITS if habit.name in HONEST[flood.wire] and not habit.fails]
    with (
        Server("--demo", uri=f"{flood.wire}+tcp://127.0.0.1:0", fresh=True) as server,
        bounded(server.process.pid, MEMORY),
    ):
        place = place_of(habits[0], "tcp", server.uri)
        with attacked(flood, place) as attackers:
            for habit in habits:
                await run(habit, place_of(habit, "tcp", server.uri))
            assert all(attacker.connections for attacker in attackers)
        assert server.process.poll() is None


def test_the_habits_exist() -> None:
    names = {habit.name for habit in HABITS}
    assert names >= {name for chosen in HONEST.values() for name in chosen}
