"""Open sessions of session types: the verb ``open`` of a peer. typed.py takes their steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeVar, overload

from afflux.core.autocredit import Kept, check_kept

if TYPE_CHECKING:
    from afflux.core.entry import ProtocolEntry
    from afflux.sessions.chan import SessionType
    from afflux.sessions.machine import Machine
    from afflux.sync.driver import Driver
    from afflux.sync.typed import TypedSession

__all__ = ["DEFAULT_CREDIT", "Opens"]

Client = TypeVar("Client")
"The static type of a client's endpoint."
DEFAULT_CREDIT = 256
"Default window of a stream, in items."


class Opens(ABC):
    """A peer that can open sessions of session types, on each protocol with channels."""

    @property
    @abstractmethod
    def _driver(self) -> Driver:
        """The connection for the next call."""

    _protocol: ProtocolEntry

    @overload
    def open(
        self,
        session_type: SessionType[Any, Client],
        *,
        route: str | None = None,
        credit: Kept = DEFAULT_CREDIT,
        timeout: float | None = None,
    ) -> TypedSession[Client]: ...

    @overload
    def open(
        self,
        session_type: Machine,
        *,
        route: str | None = None,
        credit: Kept = DEFAULT_CREDIT,
        timeout: float | None = None,
    ) -> TypedSession[Any]: ...

    def open(
        self,
        session_type: SessionType[Any, Any] | Machine,
        *,
        route: str | None = None,
        credit: Kept = DEFAULT_CREDIT,
        timeout: float | None = None,
    ) -> TypedSession[Any]:
        """Open a session of a session type: ``with peer.open(SUM) as chan``. See ``afflux.Peer.open``; the steps of
        ``chan``, an ``afflux.sessions.BlockingChan``, block.

        Args:
            session_type: a type of a generated module, or a machine of ``afflux.sessions.load``.
            route: the route of the channel; the channel's name if None.
            credit: the largest number of items in flight or unconsumed here.
            timeout: the longest wait of each step. A timeout of ``recv`` or ``offer`` ends the session.

        Raises:
            Unsupported: the protocol has no channels.
            LimitExceeded: when entered, in ``limit``: another session is live.
        """
        from afflux.sessions.chan import type_of
        from afflux.sync.typed import TypedSession

        check_kept(credit)
        self._protocol.check("channel")
        return TypedSession(self._driver, type_of(session_type), route, credit, timeout)
