"""One end of a ReactiveSocket connection, by the contract of core.engine: what a driver calls.

The engine is RSocket's with other parts put in (dialect.py says why). What a caller does wrong is said with the rules
of this protocol. The shared parts also keep these: the peer's ids come in any order (R-12), own ids are used again only
after they have wrapped (R-13), the first item of a channel needs no credit (R-32), no stream has a timeout (R-41),
and a connection that is silent for its lifetime is closed (D-12).
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, Literal

from afflux.core.errors import ConnectionClosed, Error, LimitExceeded, LocalProtocolError
from afflux.core.limits import Limits
from afflux.core.payload import Payload, PayloadLike
from afflux.protocols.reactivesocket.connection import Connection
from afflux.protocols.reactivesocket.dialect import RULES, Dialect
from afflux.protocols.reactivesocket.frames import HEADER_SIZE, Ext, Setup
from afflux.protocols.rsocket.connection import DEFAULT_MTU
from afflux.protocols.rsocket.lease import Lease, LeasePolicy
from afflux.protocols.rsocket.states import ConnectionState

__all__ = ["DEFAULT_MTU", "Engine"]

_LIVE = (ConnectionState.SETUP_SENT, ConnectionState.OPEN, ConnectionState.DRAINING)


class Engine(Connection):
    """See core.engine.Engine for the contract.

    Args:
        role: "client" (it speaks first, with SETUP) or "server".
        setup: what a client asks for; the default is 500 ms between keepalives (R-24) and a lifetime of 90 s.
        limits: the bounds; ``Limits.server()`` if None.
        decide: a server waits for ``accept`` or ``refuse`` after Established instead of accepting at once. Without it a
            strict SETUP is accepted only if it has no payload and asks for the usual MIME types (R-20).
        now: the time at birth, in monotonic seconds.
        mtu: bytes a frame may have, with its length, before its payload is cut; 64 or more.
        lease: what this side grants. A server without it refuses leases.
        extensions: the extended types of EXT that the application knows: they become events.
        dialect: in which ways the peer is not by the text of 2015.
    """

    __slots__ = ()

    @property
    def resumption(self) -> None:
        """There is no resumption in ReactiveSocket."""

    def __init__(
        self,
        role: Literal["client", "server"],
        *,
        setup: Setup | None = None,
        limits: Limits | None = None,
        decide: bool = False,
        now: float = 0.0,
        mtu: int = DEFAULT_MTU,
        lease: LeasePolicy | None = None,
        extensions: Container[int] = (),
        dialect: Dialect | None = None,
    ) -> None:
        self._dialect = dialect or Dialect()
        proposed: Any = setup
        super().__init__(
            role,
            setup=proposed,
            limits=limits,
            decide=decide,
            now=now,
            mtu=mtu,
            lease=lease,
            extensions=extensions,
        )

    def open(
        self,
        verb: Any,
        payload: PayloadLike,
        *,
        credit: int = 0,
        complete: bool = False,
        columnar: bool = False,
        now: float | None = None,
    ) -> int:
        """Open a stream and return its id. The verb "subscribe" asks for one that does not complete (REQUEST_SUB)."""
        try:
            return super().open(verb, payload, credit=credit, complete=complete, columnar=columnar, now=now)
        except Error as error:
            raise _named(error) from error.__cause__

    def ask(self, payloads: Sequence[Payload]) -> list[int]:
        """Open requests, without leases."""
        try:
            return super().ask(payloads)
        except Error as error:
            raise _named(error) from error.__cause__

    def send(self, stream: int, payloads: Sequence[PayloadLike], *, complete: bool = False) -> None:
        """Send items."""
        try:
            super().send(stream, payloads, complete=complete)
        except Error as error:
            raise _named(error) from error.__cause__

    def request(self, stream: int, n: int) -> None:
        """Grant the peer ``n`` more items, 1 to 2^31-1."""
        try:
            super().request(stream, n)
        except Error as error:
            raise _named(error) from error.__cause__

    def grant(self, lease: Lease, now: float, metadata: bytes = b"") -> None:
        """Grant a lease by hand."""
        try:
            super().grant(lease, now, metadata)
        except Error as error:
            raise _named(error) from error.__cause__

    def extend(self, type: int, body: bytes, *, stream: int = 0, ignore: bool = True) -> None:
        """Send a frame of an extension (EXT); a peer that does not know it skips it, or breaks off unless ``ignore``.

        Raises:
            LocalProtocolError: ``type`` is not 0 to 2^32-1, or ``stream`` is not 0: such a frame has no stream (R-8).
            LimitExceeded: the body is longer than a peer takes.
            ConnectionClosed: there is no connection.
        """
        if self._state not in _LIVE:
            raise ConnectionClosed(f"nothing can be sent: the connection is {self._state.name.lower()}")
        if stream or not 0 <= type <= 0xFFFFFFFF:
            text = f"an extension has no stream, and a type of 0 to {0xFFFFFFFF}, not {type} on stream {stream}"
            raise LocalProtocolError(text, stream=stream, rule="R-8")
        if len(body) > self.limits.frame_bytes - HEADER_SIZE:
            most = self.limits.frame_bytes - HEADER_SIZE
            raise LimitExceeded(f"{len(body)} bytes of an extension: a peer takes {most}", rule="frame-too-large")
        self._out.control(Ext(ignore=ignore, extended_type=type, body=body).encode(prefixed=True))


def _named(error: Error) -> Error:
    """The error with the name that its rule has here."""
    error.rule = RULES.get(error.rule or "", error.rule)
    return error
