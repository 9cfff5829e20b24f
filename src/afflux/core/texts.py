"""Bound the texts of errors that are sent or received: whole characters, always UTF-8. List words in a text."""

from __future__ import annotations

from collections.abc import Sequence

from afflux.core.errors import ApplicationError, Canceled, Invalid, Rejected

__all__ = ["GENERIC_TEXT", "clean_text", "cut", "one_of", "public_text"]

GENERIC_TEXT = "application error"
"The text sent for an exception that was not meant for the peer."


def one_of(words: Sequence[str]) -> str:
    """Return a list of alternatives: ``a``, ``a or b``, ``a, b or c``."""
    return " or ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else "".join(words)


def cut(text: str, limit: int) -> str:
    """Replace lone surrogates, and cut at a character boundary so that UTF-8 takes at most ``limit`` bytes."""
    data = text[:limit].encode("utf-8", "replace")
    return data[:limit].decode("utf-8", "ignore")


def clean_text(data: bytes, limit: int) -> str:
    """Decode at most ``limit`` received bytes; those that are not UTF-8 become U+FFFD."""
    text = data[:limit].decode("utf-8", "replace")
    if len(data) > limit and text.endswith("\ufffd"):
        return text[:-1]
    return text


def public_text(error: BaseException) -> str:
    """Return the text to send for an error that ended a handler: its own, if it was raised for the peer. The text of
    any other exception may contain private data."""
    return str(error) if isinstance(error, (ApplicationError, Rejected, Canceled, Invalid)) else GENERIC_TEXT
