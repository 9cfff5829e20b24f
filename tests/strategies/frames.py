"""Hypothesis strategies for frames, derived from their declarations."""

from __future__ import annotations

from typing import Any, TypeVar

from hypothesis import strategies as st

from afflux.core.fields import Flag, Flagged, Kind, Rest, Sized, UInt
from afflux.core.frame import Frame
from afflux.protocols.rsocket.frames import FRAMES, RSocketFrame

F = TypeVar("F", bound=Frame)

LONGEST = 300
"""Bytes in a drawn value: more than an 8-bit length can say, far below what makes a test slow."""


def values(kind: Kind) -> st.SearchStrategy[Any]:
    """What a field of this kind may be constructed with."""
    if isinstance(kind, Flag):
        return st.booleans()
    if isinstance(kind, UInt):
        return st.integers(kind.at_least, kind.largest) | st.sampled_from([kind.at_least, kind.largest])
    if isinstance(kind, Flagged):
        return st.none() | st.integers(kind.at_least, 0x7FFFFFFF)
    if isinstance(kind, Sized):
        most = min(LONGEST, kind.largest)
        present: st.SearchStrategy[Any] = st.binary(min_size=kind.at_least, max_size=most)
        if kind.text:
            present = st.text(st.characters(codec="ascii"), min_size=kind.at_least, max_size=most)
        return st.none() | present if kind.optional else present
    if isinstance(kind, Rest):
        return st.binary(max_size=LONGEST)
    raise TypeError(f"no strategy for {kind!r}")


def frames_of(frame: type[F]) -> st.SearchStrategy[F]:
    """Any frame of one class that this side may construct."""
    return st.builds(frame, **{field.name: values(field.kind) for field in frame.LAYOUT if field.kind.in_value})


def rsocket_frames() -> st.SearchStrategy[RSocketFrame]:
    """Any RSocket 1.0 frame."""
    return st.one_of([frames_of(frame) for frame in FRAMES.values()])
