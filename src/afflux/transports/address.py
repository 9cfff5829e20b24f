"""Parse and write addresses: ``[protocol+]transport://authority[/path][?option=value]``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from afflux.core.entry import ProtocolEntry, nearest
from afflux.core.errors import AddressError
from afflux.core.terms import Terms
from afflux.protocols.registry import AUTO, PROTOCOLS, all_names, any_protocol, named
from afflux.transports.registry import TRANSPORTS, TransportEntry

__all__ = ["Address", "did_you_mean", "parse", "without_tls"]

_DEFAULT_PROTOCOL = "rsocket"
_SHARED = frozenset(field.name for field in fields(Terms))
_OTHER_NAMES = {"http": "ws", "https": "wss", "websocket": "ws", "ssl": "tls", "tcps": "tls"}
_WITH_TLS = {"tcp": "tls", "ws": "wss"}
_WITHOUT_TLS = {"tls": "tcp", "wss": "ws"}
_WITH_HTTP = {"tcp": "ws", "tls": "wss"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A parsed address. ``str(address)`` parses to an equal one."""

    protocol: str = _DEFAULT_PROTOCOL
    "The protocol's name."
    transport: str
    "The transport's name."
    host: str = ""
    "Host name or IP address without brackets, or the name of a ``mem`` address; empty for ``unix``."
    port: int | None = None
    "The port; None for ``mem`` and ``unix``."
    path: str = ""
    "The path, with its leading slash, or the socket's file for ``unix``."
    options: Mapping[str, Any] = field(default_factory=dict)
    "Options with their parsed values. An option of the address takes precedence over an argument."

    @property
    def entry(self) -> ProtocolEntry:
        """The protocol; for ``auto``, what any of the recognized protocols offers."""
        return any_protocol() if self.protocol == AUTO else PROTOCOLS[self.protocol]

    @property
    def carrier(self) -> TransportEntry:
        """The transport."""
        return TRANSPORTS[self.transport]

    @property
    def terms(self) -> dict[str, Any]:
        """The protocol's options as fields of Terms; ``own`` contains those that only this protocol has. The other
        options belong to the transport."""
        known = dict(self.entry.options)
        given = {name: value for name, value in self.options.items() if name in known}
        own = {name: given.pop(name) for name in tuple(given) if name not in _SHARED}
        return given | {"own": own} if own else given

    def at(self, *, host: str | None = None, port: int | None) -> Address:
        """Return this address at another port and host, such as those that a listener is bound to."""
        return replace(self, host=self.host if host is None else host, port=port)

    def check_port(self) -> None:
        """Raise AddressError if a client cannot connect to the port."""
        if self.port == 0:
            raise AddressError(f"{self} is for servers: port 0 gives one a free port, and a client names that port")

    def __str__(self) -> str:
        from urllib.parse import quote, urlencode

        protocol = "" if self.protocol == _DEFAULT_PROTOCOL else f"{self.protocol}+"
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else f":{self.port}"
        query = f"?{urlencode(dict(self.options))}" if self.options else ""
        return f"{protocol}{self.transport}://{host}{port}{quote(self.path)}{query}"


def parse(uri: str | Address, *, serving: bool = False) -> Address:
    """Parse an address. Only a server (``serving``) may recognize protocols (``auto+tcp://…``).

    Raises:
        AddressError: the syntax is wrong, or the protocol, transport or option does not exist; the text lists those
            that do.
    """
    address = uri if isinstance(uri, Address) else _parse(uri)
    if address.protocol == AUTO and not serving:
        known = ", ".join(f"{name}+{address.transport}" for name in PROTOCOLS)
        raise AddressError(f"{AUTO} is for servers; a client names the protocol that it speaks, one of {known}")
    return address


def without_tls(address: Address) -> Address | None:
    """Return the same address without TLS; None if it has none."""
    return _on(_WITHOUT_TLS, address)


def did_you_mean(spoken: str | None, address: Address) -> str:
    """Return the end of an error's text for a server at ``address`` that speaks TLS or HTTP; ``""`` for others."""
    meant = _on({"TLS": _WITH_TLS, "HTTP": _WITH_HTTP}.get(spoken or "", {}), address)
    return "" if meant is None else f"; did you mean {meant}?"


def _on(transports: Mapping[str, str], address: Address) -> Address | None:
    transport = transports.get(address.transport)
    return None if transport is None else replace(address, transport=transport, options={})


def _parse(uri: str) -> Address:
    if not isinstance(uri, str):
        raise AddressError(f"an address is text, not {type(uri).__name__}")
    scheme, separator, rest = uri.partition("://")
    if not separator:
        raise AddressError(f'an address looks like "tcp://host:port", not "{uri[:64]}"{_hint(uri)}')
    if any(ord(character) <= 0x20 or ord(character) == 0x7F for character in uri):
        raise AddressError("an address cannot contain spaces or control characters")
    protocol, plus, transport = scheme.lower().rpartition("+")
    if not plus:
        protocol = _DEFAULT_PROTOCOL
    entry = any_protocol() if protocol == AUTO else named(protocol)
    if transport not in TRANSPORTS:
        raise _unknown(transport, alone=not plus)
    return _parse_rest(uri, rest, entry, TRANSPORTS[transport])


def _hint(uri: str) -> str:
    """Return the address that ``uri``, which has no ``://``, was probably meant to be."""
    scheme = uri[:64].lower().partition(":")[0].partition("/")[0]
    transport = TRANSPORTS.get(scheme.rpartition("+")[2])
    if transport is None:
        host, _, port = uri[:64].rpartition(":")
        protocol, plus, _ = host.partition("+")
        start = f"{protocol}+tcp" if plus and protocol in (*PROTOCOLS, AUTO) else "tcp"
        host = host.removeprefix(f"{protocol}+") if start != "tcp" else host
        return f'; did you mean "{start}://{host or "localhost"}:{port}"?' if port.isdigit() else ""
    rest = uri[len(scheme) : 64].lstrip(":/")
    if transport.authority == "path":
        return f'; did you mean "{scheme}:///{rest or "path"}"?'
    port = ":port" if transport.port is None and transport.authority == "host" and ":" not in rest else ""
    return f'; did you mean "{scheme}://{rest or "host"}{port}"?'


def _unknown(transport: str, *, alone: bool) -> AddressError:
    """Return the error for an unknown transport. ``alone``: it may also be meant as a protocol."""
    from difflib import get_close_matches

    meant = dict(zip(TRANSPORTS, TRANSPORTS, strict=True)) | _OTHER_NAMES
    if alone:
        meant |= {name: f"{protocol}+tcp" for name, protocol in all_names().items()}
    close = get_close_matches(transport.lower(), meant, n=1)
    return nearest("transport", transport, TRANSPORTS, meant=meant[close[0]] if close else None)


def _parse_rest(uri: str, rest: str, protocol: ProtocolEntry, transport: TransportEntry) -> Address:
    from urllib.parse import unquote

    rest, _, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    path = unquote(slash + path)
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in path):
        raise AddressError("the path of an address cannot contain control characters")
    if "#" in rest or "#" in query:
        raise AddressError("an address cannot have a fragment (#…)")
    if "@" in authority:
        raise AddressError("an address cannot contain a user or a password")
    if path.strip("/") and transport.authority != "path" and not transport.messages:
        raise AddressError(f'a {transport.name} address has no path: omit "{path[:64]}"')
    host, port = _authority(uri, authority, path, transport)
    return Address(
        protocol=protocol.name,
        transport=transport.name,
        host=host,
        port=port,
        path=path,
        options=_options(query, protocol, transport),
    )


def _authority(uri: str, authority: str, path: str, transport: TransportEntry) -> tuple[str, int | None]:
    if transport.authority == "path":
        if authority or len(path) < 2:
            like = f'looks like "{transport.name}:///path", with an absolute path'
            raise AddressError(f'a {transport.name} address {like}, not "{uri[:64]}"')
        return "", None
    if transport.authority == "name":
        if not authority or ":" in authority:
            raise AddressError(f'a {transport.name} address looks like "{transport.name}://name", not "{uri[:64]}"')
        return authority, None
    if authority.startswith("["):
        host, bracket, tail = authority[1:].partition("]")
        if not bracket or (tail and not tail.startswith(":")):
            raise AddressError(f'the brackets of "{authority[:64]}" do not close')
        digits = tail[1:]
    else:
        host, _, digits = authority.rpartition(":") if ":" in authority else (authority, "", "")
        if ":" in host:
            raise AddressError(f'an IPv6 address needs brackets, as in "[::1]:7000", not "{authority[:64]}"')
    if not host:
        raise AddressError(f'"{uri[:64]}" has no host, as in "tcp://localhost:7878"')
    if not digits:
        if transport.port is None:
            raise AddressError(f'"{uri[:64]}" has no port, as in "tcp://host:7878"; port 0 gives a server a free one')
        return host, transport.port
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 5 and int(digits) <= 0xFFFF):
        hint = '; options begin with "?"' if "&" in digits else ""
        raise AddressError(f'"{digits[:16]}" is not a port: expected 0 to 65535{hint}')
    return host, int(digits)


def _options(query: str, protocol: ProtocolEntry, transport: TransportEntry) -> dict[str, Any]:
    from urllib.parse import parse_qsl

    known = dict(protocol.options + transport.options)
    options: dict[str, Any] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name not in known:
            raise _unknown_option(name, known, transport)
        if name in options:
            raise AddressError(f'option "{name}" is given twice')
        try:
            options[name] = known[name](text)
        except ValueError as error:
            raise AddressError(f'option "{name}" cannot be "{text[:64]}": {error}') from None
    return options


def _unknown_option(name: str, known: Mapping[str, Any], transport: TransportEntry) -> AddressError:
    having = [entry.name for entry in TRANSPORTS.values() if name in dict(entry.options)]
    if not having:
        return nearest("option", name, known)
    others = f"it is one of {' and '.join(f'{other}://' for other in having)}, not of {transport.name}://"
    return AddressError(f'unknown option "{name}": {others}; known: {", ".join(known)}')
