"""Convert an engine to plain values and back, so that its session can continue in another process.

A snapshot consists of numbers, texts, bytes, lists and dicts, so that any format can store it. It contains everything
except the retained frames, which are many and change at their ends only: a store writes them separately
(``Retained.blocks`` and ``after``). State of a transport is not included: the frames of stream 0, leases, the
incomplete frame. The token buckets are not included either: the peer did not cause the restart, so it gains nothing by
it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any, cast

from afflux.core.errors import Violation
from afflux.core.limits import Limits
from afflux.core.terms import Place
from afflux.protocols.family.handshake import agree
from afflux.protocols.family.lease import LeasePolicy
from afflux.protocols.family.liveness import lifetime_of
from afflux.protocols.family.states import ConnectionState
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket.engine import Engine
from afflux.protocols.rsocket.frames import NEXT, Setup, decode
from afflux.protocols.rsocket.resume import Retained, Sessions
from afflux.protocols.rsocket.resumption import Resumption, part_of

__all__ = ["lasting", "restore", "retained", "snapshot"]


def lasting(engine: Engine) -> bool:
    """Whether the engine has a session to store: it is resumable, or suspended."""
    session = engine.resumption
    return (
        engine._resuming is not None
        and engine._resuming.retains
        and session is not None
        and (session.resumable or session.suspended)
    )


def retained(engine: Engine) -> Retained:
    """Return the frames that a lasting session retains for its peer."""
    return cast("Retained", part_of(engine).retained)


def snapshot(engine: Engine) -> dict[str, Any]:
    """Return the state of a lasting session, in parts: between two snapshots many of them are equal."""
    setup = cast("Setup", engine.setup)
    farewell = engine._farewell
    return {
        "setup": [engine._client, setup.encode(), engine._out.mtu],
        "standing": [engine._handshake.accepted, None if farewell is None else farewell.reason, engine._peer_draining],
        "positions": retained(engine).state(),
        "streams": engine._streams.state(),
        "queue": engine._out.state(),
        "partials": engine._streams.reassembly.state(),
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
    setup = cast("Setup", decode(encoded))
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
    if engine._resuming is None:
        engine._resuming = Resumption(sessions)
    if not client:
        engine.setup = setup
        engine._liveness.lifetime = lifetime_of(setup, limits)
        agree(engine, setup)
    accepted, farewell, engine._peer_draining = state["standing"]
    engine._handshake.accepted = accepted
    if farewell is not None:
        engine._farewell = Violation(farewell, rule="3.1", code=Code.CONNECTION_ERROR)
    retained(engine).restore(state["positions"], blocks)
    streams = engine._streams
    streams.reassembly.restore(state["partials"], now, decode)
    streams.restore(state["streams"])
    if unconsumed is not None:
        streams.delivered, streams.objects = unconsumed
    engine._out.restore(state["queue"], (NEXT, b""))
    engine._state = ConnectionState.SUSPENDED
    engine._in.first = False
    engine._in.close()
    engine._liveness.next_keepalive = None
    part_of(engine).away = now - away
    if sessions is not None:
        sessions.add(engine)
        sessions.weigh(engine)
        sessions.away(engine)
    return engine
