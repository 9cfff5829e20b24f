"""How a call fails, and whether it may have been processed. The promise of Jmux is at most once: only a failure that
says ``may_have_been_processed = False`` may be tried again. Details of messages are cut and read here too.
"""

from __future__ import annotations

from afflux.core.errors import Canceled, ConnectionClosed, LimitExceeded, Rejected, Violation
from afflux.core.limits import Limits
from afflux.core.texts import clean_text, cut

__all__ = [
    "LARGEST_DETAIL",
    "NoSession",
    "SessionAborted",
    "SessionLost",
    "SessionRejected",
    "detail_of",
    "encoded",
    "violation",
]

LARGEST_DETAIL = 0xFFFF
"Bytes that the length of a detail can say (R-15)."


class SessionRejected(Rejected):
    """The server has processed nothing of the call, or nothing of it was written: it is safe to try again."""


class NoSession(LimitExceeded):
    """Nothing was sent: every session is in use, or too much of earlier responses was not read. Open another
    connection."""

    may_have_been_processed = False


class SessionAborted(Canceled):
    """The session ended before its response; the call may have been processed, in part or as a whole."""


class SessionLost(ConnectionClosed):
    """The connection ended before the response did; the call may have been processed."""


def violation(reason: str, rule: str) -> Violation:
    """A rule that the peer has broken."""
    return Violation(reason, rule=rule)


def encoded(text: str, limit: int) -> bytes:
    """A detail: UTF-8 of at most ``limit`` bytes, and of no more than fit, cut at a character boundary (R-15, D-5)."""
    return cut(text, min(limit, LARGEST_DETAIL)).encode()


def detail_of(data: bytes, limits: Limits) -> str:
    """The text of a detail that arrived: cut to ``error_text_bytes``, U+FFFD for what is not UTF-8 (R-15, JA-11)."""
    return clean_text(data, limits.error_text_bytes[1])
