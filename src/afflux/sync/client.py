"""``afflux.sync.connect``: from an address to a blocking peer."""

from __future__ import annotations

from time import monotonic

from afflux.address import Address, parse
from afflux.calls import terms_of
from afflux.core.limits import Limits
from afflux.core.payload import PayloadLike
from afflux.sync.driver import Driver
from afflux.sync.peer import Peer

__all__ = ["connect"]


def connect(
    uri: str | Address,
    *,
    limits: Limits | None = None,
    setup: PayloadLike | None = None,
    metadata_mime: str | None = None,
    data_mime: str | None = None,
    keepalive: float | None = None,
    lifetime: float | None = None,
    mtu: int | None = None,
    timeout: float | None = None,
) -> Peer:
    """Connect to a server: ``with afflux.sync.connect(uri) as peer``. The arguments are those of ``afflux.connect``.

    Raises:
        AddressError: the address can not be.
        Unsupported: a protocol or transport that is not built yet, or that has no blocking side.
        ConnectFailed: nobody is there, or not within ``timeout`` seconds (``limits.handshake_s`` if None).
    """
    address = parse(uri)
    make, transport = address.entry.built(), address.carrier.built()
    limits = limits or Limits.server()
    terms = terms_of(address, limits, setup, metadata_mime, data_mime, keepalive, lifetime, mtu)
    sock = transport.dial(address, limits.handshake_s if timeout is None else timeout)
    try:
        engine = make("client", terms, limits=limits, decide=False, now=monotonic())
        driver = Driver(engine, sock, address.protocol)
        driver.write()
    except BaseException:
        sock.close()
        raise
    return Peer(driver, address.entry, str(address))
