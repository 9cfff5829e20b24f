"""Decide which pages may open a WebSocket, by the Origin that a browser sends with the handshake.

A browser lets any page connect anywhere, so a page on the web could reach a server on its reader's own machine.
Therefore:

1. By default a page may connect if the host of its origin is the Host that the request asks for. Schemes and ports may
   differ: a page of ``http://localhost:8000`` may connect to ``ws://localhost:7000``.
2. ``origins=`` replaces that rule with a list: only these origins may connect, compared with scheme and port. ``*``
   admits every page.
3. A request without an Origin is not from a browser, and is admitted. One with several Origins is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv6Address
from typing import Final

from afflux.transports.ws_rules import printable

__all__ = ["ANY", "ORIGIN", "origins_of", "refusal_of"]

ANY: Final = "*"
"Admits the pages of all origins."

ORIGIN: Final = "origin"
"The name under which a server counts the pages that it has refused."

_NO_HOST: Final = frozenset(("null", "file://"))
"Origins without a host: those of sandboxed frames and of files."

_AUTHORITY = re.compile(r"(?P<host>\[[0-9a-f:.]+\]|[a-z0-9._~!$&'()+;=%-]+)(?::(?P<port>\d{1,5}))?")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}
_SHOWN: Final = 64


def origins_of(given: Iterable[str] | None) -> frozenset[str] | None:
    """Return the origins whose pages may connect, in the form that browsers send; None for the pages of the same host.

    Raises:
        ValueError: a value is not an origin; ``*`` is not alone.
    """
    if given is None:
        return None
    if isinstance(given, str):
        raise ValueError(f'origins are a list, such as ["{given}"]')
    origins = frozenset(map(_checked, given))
    if ANY in origins and len(origins) > 1:
        raise ValueError(f'the origin "{ANY}" admits every page: give it alone')
    return origins


def refusal_of(origins: frozenset[str] | None, sent: list[str], hosts: list[str]) -> str | None:
    """Return None if a client may connect, otherwise the sentence that refuses it.

    Args:
        origins: the result of ``origins_of``.
        sent: the Origin headers of the request.
        hosts: its Host headers.
    """
    if not sent or (origins is not None and ANY in origins):
        return None
    if len(sent) > 1:
        return "the request has several Origin headers"
    origin, host = sent[0].strip(), ", ".join(hosts).strip()  # several hosts joined are no host
    if origins is None:
        page, asked = _split(origin), _authority(host)
        admitted = page is not None and asked is not None and page[1] == asked[0]
    else:
        admitted = _canonical(origin) in origins
    if admitted:
        return None
    shown, there = printable(origin, _SHOWN) or '""', printable(host, _SHOWN) or "this server"
    return f"pages of {shown} may not connect to {there}; origins=, or --origin of afflux serve, admits them"


def _checked(given: str) -> str:
    """Return an origin of ``origins=`` in the form that browsers send.

    Raises:
        ValueError: it is not an origin.
    """
    origin = _canonical(given)
    if given == ANY or (origin is not None and not origin.startswith(("ws://", "wss://"))):
        return origin or ANY
    text = f'an origin is the scheme and host of a page, such as "https://app.example", not "{given}"'
    scheme, mark, rest = given.rpartition("://")
    meant = _canonical(f"{scheme.replace('ws', 'http') if mark else 'https'}://{re.split('[/?#]', rest)[0]}")
    if meant is not None:
        text += f'; write "{meant}"'
    elif not given.isascii():
        text += "; write its host as browsers send it, in Punycode (xn--…)"
    elif ANY in given:
        text += f'; there are no patterns: list each origin, or give "{ANY}" alone for all'
    raise ValueError(text)


def _canonical(origin: str) -> str | None:
    """Return an origin with lower-case letters and without the port that its scheme implies; None if it is not one."""
    if origin.lower() in _NO_HOST:
        return origin.lower()
    found = _split(origin)
    if found is None:
        return None
    scheme, host, port = found
    return f"{scheme}://{host}" if port in (None, _DEFAULT_PORTS.get(scheme)) else f"{scheme}://{host}:{port}"


def _split(origin: str) -> tuple[str, str, str | None] | None:
    """Return the scheme, host and port of an origin; None if it has no host."""
    scheme, _, authority = origin.lower().partition("://")
    found = _authority(authority) if _SCHEME.fullmatch(scheme) else None
    return None if found is None else (scheme, *found)


def _authority(text: str) -> tuple[str, str | None] | None:
    """Return the host, in lower case, and the port of an authority; None if it is not one."""
    found = _AUTHORITY.fullmatch(text.lower())
    if found is None:
        return None
    host, port = found["host"], found["port"]
    if port is not None and int(port) > 0xFFFF:
        return None
    if host.startswith("["):
        try:
            host = f"[{IPv6Address(host[1:-1])}]"
        except ValueError:
            return None
    return host, None if port is None else str(int(port))
