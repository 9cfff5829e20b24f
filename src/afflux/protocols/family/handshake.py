"""Establish a connection: propose, check, accept or refuse a SETUP (sections 3.1 and 3.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from afflux.core.errors import Consequence, LocalProtocolError, SetupRefused, Violation
from afflux.core.events import Established
from afflux.core.limits import REASONS, Limits
from afflux.protocols.family import endings
from afflux.protocols.family.lease import LeasePolicy
from afflux.protocols.family.leases import Leases, send_lease
from afflux.protocols.family.states import ConnectionInput, ConnectionState

if TYPE_CHECKING:
    from afflux.protocols.family.connection import Connection

__all__ = [
    "Handshake",
    "accept",
    "agree",
    "check_deciding",
    "establish",
    "judge_setup",
    "lifetime_of",
    "refuse_first",
    "refuse_setup",
    "setup_failed",
    "start",
]

_S, _I = ConnectionState, ConnectionInput
_LEAST_INTERVAL = 10
"Milliseconds between keepalives: a server refuses a SETUP that announces a shorter interval."


class Handshake:
    """The state of one handshake."""

    __slots__ = ("accepted", "born", "decide", "policy")

    def __init__(self, decide: bool, policy: LeasePolicy | None, now: float) -> None:
        self.decide = decide
        "A server waits for ``accept`` or ``refuse`` after Established instead of accepting immediately."
        self.policy = policy
        "The policy of the leases that this side grants; None without leases."
        self.born = now
        "When the connection began."
        self.accepted = False
        "Established was returned."


def start(connection: Connection, setup: Any) -> None:
    """Propose a SETUP (client).

    Raises:
        LocalProtocolError: servers would refuse it.
    """
    quirks = connection.member.quirks
    setup = connection.setup = quirks.proposal(setup, connection.limits)
    if refusal := _keepalive_refusal(connection, setup):
        raise LocalProtocolError(refusal.reason, rule=refusal.rule)
    # requests may follow immediately
    connection.state = connection.transitions.step(connection.state, _I.APP_START).next
    try:
        connection.outbound.control(quirks.encode_setup(setup))
    except Violation as violation:
        raise LocalProtocolError(violation.reason, stream=0, rule=violation.rule) from None
    live = connection.liveness
    live.interval = setup.keepalive_ms / 1000
    live.lifetime = quirks.lifetime(setup, connection.limits, client=True)
    live.next_keepalive = connection.current.now + live.interval
    agree(connection, setup)


def agree(connection: Connection, setup: Any) -> None:
    """Apply what both sides agreed on: leases (R-13), resumption (R-44)."""
    if setup.lease:
        connection.stream_table.leases = Leases(connection.limits, connection.handshake.policy)
    if connection.resuming is not None:
        connection.resuming.agree(connection, setup)


def judge_setup(connection: Connection, setup: Any) -> None:
    """Accept or refuse a SETUP (section 3.2)."""
    if refusal := _refusal(connection, setup):
        raise refusal
    connection.setup = setup
    connection.liveness.lifetime = connection.member.quirks.lifetime(setup, connection.limits, client=False)
    agree(connection, setup)
    decide = connection.handshake.decide
    connection.inbound.admit()
    connection.inbound.held = decide
    connection.current.events.append(Established(setup))
    if not decide:
        connection.step(_I.APP_ACCEPT, None)


def _refusal(connection: Connection, setup: Any) -> Violation | None:
    """Return why a server cannot accept ``setup``, with the code of the refusal, or None."""
    member, codes = connection.member, connection.member.codes.Code
    if setup.stream:
        return Violation("SETUP belongs on stream 0", rule="HS-03", code=codes.INVALID_SETUP)
    if refusal := member.quirks.refusal(connection, setup) or _keepalive_refusal(connection, setup):
        return refusal
    if setup.lease and connection.handshake.policy is None:
        return Violation("leases are not supported", rule=member.rules.unleased, code=codes.UNSUPPORTED_SETUP)
    if len(setup.metadata or b"") > connection.limits.connection_metadata_bytes:
        return Violation("metadata-too-large", rule="connection_metadata_bytes", code=codes.REJECTED_SETUP)
    return None


def _keepalive_refusal(connection: Connection, setup: Any) -> Violation | None:
    """Return the refusal of too short a keepalive interval, or None. Every accepted interval is served."""
    interval: int = setup.keepalive_ms
    if not 0 < interval < _LEAST_INTERVAL:
        return None
    text = f"{REASONS['keepalive_rate']}: a keepalive every {interval} ms; {_LEAST_INTERVAL} ms or more is served"
    return Violation(text, rule="keepalive_rate", code=connection.member.codes.Code.REJECTED_SETUP)


def lifetime_of(setup: Any, limits: Limits) -> float:
    """Seconds of silence after which a server ends the connection: clamped before any arithmetic (KA-04)."""
    low, high = limits.peer_lifetime_s
    announced: int = max(setup.lifetime_ms, 3 * setup.keepalive_ms)
    return max(low, min(high, announced / 1000))


def accept(connection: Connection) -> None:
    """Accept the peer for the application, then process the input that waited."""
    connection.step(_I.APP_ACCEPT, None)
    if not connection.inbound.over:
        connection.inbound.resume(connection.frame)


def check_deciding(connection: Connection, also: ConnectionState = _S.CLOSED) -> None:
    """Raise LocalProtocolError unless a decision is awaited, the connection is over, or its state is ``also``."""
    if connection.state not in (_S.DECIDING, _S.CLOSED, also):
        raise LocalProtocolError("nothing to decide: no SETUP is waiting", rule="3.2")


def establish(connection: Connection, argument: Any) -> None:
    """Report Established and open the connection for use."""
    connection.handshake.accepted = True
    connection.inbound.established = True
    connection.stream_table.accepting = True
    if connection.client:
        connection.current.events.append(Established(None))
    if connection.resuming is not None:
        connection.resuming.established(connection)
    send_lease(connection)


def refuse_first(connection: Connection, frame: Any) -> None:
    """Refuse a first frame that is not SETUP."""
    raise endings.not_setup(connection)


def refuse_setup(connection: Connection, violation: Violation) -> None:
    """Refuse the peer: the application refuses it, or this side closes."""
    refused = violation.consequence is Consequence.REFUSE_SETUP
    code = violation.code if refused else connection.member.codes.Code.REJECTED_SETUP
    rule = connection.member.rules.refused
    raise Violation(violation.reason, rule=rule, code=code, consequence=Consequence.REFUSE_SETUP)


def setup_failed(connection: Connection, frame: Any) -> None:
    """End the connection because the peer refused it."""
    member = connection.member
    error = member.codes.error_for(frame.code, frame.data, 0, connection.limits)
    refused = SetupRefused(error.message, code=frame.code, stream=0, rule=member.rules.refused)
    # a server serves nothing before it accepts SETUP. Another code may end a connection that was accepted.
    refused.may_have_been_processed = not isinstance(error, SetupRefused)
    endings.end(connection, refused)
