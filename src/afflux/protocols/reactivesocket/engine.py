"""Build an engine of ReactiveSocket: the family's engine with the layout, tables, codes and quirks of 2015."""

from __future__ import annotations

from collections.abc import Container
from typing import Literal

from afflux.core.limits import Limits
from afflux.core.terms import Place
from afflux.protocols.family.engine import DEFAULT_MTU
from afflux.protocols.family.engine import Engine as FamilyEngine
from afflux.protocols.family.lease import LeasePolicy
from afflux.protocols.reactivesocket.dialect import Dialect
from afflux.protocols.reactivesocket.frames import Setup
from afflux.protocols.reactivesocket.member import member_of

__all__ = ["DEFAULT_MTU", "Engine"]


class Engine(FamilyEngine):
    """One end of a ReactiveSocket connection; see core.engine.Engine for the contract. The verb "subscribe" opens a
    stream that does not complete (REQUEST_SUB).

    Args:
        role: "client" (it sends the first frame, SETUP) or "server".
        setup: the client's proposal; the default is 500 ms between keepalives (R-24) and a lifetime of 90 s.
        limits: the bounds; ``Limits.server()`` if None.
        decide: a server waits for ``accept`` or ``refuse`` after Established instead of accepting immediately. Without
                it a strict SETUP is accepted only if it has no payload and requests the usual MIME types (R-20).
        now: the time at which the connection begins, in monotonic seconds.
        mtu: bytes a frame may have, with its length, before its payload is split; 64 or more.
        lease: the policy of this side. A server without one refuses leases.
        extensions: the extended types of EXT that the application supports: they become events.
        place: places the buffer of a large payload in memory (``Terms.place``).
        dialect: the differences of the peer from the text of 2015.
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
        extensions: Container[int] = (),
        place: Place | None = None,
        dialect: Dialect | None = None,
    ) -> None:
        super().__init__(
            member_of(dialect or Dialect()),
            role,
            setup=setup,
            limits=limits,
            decide=decide,
            now=now,
            mtu=mtu,
            lease=lease,
            extensions=extensions,
            place=place,
        )
