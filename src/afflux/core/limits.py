"""Declare the limits that a peer, a file or an application can reach, with safe defaults.

Each row declares one limit: its value in each profile, its unit and the reason word sent when it is reached. The
dataclass, the profiles, REASONS and the reference page are derived from these rows.

Rules: a limit may be ``None`` (off) only if its row permits it; the value of a limit is itself allowed; a ``Limits``
that contradicts itself raises. Ki, Mi and Gi are powers of 1,024.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from math import inf, isfinite, prod
from types import MappingProxyType
from typing import Any, Literal, Self, cast

__all__ = [
    "REASONS",
    "ROWS",
    "LimitRow",
    "Limits",
    "Profile",
    "explained",
    "oversize",
    "reached",
    "reference",
    "unknown",
]

Profile = Literal["server", "trusted", "tiny"]
"``server``: the default. ``trusted``: links between hosts of one operator. ``tiny``: small devices, and tests."

Ki, Mi, Gi = 1 << 10, 1 << 20, 1 << 30
_LONGEST_FRAME = 0xFFFFFF
_BESIDE_PAYLOAD = 64 * Ki
"Bytes that a frame may contain in addition to its payload."
_CONNECTION_COST = 40 * Ki
"Bytes that an idle connection may cost."


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRow:
    """The declaration of one limit."""

    name: str
    server: Any
    trusted: Any
    tiny: Any
    unit: str
    "The unit of the value; for a pair, the unit of each part."
    reason: str | None = None
    "The word that is sent and counted when the limit is reached; None if none is sent."
    off: bool = False
    "True if None (off) is a legal value."
    most: float | None = None
    "The greatest legal value, if the format bounds it."
    share_of: str | None = None
    "The limit of which a value with a fraction, such as 0.25, is a share; a whole number is a fixed count."
    fractions: bool
    "True if a value need not be whole, such as seconds."


def _row(unit: str, server: Any, trusted: Any, tiny: Any, reason: str | None = None, **more: Any) -> Any:
    row = {"server": server, "trusted": trusted, "tiny": tiny, "unit": unit, "reason": reason}
    return field(default=server, metadata=row | more)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Limits:
    """The bounds of a connection, a listener or a store. Immutable; ``Limits()`` is ``Limits.server()``.

    Raises:
        ValueError: a value is out of range, or two values contradict each other; the text has both names and values.
        TypeError: a value has the wrong type, or the name of a limit is unknown.
    """

    # 1. Framing and payloads
    first_frame_bytes: int = _row("bytes before the handshake", 64 * Ki, Mi, 16 * Ki, "first-frame-too-large")
    frame_bytes: int = _row(
        "bytes", 4 * Mi + _BESIDE_PAYLOAD, _LONGEST_FRAME, 64 * Ki, "frame-too-large", most=_LONGEST_FRAME
    )
    """The default is ``payload_bytes`` + 64 Ki, because other implementations send a payload in one frame."""
    payload_bytes: int = _row("bytes, reassembled", 4 * Mi, 64 * Mi, 128 * Ki, "payload-too-large")
    fragments: int = _row("count per payload", 16_384, 262_144, 2_048, "too-many-fragments")
    fragment_min_bytes: int = _row("bytes, with length field", 64, 64, 64, "fragment-too-small")
    partial_payloads: int = _row("count per connection", 64, 1_024, 8, "too-many-partials")
    reassembly_s: float = _row("seconds", 30, 60, 10, "reassembly-timeout")
    frame_s: float = _row("seconds", 30, 120, 10, "frame-timeout")
    connection_metadata_bytes: int = _row("bytes", 64 * Ki, Mi, 4 * Ki, "metadata-too-large")
    composite_entries: int = _row("count", 1_024, 4_096, 64, "too-many-entries")
    varint_bytes: int = _row("bytes", 10, 10, 10, "bad-varint", most=10)
    publisher_bytes: int = _row("bytes", 4 * Ki, 4 * Ki, 256, "unknown-publisher")
    extension_ids: int = _row("count per hello", 64, 64, 16, "too-many-extensions")
    error_text_bytes: tuple[int, int] = _row("bytes out, in", (Ki, 64 * Ki), (Ki, 64 * Ki), (256, 4 * Ki))
    ws_fragments: int = _row("count per message", 1_024, 16_384, 128, "too-many-fragments")
    message_values: int = _row("values in a message of a session", 65_536, 1_048_576, 4_096, "too-many-values")
    value_depth: int = _row("nested structs and enums in a message", 64, 64, 16, "value-too-deep", most=128)
    session_type_bytes: int = _row("bytes of the text of session types", Mi, 16 * Mi, 64 * Ki, "type-too-large")
    session_type_depth: int = _row("nested offers and choices", 64, 64, 16, "type-too-deep", most=128)
    session_type_states: int = _row("states of the channels of a file", 10_000, 100_000, 1_000, "too-many-states")

    # 2. Streams, cancels, ignored frames
    streams: int = _row(
        "handlers at work per connection: of requests, of streams, of fires", 256, 4_096, 16, "too-many-streams"
    )
    pending_streams: int = _row("requests that wait for a handler", 16_384, 65_536, 64, "too-many-streams")
    pending_s: float = _row("seconds in which no handler becomes free", 30, 120, 10, "too-many-streams")
    sessions: int = _row("Jmux ids per connection", 128, 128, 16, most=128)
    tombstones: int = _row("ids remembered", 1_024, 4_096, 64)
    cancel_bucket: tuple[int, int] = _row(
        "burst, per second", (4_256, 1_000), (40_000, 10_000), (50, 5), "cancel-flood"
    )
    glitch_bucket: tuple[int, int] = _row(
        "tokens, per second", (1_000, 100), (10_000, 1_000), (200, 20), "protocol-abuse"
    )
    cancel_race_frames: int = _row("frames per cancel of ours", 256, 256, 16)
    metadata_push_queue: int = _row("frames", 16, 256, 4)
    lease_queue: int = _row("requests waiting for a lease", 0, 256, 0, most=256)
    lease_frames_per_s: int = _row("frames per second", 10, 100, 2)

    # 3. Buffers
    connection_bytes: int = _row("bytes, all queues of a connection", 8 * Mi, 128 * Mi, 256 * Ki, "buffer-full")
    object_overhead_bytes: int = _row("bytes per queued object", 512, 512, 512)
    outbound_high_bytes: int = _row("bytes", Mi, 16 * Mi, 32 * Ki)
    outbound_low_bytes: int = _row("bytes", 256 * Ki, 4 * Mi, 8 * Ki)
    outbound_high_frames: int = _row("frames", 1_000, 10_000, 100)
    keepalive_echoes: int = _row("queued answers", 16, 16, 4)
    control_replies: int = _row("queued acknowledgements", 1_000, 10_000, 100)
    ration_bytes: int = _row("bytes, Jmux inbound ration", 32 * Ki, 256 * Ki, 4 * Ki, "ration-exceeded")
    ration_max_bytes: int = _row("bytes, Jmux ration after growth", 256 * Ki, 4 * Mi, 4 * Ki)
    process_bytes: int = _row("bytes, all connections", 2 * Gi, 8 * Gi, 64 * Mi, "overload")
    loop_frames: int = _row("frames per turn of the loop", 256, 256, 64)
    loop_bytes: int = _row(
        "bytes per turn of the loop; a producer that is alone on its connection may send three items",
        64 * Ki,
        64 * Ki,
        16 * Ki,
    )
    """An item that is larger than the bytes that are left is sent whole."""
    loop_ms: float = _row("milliseconds per turn of the loop", 5, 5, 5)

    # 4. Time and liveness
    handshake_s: float = _row("seconds, TLS, upgrade and acceptor", 10, 30, 5, "handshake-timeout")
    keepalive_s: float = _row("seconds, proposed in SETUP", 20, 20, 20)
    lifetime_s: float = _row("seconds, proposed in SETUP", 90, 90, 90)
    peer_lifetime_s: tuple[float, float] = _row(
        "seconds, least and most", (0.1, 600), (0.1, 600), (0.1, 600), "keepalive-timeout"
    )
    keepalive_rate: tuple[int, int] = _row(
        "per second at least, burst", (10, 100), (100, 1_000), (5, 20), "keepalive-flood"
    )
    ping_s: float = _row("seconds to the PingAck", 30, 60, 10, "ping-timeout")
    idle_s: float | None = _row("seconds without a frame or stream", 300, None, 60, "idle", off=True)
    session_idle_s: float | None = _row("seconds, Jmux session", 300, None, 60, "session-idle", off=True)
    session_stall_s: float = _row("seconds without increments", 60, 300, 10, "session-stall")
    abort_answer_s: float = _row("seconds", 30, 30, 10, "abort-unanswered")
    ack_s: float = _row("seconds, Jmux Acknowledgment", 60, 60, 10)
    write_stall_s: float = _row("seconds", 30, 120, 10, "write-stall")
    write_min_rate: int = _row("bytes per second over write_stall_s", Ki, 0, 256, "write-stall")
    flush_s: float = _row("seconds, last frame before a close", 1, 1, 1)
    goodbye_s: float = _row("seconds, acknowledgement", 1, 1, 1)
    lease_margin_ms: float = _row("milliseconds, sender stops early", 50, 50, 50)

    # 5. Listener and authentication
    connections: int = _row("count", 10_000, 10_000, 100, "too-many-connections")
    connections_per_address: int | float | None = _row(
        "count (int), or share of connections (float)",
        0.25,
        None,
        16,
        "too-many-connections",
        off=True,
        share_of="connections",
    )
    accepts_per_s: int = _row("count per second", 2_000, 20_000, 20)
    half_handshakes: int = _row("count", 1_024, 4_096, 32)
    accept_backoff_s: float = _row("seconds after descriptors run out", 1, 1, 1)
    auth_failures: int = _row("per minute and address", 10, 100, 5, "auth-rate")

    # 6. Resume
    resume_bytes: int = _row("bytes per session", Mi, 16 * Mi, 64 * Ki)
    resume_s: float = _row("seconds away", 120, 600, 30)
    resume_sessions: int = _row("count", 10_000, 10_000, 16)
    resume_process_bytes: int = _row("bytes, all sessions", 256 * Mi, 2 * Gi, Mi)
    resume_rate: tuple[int, float] = _row("attempts per minute, least gap in seconds", (10, 1), (60, 0.1), (5, 1))
    resume_token_bytes: tuple[int, int] = _row(
        "least (ours), most (theirs)", (16, 1_024), (16, 1_024), (16, 64), "bad-token"
    )

    # 7. Journals, Spark
    journal_bytes: int = _row("bytes", Gi, 64 * Gi, 16 * Mi)
    partitions: int = _row("count", 1_024, 16_384, 8)
    staged_bytes: int = _row("bytes", 64 * Gi, 1_024 * Gi, 16 * Mi, "sink-full")
    staging_parts: int = _row("count", 1_024, 16_384, 8, "too-many-parts")
    stop_s: float = _row("seconds", 5, 5, 5)

    # 8. Captures
    capture_flows: int = _row("connections of a capture at once", 65_536, 1_048_576, 256)
    capture_flow_bytes: int = _row(
        "bytes waiting for missing ones, per direction", Mi, 16 * Mi, 64 * Ki, "too-much-pending"
    )
    capture_streams: int = _row("streams of a capture at once; a connection has a quarter", 65_536, 262_144, 256)
    capture_bytes: int = _row("bytes, all connections of a capture", 64 * Mi, Gi, Mi, "too-much-pending")
    capture_holes: int = _row("pieces waiting for missing ones, per direction", 4_096, 65_536, 64, "too-much-pending")
    capture_record_bytes: int = _row("bytes of a captured packet", 256 * Ki, 16 * Mi, 64 * Ki, "bad-record")
    capture_depth: int = _row("tags and tunnels around a packet", 4, 4, 4)
    capture_ipv6_headers: int = _row("IPv6 extension headers", 8, 8, 8)
    capture_interfaces: int = _row("interfaces of a section", 1_024, 1_024, 1_024, "too-many-interfaces")
    capture_secret_bytes: int = _row("bytes, all TLS secrets of a capture", 16 * Mi, 256 * Mi, 64 * Ki)
    capture_names: int = _row("names of addresses of a capture", 2_048, 65_536, 64)
    capture_ratio: int | None = _row("bytes from a compressed byte", 200, None, 200, "bomb", off=True)

    _profile: Profile = field(default="server", init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.frame_bytes == ROWS["frame_bytes"].server:
            object.__setattr__(self, "frame_bytes", _frame_for(self.payload_bytes))
        for row in ROWS.values():
            _check_value(row, getattr(self, row.name))
        _check_together(self)

    @classmethod
    def server(cls, **changes: Any) -> Self:
        """Return the default limits, safe against any peer. Without changes, all callers share one object."""
        if changes or cls is not Limits:
            return cls._made("server", {}, changes)
        if not _DEFAULT:
            _DEFAULT.append(cls._made("server", {}, {}))
        return cast("Self", _DEFAULT[0])

    @classmethod
    def trusted(cls, **changes: Any) -> Self:
        """Return limits for links between hosts of one operator."""
        return cls._made("trusted", {name: row.trusted for name, row in ROWS.items()}, changes)

    @classmethod
    def tiny(cls, **changes: Any) -> Self:
        """Return limits for small devices, and for tests that reach every limit quickly."""
        return cls._made("tiny", {name: row.tiny for name, row in ROWS.items()}, changes)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with ``changes``. Raises as the constructor does."""
        return self._made(self._profile, {name: getattr(self, name) for name in ROWS}, changes)

    @property
    def most_cancels(self) -> int:
        """How many running handlers a peer may cancel in one burst before its connection ends: the burst of
        ``cancel_bucket`` and what it refills in 5 seconds."""
        burst, per_second = self.cancel_bucket
        return burst + 5 * per_second

    def credit_frames(self, streams: int, items: int) -> int:
        """Return how many credit frames a peer may send after ``streams`` opened by either side and ``items`` sent to
        it."""
        return 5 + 2 * (streams + 10 * items)

    def __repr__(self) -> str:
        changed = {name: getattr(self, name) for name, row in ROWS.items()}
        shown = [f"{name}={value!r}" for name, value in changed.items() if value != getattr(ROWS[name], self._profile)]
        return f"Limits.{self._profile}({', '.join(shown)})"

    @classmethod
    def _made(cls, profile: Profile, values: dict[str, Any], changes: dict[str, Any]) -> Self:
        for name in changes:
            if name not in ROWS:
                raise TypeError(unknown(name))
        if profile == "server" and values and values["frame_bytes"] == _frame_for(values["payload_bytes"]):
            values.pop("frame_bytes")
        made = cls(**(values | changes))
        object.__setattr__(made, "_profile", profile)
        return made


_DEFAULT: list[Limits] = []
"The shared ``Limits.server()``: checking every value for each of 10,000 clients would take a second."

ROWS: Mapping[str, LimitRow] = MappingProxyType(
    {
        item.name: LimitRow(name=item.name, fractions="float" in str(item.type), **item.metadata)
        for item in fields(Limits)
        if item.metadata
    }
)
"The declarations, by name, in the order of the fields."

REASONS: Mapping[str, str] = MappingProxyType({name: row.reason for name, row in ROWS.items() if row.reason})
"The reason word of each limit that has one, as on the wire and in counters."


def unknown(name: str) -> str:
    """Return the text for the name of a limit that does not exist, with a similar name if there is one."""
    near = get_close_matches(name, ROWS, 1)
    return f"unknown limit {name!r}; " + (
        f"did you mean {near[0]!r}?" if near else "docs/reference/limits.md lists them"
    )


def reached(limits: Limits, name: str) -> str:
    """Return the text for a peer that has reached a limit: the reason word, then the limit's name and value, as in
    ``too-many-connections: connections=10000``."""
    row, value = ROWS[name], getattr(limits, name)
    shown = f"{name}={value}"
    if row.share_of is not None and isinstance(value, float):
        shown += f" of {row.share_of}={getattr(limits, row.share_of)}"
    return f"{row.reason or name}: {shown}"


def oversize(limits: Limits, name: str, size: int, *, more: bool = False) -> str:
    """Return the text for a size that exceeds a limit: the reason word, the size, the limit's name and value, as in
    ``payload-too-large: 5000000 bytes exceed payload_bytes=4194304``. ``more``: the rest has not arrived."""
    row, value = ROWS[name], getattr(limits, name)
    return f"{row.reason or name}: {size} bytes{' or more' if more else ''} exceed {name}={value}"


def _frame_for(payload_bytes: Any) -> Any:
    """Return the default of ``frame_bytes``; ``_check_value`` rejects values that are not numbers."""
    if not isinstance(payload_bytes, int):
        return _LONGEST_FRAME
    return min(max(0, payload_bytes) + _BESIDE_PAYLOAD, _LONGEST_FRAME)


def explained(limits: Limits, text: str) -> str:
    """Add the name and the value of its limit to a reason word; return any other text unchanged."""
    name = _NAMES.get(text)
    return text if name is None else reached(limits, name)


_NAMES = {reason: name for name, reason in reversed(tuple(REASONS.items())) if name != "auth_failures"}
"The first limit with each reason word. The limit of failed authentication is not disclosed."


def reference() -> str:
    """Return the reference page: one Markdown table of all limits."""
    lines = ["|Limit|Unit|server|trusted|tiny|Reason|", "|---|---|---|---|---|---|"]
    for row in ROWS.values():
        cells = [_shown(value, "bytes" in row.unit) for value in (row.server, row.trusted, row.tiny)]
        lines.append(f"|`{row.name}`|{row.unit}|{'|'.join(cells)}|{row.reason or ''}|")
    return "\n".join(lines) + "\n"


def _shown(value: Any, is_bytes: bool) -> str:
    """Format a value: 64 Ki for bytes, 1,024 for a count, off for None."""
    if value is None:
        return "off"
    if isinstance(value, tuple):
        return ", ".join(_shown(part, is_bytes) for part in value)
    for name, size in (("Gi", Gi), ("Mi", Mi), ("Ki", Ki)):
        if is_bytes and value >= size and value % size == 0:
            return f"{value // size:,} {name}"
    return f"{value:,}"


def _check_value(row: LimitRow, value: Any) -> None:
    if value is None and row.off:
        return
    pair = isinstance(row.server, tuple)
    if value is None or isinstance(value, tuple) != pair or (pair and len(value) != len(row.server)):
        raise TypeError(f"{row.name} must be {'a pair' if pair else 'a number'} ({row.unit}), not {value!r}")
    for part in value if pair else (value,):
        if row.share_of is not None and isinstance(part, float) and not 0 < part <= 1:
            raise ValueError(f"{row.name} must be a whole number, or a share above 0 and at most 1, not {value!r}")
        if isinstance(part, bool) or not isinstance(part, (int, float) if row.fractions else int):
            kind = "a number" if row.fractions else "a whole number"
            raise TypeError(f"{row.name} must be {kind} ({row.unit}), not {value!r}")
        if not (isfinite(part) and 0 <= part <= (inf if row.most is None else row.most)):
            most = "" if row.most is None else f" and at most {row.most}"
            raise ValueError(f"{row.name} must be finite and 0 or more{most}, not {value!r}")


_AT_MOST: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("+", ("first_frame_bytes",), "frame_bytes"),
    ("+", ("payload_bytes",), "connection_bytes"),
    ("+", ("payload_bytes", "outbound_high_bytes"), "connection_bytes"),
    ("×", ("sessions", "ration_bytes"), "connection_bytes"),
    ("×", ("keepalive_echoes", "connection_metadata_bytes"), "outbound_high_bytes"),
    ("×", ("connections",), "process_bytes"),
    ("+", ("ration_bytes",), "ration_max_bytes"),
    ("+", ("keepalive_s",), "lifetime_s"),
)
"""The sum or the product of the first is at most the last; each of ``connections`` costs 40 Ki. An
incomplete frame is counted separately: a connection buffers at most ``connection_bytes`` and one frame."""


def _check_together(limits: Limits) -> None:
    """Raise ValueError if values contradict each other."""
    for sign, names, bound in _AT_MOST:
        terms = {f"{name}={(value := getattr(limits, name))}": value for name in names}
        if names == ("connections",):
            terms["40 Ki"] = _CONNECTION_COST
        total = sum(terms.values()) if sign == "+" else prod(terms.values())
        if total > getattr(limits, bound):
            raise ValueError(f"{f' {sign} '.join(terms)} exceeds {bound}={getattr(limits, bound)}")
    low, high = limits.outbound_low_bytes, limits.outbound_high_bytes
    if low >= high:
        raise ValueError(f"outbound_low_bytes={low} must be below outbound_high_bytes={high}")
    for name in ("peer_lifetime_s", "resume_token_bytes"):
        least, most = getattr(limits, name)
        if least > most:
            raise ValueError(f"{name}: the minimum, {least}, exceeds the maximum, {most}")
    for name in ("ration_bytes", "ration_max_bytes"):
        ration = getattr(limits, name)
        if ration < 256 or ration % 256:
            raise ValueError(f"{name}={ration} must be a positive multiple of 256")
