"""Which protocols and transports exist: one line each. No I/O and no asyncio lives here.

A protocol that is named but not built yet has no ``make``; asking for it raises :class:`afflux.Unsupported`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from afflux.core.errors import AddressError, LocalProtocolError, Unsupported, Violation
from afflux.core.framing import LengthPrefix

if TYPE_CHECKING:
    from afflux.core.engine import Engine
    from afflux.core.limits import Limits
    from afflux.core.payload import Payload
    from afflux.protocols.rsocket.frames import Setup
    from afflux.transports.base import Transport

__all__ = ["PROTOCOLS", "TRANSPORTS", "EngineFactory", "ProtocolEntry", "Terms", "TransportEntry", "nearest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the side that connects proposes."""

    payload: Payload | None = None
    "The payload of the setup."
    metadata_mime: str | None = None
    "MIME type of all metadata; None means the protocol's default."
    data_mime: str | None = None
    "MIME type of all data; None means the protocol's default."
    keepalive: float = 20.0
    "Seconds between keepalives."
    lifetime: float = 90.0
    "Seconds without a sign of life after which the peer counts as dead."
    mtu: int | None = None
    "Largest frame to send, in bytes; longer payloads are fragmented. None means the engine's default."
    leases: bool = False
    "The side that connects wants leases."
    lease: Any = None
    "What this side grants (a LeasePolicy); None for nothing in particular."
    token: bytes | None = None
    "What the session is to be resumed by; None for one that ends with its transport."
    sessions: Any = None
    "Where the side that listens keeps sessions that can be resumed; None for none."
    extensions: Collection[int] = ()
    "The extended types that the application knows."
    sizes: Callable[[str], int] | None = None
    "How large the elements of a publisher here are, by its name, for protocols that have elements of one size."
    dialect: Any = None
    "In which ways the peer is not by the protocol's text, for protocols that know several; None for none."
    handled: Collection[str] = ()
    "The verbs that the application answers, where it listens."


TOKEN_BYTES: Final = 32
"Random bytes in the token of a session that is to be resumed."

EngineFactory = Callable[..., "Engine"]
"``make(role, terms, *, limits, decide, now) -> Engine``."


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= 86_400:
        raise ValueError("seconds, above 0 and at most a day")
    return value


def _size(text: str) -> int:
    value = int(text)
    if not 64 <= value <= 0xFFFFFF:
        raise ValueError("bytes, 64 to 16777215")
    return value


def _fragment(text: str) -> int:
    value = int(text)
    if not 64 <= value <= 0xFFFF:
        raise ValueError("bytes, 64 to 65535")
    return value


def _text(text: str) -> str:
    if not text:
        raise ValueError("it is empty")
    return text


def _mode(text: str) -> str:
    if len(text) != 3 or not set(text) <= set("01234567"):
        raise ValueError("permissions are three octal digits, such as 660")
    return text


@dataclass(frozen=True, slots=True)
class ProtocolEntry:
    """One protocol."""

    name: str
    "As in an address."
    make: EngineFactory | None = None
    "Makes an engine; None while the protocol is not built."
    verbs: tuple[str, ...] = ()
    "The verbs that it has."
    options: tuple[tuple[str, Callable[[str], Any]], ...] = ()
    "What an address may set: fields of Terms, and how to read each."
    features: tuple[str, ...] = ()
    "What it has beyond the verbs: lease, resume, extensions."
    framing: LengthPrefix | None = None
    "How its frames stand in a stream of bytes, for transports of messages; None for a protocol that is one stream."

    def built(self) -> EngineFactory:
        """The engine factory.

        Raises:
            Unsupported: this version of afflux does not have the protocol.
        """
        if self.make is None:
            raise Unsupported(f'protocol "{self.name}" is not built yet; there is: {_built(PROTOCOLS.values())}')
        return self.make

    def require(self, feature: str) -> None:
        """Raise unless the protocol has a feature.

        Raises:
            Unsupported: it does not.
        """
        if feature not in self.features:
            there = ", ".join(self.features) or "nothing beyond its verbs"
            raise Unsupported(f'{self.name} has no "{feature}"; it has: {there}')


@dataclass(frozen=True, slots=True)
class TransportEntry:
    """One transport."""

    name: str
    "As in an address."
    module: str | None
    "The module with its ``TRANSPORT`` object; None while the transport is not built."
    authority: Literal["host", "name", "path"] = "host"
    "What stands behind ``//``: host and port, a name, or a file's path."
    port: int | None = None
    "The port when the address has none."
    options: tuple[tuple[str, Callable[[str], Any]], ...] = ()
    "What an address may set beside the protocol's options, and how to read each."

    @property
    def secure(self) -> bool:
        """Whether it has TLS."""
        return any(name == "ca" for name, _ in self.options)

    @property
    def make(self) -> object:
        """None while the transport is not built."""
        return self.module

    def built(self) -> Transport:
        """The transport.

        Raises:
            Unsupported: this version of afflux does not have the transport.
        """
        if self.module is None:
            raise Unsupported(f'transport "{self.name}" is not built yet; there is: {_built(TRANSPORTS.values())}')
        from importlib import import_module

        transport: Transport = import_module(self.module).TRANSPORT
        return transport


def nearest(kind: str, name: str, known: Iterable[str], *, meant: str | None = None) -> AddressError:
    """The error for an unknown name, with the list of what exists and the nearest of it, or what is ``meant``."""
    from difflib import get_close_matches

    known = list(known)
    close = [meant] if meant is not None else get_close_matches(name, known, n=1)
    there = ", ".join(known) if known else "none"
    if close:
        return AddressError(f'unknown {kind} "{name[:64]}"; did you mean "{close[0]}"? There is: {there}')
    return AddressError(f'unknown {kind} "{name[:64]}"; there is: {there}')


def _built(entries: Iterable[ProtocolEntry] | Iterable[TransportEntry]) -> str:
    return ", ".join(entry.name for entry in entries if entry.make is not None)


def _rsocket(role: Literal["client", "server"], terms: Terms, *, limits: Limits, decide: bool, now: float) -> Engine:
    from afflux.protocols.rsocket.engine import DEFAULT_MTU
    from afflux.protocols.rsocket.engine import Engine as RSocket

    mtu = terms.mtu or DEFAULT_MTU
    return RSocket(
        role,
        setup=_setup(terms) if role == "client" else None,
        limits=limits,
        decide=decide,
        now=now,
        mtu=mtu,
        lease=terms.lease,
        sessions=terms.sessions,
        extensions=terms.extensions,
    )


def _setup(terms: Terms) -> Setup:
    """What a client asks for."""
    from afflux.protocols.rsocket.frames import Setup

    payload = terms.payload
    try:
        return Setup(
            stream=0,
            keepalive_ms=round(terms.keepalive * 1000),
            lifetime_ms=round(terms.lifetime * 1000),
            metadata_mime=terms.metadata_mime or "message/x.rsocket.composite-metadata.v0",
            data_mime=terms.data_mime or "application/octet-stream",
            lease=terms.leases,
            token=terms.token,
            metadata=None if payload is None else payload.metadata,
            data=b"" if payload is None else payload.data,
        )
    except Violation as violation:
        raise LocalProtocolError(violation.reason, rule=violation.rule) from None


def _jmux(role: Literal["client", "server"], terms: Terms, *, limits: Limits, decide: bool, now: float) -> Engine:
    from afflux.protocols.jmux.engine import DEFAULT_FRAGMENT
    from afflux.protocols.jmux.engine import Engine as Jmux

    if decide or terms.payload is not None:
        raise Unsupported("a jmux connection has no setup: there is nothing to send with it, and nothing to decide by")
    return Jmux(
        role,
        limits=limits,
        now=now,
        sessions="session" in terms.handled,
        fragment=terms.mtu or DEFAULT_FRAGMENT,
        max_wait_for_id=limits.abort_answer_s,
        ping_interval=terms.keepalive,
    )


def _rsio(role: Literal["client", "server"], terms: Terms, *, limits: Limits, decide: bool, now: float) -> Engine:
    from afflux.protocols.rsio.codes import Extension
    from afflux.protocols.rsio.engine import DEFAULT_MTU
    from afflux.protocols.rsio.engine import Engine as Rsio

    mtu = terms.mtu or DEFAULT_MTU
    return Rsio(role, limits=limits, decide=decide, now=now, mtu=mtu, extensions=tuple(Extension), sizes=terms.sizes)


def _reactivesocket(
    role: Literal["client", "server"], terms: Terms, *, limits: Limits, decide: bool, now: float
) -> Engine:
    from afflux.protocols.reactivesocket.engine import DEFAULT_MTU
    from afflux.protocols.reactivesocket.engine import Engine as ReactiveSocket
    from afflux.protocols.reactivesocket.frames import Setup

    payload, setup = terms.payload, None
    if role == "client":
        try:
            setup = Setup(
                keepalive_ms=round(terms.keepalive * 1000),
                lifetime_ms=round(terms.lifetime * 1000),
                metadata_mime=terms.metadata_mime or "message/x.rsocket.composite-metadata.v0",
                data_mime=terms.data_mime or "application/octet-stream",
                lease=terms.leases,
                metadata=None if payload is None else payload.metadata,
                data=b"" if payload is None else payload.data,
            )
        except Violation as violation:
            raise LocalProtocolError(violation.reason, rule=violation.rule) from None
    return ReactiveSocket(
        role,
        setup=setup,
        limits=limits,
        decide=decide,
        now=now,
        mtu=terms.mtu or DEFAULT_MTU,
        lease=terms.lease,
        extensions=terms.extensions,
        dialect=terms.dialect,
    )


def _dialect(text: str) -> object:
    from afflux.protocols.reactivesocket.dialect import Dialect

    return Dialect.of(text)


_TERMS: Final = (("keepalive", _seconds), ("lifetime", _seconds), ("mtu", _size))
_TLS: Final = tuple((name, _text) for name in ("ca", "cert", "key", "name", "client_ca"))
_FIVE: Final = ("request", "fire", "stream", "channel", "push")

PROTOCOLS: Final = {
    entry.name: entry
    for entry in (
        ProtocolEntry("rsocket", _rsocket, _FIVE, _TERMS, ("lease", "resume", "extensions"), LengthPrefix(3)),
        ProtocolEntry("rsocket-draft"),
        ProtocolEntry(
            "reactivesocket",
            _reactivesocket,
            _FIVE,
            (*_TERMS, ("dialect", _dialect)),
            ("lease", "extensions"),
            LengthPrefix(4, inclusive=True),
        ),
        ProtocolEntry("limit"),
        ProtocolEntry("jmux", _jmux, ("request",), (("keepalive", _seconds), ("mtu", _fragment)), ("session",)),
        ProtocolEntry("rsio", _rsio, ("stream",), _TERMS[2:], ("subscribe",)),
    )
}
"Every protocol that an address may name."

TRANSPORTS: Final = {
    entry.name: entry
    for entry in (
        TransportEntry("tcp", "afflux.transports.tcp"),
        TransportEntry("tls", "afflux.transports.tls", options=_TLS),
        TransportEntry("ws", "afflux.transports.websocket", port=80),
        TransportEntry("wss", "afflux.transports.websocket", port=443, options=_TLS),
        TransportEntry("unix", "afflux.transports.unix", "path", options=(("mode", _mode),)),
        TransportEntry("mem", "afflux.transports.mem", "name"),
    )
}
"Every transport that an address may name."
