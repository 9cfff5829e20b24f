"""Parse the dialect in an address: comma-separated words, each of which sets one switch.

Each protocol defines its switches and their effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

__all__ = ["Switches", "Words"]

Words = Mapping[str, tuple[str, Any]]
"For each word, the field that it sets and the value."


class Switches:
    """Base class of a protocol's ``Dialect``, a data class whose fields are the switches."""

    __slots__ = ()
    WORDS: ClassVar[Words]

    @classmethod
    def of(cls, text: str) -> Self:
        """Parse comma-separated words, such as ``java,half-close``.

        Raises:
            ValueError: a word is unknown.
        """
        fields: dict[str, Any] = {}
        for word in text.split(","):
            if word not in cls.WORDS:
                raise ValueError(f"expected comma-separated words of: {', '.join(cls.WORDS)}")
            name, value = cls.WORDS[word]
            fields[name] = value
        return cls(**fields)

    def __str__(self) -> str:
        """Return the words, as an address spells them."""
        return ",".join(word for word, (name, value) in self.WORDS.items() if getattr(self, name) == value)
