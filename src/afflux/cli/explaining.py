"""Add to the error of a request what to do about it: options that the server lacks, or another protocol."""

from __future__ import annotations

from afflux.core.errors import ConnectionClosed, Error, RemoteProtocolError, SetupRefused
from afflux.transports.address import parse

__all__ = ["explain"]


def explain(error: Error, uri: str, *, lease: bool, resume: bool, answered: bool) -> None:
    """Add notes to an error.

    Args:
        error: the error.
        uri: the address of the server.
        lease: whether --lease was given.
        resume: whether --resume was given.
        answered: whether items have arrived.
    """
    if isinstance(error, SetupRefused):
        for option, given, word in (("--lease", lease, "lease"), ("--resume", resume, "resum")):
            if given and word in error.message:
                error.add_note(f"omit {option}, or start the server with it (afflux serve {option})")
    if not answered and _maybe_other_protocol(error):
        error.add_note(f"does {uri} speak {parse(uri).protocol}?")


def _maybe_other_protocol(error: Error) -> bool:
    """Whether the server may speak another protocol: it sent invalid bytes, or closed without an error code."""
    root = error.__cause__ or error
    if isinstance(root, RemoteProtocolError):
        return not root.in_handshake  # that error already names the peer's protocol
    return type(root) is ConnectionClosed and root.code is None
