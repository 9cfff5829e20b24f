"""Parse addresses of JetStream streams: ``nats://[user:password@]host[:port][,host[:port]…]/STREAM[?option=value]``.

``nats+tls://`` is the same with TLS, and has options for certificates."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeGuard
from urllib.parse import parse_qsl, unquote

from afflux.core.errors import AddressError
from afflux.transports.security import Tls

__all__ = ["OPTIONS", "SCHEME", "TLS_SCHEME", "StreamAddress", "is_stream_address"]

SCHEME: Final = "nats://"
TLS_SCHEME: Final = "nats+tls://"
"How an address of a stream begins."
OPTIONS: Final = {
    "creds": "A file of NATS credentials: with the user's JWT and seed, or with the seed of an nkey alone.",
    "replicas": "The servers that store each message of a new stream: 1, 3 or 5.",
    "timeout": "Seconds for which a request is tried again while the servers do not answer: 30.",
}
"The options of an address."
TLS_OPTIONS: Final = {"ca": "ca", "cert": "cert", "key": "key", "name": "server_name"}
"The options of an address with TLS, and the fields of Tls that they set."
_PORT = 4222
_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
_REPLICAS = ("1", "3", "5")
_LONGEST_S = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamAddress:
    """The address of a stream. ``str(address)`` has no credentials."""

    servers: tuple[str, ...]
    "The servers of one cluster, each as ``host:port``."
    stream: str
    "The name of the stream."
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    creds: str | None = None
    "The file of credentials."
    tls: Tls | None = None
    "The settings of TLS; None for ``nats://``, where TLS is used only if the server requires it."
    replicas: int | None = None
    "The servers that store each message; None for 1, or for that of an existing stream."
    timeout_s: float = 30.0
    "Seconds for which a request is tried again while the servers do not answer."

    @classmethod
    def parse(cls, text: str) -> StreamAddress:
        """Parse an address.

        Raises:
            AddressError: it is invalid. The text does not contain credentials.
        """
        secure = text.startswith(TLS_SCHEME)
        rest, _, query = text.removeprefix(TLS_SCHEME if secure else SCHEME).partition("?")
        authority, _, stream = rest.partition("/")
        credentials, at, hosts = authority.rpartition("@")
        found = cls(servers=tuple(map(_server, hosts.split(","))), stream=_stream(stream, hosts))
        if at:
            user, colon, password = credentials.partition(":")
            found = (
                replace(found, user=unquote(user), password=unquote(password))
                if colon
                else replace(found, token=unquote(user))
            )
        tls: dict[str, Any] = {}
        for name, value in parse_qsl(query, keep_blank_values=True):
            if name in TLS_OPTIONS:
                tls[TLS_OPTIONS[name]] = value
            else:
                found = _with_option(found, name, value)
        if tls and not secure:
            raise AddressError(f"the options {', '.join(TLS_OPTIONS)} are for TLS: write {TLS_SCHEME}")
        if at and found.creds is not None:
            raise AddressError("creds= cannot be combined with credentials before the host")
        return replace(found, tls=Tls(**tls)) if secure else found

    def sibling(self, suffix: str) -> StreamAddress:
        """Return the address of the stream ``STREAM-suffix``; of this one for an empty suffix."""
        return replace(self, stream=f"{self.stream}-{suffix}") if suffix else self

    def __str__(self) -> str:
        return f"{TLS_SCHEME if self.tls else SCHEME}{','.join(self.servers)}/{self.stream}"


def is_stream_address(text: object) -> TypeGuard[str]:
    """Return whether ``text`` is meant as the address of a stream, not as a path."""
    return isinstance(text, str) and text.startswith((SCHEME, TLS_SCHEME))


def _server(text: str) -> str:
    host, port = text, ""
    if not text.endswith("]") and ":" in text:
        host, _, port = text.rpartition(":")
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else -1 if port else _PORT
    if not host or not 0 < number <= 0xFFFF or any(ord(character) <= 0x20 for character in host):
        raise AddressError(f'invalid NATS server "{text}": expected host or host:port')
    return f"{host}:{number}"


def _stream(text: str, hosts: str) -> str:
    if not text:
        raise AddressError(f"the address of a journal names its stream: {SCHEME}{hosts}/STREAM")
    if not _NAME.fullmatch(text):
        raise AddressError(f'invalid stream "{text}": expected up to 128 letters, digits, "_" and "-"')
    return text


def _with_option(address: StreamAddress, name: str, value: str) -> StreamAddress:
    if name == "creds":
        return replace(address, creds=value)
    if name == "replicas":
        if value not in _REPLICAS:
            raise AddressError(f"replicas must be one of {', '.join(_REPLICAS)}, not {value!r}")
        return replace(address, replicas=int(value))
    if name == "timeout":
        if not re.fullmatch(r"\d{1,4}(\.\d{1,3})?", value) or not 0 < float(value) <= _LONGEST_S:
            raise AddressError(f"timeout must be above 0 and at most {_LONGEST_S} seconds, not {value!r}")
        return replace(address, timeout_s=float(value))
    raise AddressError(f"unknown option {name!r} of a NATS address; known: {', '.join(OPTIONS | TLS_OPTIONS)}")
