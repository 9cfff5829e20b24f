"""``afflux.connect``: from an address to a peer."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from time import monotonic
from types import TracebackType

from afflux.address import Address, parse
from afflux.aio.driver import Driver
from afflux.aio.peer import Peer
from afflux.aio.serving import Serving, verbs_of
from afflux.calls import terms_of
from afflux.core.errors import ConnectFailed
from afflux.core.limits import Limits
from afflux.core.payload import PayloadLike
from afflux.registry import Terms

__all__ = ["Connecting", "connect"]


class Connecting:
    """A connection about to be made: ``await`` it for the peer, or enter it with ``async with``, which also closes."""

    __slots__ = ("_address", "_handler", "_limits", "_peer", "_terms", "_timeout")

    def __init__(self, address: Address, handler: object, limits: Limits, terms: Terms, timeout: float) -> None:
        self._address = address
        self._handler = handler
        self._limits = limits
        self._terms = terms
        self._timeout = timeout
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
        address = self._address
        make, transport = address.entry.built(), address.carrier.built()
        engine = make(
            "client",
            self._terms,
            limits=self._limits,
            decide=False,
            now=monotonic(),
        )
        serving = Serving(verbs_of(self._handler))
        driver = serving.driver = Driver(engine, serving, expects=address.protocol)
        peer = Peer(driver, serving, address.entry, str(address))
        try:
            async with asyncio.timeout(self._timeout):
                await transport.open(address, lambda: driver)
        except TimeoutError as error:
            raise ConnectFailed(f"{address} did not answer within {self._timeout:g} s") from error
        return peer


def connect(
    uri: str | Address,
    *,
    handler: object = None,
    limits: Limits | None = None,
    setup: PayloadLike | None = None,
    metadata_mime: str | None = None,
    data_mime: str | None = None,
    keepalive: float | None = None,
    lifetime: float | None = None,
    mtu: int | None = None,
    timeout: float | None = None,
) -> Connecting:
    """Connect to a server: ``async with afflux.connect(uri) as peer`` or ``peer = await afflux.connect(uri)``.

    Args:
        uri: the address; its options win over the arguments of the same name.
        handler: what answers the server's own requests; None refuses them.
        limits: the bounds; ``Limits.server()`` if None.
        setup: data, or data and metadata, that the server gets when the connection is made.
        metadata_mime: MIME type of all metadata; composite if None.
        data_mime: MIME type of all data; application/octet-stream if None.
        keepalive: seconds between keepalives; 20 if None.
        lifetime: seconds of silence after which the server counts as dead; 90 if None.
        mtu: largest frame sent, in bytes.
        timeout: seconds until the transport has to be connected; ``limits.handshake_s`` if None.

    Raises:
        AddressError: at once, for an address that can not be.
        Unsupported: a protocol or transport that is not built yet.
        ConnectFailed: when entered: nobody is there.
    """
    address = parse(uri)
    address.entry.built()
    address.carrier.built()
    limits = limits or Limits.server()
    verbs_of(handler)
    terms = terms_of(address, limits, setup, metadata_mime, data_mime, keepalive, lifetime, mtu)
    return Connecting(address, handler, limits, terms, limits.handshake_s if timeout is None else timeout)
