"""``afflux.connect``: from an address to a peer, and to the next connection when this one is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from secrets import token_bytes
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING

from afflux.address import Address, parse
from afflux.aio.driver import Driver
from afflux.aio.keeper import Keeper
from afflux.aio.peer import Peer
from afflux.aio.serving import Extension, Serving, verbs_of
from afflux.backoff import Backoff
from afflux.calls import SetupLike, terms_of
from afflux.core.errors import ConnectFailed
from afflux.core.events import Suspended
from afflux.core.limits import Limits
from afflux.registry import Terms
from afflux.transports.security import Tls, settled

if TYPE_CHECKING:
    from afflux.protocols.rsocket.lease import LeasePolicy

__all__ = ["Connecting", "connect"]

_TOKEN_BYTES = 32
_MOST_WAITING = 256
"Requests that may wait for a lease, when a client that wants to wait has no limit of its own for it."


class _Home(Serving):
    """What a client's connection tells: its handlers, and the one who keeps it connected."""

    keeper: Keeper | None = None

    def suspended(self, event: Suspended) -> None:
        """The transport is gone, the session goes on."""
        if self.keeper is not None:
            self.keeper.suspended(self.driver)

    def resumed(self) -> None:
        """The session has a transport again."""
        if self.keeper is not None:
            self.keeper.resumed()

    def ended(self) -> None:
        """The connection is over."""
        super().ended()
        if self.keeper is not None:
            self.keeper.ended(self.driver)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What ``connect`` was asked for."""

    address: Address
    handler: object
    limits: Limits
    terms: Terms
    timeout: float
    tls: Tls | None
    lease_wait: float | None
    resume: Backoff | None
    reconnect: Backoff | None
    extensions: Mapping[int, Extension]


class Connecting:
    """A connection about to be made: ``await`` it for the peer, or enter it with ``async with``, which also closes."""

    __slots__ = ("_peer", "_plan")

    def __init__(self, plan: _Plan) -> None:
        self._plan = plan
        self._peer: Peer | None = None

    def __await__(self) -> Generator[None, None, Peer]:
        return self._open().__await__()

    async def __aenter__(self) -> Peer:
        self._peer = await self._open()
        return self._peer

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._peer is not None:
            await self._peer.close()

    async def _open(self) -> Peer:
        plan = self._plan
        home, driver = self._prepare()
        peer = Peer(driver, home, plan.address.entry, str(plan.address))
        if plan.resume is not None or plan.reconnect is not None:

            async def renew() -> Driver:
                home, driver = self._prepare()
                home.keeper = peer.keeper
                await self._join(driver)
                peer.renewed(driver, home)
                return driver

            peer.keeper = home.keeper = Keeper(
                plan.limits, join=self._join, renew=renew, resume=plan.resume, reconnect=plan.reconnect
            )
        await self._join(driver)
        return peer

    def _prepare(self) -> tuple[_Home, Driver]:
        """An engine, its driver and its handlers, without a transport."""
        plan = self._plan
        terms = plan.terms if plan.resume is None else replace(plan.terms, token=token_bytes(_TOKEN_BYTES))
        engine = plan.address.entry.built()("client", terms, limits=plan.limits, decide=False, now=monotonic())
        home = _Home(verbs_of(plan.handler), extensions=plan.extensions)
        driver = home.driver = Driver(engine, home, expects=plan.address.protocol)
        driver.lease_wait = plan.lease_wait
        return home, driver

    async def _join(self, driver: Driver) -> None:
        """Open a transport for a driver."""
        plan = self._plan
        try:
            async with asyncio.timeout(plan.timeout):
                await plan.address.carrier.built().open(plan.address, lambda: driver, plan.tls)
                if plan.terms.leases and not driver.away:
                    await asyncio.shield(driver.answered)  # nothing could be asked before the first lease
                    driver.check()
        except TimeoutError as error:
            if not driver.away:
                driver.abort()
            raise ConnectFailed(f"{plan.address} did not answer within {plan.timeout:g} s") from error


def connect(
    uri: str | Address,
    *,
    handler: object = None,
    limits: Limits | None = None,
    setup: SetupLike | None = None,
    metadata_mime: str | None = None,
    data_mime: str | None = None,
    keepalive: float | None = None,
    lifetime: float | None = None,
    mtu: int | None = None,
    timeout: float | None = None,
    tls: Tls | None = None,
    lease: LeasePolicy | bool = False,
    lease_wait: float | None = None,
    resume: Backoff | bool = False,
    reconnect: Backoff | bool = False,
    extensions: Mapping[int, Extension] | None = None,
) -> Connecting:
    """Connect to a server: ``async with afflux.connect(uri) as peer`` or ``peer = await afflux.connect(uri)``.

    Args:
        uri: the address; its options win over the arguments of the same name.
        handler: what answers the server's own requests; None refuses them.
        limits: the bounds; ``Limits.server()`` if None.
        setup: what the server gets when the connection is made: data, a payload, or entries of metadata such as
            ``afflux.Bearer("…")``.
        metadata_mime: MIME type of all metadata; composite if None.
        data_mime: MIME type of all data; application/octet-stream if None.
        keepalive: seconds between keepalives; 20 if None.
        lifetime: seconds of silence after which the server counts as dead; 90 if None.
        mtu: largest frame sent, in bytes.
        timeout: seconds until the transport has to be connected; ``limits.handshake_s`` if None.
        tls: whom to trust, and the certificate to show, for ``tls`` and ``wss``; what the address says (ca, cert, key,
            name) wins.
        lease: honour leases of the server; a policy says what the server is granted in turn, True grants it all that
            it likes. Without a lease a request raises LeaseExpired.
        lease_wait: seconds that a request waits for a lease instead; ``limits.lease_queue`` of them at most (256 when
            that is 0).
        resume: when the transport is lost, go on with the session on another: nothing is lost and nothing comes twice.
            True for ``Backoff()``. Tries end when ``limits.resume_s`` is over, or when the server refuses.
        reconnect: when the connection is over, make another; what was under way has failed. True for ``Backoff()``.
        extensions: what to call with ``(stream, body)`` of an EXT frame, by extended type.

    Raises:
        AddressError: at once, for an address that can not be; when entered, for a certificate that can not be used.
        Unsupported: a protocol or transport that is not built yet, or does not have what is asked for.
        ConnectFailed: when entered: nobody is there, or the TLS handshake failed.
    """
    address = parse(uri)
    address.entry.built()
    address.carrier.built()
    for wanted, feature in ((lease, "lease"), (resume, "resume"), (extensions, "extensions")):
        if wanted:
            address.entry.require(feature)
    limits = limits or Limits.server()
    if lease_wait is not None and not limits.lease_queue:
        limits = limits.replace(lease_queue=_MOST_WAITING)
    verbs_of(handler)
    terms = terms_of(address, limits, setup, metadata_mime, data_mime, keepalive, lifetime, mtu)
    policy = None if isinstance(lease, bool) else lease
    return Connecting(
        _Plan(
            address=address,
            handler=handler,
            limits=limits,
            terms=replace(terms, leases=bool(lease), lease=policy, extensions=tuple(extensions or ())),
            timeout=limits.handshake_s if timeout is None else timeout,
            tls=settled(tls, address),
            lease_wait=lease_wait,
            resume=_backoff(resume),
            reconnect=_backoff(reconnect),
            extensions=extensions or {},
        )
    )


def _backoff(wanted: Backoff | bool) -> Backoff | None:
    if isinstance(wanted, Backoff):
        return wanted
    return Backoff() if wanted else None
