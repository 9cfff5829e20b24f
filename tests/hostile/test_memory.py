"""What each row of the catalogue costs, driven to its limit and measured: ten percent above the bound, and what an
allocator keeps beside it, is allowed. What is told and what closes is in the tests of outcomes."""

from __future__ import annotations

import gc
import random
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from afflux.core.limits import Limits
from tests.hostile import jmux_peer, limit_peer, reactivesocket_peer, rsio_peer, rsocket_draft_peer
from tests.hostile.hoards import SERVER, TINY, Hoard, drained, poured
from tests.protocols.generic.wires import Wire
from tests.protocols.jmux.wire import WIRE as JMUX
from tests.protocols.limit.wire import WIRE as LIMIT
from tests.protocols.reactivesocket.wire import WIRE as REACTIVESOCKET
from tests.protocols.rsio.wire import WIRE as RSIO
from tests.protocols.rsocket_draft.wire import WIRE as DRAFT

pytestmark = pytest.mark.repetitive

Script = Callable[[], Iterator[None]]
"What comes before its one ``yield`` is not measured; what it holds at its end is."
SLACK = 24 * 1024
"What Python and its allocator keep beside a bound."


@dataclass(frozen=True)
class Bound:
    """What a row may cost, and how to get there."""

    most: int
    script: Script
    slack: int = SLACK


def cost(script: Script) -> int:
    """The most memory that the measured part of a script has used."""
    steps = script()
    next(steps)
    gc.collect()
    tracemalloc.start()
    try:
        for _ in steps:
            raise AssertionError("a script yields once")
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# -- scripts of any protocol ----------------------------------------------------------------------------------


def dribbled(make: Callable[[], Any], message: bytes, step: int = 997) -> Iterator[None]:
    """A message in small pieces, all but its last byte; nobody reads what the engine says to it."""
    engine = make()
    pieces = [message[start : start + step] for start in range(0, len(message) - 1, step)]
    pieces[-1] = pieces[-1][:-1] or pieces[-1]
    yield
    for piece in pieces:
        engine.receive(piece, 0.0)


def told(make: Callable[[], Any], said: Iterable[bytes], reads: bool = False, keeps: bool = True) -> Iterator[None]:
    """Messages one after the other, until it is enough for the engine. The application keeps what it hears."""
    engine = make()
    lines = list(said)
    heard: list[Any] = []
    yield
    for line in lines:
        if engine.closed or not engine.wants_read:
            break
        events = engine.receive(line, 0.0)
        if keeps:
            heard += events
        if reads:
            drained(engine)


def hoarded(hoard: Hoard, step: int = 0, flips: int | None = None) -> Iterator[None]:
    """A connection that is filled until it takes nothing more, in pieces of ``step`` bytes, or with a bit of every
    message flipped."""
    engine = hoard.make(TINY)
    heard: list[Any] = []
    yield
    poured(engine, hoard, heard, step=step, dice=None if flips is None else random.Random(flips))


def cut_off(hoard: Hoard) -> Iterator[None]:
    """The same, and then the transport is gone: what the application does not keep itself is free."""
    engine = hoard.make(TINY)
    heard: list[Any] = []
    yield
    poured(engine, hoard, heard)
    engine.receive_eof(1.0)
    engine.receive_eof(1.0)
    assert engine.closed
    heard.clear()
    left = tracemalloc.get_traced_memory()[0]
    assert left <= SLACK, f"{left} bytes are left of a connection that is over"


def silent(hoard: Hoard) -> Iterator[None]:
    """The same, and then nothing comes and nothing leaves any more, for ten minutes."""
    engine = hoard.make(TINY)
    heard: list[Any] = []
    yield
    poured(engine, hoard, heard)
    for second in range(600):
        heard += engine.tick(float(second))


def published(make: Callable[[], Any], publish: Callable[[Any], None], end: bool = False) -> Iterator[None]:
    """A peer that asked for everything and reads nothing: the publisher is asked for what fits."""
    engine = make()
    yield
    while engine.room(0) > 0:
        publish(engine)
    if end:
        engine.receive_eof(0.0)


def everybodys(
    wire: Wire, hoard: Hoard, largest: tuple[Callable[[], Any], bytes, int], burst: tuple[Callable[[], Any], bytes]
) -> dict[str, Any]:
    """The rows that are tagged "all". ``burst`` is a read full of the smallest messages, and who hears them."""
    make, message, most = largest
    stranger = partial(wire.make, "server", limits=SERVER)
    noise = [bytes(0x1000) * 8, b"\xff" * 0x8000, random.Random(9).randbytes(0x8000)]
    tiny = TINY.connection_bytes
    return {
        "FR-05": Bound(most, lambda: dribbled(make, message)),
        "SL-02": Bound(most, lambda: dribbled(make, message, 1 + len(message) // 300)),
        "FR-06": Bound(tiny, lambda: cut_off(hoard)),
        "FR-08": Bound(tiny, lambda: hoarded(hoard, step=7)),
        "FR-09": Bound(SERVER.first_frame_bytes, lambda: told(stranger, noise)),
        "FR-28": Bound(
            SERVER.connection_bytes, lambda: told(burst[0], [burst[1][: SERVER.loop_bytes]] * 4, reads=True)
        ),
        "FR-29": Bound(tiny, lambda: hoarded(hoard, flips=5)),
        "SL-05": Bound(tiny, lambda: silent(hoard)),
        "HS-27": "hostile/test_every_wire::test_HS_27_what_strangers_cost",
        "HS-28": "transports/test_recognition::test_HS_28_what_strangers_cost",
        "TR-15": "hostile/test_every_wire::test_TR_15_whatever_the_network_does",
        "AU-03": "test_auth::test_AU_03_what_ten_thousand_addresses_cost",
    }


def streaming(make: Callable[[], Any], publish: Callable[[Any], None]) -> dict[str, Any]:
    """A side that publishes to a peer which does not read, with and without the peer's end."""
    high = SERVER.outbound_high_bytes
    return {
        "SL-01": Bound(high, lambda: published(make, publish), slack=256 * 1024),
        "SL-03": Bound(high, lambda: published(make, publish, end=True), slack=256 * 1024),
    }


BOUNDS: dict[str, dict[str, Any]] = {
    "jmux": everybodys(JMUX, jmux_peer.HOARD, jmux_peer.LARGEST, jmux_peer.BURST)
    | streaming(jmux_peer.greedy, jmux_peer.publish)
    | {
        "FR-22": Bound(4, lambda: told(jmux_peer.server, [b"\xff\0\xff\xff"])),
        "FR-23": Bound(4, lambda: told(jmux_peer.server, [b"\x02\x01\xff\xff"])),
        "HS-19": Bound(8, lambda: told(partial(JMUX.make, "server", limits=SERVER), [b"Jmux\x00\xff\xff\x01"])),
        "HS-20": Bound(8, lambda: told(partial(JMUX.make, "client", limits=SERVER), [b"Jmux\x02\xff\xff\x00"])),
        "HS-21": Bound(8, lambda: told(partial(JMUX.make, "server", limits=SERVER), [b"Jmux", b"\x01\xff\xff"])),
        "HS-22": Bound(
            SERVER.outbound_high_bytes,
            lambda: published(jmux_peer.greedy, jmux_peer.publish),
            slack=256 * 1024,
        ),
        "SI-18": Bound(4, lambda: told(jmux_peer.server, [b"\x80\x00\xff\xff"])),
        "SI-22": Bound(128 * 512, jmux_peer.unanswered_aborts),
        "FC-13": Bound(4, lambda: told(jmux_peer.server, [b"\x90\x00\x80\x01"])),
        "FC-14": Bound(4, lambda: told(jmux_peer.talking, [b"\x1e\x00\xff\xff"] * 3)),
        "FC-17": Bound(127 * SERVER.ration_bytes, jmux_peer.stalled),
        "FC-18": Bound(4 << 20, jmux_peer.every_ration_is_full, slack=512 * 1024),
        "FC-19": Bound(2 * SERVER.ration_bytes, jmux_peer.both_write_before_either_reads),
        "KA-08": Bound(1000 * (4 + jmux_peer.OBJECT), jmux_peer.pings_that_nobody_reads_about),
        "FL-07": Bound(128 * 2048, jmux_peer.opened_and_aborted),
        "FL-08": Bound(128 * 2048, jmux_peer.opened_and_left),
    },
    "limit": everybodys(LIMIT, limit_peer.HOARD, limit_peer.LARGEST, limit_peer.BURST)
    | streaming(limit_peer.greedy, limit_peer.publish)
    | {
        "FR-01": Bound(6, lambda: told(limit_peer.server, [b"\0\0\5", b"\0\0\0"])),
        "FR-02": Bound(3, lambda: told(limit_peer.server, [b"\xff\xff\xff"])),
        "FR-13": Bound(SERVER.frame_bytes, lambda: dribbled(limit_peer.server, limit_peer.UNKNOWN)),
        "HS-01": "hostile/test_every_wire::test_HS_27_what_strangers_cost",
        "HS-02": Bound(SERVER.first_frame_bytes, lambda: dribbled(limit_peer.stranger, limit_peer.SKIP)),
        "HS-03": Bound(SERVER.first_frame_bytes, lambda: dribbled(limit_peer.stranger, limit_peer.LARGE_SETUP)),
        "HS-12": Bound(16, lambda: told(limit_peer.stranger, [b"\x01\x00\x01", bytes(5)]), slack=8 * 1024),
        "SI-16": Bound(900 * 512, lambda: told(limit_peer.stranger, limit_peer.sessions(), reads=True)),
        "FG-14": Bound(SERVER.frame_bytes, lambda: dribbled(limit_peer.server, limit_peer.LYING)),
        "FG-19": Bound(SERVER.frame_bytes, lambda: dribbled(limit_peer.server, limit_peer.TRAILING)),
        "FL-01": Bound(300 * 2048, lambda: told(limit_peer.stranger, limit_peer.sessions(), reads=True)),
        "FL-06": Bound(
            SERVER.outbound_high_bytes,
            lambda: published(limit_peer.greedy, limit_peer.publish),
            slack=256 * 1024,
        ),
    },
    "reactivesocket": everybodys(
        REACTIVESOCKET, reactivesocket_peer.HOARD, reactivesocket_peer.LARGEST, reactivesocket_peer.BURST
    )
    | streaming(reactivesocket_peer.greedy, reactivesocket_peer.publish)
    | {name: Bound(*bound) for name, bound in reactivesocket_peer.SCRIPTS.items()}
    | {
        "FR-03": Bound(4, lambda: told(reactivesocket_peer.server, [b"\x7f\xff\xff\xff"])),
        "FR-17": Bound(SERVER.frame_bytes, lambda: dribbled(reactivesocket_peer.server, reactivesocket_peer.EXTENSION)),
        "HS-01": "hostile/test_every_wire::test_HS_27_what_strangers_cost",
        "HS-04": Bound(
            SERVER.first_frame_bytes, lambda: dribbled(reactivesocket_peer.server, reactivesocket_peer.large_setup())
        ),
        "HS-12": Bound(
            16, lambda: told(reactivesocket_peer.stranger, [b"\x00\x01\x00\x05", b"\x00\x01"]), slack=8 * 1024
        ),
        "SI-16": Bound(
            900 * 512, lambda: told(reactivesocket_peer.busy, reactivesocket_peer.more_requests(900), reads=True)
        ),
        "FC-08": Bound(8, lambda: told(reactivesocket_peer.serving, [reactivesocket_peer.GRANT] * 900, keeps=False)),
        "FC-09": Bound(
            SERVER.outbound_high_bytes,
            lambda: published(reactivesocket_peer.greedy, reactivesocket_peer.publish),
            slack=256 * 1024,
        ),
        "FL-03": Bound(SERVER.connection_bytes, lambda: told(reactivesocket_peer.server, reactivesocket_peer.fires())),
    }
    | {
        row: Bound(SERVER.first_frame_bytes, partial(dribbled, reactivesocket_peer.stranger, message))
        for row, message in reactivesocket_peer.FIRST_FRAMES.items()
    }
    | {
        row: Bound(SERVER.frame_bytes, partial(dribbled, reactivesocket_peer.server, message))
        for row, message in reactivesocket_peer.FRAMES.items()
    },
    "rsio": everybodys(RSIO, rsio_peer.HOARD, rsio_peer.LARGEST, rsio_peer.BURST)
    | streaming(rsio_peer.greedy, rsio_peer.publish)
    | {
        "FR-25": Bound(10, lambda: told(rsio_peer.server, [b"\x80" * 10])),
        "FR-26": Bound(10, lambda: told(rsio_peer.server, [b"\x07\x01" + b"\xff" * 7 + b"\x7f"])),
        "HS-01": "hostile/test_every_wire::test_HS_27_what_strangers_cost",
        "HS-23": Bound(SERVER.first_frame_bytes, lambda: dribbled(rsio_peer.stranger, rsio_peer.OTHER_HELLO)),
        "HS-25": Bound(SERVER.connection_bytes, rsio_peer.optimists),
        "SI-31": Bound(4096, lambda: dribbled(rsio_peer.server, rsio_peer.LONG_NAME)),
        "FC-09": Bound(
            SERVER.outbound_high_bytes,
            lambda: published(rsio_peer.greedy, rsio_peer.publish),
            slack=256 * 1024,
        ),
        "FC-20": Bound(SERVER.payload_bytes, lambda: dribbled(rsio_peer.satisfied, rsio_peer.SURPLUS, 65_521)),
        "FC-23": Bound(
            SERVER.payload_bytes, lambda: told(rsio_peer.packed, rsio_peer.packs_that_are_too_large(), reads=True)
        ),
    },
    "rsocket-draft": everybodys(DRAFT, rsocket_draft_peer.HOARD, rsocket_draft_peer.LARGEST, rsocket_draft_peer.BURST)
    | streaming(rsocket_draft_peer.greedy, rsocket_draft_peer.publish)
    | {name: Bound(*bound) for name, bound in rsocket_draft_peer.SCRIPTS.items()}
    | {
        "FR-01": Bound(6, lambda: told(rsocket_draft_peer.server, [b"\0\0\5", b"\0\0\0"])),
        "FR-02": Bound(3, lambda: told(rsocket_draft_peer.server, [b"\xff\xff\xff"])),
        "HS-01": "hostile/test_every_wire::test_HS_27_what_strangers_cost",
        "HS-04": Bound(
            SERVER.first_frame_bytes, lambda: dribbled(rsocket_draft_peer.server, rsocket_draft_peer.large_setup())
        ),
        "HS-12": Bound(16, lambda: told(rsocket_draft_peer.stranger, [b"\x01\x00\x05", bytes(5)]), slack=8 * 1024),
        "SI-16": Bound(
            900 * 512, lambda: told(rsocket_draft_peer.busy, rsocket_draft_peer.more_requests(900), reads=True)
        ),
        "FC-08": Bound(8, lambda: told(rsocket_draft_peer.serving, [rsocket_draft_peer.GRANT] * 900, keeps=False)),
        "FC-09": Bound(
            SERVER.outbound_high_bytes,
            lambda: published(rsocket_draft_peer.greedy, rsocket_draft_peer.publish),
            slack=256 * 1024,
        ),
        "FL-03": Bound(SERVER.connection_bytes, lambda: told(rsocket_draft_peer.server, rsocket_draft_peer.fires())),
    }
    | {
        row: Bound(SERVER.first_frame_bytes, partial(dribbled, rsocket_draft_peer.stranger, message))
        for row, message in rsocket_draft_peer.FIRST_FRAMES.items()
    }
    | {
        row: Bound(SERVER.frame_bytes, partial(dribbled, rsocket_draft_peer.server, message))
        for row, message in rsocket_draft_peer.FRAMES.items()
    },
}
"""Protocol and row to what it may cost; or to the test, under tests/, that measures it."""

MEASURED = [
    (protocol, row, bound) for protocol, rows in BOUNDS.items() for row, bound in rows.items() if type(bound) is Bound
]


@pytest.mark.parametrize(
    ("protocol", "row", "bound"), MEASURED, ids=[f"{protocol}-{row}" for protocol, row, _ in MEASURED]
)
def test_what_a_row_costs(protocol: str, row: str, bound: Bound) -> None:
    used = cost(bound.script)
    assert used <= 1.1 * bound.most + bound.slack, f"{used} bytes"


def test_a_bound_that_is_broken_is_seen() -> None:
    """The measure itself."""

    def script() -> Iterator[None]:
        yield
        held = bytearray(200_000)
        assert held

    assert cost(script) > 1.1 * 100_000 + SLACK
    assert Limits.server() is SERVER
