"""The texts of errors on their way in and out: bounded, whole characters, always UTF-8."""

from __future__ import annotations

from afflux.core.errors import ApplicationError, Canceled, Invalid, Rejected

__all__ = ["GENERIC_TEXT", "clean_text", "cut", "told"]

GENERIC_TEXT = "application error"
"What a peer is told about an exception that was not meant for it."


def cut(text: str, limit: int) -> str:
    """The text without lone surrogates, cut at a character boundary so that UTF-8 takes at most ``limit`` bytes."""
    data = text[:limit].encode("utf-8", "replace")
    return data[:limit].decode("utf-8", "ignore")


def clean_text(data: bytes, limit: int) -> str:
    """The text of at most ``limit`` bytes that arrived; what is not UTF-8 becomes U+FFFD."""
    text = data[:limit].decode("utf-8", "replace")
    if len(data) > limit and text.endswith("\ufffd"):
        return text[:-1]
    return text


def told(error: BaseException) -> str:
    """What a peer hears of an error that ended a handler: the text of one that was meant for it. That of any other may
    hold what it must not see."""
    return str(error) if isinstance(error, (ApplicationError, Rejected, Canceled, Invalid)) else GENERIC_TEXT
