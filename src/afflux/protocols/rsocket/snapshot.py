"""Convert an engine to plain values and back, so that its session can continue in another process.

A snapshot consists of numbers, texts, bytes, lists and dicts, so that any format can store it. It contains everything
except the retained frames, which are many and change at their ends only: a store writes them separately
(``Retained.blocks`` and ``after``). State of a transport is not included: the frames of stream 0, leases, the
incomplete frame. The token buckets are not included either: the peer did not cause the restart, so it gains nothing by
it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

from afflux.core.errors import Violation
from afflux.core.limits import Limits
from afflux.core.terms import Place
from afflux.protocols.family.handshake import agree, lifetime_of
from afflux.protocols.family.lease import LeasePolicy
from afflux.protocols.family.sessions import Sessions
from afflux.protocols.family.states import ConnectionState
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket.engine import Engine
from afflux.protocols.rsocket.frames import NEXT, Setup, decode
from afflux.protocols.rsocket.resume import Retained
from afflux.protocols.rsocket.resumption import Resumption, part_of

__all__ = ["lasting", "restore", "retained", "snapshot"]


def lasting(engine: Engine) -> bool:
    """Whether the engine has a session to store: it is resumable, or suspended."""
    part = engine.resuming
    suspended = engine.state is ConnectionState.SUSPENDED
    return part is not None and part.retains and (suspended or part.resumable(engine))


def retained(engine: Engine) -> Retained:
    """Return the frames that a lasting session retains for its peer."""
    return part_of(engine).kept


def snapshot(engine: Engine) -> dict[str, Any]:
    """Return the state of a lasting session, in parts: between two snapshots many of them are equal."""
    farewell = engine.farewell
    return {
        "setup": [engine.client, engine.setup.encode(), engine.outbound.mtu],
        "standing": [engine.handshake.accepted, None if farewell is None else farewell.reason, engine.peer_draining],
        "positions": retained(engine).state(),
        "streams": engine.stream_table.state(),
        "queue": engine.outbound.state(),
        "partials": engine.stream_table.reassembly.state(),
    }


def restore(
    state: dict[str, Any],
    blocks: Iterable[tuple[int, bytes]],
    *,
    limits: Limits,
    now: float,
    away: float = 0.0,
    unconsumed: tuple[int, int] | None = None,
    lease: LeasePolicy | None = None,
    sessions: Sessions | None = None,
    extensions: Container[int] = (),
    place: Place | None = None,
) -> Engine:
    """Build an engine that continues from a snapshot: suspended, until it has a transport.

    Args:
        state: the result of ``snapshot``.
        blocks: the retained frames: (position, frames), in order.
        limits: the bounds from now on.
        now: the time, in monotonic seconds.
        away: seconds since the transport was lost.
        unconsumed: bytes and items that the application has not consumed; None for the numbers of the snapshot.
        lease: as for the engine, like ``sessions``, ``extensions`` and ``place``.

    Raises:
        ValueError: the frames do not match the snapshot.
    """
    client, encoded, mtu = state["setup"]
    setup = Setup.decode(encoded, 0, len(encoded))
    engine = Engine(
        "client" if client else "server",
        setup=setup if client else None,
        limits=limits,
        now=now,
        mtu=mtu,
        lease=lease,
        sessions=sessions,
        extensions=extensions,
        place=place,
    )
    if engine.resuming is None:
        engine.resuming = Resumption(sessions)
    if not client:
        engine.setup = setup
        engine.liveness.lifetime = lifetime_of(setup, limits)
        agree(engine, setup)
    accepted, farewell, engine.peer_draining = state["standing"]
    engine.handshake.accepted = accepted
    if farewell is not None:
        engine.farewell = Violation(farewell, rule="3.1", code=Code.CONNECTION_ERROR)
    retained(engine).restore(state["positions"], blocks)
    streams = engine.stream_table
    streams.reassembly.restore(state["partials"], now, decode)
    streams.restore(state["streams"])
    if unconsumed is not None:
        streams.delivered, streams.objects = unconsumed
    engine.outbound.restore(state["queue"], (NEXT, b""))
    engine.state = ConnectionState.SUSPENDED
    engine.inbound.admit()
    engine.inbound.close()
    engine.liveness.next_keepalive = None
    part_of(engine).away = now - away
    if sessions is not None:
        sessions.add(engine)
        sessions.weigh(engine)
        sessions.away(engine)
    return engine
