"""Dialects in an address: words with commas between them, each of which sets one field of a protocol's switches.

What the switches are and what they do belongs to the protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["Words", "said", "understood"]

Words = Mapping[str, tuple[str, Any]]
"By word: the field that it sets, and its value."


def understood(text: str, words: Words) -> dict[str, Any]:
    """The fields that a text such as ``java,half-close`` sets.

    Raises:
        ValueError: a word is not known.
    """
    fields: dict[str, Any] = {}
    for word in text.split(","):
        if word not in words:
            raise ValueError(f"words of {', '.join(words)}, with commas between them")
        name, value = words[word]
        fields[name] = value
    return fields


def said(switches: object, words: Words) -> str:
    """The text that sets what is set."""
    return ",".join(word for word, (name, value) in words.items() if getattr(switches, name) == value)
