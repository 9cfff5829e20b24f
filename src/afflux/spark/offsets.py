"""Encode the offsets in Spark's log, and compute batches from them.

An offset contains, for each shard, the epoch and the position up to which it is read::

    {"0": {"epoch": 5611…, "pos": 250000, "source": "3f9a0c17"}}

That of a query with ``acknowledgeAs`` also has ``reader`` (acknowledging.py).

1. Keys are sorted, because Spark compares offsets as text.
2. ``source`` is a fingerprint of route and request data, so that a checkpoint cannot be continued by another stream.
   The address is not part of it, because a server may move. The epoch identifies the journal.
3. A batch is the difference of two offsets. After a crash it is read again exactly as logged.
4. Spark does not log the start of a query's first batch, and asks for it again after a failed start. So the start that
   Spark gets is a placeholder, ``{"source": "3f9a0c17", "start": "unresolved"}``, and the end of the first batch, which
   Spark logs, has the position where the batch begins::

       {"0": {"epoch": 5611…, "from": 249000, "pos": 250000, "source": "3f9a0c17"}}
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeGuard

from afflux.core.errors import Invalid

__all__ = [
    "AWAY",
    "FULL",
    "READER",
    "Mark",
    "Offsets",
    "Span",
    "begin_of",
    "fair",
    "fingerprint",
    "is_count",
    "is_unresolved",
    "offsets_of",
    "split",
    "to_json",
    "unresolved",
]

READER = "reader"
"The key of the query's identity in an offset, next to the shards."
AWAY = "away"
"The key that an offset has, next to the shards, while the server is away (source.py)."
FULL = "full"
"The key that an offset has, next to the shards, while a journal is full (source.py)."
_BESIDE = (READER, AWAY, FULL)
_TOP = 1 << 63
_UNRESOLVED = "unresolved"


@dataclass(frozen=True, slots=True)
class Mark:
    """The position up to which a shard is read."""

    epoch: int
    "The epoch of the position; never 0."
    position: int
    "The first offset not yet read."


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Consecutive offsets of one shard, read by one task."""

    shard: int
    epoch: int
    first: int
    end: int
    "The offset after the last one."

    def __len__(self) -> int:
        return self.end - self.first

    def __str__(self) -> str:
        return f"shard {self.shard}, epoch {self.epoch}, offsets {self.first} to {self.end - 1}"


Offsets = dict[int, Mark]
"An offset of the source: a mark for each shard."


def fingerprint(route: str | None, request_data: str) -> str:
    """Return eight hexadecimal digits that almost certainly differ between the streams of a server."""
    named = repr((route, request_data)).encode("utf-8", "surrogatepass")
    return hashlib.sha256(named).hexdigest()[:8]


def unresolved(source: str) -> dict[str, str]:
    """Return the placeholder for the start of a query without a checkpoint."""
    return {"source": source, "start": _UNRESOLVED}


def is_unresolved(logged: Any, source: str) -> bool:
    """Return whether the offset is the placeholder of this source."""
    return isinstance(logged, Mapping) and logged == unresolved(source)


def to_json(offsets: Offsets, source: str, begin: Offsets | None = None) -> dict[str, dict[str, int | str]]:
    """Return the offset as Spark logs it, with keys sorted as text. ``begin`` is where the first batch begins."""
    named = {str(shard): mark for shard, mark in offsets.items()}
    begins = {str(shard): {"from": mark.position} for shard, mark in (begin or {}).items()}
    return {
        shard: {"epoch": mark.epoch, **begins.get(shard, {}), "pos": mark.position, "source": source}
        for shard, mark in sorted(named.items())
    }


def begin_of(logged: Any, source: str) -> Offsets | None:
    """Return where the first batch begins, from its end; None for the end of another batch.

    Raises:
        Invalid: as :func:`offsets_of`.
    """
    offsets = offsets_of(logged, source)
    begins = {int(shard): mark.get("from") for shard, mark in logged.items() if shard not in _BESIDE}
    if all(begin is None for begin in begins.values()):
        return None
    if not all(is_count(begin) and begin <= offsets[shard].position for shard, begin in begins.items()):
        raise _damaged(logged)
    return {shard: Mark(offsets[shard].epoch, begin) for shard, begin in begins.items()}


def offsets_of(logged: Any, source: str) -> Offsets:
    """Parse an offset from Spark's log.

    Raises:
        Invalid: it is not an offset of this source: the checkpoint is damaged, or of another stream.
    """
    if not isinstance(logged, Mapping) or not logged:
        raise _damaged(logged)
    offsets: Offsets = {}
    for shard, mark in logged.items():
        if shard in _BESIDE:
            continue
        if not isinstance(shard, str) or not shard.isascii() or not shard.isdigit() or not isinstance(mark, Mapping):
            raise _damaged(logged)
        epoch, position = mark.get("epoch"), mark.get("pos")
        if not (is_count(epoch) and is_count(position) and epoch):
            raise _damaged(logged)
        if mark.get("source") != source:
            raise Invalid(
                f"this checkpoint belongs to another source (its fingerprint is {mark.get('source')!r}, that of this "
                f"route and requestData is {source!r}): use a separate checkpointLocation for this query",
                rule="checkpoint",
            )
        offsets[int(shard)] = Mark(epoch, position)
    return offsets


def fair(available: Mapping[int, int], budget: int | None) -> dict[int, int]:
    """Return how many items each shard contributes to a batch of at most ``budget``.

    The unused share of a short shard goes to the longer ones.
    """
    if budget is None or sum(available.values()) <= budget:
        return dict(available)
    taken: dict[int, int] = {}
    for shard, count in sorted(available.items(), key=lambda each: (each[1], each[0])):
        taken[shard] = min(count, budget // (len(available) - len(taken)))
        budget -= taken[shard]
    return taken


def split(spans: list[Span], pieces: int, most: int) -> list[Span]:
    """Split spans, in order, into at least ``pieces`` spans of nearly equal length, if there are enough items.

    ``most`` bounds ``pieces``; rounding adds at most one for each span. Empty spans are omitted.
    """
    spans = [span for span in spans if len(span)]
    total = sum(len(span) for span in spans)
    pieces = max(1, min(pieces, most))
    cut: list[Span] = []
    for span in spans:
        own = min(len(span), -(-pieces * len(span) // total))
        edges = [span.first + len(span) * place // own for place in range(own + 1)]
        cut += [Span(shard=span.shard, epoch=span.epoch, first=first, end=end) for first, end in pairwise(edges)]
    return cut


def is_count(value: Any) -> TypeGuard[int]:
    """Return whether a value from JSON is a whole number that offsets and epochs may have."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _TOP


def _damaged(logged: Any) -> Invalid:
    return Invalid(
        f"the checkpoint contains {str(logged)[:200]!r}, which is not an offset of this source: it is damaged or "
        "belongs to another source; restore it, or start again with another checkpointLocation",
        rule="checkpoint",
    )
