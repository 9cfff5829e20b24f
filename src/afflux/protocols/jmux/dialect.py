"""Name the ways in which peers differ from the text of Jmux (section 6 of the specification)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from afflux.core.dialect import Switches, Words

__all__ = ["Dialect"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect(Switches):
    """Select the deviations of a peer, and what it tolerates."""

    WORDS: ClassVar[Words] = {
        "noop-data": ("noop_data", True),
        "lenient-partial": ("lenient_partial", True),
        "ids-255": ("max_session_id", 255),
    }

    noop_data: bool = False
    "NoOperation may carry data; the Java original rejects it (I-10)."
    lenient_partial: bool = False
    "A client may send partial, as the Java original permits (D-12, I-11)."
    max_session_id: Literal[127, 255] = 127
    "The last session id: JGDMS uses 0 to 255 with the same version (I-14)."
