"""Connect a blocking program to a server: ``afflux.sync.connect``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from secrets import token_bytes
from time import monotonic
from typing import Final, Never

from afflux.calls import SetupLike, terms_of
from afflux.calls.arguments import check_arguments, check_type
from afflux.core.errors import ConnectFailed, Unsupported
from afflux.core.limits import Limits
from afflux.core.terms import TOKEN_BYTES, Terms
from afflux.retry.backoff import Backoff
from afflux.sync.driver import Driver
from afflux.sync.ends import ends_of
from afflux.sync.peer import Peer
from afflux.sync.redial import Redial, renewed
from afflux.transports.address import Address, parse
from afflux.transports.base import Link, Transport
from afflux.transports.security import Tls, settled
from afflux.watching import Watch, watch_of

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
    reconnect: Backoff | bool = False,
    **others: Never,
) -> Peer:
    """Connect to a server: ``with afflux.sync.connect(uri) as peer``. The arguments are those of ``afflux.connect``.

    A session with ``resume`` is resumed only while a call waits, for a verb or the next item of a stream: nothing runs
    in between, so make a call within the server's ``resume_s``.

    With ``reconnect`` a call makes another connection when the last one is over. It tries for ``Backoff.patience``
    seconds, in addition to its own ``timeout``, and raises ConnectFailed then: nothing was sent. Streams of the last
    connection have failed.

    Raises:
        TypeError: an argument is of a wrong type.
        AddressError: the address is invalid, or a certificate or a key cannot be used.
        Unsupported: the protocol or transport has no blocking side, or lacks a requested feature; ``handler``,
            ``store`` and ``extensions`` are for ``afflux.connect``, because nothing runs here between two calls.
        ConnectFailed: nothing listens there, the TLS handshake failed, or all this took more than ``timeout`` seconds
            (``limits.handshake_s`` if None).
    """
    _refuse(others)
    check_arguments(locals())
    check_type("lease=", lease, bool, "True or False at a blocking client")
    address = parse(uri)
    transport = address.carrier.load()
    limits = limits or Limits.server()
    for wanted, feature in ((lease, "lease"), (resume, "resume")):
        if wanted:
            address.entry.require(feature)
    terms = terms_of(address, limits, setup, metadata_mime, data_mime, keepalive, lifetime, mtu)
    opening = _Opening(
        address=address,
        dial=partial(_dial, transport, address, settled(tls, address), limits),
        limits=limits,
        terms=replace(terms, leases=lease),
        timeout=limits.handshake_s if timeout is None else timeout,
        lease_wait=lease_wait,
        resume=_backoff(resume) if resume else None,
    )
    renew = partial(renewed, opening.open, _backoff(reconnect), opening.timeout) if reconnect else None
    return Peer(opening.open(opening.timeout), address.entry, str(address), renew)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opening:
    """The arguments of ``connect``, checked."""

    address: Address
    dial: Callable[[float], Link]
    "Opens a link within a time."
    limits: Limits
    terms: Terms
    timeout: float
    lease_wait: float | None
    resume: Backoff | None

    def open(self, within: float) -> Driver:
        """Open a connection within a time, and wait for the first lease if leases are wanted."""
        watch = watch_of(self.address.entry, str(self.address), client=True)
        if watch is not None:
            watch.connecting()
        link = self.dial(within)
        try:
            return self._drive(link, within, watch)
        except BaseException:
            link.close()
            raise

    def _drive(self, link: Link, within: float, watch: Watch | None) -> Driver:
        terms = replace(self.terms, token=token_bytes(TOKEN_BYTES)) if self.resume else self.terms
        engine = self.address.entry.make("client", terms, limits=self.limits, decide=False, now=monotonic())
        driver = Driver(engine, link, self.address, watch)
        if watch is not None:
            watch.connected(monotonic(), *ends_of(link))
        driver.lease_wait = self.lease_wait
        if self.resume:
            driver.pump.redial = Redial(self.dial, self.limits, self.resume, self.timeout)
        with driver.guard:
            driver.write()
            if terms.leases and not driver.wait(lambda: driver.lease_granted, within):
                driver.check()
                raise ConnectFailed(f"{self.address} granted no lease within {within:g} s")
        return driver


def _dial(transport: Transport, address: Address, tls: Tls | None, limits: Limits, within: float) -> Link:
    address.check_port()
    return transport.dial(address, within, tls, limits)


def _backoff(wanted: Backoff | bool) -> Backoff:
    return wanted if isinstance(wanted, Backoff) else Backoff()


_ELSEWHERE: Final = {
    "handler": "requests of the server would wait for the next call",
    "store": "a session is stored while it changes",
    "extensions": "their frames would wait for the next call",
}
"Arguments of ``afflux.connect`` that a blocking connection does not have, with the reason."


def _refuse(others: Mapping[str, object]) -> None:
    """Raise for the arguments that ``connect`` does not have."""
    for name, value in others.items():
        if name not in _ELSEWHERE:
            raise TypeError(f'afflux.sync.connect has no argument "{name}"')
        if value is None:  # the default of ``afflux.connect``
            continue
        reason = f"nothing runs between two calls, and {_ELSEWHERE[name]}"
        raise Unsupported(f"afflux.sync.connect has no {name}=: {reason}; use afflux.connect, with asyncio")
