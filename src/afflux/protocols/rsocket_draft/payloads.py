"""Read and write the payloads of the well-known extensions at each point (2.4, 2.5).

A broker's payload is a frame of its own (RSocket 2.6); ``broker_type`` reads its type only, because frames of brokers
are carried as they are (R-45).
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Any, ClassVar, Final, NamedTuple

from afflux.core.dissect import PayloadForm
from afflux.core.errors import Violation
from afflux.core.frame import Malformed
from afflux.protocols.rsocket_draft.compact import CompactType, compact_bytes, read_compact
from afflux.protocols.rsocket_draft.entries import (
    BROKER,
    KEEPALIVE,
    LEASE,
    MARK,
    RESUME,
    Entry,
    Point,
    used_at,
)

__all__ = [
    "CONCURRENCY",
    "FRAMES_COUNT",
    "KNOWN",
    "MOST_POSITIONS",
    "REQUESTS",
    "Permits",
    "Position",
    "Session",
    "Times",
    "address_entry",
    "broker_fits",
    "broker_type",
    "grant_entry",
    "keepalive_entry",
    "lease_entry",
    "list_entry",
    "permits_of",
    "ping_entry",
    "positions_of",
    "resume_entry",
    "session_of",
    "shown",
    "strategies_of",
    "strategy_of",
    "times_of",
]

REQUESTS: Final = 0x00
"The strategy that limits the requests within a time (R-32)."
CONCURRENCY: Final = 0x01
"The strategy that limits the live streams."
FRAMES_COUNT: Final = 0x02
"The strategy that limits the stream frames sent."
KNOWN: Final = (REQUESTS, CONCURRENCY, FRAMES_COUNT)
"The strategies of leases that are known."
_STRATEGY_NAMES: Final = {"Requests Count": REQUESTS, "Concurrency Limit": CONCURRENCY, "Frames Count": FRAMES_COUNT}

MOST_POSITIONS: Final = 0xFFFFF
"The most entries of a position list (D-12)."

_PAIR: Final = Struct(">II")
_POSITION: Final = Struct(">IQ")
_ID: Final = 0x7FFFFFFF


class Times(NamedTuple):
    """Keepalive on SETUP."""

    interval_ms: int
    "Milliseconds between the client's keepalives."
    lifetime_ms: int
    "Milliseconds of silence after which a side is considered dead."


class Position(NamedTuple):
    """How far one stream was received."""

    stream: int
    position: int
    "Counted frames received so far (R-35)."


class Session(NamedTuple):
    """Resumption on SETUP."""

    token: bytes
    positions: tuple[Position, ...] | None
    "The streams to continue; None for a new session."


class Permits(NamedTuple):
    """A grant of leases."""

    ttl_ms: int
    permits: int


class _Payload:
    """The payload of an entry, as ``read_compact`` expects a frame."""

    NAME: ClassVar[str] = "an extension entry"

    @staticmethod
    def malformed(reason: str, buffer: bytes, start: int, end: int) -> Malformed:
        return _malformed(reason)


def _malformed(reason: str) -> Malformed:
    return Malformed(reason, rule="R-16", code=0x101)


def _whole(entry: Entry, what: str, size: int) -> bytes:
    """Return the payload, if it has exactly ``size`` bytes (R-16)."""
    if len(entry.payload) != size:
        raise _malformed(f"{what} of {len(entry.payload)} bytes: it has {size}")
    return entry.payload


def _checked(value: int, what: str, most: int, rule: str, least: int = 0) -> int:
    if not least <= value <= most:
        raise Violation(f"{what} is {value}, not within {least} to {most}", rule=rule)
    return value


# -- keepalive ------------------------------------------------------------------------------------------------


def keepalive_entry(times: Times, *, ignorable: bool = True, ack: bool = False) -> Entry:
    """Return keepalive for SETUP. Raises Violation for a time that is not above 0 (R-26)."""
    interval = _checked(times.interval_ms, "the keepalive interval", _ID, "R-26", 1)
    lifetime = _checked(times.lifetime_ms, "the lifetime", _ID, "R-26", 1)
    return Entry(KEEPALIVE, _PAIR.pack(interval, lifetime), ignorable, ack)


def times_of(entry: Entry) -> Times:
    """Return the content of keepalive on SETUP; times of 0 are the caller's to judge. Raises Malformed."""
    interval, lifetime = _PAIR.unpack(_whole(entry, "keepalive", 8))
    return Times(interval & _ID, lifetime & _ID)


def ping_entry(data: bytes, *, respond: bool) -> Entry:
    """Return keepalive for EXT; its data is open and has a length therefore (R-14)."""
    return Entry(KEEPALIVE, data, True, False, MARK * respond)


# -- resumption -----------------------------------------------------------------------------------------------


def resume_entry(session: Session, *, ignorable: bool = True, ack: bool = True) -> Entry:
    """Return resumption for SETUP. Raises Violation for a token that is too long, or for too many streams."""
    size = _checked(len(session.token), "the length of the token", 0xFFFF, "R-38")
    listed = b"" if session.positions is None else _list_bytes(session.positions)
    flags = MARK * (session.positions is not None)
    return Entry(RESUME, size.to_bytes(2, "big") + session.token + listed, ignorable, ack, flags)


def session_of(entry: Entry) -> Session:
    """Return the content of resumption on SETUP. Raises Malformed."""
    payload = entry.payload
    end = 2 + int.from_bytes(payload[:2], "big")
    if len(payload) < end:
        raise _malformed(f"a token of {end - 2} bytes where {max(0, len(payload) - 2)} are left")
    if not entry.marked:
        _whole(entry, "resume", end)
        return Session(payload[2:end], None)
    return Session(payload[2:end], _positions(payload, end))


def list_entry(positions: Iterable[Position], *, ignorable: bool = True, marked: bool = False) -> Entry:
    """Return a position list for EXT, or ``marked`` for SETUP_OK. Raises Violation for too many streams."""
    return Entry(RESUME, _list_bytes(positions), ignorable, False, MARK * marked)


def positions_of(entry: Entry) -> tuple[Position, ...]:
    """Return the position list that is the whole payload. Raises Malformed."""
    return _positions(entry.payload, 0)


def _list_bytes(positions: Iterable[Position]) -> bytes:
    packed = [_POSITION.pack(stream, position) for stream, position in positions]
    count = _checked(len(packed), "the number of positions", MOST_POSITIONS, "D-12")
    return count.to_bytes(3, "big") + b"".join(packed)


def _positions(payload: bytes, at: int) -> tuple[Position, ...]:
    """Read the position list from ``at`` to the end (2.4). The size is checked before anything is created."""
    count = int.from_bytes(payload[at : at + 3], "big") & MOST_POSITIONS
    if len(payload) - at != 3 + count * _POSITION.size:
        raise _malformed(f"a list of {count} positions in {len(payload) - at} bytes")
    found = _POSITION.iter_unpack(payload[at + 3 :])
    return tuple(Position(stream & _ID, position) for stream, position in found)


# -- leases ---------------------------------------------------------------------------------------------------


def lease_entry(strategies: Iterable[CompactType], *, ignorable: bool = True, ack: bool = False) -> Entry:
    """Return leases for SETUP, whose strategies have no end of their own and therefore a length (R-14), or for
    SETUP_OK, with the one that was selected."""
    payload = b"".join(compact_bytes(strategy, "a lease strategy") for strategy in strategies)
    return Entry(LEASE, payload, ignorable, ack)


def strategies_of(entry: Entry) -> tuple[CompactType, ...]:
    """Return the strategies on SETUP in the client's order, well-known ones by number. Raises Malformed."""
    payload, at, found = entry.payload, 0, []
    while at < len(payload):
        strategy, at = read_compact(_Payload, "a lease strategy", payload, at, 0, len(payload))
        found.append(_STRATEGY_NAMES.get(strategy, strategy) if isinstance(strategy, str) else strategy)
    return tuple(found)


def strategy_of(entry: Entry) -> CompactType:
    """Return the selected strategy of SETUP_OK. Raises Malformed."""
    found = strategies_of(entry)
    if len(found) != 1:
        raise _malformed(f"SETUP_OK selects one lease strategy, not {len(found)}")
    return found[0]


def grant_entry(permits: Permits) -> Entry:
    """Return a grant for EXT."""
    ttl = _checked(permits.ttl_ms, "the time of a lease", _ID, "R-33")
    return Entry(LEASE, _PAIR.pack(ttl, _checked(permits.permits, "the number of permits", _ID, "R-33")), True)


def permits_of(entry: Entry) -> Permits:
    """Return a grant on EXT; 0 permits or 0 ms stop the receiver (R-33). Raises Malformed."""
    ttl, permits = _PAIR.unpack(_whole(entry, "lease", 8))
    return Permits(ttl & _ID, permits & _ID)


# -- brokers --------------------------------------------------------------------------------------------------

_BROKER_TYPES: Final = {Point.SETUP: (1,), Point.SETUP_OK: (), Point.EXT: (4, 2, 3), Point.STREAM: (5,)}
"ROUTE_SETUP; nothing; BROKER_INFO, ROUTE_JOIN and ROUTE_REMOVE; ADDRESS (R-46, D-13)."


def address_entry(frame: bytes) -> Entry:
    """Return a frame of a broker as an entry, for any point but SETUP_OK (R-45)."""
    return Entry(BROKER, frame, True)


def broker_type(frame: bytes) -> int | None:
    """Return the type of a broker's frame; None if it is shorter than its header."""
    return int.from_bytes(frame[4:6], "big") >> 10 if len(frame) >= 6 else None


def broker_fits(entry: Entry, point: Point) -> bool:
    """Whether a broker's frame may stand at a point (R-46); at SETUP_OK its payload is empty."""
    return not entry.payload if point is Point.SETUP_OK else broker_type(entry.payload) in _BROKER_TYPES[point]


# -- records --------------------------------------------------------------------------------------------------


def shown(entry: Entry, point: Point, payload: PayloadForm = "none") -> dict[str, Any]:
    """Return an entry as a frame record shows it: its name, its flags, and the content of its payload as far as it is
    well known at the point. Only the length of a token is shown, except with ``payload="hex"``."""
    flags = [letter for letter, raised in (("I", entry.ignorable), ("A", entry.ack)) if raised]
    row: dict[str, Any] = {"id": entry.name, "flags": flags, "dependent": entry.flags}
    row["size"] = len(entry.payload)
    if payload == "hex":
        row["payload"] = entry.payload.hex()
    try:
        return row | (_content(entry, point) if used_at(entry.number, point) else {})
    except Malformed as malformed:
        return row | {"malformed": malformed.reason}


def _content(entry: Entry, point: Point) -> dict[str, Any]:
    match point, entry.number:
        case Point.SETUP, 0:
            return times_of(entry)._asdict()
        case Point.SETUP, 1:
            token, positions = session_of(entry)
            return {"token": f"({len(token)} bytes)", "positions": positions}
        case Point.SETUP, 2:
            return {"strategies": strategies_of(entry)}
        case Point.SETUP_OK, 1:
            return {"positions": positions_of(entry) if entry.marked else None}
        case Point.SETUP_OK, 2:
            return {"strategy": strategy_of(entry)}
        case Point.EXT, 0:
            return {"respond": entry.marked}
        case Point.EXT, 1:
            return {"positions": positions_of(entry)}
        case Point.EXT, 2:
            return permits_of(entry)._asdict()
        case Point.STREAM, 1:
            return {"resume": entry.marked}
        case _, 3 if entry.payload:
            return {"broker": _BROKER_NAMES.get(broker_type(entry.payload) or 0)}
    return {}


_BROKER_NAMES: Final = {1: "ROUTE_SETUP", 2: "ROUTE_JOIN", 3: "ROUTE_REMOVE", 4: "BROKER_INFO", 5: "ADDRESS"}
