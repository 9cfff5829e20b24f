"""Agree on extensions: what a client offers, what a server accepts, and what SETUP_OK confirms (R-21 to R-25, D-16).

The state of one connection is a ``Negotiation``. Chains of other frames are applied in extending.py.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Any, Final, cast

from afflux.core.errors import LocalProtocolError, Violation
from afflux.core.frame import Malformed
from afflux.core.limits import Limits
from afflux.core.recognition import refusal_text
from afflux.protocols.family import handshake
from afflux.protocols.family.connection import Connection
from afflux.protocols.family.states import ConnectionInput
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket_draft import payloads, strategies
from afflux.protocols.rsocket_draft.compact import CompactType
from afflux.protocols.rsocket_draft.entries import KEEPALIVE, LEASE, NAMES, RESUME, Entry, Point
from afflux.protocols.rsocket_draft.frames import Setup, SetupOk
from afflux.protocols.rsocket_draft.payloads import Times

if TYPE_CHECKING:
    from afflux.protocols.family.sessions import Sessions
    from afflux.protocols.family.streams import Streams
    from afflux.protocols.rsocket_draft.engine import Engine
    from afflux.protocols.rsocket_draft.resumption import Resumption

__all__ = ["OF_1_0", "Negotiation", "acknowledged", "establish", "no_ok", "part_of", "proposal", "refusal_of"]

_SINGLE: Final = (KEEPALIVE, RESUME, LEASE)
_MAJOR_1: Final = "\x01"
"The MIME type of data that the version of a SETUP of 1.0 is read as."
OF_1_0: Final = f"{refusal_text('rsocket-draft', 'rsocket')}: the SETUP has the version of RSocket 1.0"
"The reason for refusing a SETUP of 1.0."


class Negotiation:
    """The extensions of one connection."""

    __slots__ = ("answers", "confirmed", "entry_bytes", "extras", "known", "strategy", "used", "waiting")

    def __init__(self, known: Container[CompactType]) -> None:
        self.known = known
        "The extensions that the application understands, by name or number."
        self.used: frozenset[CompactType] = frozenset()
        "The well-known extensions that are negotiated."
        self.confirmed = False
        "Whether the peer is known to use keepalive: only then its silence counts (D-18)."
        self.answers: list[Entry] = []
        "The entries of the server's SETUP_OK."
        self.strategy: CompactType = payloads.REQUESTS
        "The lease strategy that was selected."
        self.waiting: list[bytes] = []
        "Frames of stream 0 that wait for SETUP_OK."
        self.extras: dict[int, Any] = {}
        "Entries and MIME types of unfinished payloads, by stream."
        self.entry_bytes = 0
        "Bytes of entries of delivered payloads that are not consumed yet; included in the bytes of the payloads."

    def understands(self, entry: Entry) -> bool:
        """Whether the application understands an extension."""
        return entry.name in self.known or entry.number in self.known

    def deliver(self, streams: Streams, size: int) -> None:
        """Count the bytes of entries that are delivered with their payloads (DR-4)."""
        self.entry_bytes += size
        streams.delivered += size

    def consume(self, streams: Streams, items: int) -> int:
        """Return the bytes of entries that are consumed with ``items`` payloads: the average share of each."""
        share = self.entry_bytes if items >= streams.objects else self.entry_bytes * items // streams.objects
        self.entry_bytes -= share
        return share


def part_of(connection: Connection) -> Negotiation:
    """Return the negotiation of a connection of the draft."""
    return cast("Engine", connection).negotiation


def wants_ok(setup: Setup) -> bool:
    """Whether a client has to wait for SETUP_OK (R-23)."""
    return setup.ack or any(entry.ack for entry in setup.extensions)


def check_single(entries: tuple[Entry, ...], code: int) -> None:
    """Raise Violation if an extension that may occur once occurs again (R-19)."""
    numbers = [entry.number for entry in entries]
    for number in _SINGLE:
        if numbers.count(number) > 1:
            raise Violation(f"the extension {NAMES[number]} occurs twice in a chain", rule="R-19", code=code)


# -- the client -----------------------------------------------------------------------------------------------


def proposal(setup: Setup | None, limits: Limits) -> Setup:
    """Return the SETUP that a client sends; by default with keepalive.

    Raises:
        LocalProtocolError: a server would refuse it.
    """
    if setup is None:
        times = Times(int(limits.keepalive_s * 1000), int(limits.lifetime_s * 1000))
        return Setup(extensions=(payloads.keepalive_entry(times),))
    try:
        check_single(setup.extensions, Code.INVALID_SETUP)
        for entry in setup.extensions:
            _check_offer(entry, limits)
    except Violation as violation:
        raise LocalProtocolError(violation.reason, rule=violation.rule) from None
    return setup


def _check_offer(entry: Entry, limits: Limits) -> None:
    match entry.number:
        case 0:
            _check_times(payloads.times_of(entry))
        case 1:
            least = limits.resume_token_bytes[0]
            if len(token := payloads.session_of(entry).token) < least:
                raise Violation(f"a resume token has {least} random bytes or more, not {len(token)}", rule="R-38")
        case 2 if not payloads.strategies_of(entry) or not entry.ack:
            raise Violation("leases have a strategy, and want an acknowledgement", rule="R-30")
        case 3 if not payloads.broker_fits(entry, Point.SETUP):
            raise Violation("of a broker's frames, only ROUTE_SETUP is legal on SETUP", rule="R-46")


def acknowledged(connection: Connection, frame: SetupOk) -> None:
    """Check SETUP_OK, store what the server selected, and send what was queued (3.1)."""
    part, offers = part_of(connection), {entry.number: entry for entry in connection.setup.extensions}
    check_single(frame.extensions, Code.CONNECTION_ERROR)
    for entry in frame.extensions:
        number = entry.number
        if number in range(len(NAMES)) and number not in offers:  # any other has I, and is skipped
            raise Violation(f"SETUP_OK has {entry.name!r}, which was not offered", rule="R-25")
        if number == LEASE:
            _select(part, entry, payloads.strategies_of(offers[LEASE]))
    listed = frozenset(entry.number for entry in frame.extensions)
    for number, offer in offers.items():
        if offer.ack and (not offer.ignorable or number == LEASE) and number not in listed:
            raise Violation(f"SETUP_OK lacks {offer.name!r}, which was required", rule="R-22")
    # D-16: an entry without A is not listed, but accepted, because the server may not pass over it
    part.used = frozenset(number for number, offer in offers.items() if number in listed or not offer.ack)
    part.confirmed = KEEPALIVE in listed
    if LEASE not in listed:
        connection.stream_table.leases = None
    if RESUME not in part.used and connection.resuming is not None:
        cast("Resumption", connection.resuming).declined(connection)
    strategies.begin(connection, part.strategy)
    begin(connection)
    handshake.establish(connection, None)
    if connection.farewell is not None:
        connection.step(ConnectionInput.APP_DRAIN, connection.farewell)


def _select(part: Negotiation, entry: Entry, offered: tuple[CompactType, ...]) -> None:
    part.strategy = payloads.strategy_of(entry)
    if part.strategy not in offered:
        raise Violation(f"SETUP_OK selects {part.strategy!r}, which was not offered", rule="R-30")


def begin(connection: Connection) -> None:
    """Send what waited for SETUP_OK, and keepalives from now on."""
    part, live, now = part_of(connection), connection.liveness, connection.current.now
    connection.outbound.paused = False
    for frame in part.waiting:
        connection.outbound.control(frame)
    part.waiting.clear()
    live.heard = now
    live.lifetime = lifetime_of(connection)
    live.next_keepalive = now + live.interval if KEEPALIVE in part.used else None


def lifetime_of(connection: Connection) -> float:
    """Seconds of silence after which a client ends the connection; endless while it does not know whether the server
    answers keepalives (D-18)."""
    part = part_of(connection)
    return connection.setup.lifetime_ms / 1000 if part.confirmed and KEEPALIVE in part.used else float("inf")


def no_ok(connection: Connection, argument: Any) -> None:
    """End the connection: SETUP_OK did not come, or something else came first (R-23, D-15)."""
    text = "handshake-timeout" if argument is None else "only SETUP_OK or ERROR may answer this SETUP"
    raise Violation(text, rule="handshake_s" if argument is None else "R-23", code=Code.CONNECTION_ERROR)


# -- the server -----------------------------------------------------------------------------------------------


def refusal_of(connection: Connection, setup: Setup) -> Violation | None:
    """Return why a server cannot accept a SETUP; None if it can: then its extensions are negotiated. One of RSocket 1.0
    has another version, or cannot be read (I-3)."""
    if setup.data_mime == _MAJOR_1:
        return Violation(OF_1_0, rule="R-3", code=Code.INVALID_SETUP)
    if setup.major != 2:
        text = f"version {setup.major}.{setup.minor} is not supported; supported: 2.0"
        return Violation(text, rule="R-3", code=Code.INVALID_SETUP)
    try:
        check_single(setup.extensions, Code.INVALID_SETUP)
        _accept(connection, setup)
    except Malformed as malformed:
        return Violation(malformed.reason, rule=malformed.rule, code=Code.INVALID_SETUP)
    except Violation as violation:
        return violation
    return None


def _accept(connection: Connection, setup: Setup) -> None:
    """Accept the entries of a SETUP one by one, and prepare the answers."""
    part = part_of(connection)
    used: set[CompactType] = set()
    for entry in setup.extensions:
        answer = _answer(connection, entry)
        if answer is not None:
            used.add(entry.number)
            if entry.ack or answer.payload:
                part.answers.append(answer)
        elif not entry.ignorable:
            text = f"the extension {entry.name!r} is not supported"
            raise Violation(text, rule="R-18", code=Code.UNSUPPORTED_SETUP)
    part.used = frozenset(used)
    part.confirmed = True


def _answer(connection: Connection, entry: Entry) -> Entry | None:
    """Return the entry of SETUP_OK for one of SETUP; None for an extension that this server does not have."""
    match entry.number:
        case 0:
            _check_times(payloads.times_of(entry))
            return Entry(entry.id)
        case 1 if connection.resuming is not None and (sessions := connection.resuming.sessions) is not None:
            if reason := _session_refusal(sessions, payloads.session_of(entry).token, connection.limits):
                raise Violation(reason, rule="RSocket R-53", code=Code.REJECTED_SETUP)
            return Entry(entry.id)
        case 2:
            if connection.handshake.policy is None:
                raise Violation("this side grants no leases", rule="R-30", code=Code.REJECTED_SETUP)
            part_of(connection).strategy = strategy = strategies.select(payloads.strategies_of(entry))
            return payloads.lease_entry([strategy], ignorable=False)
        case 3 if part_of(connection).understands(entry):
            if not payloads.broker_fits(entry, Point.SETUP):
                raise Violation(
                    "of a broker's frames, only ROUTE_SETUP is legal on SETUP", rule="R-46", code=Code.INVALID_SETUP
                )
            return Entry(entry.id)
        case int() as number if number < len(NAMES):
            return None
    return Entry(entry.id, ignorable=True) if part_of(connection).understands(entry) else None


def _session_refusal(sessions: Sessions, token: bytes, limits: Limits) -> str:
    """Return why a server cannot store a new session under a token; "" if it can."""
    if not 0 < len(token) <= limits.resume_token_bytes[1]:
        return "bad-token"
    if sessions.find(token) is not None:
        return "the token is in use"
    return "too many sessions" if sessions.full else ""


def _check_times(times: Times) -> None:
    if not times.interval_ms or not times.lifetime_ms:
        raise Violation("interval and lifetime are above 0", rule="R-26", code=Code.INVALID_SETUP)


def establish(connection: Connection, argument: Any) -> None:
    """Open the connection for use; a server acknowledges the SETUP, if the client wants it (R-21)."""
    part, setup = part_of(connection), connection.setup
    if connection.client:
        part.used = frozenset(entry.number for entry in setup.extensions)
    else:
        if LEASE not in part.used:
            connection.stream_table.leases = None
        strategies.begin(connection, part.strategy)
        if setup.ack or any(entry.ack and entry.number in part.used for entry in setup.extensions):
            connection.outbound.control(SetupOk(extensions=tuple(part.answers)).encode(prefixed=True))
    handshake.establish(connection, argument)


def start(connection: Connection) -> None:
    """Wait for SETUP_OK if this client wants one, or begin without it."""
    part, live, setup = part_of(connection), connection.liveness, connection.setup
    if wants_ok(setup):
        connection.state = connection.transitions.step(connection.state, ConnectionInput.APP_AWAIT).next
        connection.outbound.paused = True
        live.lifetime, live.next_keepalive = connection.limits.handshake_s, None
    else:
        part.used = frozenset(entry.number for entry in setup.extensions)
        live.lifetime = float("inf")
        live.next_keepalive = live.next_keepalive if KEEPALIVE in part.used else None
