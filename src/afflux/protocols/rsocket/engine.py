"""Build an engine of RSocket 1.0: the family's engine with RSocket's layout, tables and codes, and resumption."""

from __future__ import annotations

from collections.abc import Container
from typing import Literal

from afflux.core.limits import Limits
from afflux.core.terms import Place
from afflux.protocols.family.engine import DEFAULT_MTU
from afflux.protocols.family.engine import Engine as FamilyEngine
from afflux.protocols.family.lease import LeasePolicy
from afflux.protocols.family.sessions import Sessions
from afflux.protocols.rsocket.frames import Setup
from afflux.protocols.rsocket.member import MEMBER
from afflux.protocols.rsocket.resumption import Resumption

__all__ = ["DEFAULT_MTU", "Engine"]


class Engine(FamilyEngine):
    """One end of an RSocket connection; see core.engine.Engine for the contract.

    Args:
        role: "client" (it sends the first frame, SETUP) or "server".
        setup: the client's proposal; the default is 20 s between keepalives, a lifetime of 90 s, composite metadata
            and octet-stream data. Its ``lease`` and ``token`` request leases and resumption.
        limits: the bounds; ``Limits.server()`` if None.
        decide: a server waits for ``accept`` or ``refuse`` after Established instead of accepting immediately.
        now: the time at which the connection begins, in monotonic seconds: the handshake's time starts here.
        mtu: bytes a frame may have, with its prefix, before its payload is split; 64 or more.
        lease: the policy of this side. A server without one refuses leases; a client without one that requests leases
                does not limit the server's requests.
        sessions: the table of a server's resumable sessions; without it resumption is refused.
        extensions: the extended types of EXT that the application supports: they become events.
        place: places the buffer of a large payload in memory (``Terms.place``).
    """

    __slots__ = ()

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
        sessions: Sessions | None = None,
        extensions: Container[int] = (),
        place: Place | None = None,
    ) -> None:
        token = setup is not None and setup.token is not None
        resuming = Resumption(sessions) if token or sessions is not None else None
        super().__init__(
            MEMBER,
            role,
            setup=setup,
            limits=limits,
            decide=decide,
            now=now,
            mtu=mtu,
            lease=lease,
            extensions=extensions,
            resuming=resuming,
            place=place,
        )
