"""Prepare what a NATS server requires of a client: credentials and TLS; and explain its refusals.

Files are read for each connection, so that renewed ones need no restart."""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import Any

from afflux.core.errors import AddressError, MissingExtra
from afflux.journal.address import SCHEME, StreamAddress
from afflux.transports.address import parse
from afflux.transports.security import client_context, refusal

__all__ = ["Insecure", "context", "credentials", "denial"]

_SEED = re.compile(r"SU[A-Z2-7]{56}")
"The seed of a user's nkey."


class Insecure(ConnectionError):
    """The server does not ask for TLS, and the address does."""


def credentials(address: StreamAddress) -> dict[str, Any]:
    """Return the arguments of nats-py for the credentials of an address, with the file as it is now.

    Raises:
        AddressError: the file cannot be read, or has the wrong content.
        MissingExtra: it needs nkeys.
    """
    if address.creds is None:
        return {"user": address.user, "password": address.password, "token": address.token}
    try:
        text = Path(address.creds).read_text("ascii").strip()
    except FileNotFoundError:
        raise AddressError(f"creds: there is no file {address.creds}") from None
    except (OSError, ValueError) as error:
        raise AddressError(f"creds: {address.creds} cannot be read: {error}") from None
    seed_alone = _SEED.fullmatch(text) is not None
    if not seed_alone and not ("BEGIN NATS USER JWT" in text and "BEGIN USER NKEY SEED" in text):
        raise AddressError(f"creds: {address.creds} has neither the JWT and the seed of a user, nor a seed alone")
    try:
        import nkeys  # noqa: F401 -- nats-py imports it
    except ImportError:
        raise MissingExtra("a file of NATS credentials", "nats") from None
    return {"nkeys_seed_str": text} if seed_alone else {"user_credentials": address.creds}


def context(address: StreamAddress) -> dict[str, Any]:
    """Return the arguments of nats-py for TLS.

    Raises:
        AddressError: a file is missing, cannot be read, or has the wrong content.
    """
    tls = address.tls
    if tls is None:
        return {}
    return {"tls": client_context(tls, parse(f"tls://{address.servers[0]}")), "tls_hostname": tls.server_name}


def denial(address: StreamAddress, server: str, cause: BaseException | None) -> str | None:
    """Return the text for a server that has refused this client for good; None if a later attempt may succeed."""
    if "authorization" in f"{type(cause).__name__} {cause}".lower():
        return (
            f"{server} refuses the credentials of the address; write nats://user:password@host/STREAM, or the option "
            "creds=FILE"
        )
    if isinstance(cause, Insecure):
        return f"{server} does not require TLS: configure it there, or write {SCHEME}"
    if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError):
        name = address.tls.server_name if address.tls else None
        return refusal(cause, parse(f"tls://{server}"), name or server.rpartition(":")[0]).message
    return None
