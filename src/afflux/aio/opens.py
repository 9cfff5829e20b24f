"""Open sessions of session types: the verb ``open`` of a peer. typed.py takes their steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from afflux.aio.flow import DEFAULT_CREDIT
from afflux.core.autocredit import Kept

if TYPE_CHECKING:
    from afflux.aio.driver import Driver
    from afflux.aio.typed import TypedSession
    from afflux.core.entry import ProtocolEntry
    from afflux.sessions.chan import SessionType
    from afflux.sessions.machine import Machine

__all__ = ["Opens"]

Client = TypeVar("Client")
"The static type of a client's endpoint."


class Opens:
    """A peer that can open sessions of session types, on each protocol with channels."""

    _driver: Driver
    _protocol: ProtocolEntry

    @overload
    def open(
        self, session_type: SessionType[Any, Client], *, route: str | None = None, credit: Kept = DEFAULT_CREDIT
    ) -> TypedSession[Client]: ...

    @overload
    def open(
        self, session_type: Machine, *, route: str | None = None, credit: Kept = DEFAULT_CREDIT
    ) -> TypedSession[Any]: ...

    def open(
        self,
        session_type: SessionType[Any, Any] | Machine,
        *,
        route: str | None = None,
        credit: Kept = DEFAULT_CREDIT,
    ) -> TypedSession[Any]:
        """Open a session of a session type: ``async with peer.open(SUM) as chan``. In ``limit`` that is a session of
        the channel, in other protocols a channel whose items are the steps.

        Each step of ``chan`` returns the endpoint of the next one. An illegal step raises SessionTypeError before
        anything is sent, and one of the peer SessionViolation. Leaving the block before the end ends the session with
        an error.

        Args:
            session_type: a type of a generated module, or a machine of ``afflux.sessions.load``.
            route: the route of the channel; the channel's name if None.
            credit: the largest number of items in flight or unconsumed here.

        Raises:
            Unsupported: the protocol has no channels.
            LimitExceeded: when entered, in ``limit``: another session is live.
        """
        from afflux.aio.typed import TypedSession
        from afflux.sessions.chan import type_of

        self._protocol.check("channel")
        return TypedSession(self._driver, type_of(session_type), route, credit)
