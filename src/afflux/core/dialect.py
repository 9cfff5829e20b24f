"""Dialects in an address: words with commas between them, each of which sets one of a protocol's switches.

What the switches are and what they do belongs to the protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

__all__ = ["Switches", "Words"]

Words = Mapping[str, tuple[str, Any]]
"By word: the field that it sets, and its value."


class Switches:
    """What a protocol's ``Dialect`` derives from: a data class whose fields are the switches."""

    __slots__ = ()
    WORDS: ClassVar[Words]

    @classmethod
    def of(cls, text: str) -> Self:
        """What an address says: words with commas between them, such as ``java,half-close``.

        Raises:
            ValueError: a word is not known.
        """
        fields: dict[str, Any] = {}
        for word in text.split(","):
            if word not in cls.WORDS:
                raise ValueError(f"words of {', '.join(cls.WORDS)}, with commas between them")
            name, value = cls.WORDS[word]
            fields[name] = value
        return cls(**fields)

    def __str__(self) -> str:
        """As an address says it."""
        return ",".join(word for word, (name, value) in self.WORDS.items() if getattr(self, name) == value)
