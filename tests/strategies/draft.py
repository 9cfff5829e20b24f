"""Hypothesis strategies for the frames of the draft: as declared, with chains of entries that fit their point."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from afflux.protocols.rsocket.metadata.mime import MIME_NAMES
from afflux.protocols.rsocket_draft import payloads
from afflux.protocols.rsocket_draft.entries import BROKER, KEEPALIVE, LEASE, RESUME, Entry, Point
from afflux.protocols.rsocket_draft.fields import Chain, Mime
from afflux.protocols.rsocket_draft.frames import FRAMES, ExtChain
from afflux.protocols.rsocket_draft.payloads import Position, Session, Times

from .frames import values

IDS = st.integers(1, 0x7FFFFFFF)
NAMES = st.text(st.characters(codec="ascii"), min_size=1, max_size=128)
COMPACT = st.integers(0, 127) | NAMES
MIMES = st.sampled_from(sorted(MIME_NAMES.values())) | NAMES
POSITIONS = st.lists(st.builds(Position, IDS, st.integers(0, (1 << 64) - 1)), max_size=5).map(tuple)
TIMES = st.builds(Times, IDS, IDS)
SESSIONS = st.builds(Session, st.binary(max_size=40), st.none() | POSITIONS)
FLAGS = st.integers(0, 15)

OPEN = st.builds(Entry, COMPACT, st.binary(max_size=40), st.just(True), st.booleans(), FLAGS)
"Entries with a length: of any extension, with any content."

CLOSED: dict[Point, st.SearchStrategy[Entry]] = {
    Point.SETUP: st.builds(payloads.keepalive_entry, TIMES, ignorable=st.just(False))
    | st.builds(payloads.resume_entry, SESSIONS, ignorable=st.just(False)),
    Point.SETUP_OK: st.sampled_from([Entry(KEEPALIVE), Entry("keepalive"), Entry(BROKER), Entry(RESUME)])
    | st.builds(payloads.list_entry, POSITIONS, ignorable=st.just(False), marked=st.just(True))
    | COMPACT.map(lambda strategy: payloads.lease_entry([strategy], ignorable=False)),
    Point.EXT: st.builds(payloads.list_entry, POSITIONS, ignorable=st.just(False))
    | st.binary(min_size=8, max_size=8).map(lambda data: Entry(LEASE, data)),
    Point.STREAM: st.sampled_from([Entry(RESUME), Entry(RESUME, flags=8), Entry("resume", flags=8)]),
}
"Entries without a length, whose payloads end by themselves."


def chains(point: Point, least: int = 0) -> st.SearchStrategy[tuple[Entry, ...]]:
    """Any chain that this side may write at a point."""
    return st.lists(OPEN | CLOSED[point], min_size=least, max_size=6).map(tuple)


def draft_frames_of(frame: Any) -> st.SearchStrategy[Any]:
    """Any frame of one class that this side may construct."""
    given: dict[str, st.SearchStrategy[Any]] = {}
    for field in frame.LAYOUT:
        if isinstance(field.kind, Chain):
            given[field.name] = chains(frame.POINT, int(frame is ExtChain))
        elif isinstance(field.kind, Mime):
            given[field.name] = st.none() | MIMES if field.kind.optional else MIMES
        elif field.kind.in_value:
            given[field.name] = values(field.kind)
    return st.builds(frame, **given)


def draft_frames() -> st.SearchStrategy[Any]:
    """Any frame of the draft."""
    return st.one_of([draft_frames_of(frame) for frame in (*FRAMES.values(), ExtChain)])
