"""Connect a blocking program to a server: ``afflux.sync.connect``."""

from __future__ import annotations

from dataclasses import replace
from secrets import token_bytes
from time import monotonic

from afflux.calls import SetupLike, terms_of
from afflux.core.errors import ConnectFailed
from afflux.core.limits import Limits
from afflux.core.terms import TOKEN_BYTES
from afflux.retry.backoff import Backoff
from afflux.sync.driver import Driver
from afflux.sync.peer import Peer
from afflux.sync.redial import Redial
from afflux.transports.address import Address, parse
from afflux.transports.security import Tls, settled
from afflux.watching import watch_of

__all__ = ["connect"]


def connect(
    uri: str | Address,
    *,
    limits: Limits | None = None,
    setup: SetupLike | None = None,
    metadata_mime: str | None = None,
    data_mime: str | None = None,
    keepalive: float | None = None,
    lifetime: float | None = None,
    mtu: int | None = None,
    timeout: float | None = None,
    tls: Tls | None = None,
    lease: bool = False,
    lease_wait: float | None = None,
    resume: Backoff | bool = False,
) -> Peer:
    """Connect to a server: ``with afflux.sync.connect(uri) as peer``. The arguments are those of ``afflux.connect``.

    A session with ``resume`` is resumed only while a call waits, for a verb or the next item of a stream: nothing runs
    in between, so make a call within the server's ``resume_s``.

    Raises:
        AddressError: the address is invalid, or a certificate or a key cannot be used.
        Unsupported: the protocol or transport has no blocking side, or lacks a requested feature.
        ConnectFailed: nothing listens there, the TLS handshake failed, or all this took more than ``timeout`` seconds
            (``limits.handshake_s`` if None).
    """
    address = parse(uri)
    make, transport = address.entry.make, address.carrier.load()
    limits = limits or Limits.server()
    for wanted, feature in ((lease, "lease"), (resume, "resume")):
        if wanted:
            address.entry.require(feature)
    terms = terms_of(address, limits, setup, metadata_mime, data_mime, keepalive, lifetime, mtu)
    terms = replace(terms, leases=lease, token=token_bytes(TOKEN_BYTES) if resume else None)
    seconds = limits.handshake_s if timeout is None else timeout
    tls = settled(tls, address)
    if (watch := watch_of(address.entry, str(address), client=True)) is not None:
        watch.connecting()
    link = transport.dial(address, seconds, tls, limits)
    try:
        engine = make("client", terms, limits=limits, decide=False, now=monotonic())
        driver = Driver(engine, link, address.protocol, watch)
        if watch is not None:
            watch.connected(monotonic())
        driver.lease_wait = lease_wait
        if resume:
            backoff = resume if isinstance(resume, Backoff) else Backoff()
            driver.pump.redial = Redial(
                lambda within: transport.dial(address, within, tls, limits), limits, backoff, seconds
            )
        with driver.guard:
            driver.write()
            if lease and not driver.wait(lambda: driver.lease_granted, seconds):
                driver.check()
                raise ConnectFailed(f"{address} granted no lease within {seconds:g} s")
    except BaseException:
        link.close()
        raise
    return Peer(driver, address.entry, str(address))
