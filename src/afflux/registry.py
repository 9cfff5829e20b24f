"""Which protocols and transports exist: one line each. No I/O and no asyncio lives here.

A protocol that is named but not built yet has no ``make``; asking for it raises :class:`afflux.Unsupported`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from afflux.core.errors import AddressError, Unsupported
from afflux.core.framing import LengthPrefix
from afflux.core.terms import Terms

if TYPE_CHECKING:
    from afflux.core.dissector import MakeDissector
    from afflux.core.engine import Engine
    from afflux.transports.base import Transport

__all__ = [
    "PROTOCOLS",
    "TRANSPORTS",
    "EngineFactory",
    "ProtocolEntry",
    "Terms",
    "TransportEntry",
    "built",
    "named",
    "nearest",
]

_VERBS_OF_ITS_OWN: Final = ("session", "subscribe")
"Features that are called as verbs are."

TOKEN_BYTES: Final = 32
"Random bytes in the token of a session that is to be resumed."

EngineFactory = Callable[..., "Engine"]
"``make(role, terms, *, limits, decide, now) -> Engine``."


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= 86_400:
        raise ValueError("seconds, above 0 and at most a day")
    return value


def _wait(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 86_400:
        raise ValueError("seconds, 0 to a day")
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
    "What an address may set, and how to read each: fields of Terms, the others are its own (``Terms.own``)."
    features: tuple[str, ...] = ()
    "What it has beyond the verbs: lease, resume, extensions, session, subscribe."
    framing: LengthPrefix | None = None
    "How its frames stand in a stream of bytes, for transports of messages; None for a protocol that is one stream."
    subprotocol: str | None = None
    "What it is called in a WebSocket's handshake; None for a protocol that says nothing there."
    refusal: Callable[[str], bytes] | None = None
    "The bytes that tell a connection why it is not taken, given the reason; None closes it without a word."

    def check(self, verb: str) -> None:
        """Raise unless the protocol has a verb.

        Raises:
            Unsupported: it does not; the text has what it offers instead.
        """
        if verb not in self.verbs:
            raise Unsupported(f'{self.name} has no "{verb}"; it offers: {", ".join(self.offers)}')

    @property
    def offers(self) -> tuple[str, ...]:
        """Its verbs, and what else is called as they are."""
        beyond = (name for name in self.features if name in _VERBS_OF_ITS_OWN and name not in self.verbs)
        return (*self.verbs, *beyond)

    @property
    def keepalives(self) -> bool:
        """Whether it has something that every peer answers at once, by which a connection is known to live."""
        return any(name == "keepalive" for name, _ in self.options)

    @property
    def subscribes(self) -> Literal["stream", "subscribe"]:
        """The verb by which a subscription is opened, in a protocol that has them: its own, or stream."""
        return "subscribe" if "subscribe" in self.verbs else "stream"

    def built(self) -> EngineFactory:
        """The engine factory.

        Raises:
            Unsupported: this version of afflux does not have the protocol.
        """
        if self.make is None:
            raise Unsupported(f'protocol "{self.name}" is not built yet; there is: {built()}')
        return self.make

    def dissector(self) -> MakeDissector:
        """What makes frame records of its bytes: ``dissector`` of the module of that name in its package.

        Raises:
            Unsupported: this version of afflux does not have the protocol, or its package lies elsewhere.
        """
        from importlib import import_module

        self.built()
        try:
            make: MakeDissector = import_module(f"afflux.protocols.{self.name}.dissector").dissector
        except ModuleNotFoundError:
            raise Unsupported(f"{self.name} has no dissector") from None
        return make

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


def named(protocol: str) -> ProtocolEntry:
    """The protocol of a name. Raises AddressError where there is none."""
    if protocol not in PROTOCOLS:
        raise nearest("protocol", protocol, PROTOCOLS, meant=_IN_FULL.get(protocol))
    return PROTOCOLS[protocol]


def built() -> str:
    """The names of the protocols that have an engine."""
    return _built(PROTOCOLS.values())


def _built(entries: Iterable[ProtocolEntry] | Iterable[TransportEntry]) -> str:
    return ", ".join(entry.name for entry in entries if entry.make is not None)


def _late(module: str, name: str) -> Callable[..., Any]:
    """A function of a module that is imported when it is first called: who speaks one protocol loads one."""

    def call(*arguments: Any, **keywords: Any) -> Any:
        from importlib import import_module

        return getattr(import_module(module), name)(*arguments, **keywords)

    return call


def _make(package: str) -> EngineFactory:
    return _late(f"afflux.protocols.{package}.entry", "make")


def _refusal(package: str) -> Callable[[str], bytes]:
    return _late(f"afflux.protocols.{package}.entry", "refusal")


_TERMS: Final = (("keepalive", _seconds), ("lifetime", _seconds), ("mtu", _size))
_TLS: Final = tuple((name, _text) for name in ("ca", "cert", "key", "name", "client_ca"))
_FIVE: Final = ("request", "fire", "stream", "channel", "push")


def _dialect(package: str) -> tuple[str, Callable[[str], Any]]:
    return "dialect", _late(f"afflux.protocols.{package}.entry", "dialect")


_JMUX: Final = (_TERMS[0], ("mtu", _fragment), ("max_wait_for_id", _wait), _dialect("jmux"))
_OLD: Final = (*_TERMS, _dialect("reactivesocket"))
_DRAFT: Final = (_TERMS[2], _dialect("rsio"))
_RSOCKET: Final = ("lease", "resume", "extensions")
_SUB: Final = ("lease", "extensions", "subscribe")
_THREE, _FOUR = LengthPrefix(3), LengthPrefix(4, inclusive=True, reserved=0x80000000)

PROTOCOLS: Final = {
    entry.name: entry
    for entry in (
        ProtocolEntry("rsocket", _make("rsocket"), _FIVE, _TERMS, _RSOCKET, _THREE, "rsocket", _refusal("rsocket")),
        ProtocolEntry("rsocket-draft"),
        ProtocolEntry(
            "reactivesocket",
            _make("reactivesocket"),
            (*_FIVE, "subscribe"),
            _OLD,
            _SUB,
            _FOUR,
            refusal=_refusal("reactivesocket"),
        ),
        ProtocolEntry("limit"),
        ProtocolEntry("jmux", _make("jmux"), ("request",), _JMUX, ("session",), refusal=_refusal("jmux")),
        ProtocolEntry("rsio", _make("rsio"), ("stream",), _DRAFT, ("subscribe",), refusal=_refusal("rsio")),
    )
}
"Every protocol that an address may name."

_IN_FULL: Final = {"reactive-streams-io": "rsio"}
"What somebody may write who knows a protocol by its full name."

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
