"""Name the extensions of the draft (section 6 of the specification), as an address lists them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from afflux.core.dialect import Switches, Words
from afflux.protocols.rsio.codes import Extension

__all__ = ["Dialect"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect(Switches):
    """Select what hello lists. Both sides must list an extension to use it; drafts do not number them, so meanings may
    differ."""

    WORDS: ClassVar[Words] = {
        "no-split": ("split_messages", False),
        "no-goodbye-ack": ("goodbye_ack", False),
    }

    split_messages: bool = True
    "A large element may arrive in parts (I-3)."
    goodbye_ack: bool = True
    "goodbye is answered by goodbyeAck (I-4)."

    @property
    def extensions(self) -> tuple[Extension, ...]:
        """The extensions in the order of hello."""
        known = {Extension.SPLIT_MESSAGES: self.split_messages, Extension.GOODBYE_ACK: self.goodbye_ack}
        return tuple(extension for extension, listed in known.items() if listed)
