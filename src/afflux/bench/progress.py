"""Describe the progress of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

__all__ = ["TELL_S", "Progress", "Tell", "together"]

TELL_S: Final = 0.25
"Seconds between progress reports."

Phase = Literal["connecting", "warming up", "measuring", "waiting"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a run."""

    phase: Phase
    """``connecting`` opens the connections; ``waiting`` is for requests in flight after the end of the duration."""
    elapsed: float
    "Seconds in this phase."
    share: float | None
    "Completed share of the phase, 0 to 1; None if unknown."
    done: int
    "Completed requests; while connecting, connections that are open or refused."
    failed: int
    "How many of them failed, or were refused."
    items: int


Tell = Callable[[Progress], None]


def together(parts: Sequence[Progress]) -> Progress:
    """Return the progress of several processes: that of the earliest phase that one of them is in."""
    phases: tuple[Phase, ...] = get_args(Phase)
    phase = min((part.phase for part in parts), key=phases.index)
    behind = [part for part in parts if part.phase == phase]
    shares = [part.share for part in behind if part.share is not None]
    return Progress(
        phase=phase,
        elapsed=max(part.elapsed for part in behind),
        share=min(shares, default=None),
        done=sum(part.done for part in behind),
        failed=sum(part.failed for part in behind),
        items=sum(part.items for part in behind),
    )
