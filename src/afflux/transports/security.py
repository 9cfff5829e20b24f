"""Make TLS contexts from settings: which certificates to show and which authorities to trust.

A client verifies the server: signed by the system's authorities or by ``ca``, valid now, and for the name that it
connects to. A server shows ``cert``; with ``client_ca`` it asks each client for a certificate and verifies that too.
TLS 1.2 is the oldest version. Secrets are appended to the file of SSLKEYLOGFILE. ``ssl`` is imported on use, so that a
program without TLS does not load it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from afflux.core.errors import AddressError, ConnectFailed
from afflux.transports.address import Address

if TYPE_CHECKING:
    import ssl

__all__ = ["Tls", "client_context", "public", "refusal", "server_context", "server_name", "settled"]

_Path = str | os.PathLike[str]
_FIELDS = {"ca": "ca", "cert": "cert", "key": "key", "name": "server_name", "client_ca": "client_ca"}
"Options of an address, and the fields of Tls that they set."
_HASHED = re.compile(r"[0-9a-f]{8}\.r?[0-9]+")
"Names by which OpenSSL finds the files of a folder."


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Settings of TLS: ``afflux.connect(uri, tls=Tls(ca="ca.pem"))``. Files are PEM; they are read when a client
    connects and when a server begins to listen.

    The options of an address are the same settings, as in ``tls://host:7000?ca=ca.pem``, and take precedence.

    Raises:
        AddressError: values that contradict each other.
        TypeError: a path of another type.
    """

    ca: _Path | None = None
    "A client: the authorities that may sign the server's certificate, a file or a folder; None for the system's."
    cert: _Path | None = None
    "The certificate of this side, followed in the file by those between it and its root."
    key: _Path | None = None
    "Its private key, without a passphrase; None means that it is in ``cert``."
    server_name: str | None = None
    "A client: the name that the server's certificate must have; None means the host of the address."
    client_ca: _Path | None = None
    "A server: the authorities that may sign the clients' certificates; a client without one is refused."
    context: ssl.SSLContext | None = None
    "A context for all other settings, used unchanged; only ``server_name`` may be given with it."

    def __post_init__(self) -> None:
        for name in ("ca", "cert", "key", "client_ca"):
            path = getattr(self, name)
            if path is not None and not isinstance(path, (str, os.PathLike)):
                raise TypeError(f"{name}= is the path of a file, not {type(path).__name__}")
            if path == "":
                raise AddressError(f"{name}= is empty: it is the path of a file")
        _check_name(self.server_name)
        if self.key is not None and self.cert is None:
            raise AddressError(f"the key {self.key} needs its certificate: cert=")
        others = [name for name in ("ca", "cert", "key", "client_ca") if getattr(self, name) is not None]
        if self.context is not None and not _is_context(self.context):
            raise TypeError(f"context= is an ssl.SSLContext, not {type(self.context).__name__}")
        if self.context is not None and others:
            raise AddressError(f"context= is used unchanged and cannot be combined with {', '.join(others)}")


def _check_name(name: object) -> None:
    if name is not None and not isinstance(name, str):
        raise TypeError(f"server_name= is text, such as 'server.example', not {type(name).__name__}")


def _is_context(value: Any) -> bool:
    import ssl

    return isinstance(value, ssl.SSLContext)


def _check_settings(tls: object) -> None:
    if tls is not None and not isinstance(tls, Tls):
        like = "afflux.Tls(context=…)" if _is_context(tls) else "afflux.Tls(ca='ca.pem')"
        raise TypeError(f"tls= is an afflux.Tls, such as {like}, not {tls!r:.60}")


def settled(tls: Tls | None, address: Address) -> Tls | None:
    """Return the settings for ``address``, whose own options take precedence over ``tls``. None without TLS.

    Raises:
        AddressError: ``tls`` is given for a transport without TLS, or contradicts the address.
    """
    if not address.carrier.secure:
        if tls is None:
            return None
        raise AddressError(f"{address.transport} has no TLS, so tls= has no effect: did you mean tls:// or wss://?")
    _check_settings(tls)
    own = {_FIELDS[name]: value for name, value in address.options.items() if name in _FIELDS}
    if "cert" in own:
        own.setdefault("key", None)
    return replace(tls or Tls(), **own)


def public(address: Address) -> Address:
    """Return the address of a server for its clients: without the server's certificate, key and client_ca."""
    private = ("cert", "key", "client_ca")
    return replace(address, options={k: v for k, v in address.options.items() if k not in private})


def server_name(tls: Tls | None, address: Address) -> str:
    """Return the name that the server's certificate must have."""
    settings = settled(tls, address) or Tls()
    return settings.server_name or address.host


def client_context(tls: Tls | None, address: Address) -> ssl.SSLContext:
    """Return the context of a client.

    Raises:
        AddressError: a file is missing, cannot be read, or has the wrong content; or that of SSLKEYLOGFILE cannot be
            written; or the given context is for servers.
    """
    settings = settled(tls, address) or Tls()
    if settings.context is not None:
        return _for_side(
            settings.context,
            "PROTOCOL_TLS_SERVER",
            "context= is for servers; a client needs ssl.create_default_context()",
        )
    if settings.ca is None and settings.cert is None:
        return _system_roots()
    context = _client()
    if settings.ca is None:
        context.load_default_certs()
    else:
        _trust(context, "ca", settings.ca)
    if settings.cert is not None:
        _show(context, settings.cert, settings.key)
    return context


def server_context(tls: Tls | None, address: Address | None = None) -> ssl.SSLContext:
    """Return the context of a server; ``address`` may add its options.

    Raises:
        AddressError: there is no certificate, or a file is missing, cannot be read, or has the wrong content; or that
            of SSLKEYLOGFILE cannot be written; or the given context is for clients.
    """
    import ssl

    settings = (tls if address is None else settled(tls, address)) or Tls()
    if settings.context is not None:
        return _for_side(
            settings.context,
            "PROTOCOL_TLS_CLIENT",
            "context= is for clients; a server needs "
            "ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), with a certificate from its load_cert_chain(…)",
        )
    if settings.cert is None:
        raise AddressError("a TLS server needs a certificate: set cert= and key= in the address or in tls=Tls(…)")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _harden(context)
    _show(context, settings.cert, settings.key)
    if settings.client_ca is not None:
        _trust(context, "client_ca", settings.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def refusal(
    error: OSError,
    address: Address,
    name: str = "",
    certificate: dict[str, Any] | None = None,
    plain: Address | None = None,
) -> ConnectFailed:
    """Return the error for a failed handshake, or for an alert after it. Raise it ``from error``.

    Args:
        name: the name that the certificate should have had.
        certificate: the refused certificate, where it is known.
        plain: the address to suggest if the peer does not speak TLS.
    """
    words = _words(error, name, certificate)
    hint = f"; did you mean {plain}?" if plain is not None and words == _WITHOUT_TLS else ""
    made = ConnectFailed(f"no TLS with {address}: {words}{hint}")
    made.__cause__ = error
    return made


# -- contexts ---------------------------------------------------------------------------------------------------


def _for_side(context: ssl.SSLContext, wrong: str, text: str) -> ssl.SSLContext:
    """Return the context. Raises AddressError with ``text`` if it is of the ``wrong`` side."""
    if context.protocol.name == wrong:
        raise AddressError(text)
    return context


def _client() -> ssl.SSLContext:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies the certificate and the name
    _harden(context)
    return context


def _harden(context: ssl.SSLContext) -> None:
    import ssl

    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    log = os.environ.get("SSLKEYLOGFILE")  # as ssl.create_default_context does: captures can be decrypted
    if log and not sys.flags.ignore_environment:
        try:
            context.keylog_filename = log
        except OSError as error:
            raise AddressError(f"SSLKEYLOGFILE: {log} cannot be written: {error.strerror}") from None


@lru_cache(maxsize=1)
def _system_roots() -> ssl.SSLContext:
    """Return the context of a client without files of its own, cached: reading all roots takes tens of milliseconds."""
    context = _client()
    context.load_default_certs()
    return context


def _trust(context: ssl.SSLContext, what: str, path: _Path) -> None:
    import ssl

    if os.path.isdir(path):
        if not any(map(_HASHED.fullmatch, _names_in(what, path))):
            raise AddressError(f"{what}: the folder {path} has no certificates under their hashes: run openssl rehash")
        context.load_verify_locations(capath=path)
        return
    _readable(what, path, b"-----BEGIN ", "certificate")
    try:
        context.load_verify_locations(cafile=path)
    except ssl.SSLError as error:
        raise AddressError(f"{what}: {path} has no readable PEM certificate") from error


def _show(context: ssl.SSLContext, cert: _Path, key: _Path | None) -> None:
    import ssl

    _readable("cert", cert, b"-----BEGIN CERTIFICATE", "certificate")
    own = cert if key is None else key
    _readable("key", own, b"PRIVATE KEY-----", "private key" + ("; set key= as well" if key is None else ""))
    asked = False

    def passphrase() -> str:
        nonlocal asked
        asked = True
        return ""

    try:
        context.load_cert_chain(cert, key, passphrase)
    except (ssl.SSLError, ValueError) as error:
        if asked:
            text = f"key: {own} needs a passphrase: use a key without one, or Tls(context=…)"
        elif getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            text = f"key: {own} does not belong to the certificate {cert}"
        else:
            why = _reason(error) if getattr(error, "reason", None) else "one of them is not valid PEM"
            text = f"cert: {cert} with key {own} cannot be used ({why})"
        raise AddressError(text) from error


def _names_in(what: str, folder: _Path) -> list[str]:
    try:
        return [os.fsdecode(name) for name in os.listdir(folder)]
    except OSError as error:
        raise AddressError(f"{what}: {folder} cannot be read: {error.strerror}") from error


def _readable(what: str, path: _Path, mark: bytes, kind: str) -> None:
    """Raise AddressError unless the file is readable and contains ``mark``."""
    try:
        with open(path, "rb") as file:
            found = mark in file.read()
    except FileNotFoundError as error:
        raise AddressError(f"{what}: there is no file {path}") from error
    except OSError as error:
        raise AddressError(f"{what}: {path} cannot be read: {error.strerror}") from error
    if not found:
        raise AddressError(f"{what}: {path} has no PEM {kind}")


# -- texts of errors ----------------------------------------------------------------------------------------------

_VERIFY: dict[int, Callable[[str, dict[str, Any]], str]] = {
    9: lambda name, cert: f"the certificate is not valid yet{_when(', only from', cert, 'notBefore')}",
    10: lambda name, cert: f"the certificate has expired{_when(', on', cert, 'notAfter')}",
    23: lambda name, cert: "the certificate has been revoked",
    62: lambda name, cert: _other_name(name, cert),
    64: lambda name, cert: _other_name(name, cert),
}
"By OpenSSL's X509_V_ERR numbers."
_UNTRUSTED = (2, 18, 19, 20, 21)

_ALERTS = {
    "CERTIFICATE_REQUIRED": "the peer requires a certificate from this side: cert= and key=",
    "HANDSHAKE_FAILURE": "the peer refused: it may require a certificate or other ciphers from this side",
    "UNKNOWN_CA": "the peer does not trust the authority that signed this side's certificate",
    "CERTIFICATE_EXPIRED": "the peer reports that this side's certificate has expired",
    "CERTIFICATE_REVOKED": "the peer reports that this side's certificate has been revoked",
    "BAD_CERTIFICATE": "the peer does not accept this side's certificate",
    "CERTIFICATE_UNKNOWN": "the peer does not accept this side's certificate",
    "UNSUPPORTED_CERTIFICATE": "the peer does not accept this side's certificate",
    "PROTOCOL_VERSION": "the two sides share no version of TLS",
    "UNRECOGNIZED_NAME": "the peer does not have the requested name",
}
_REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the peer sent no certificate, and this side requires one",
    "UNSUPPORTED_PROTOCOL": "the two sides share no version of TLS",
    "NO_SHARED_CIPHER": "the two sides share no cipher",
}
_WITHOUT_TLS = "the peer does not speak TLS"
_NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "RECORD_LAYER_FAILURE")


def _words(error: OSError, name: str, certificate: dict[str, Any] | None) -> str:
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _UNTRUSTED:
            return "the certificate is not signed by a trusted authority"
        words = _VERIFY.get(error.verify_code)
        return words(name, certificate or {}) if words else f"the certificate was refused: {error.verify_message}"
    if not isinstance(error, ssl.SSLError) or isinstance(error, ssl.SSLEOFError):
        return "the peer closed the connection during the handshake"
    reason = error.reason or ""
    if reason in _NOT_TLS:
        return _WITHOUT_TLS
    alert = reason.partition("_ALERT_")[2]
    return _ALERTS.get(alert) or _REASONS.get(reason) or _reason(error)


def _reason(error: Exception) -> str:
    """Return OpenSSL's name of the failure, as text."""
    reason = getattr(error, "reason", None)
    return reason.lower().replace("_", " ") if reason else str(error)


def _when(before: str, certificate: dict[str, Any], key: str) -> str:
    return f"{before} {certificate[key]}" if key in certificate else ""


def _other_name(name: str, certificate: dict[str, Any]) -> str:
    """Return the text for a certificate with other names: three at most, because the peer chose them."""
    names = [str(name)[:64] for _, name in certificate.get("subjectAltName", ())]
    if certificate and not names:
        return f"the certificate has no subjectAltName, which must contain {name}"
    shown = " and ".join(names[:3]) + (" and others" if names[3:] else "") if names else "another name"
    return f"the certificate is for {shown}, not for {name}"
