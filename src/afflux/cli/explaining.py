"""Add to the error of a request what to do about it: options that the server lacks, or another protocol."""

from __future__ import annotations

from collections.abc import Mapping

from afflux.core.errors import (
    ConnectionClosed,
    Error,
    LocalProtocolError,
    RemoteProtocolError,
    SetupRefused,
    Unsupported,
)
from afflux.transports.address import parse

__all__ = ["explain"]


_NEED = {"metadata": ("-r", "-m"), "setup": ("--auth-file",), "routing tag": ("-r",)}
"Words of an error about what a protocol does not carry, and the options that need it."


def explain(
    error: Error, uri: str, *, lease: bool, resume: bool, answered: bool, options: Mapping[str, object] | None = None
) -> None:
    """Add notes to an error.

    Args:
        error: the error.
        uri: the address of the server.
        lease: whether --lease was given.
        resume: whether --resume was given.
        answered: whether items have arrived.
        options: the values of options of the request, None for those that were not given.
    """
    if isinstance(error, Unsupported | LocalProtocolError):
        names = {option for word, options in _NEED.items() if word in error.message for option in options}
        if written := [option for option, value in (options or {}).items() if value is not None and option in names]:
            error.add_note(f"{'omit' if isinstance(error, Unsupported) else 'change'} {' and '.join(written)}")
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
