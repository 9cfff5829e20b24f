"""Check regular expressions, and write them for Python and for Java, so that both match the same.

The syntax is what both have in common: characters, ``.``, classes such as ``[a-z]``, ``\\d``, ``\\w``, groups, ``|``,
``*``, ``+``, ``?``, ``{2,3}``, and ``^`` and ``$`` for both ends of the text. ``.`` matches any character, ``\\d`` and
``\\w`` only ASCII. Back-references, look-around, possessive quantifiers and options are refused.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["MOST_CHARACTERS", "PatternError", "check", "for_java", "for_python", "quoted"]

MOST_CHARACTERS: Final = 1_000
"Characters of the longest pattern."
_TOKEN: Final = re.compile(
    r"""
    (?P<escape>\\[dDwW]|\\[!-/:-@\[-`{-~])
    |(?P<set>\[\^?(?:\\[dwDW]|\\[!-/:-@\[-`{-~]|[^\\\[\]&^])+\])
    |(?P<open>\((?:\?:)?(?!\?))|(?P<close>\))|(?P<bar>\|)
    |(?P<repeat>(?:[*+?]|\{\d{1,3}(?:,\d{0,3})?\})\??)
    |(?P<start>\^)|(?P<end>\$)
    |(?P<other>[^\\\[\](){}*+?|^$])
    """,
    re.VERBOSE | re.DOTALL,
)


class PatternError(ValueError):
    """A pattern that is refused.

    Attributes:
        at: the index of the character.
    """

    def __init__(self, reason: str, at: int) -> None:
        super().__init__(reason)
        self.at = at


def check(pattern: str) -> None:
    """Check a pattern.

    Raises:
        PatternError: it is not a regular expression, or uses what the languages do not share.
    """
    if len(pattern) > MOST_CHARACTERS:
        raise PatternError(f"a pattern has at most {MOST_CHARACTERS:,} characters", 0)
    at, before = 0, "repeat"
    for at, kind, text in _tokens(pattern):
        if kind == "repeat" and before in ("repeat", "open", "bar", "start", "end"):
            raise PatternError(f"{text} has nothing to repeat", at)
        before = kind
    try:
        re.compile(for_python(pattern), re.ASCII | re.DOTALL)
    except re.error as error:
        raise PatternError(error.msg, min(error.pos or 0, len(pattern))) from None


def for_python(pattern: str) -> str:
    """Return the pattern for ``re.search`` with ``re.ASCII | re.DOTALL``."""
    return "".join({"start": r"\A", "end": r"\Z"}.get(kind, text) for _, kind, text in _tokens(pattern))


def for_java(pattern: str) -> str:
    """Return the pattern for ``rlike``."""
    return "(?s)" + "".join({"start": r"\A", "end": r"\z"}.get(kind, text) for _, kind, text in _tokens(pattern))


def quoted(text: str) -> str:
    """Return the pattern that matches exactly this text."""
    return re.sub(r"([\\\[\](){}*+?|^$.])", r"\\\1", text)


def _tokens(pattern: str) -> list[tuple[int, str, str]]:
    """Return each token with its position and its kind."""
    found, at = [], 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            raise PatternError("not a part of the regular expressions of filters", at)
        found.append((at, str(token.lastgroup), token[0]))
        at = token.end()
    return found
