"""Encode the offsets in Spark's log, and compute batches from them.

An offset contains, for each shard, the epoch and the position up to which it is read::

    {"0": {"asked": {"uri": …, "route": …}, "epoch": 5611…, "pos": 250000, "source": "3f9a0c17"}}

The key is the shard's number. In a query with the option ``streams`` it is the stream's name and the number, as
``"eu/0"``. The offset of a query with ``acknowledgeAs`` also has ``reader`` (acknowledging.py). The first shard of a
stream has ``asked``: what the stream was asked for. Errors show it; it decides nothing, and earlier versions lack it.

1. Keys are sorted, because Spark compares offsets as text.
2. ``source`` is a fingerprint of route and request data, so that a checkpoint cannot be continued by another stream.
   The address is not part of it, because a server may move. The epoch identifies the journal.
3. A batch is the difference of two offsets. After a crash it is read again exactly as logged.
4. Spark does not log the start of a query's first batch, and asks for it again after a failed start. So the start that
   Spark gets is a placeholder, ``{"source": "3f9a0c17", "start": "unresolved"}``, and the end of the first batch, which
   Spark logs, has the position where the batch begins::

       {"0": {"epoch": 5611…, "from": 249000, "pos": 250000, "source": "3f9a0c17"}}

   A shard that is read for the first time by a restarted query has ``from`` as well.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, TypeGuard, TypeVar

from afflux.core.errors import Invalid

__all__ = [
    "AWAY",
    "FULL",
    "READER",
    "Key",
    "Mark",
    "Offsets",
    "Sources",
    "Span",
    "StreamShard",
    "begins_of",
    "fair",
    "fingerprint",
    "is_count",
    "is_unresolved",
    "moved_from",
    "offsets_of",
    "shard_of",
    "span_of",
    "spans_between",
    "split",
    "stream_of",
    "text_of",
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
_MARK = {"asked", "epoch", "from", "pos", "source"}
"What a shard has in an offset."
_TOP = 1 << 63
_UNRESOLVED = "unresolved"
_SHARD_DIGITS = 5
_SHOWN = 200
"Characters of a value in ``asked``."
_DESCRIBED = 32
"Streams up to which an offset has ``asked``: Spark logs it with each batch."


class StreamShard(NamedTuple):
    """A shard of one of the streams of a query."""

    stream: str
    "The stream's name in the option ``streams``."
    number: int
    "The shard's number in that stream."


Key = int | StreamShard
"What an offset has marks for: the number of a shard in a query of one stream, else the stream's name and the number."

_K = TypeVar("_K", bound=Key)


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
    stream: str = ""
    "The stream's name in the option ``streams``; empty for the one stream of a query."
    uri: str = ""
    "The address to read from, if it is not that of the options: of a relay in the reader's process."

    @property
    def key(self) -> Key:
        """The key of the shard."""
        return StreamShard(self.stream, self.shard) if self.stream else self.shard

    def __len__(self) -> int:
        return self.end - self.first

    def __str__(self) -> str:
        of = f" of stream {self.stream}" if self.stream else ""
        return f"shard {self.shard}{of}, epoch {self.epoch}, offsets {self.first} to {self.end - 1}"


Offsets = dict[Key, Mark]
"An offset of the source: a mark for each shard."
Sources = str | Mapping[str, str]
"The fingerprint of the one stream, or those of the streams by their names."


def stream_of(key: Key) -> str:
    """Return the name of the stream; empty for the one stream of a query."""
    return "" if isinstance(key, int) else key.stream


def shard_of(key: Key) -> int:
    """Return the number of the shard in its stream."""
    return key if isinstance(key, int) else key.number


def text_of(key: Key) -> str:
    """Return the key as Spark logs it."""
    return str(key) if isinstance(key, int) else f"{key.stream}/{key.number}"


def span_of(key: Key, epoch: int, first: int, end: int) -> Span:
    """Return a span of the shard."""
    return Span(shard=shard_of(key), epoch=epoch, first=first, end=end, stream=stream_of(key))


def spans_between(starts: Offsets, ends: Offsets) -> list[Span]:
    """Return the spans from the starts to the ends, each in the epoch of its end."""
    return [span_of(key, mark.epoch, starts[key].position, mark.position) for key, mark in ends.items()]


class Fingerprint(str):
    """Eight hexadecimal digits that almost certainly differ between streams of a server, and what they stand for."""

    about: dict[str, str]
    "The address, which they do not depend on, the route and the data of the request."


def fingerprint(route: str | None, request_data: str, uri: str = "") -> Fingerprint:
    """Return the fingerprint of a stream."""
    named = repr((route, request_data)).encode("utf-8", "surrogatepass")
    made = Fingerprint(hashlib.sha256(named).hexdigest()[:8])
    about = {"requestData": request_data, "route": route, "uri": uri}
    made.about = {name: text[:_SHOWN] for name, text in about.items() if text is not None}
    return made


def _described(source: Sources) -> dict[str, dict[str, str]]:
    """Return what the streams are asked for, by their names."""
    named = {"": source} if isinstance(source, str) else source
    about = {name: each.about for name, each in named.items() if isinstance(each, Fingerprint)}
    return about if len(about) <= _DESCRIBED else {}


def moved_from(logged: Mapping[str, Any], source: Sources) -> dict[str, str]:
    """Return the addresses of streams that had another one when the offset was logged, by the names of the streams."""
    found = {}
    for name, now in _described(source).items():
        was = _asked(logged, name).get("uri")
        if was is not None and was != now["uri"]:
            found[name] = was
    return found


def _asked(logged: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return what a stream was asked for when the offset was logged; empty if the offset does not have it."""
    for text, mark in logged.items():
        key = _key(text)
        about = mark.get("asked") if key is not None and stream_of(key) == name else None
        if isinstance(about, Mapping):
            return dict(about)
    return {}


def _another(logged: Any, key: Key, was: Any, wanted: str) -> Invalid:
    """Return the error about an offset of another stream, with what differs."""
    of = f" of stream {stream_of(key)}" if stream_of(key) else ""
    now: dict[str, Any] = wanted.about if isinstance(wanted, Fingerprint) else {}
    then = _asked(logged, stream_of(key))
    found = [
        f"{name} was {_quoted(then.get(name))} and is {_quoted(now.get(name))}"
        for name in ("route", "requestData", "uri")
        if then.get(name) != now.get(name)
    ]
    if not then:
        found = [f"route or requestData was another one; the fingerprint of both was {was!r} and is {wanted!r}"]
    elif not any(then.get(name) != now.get(name) for name in ("route", "requestData")):
        found.insert(0, f"route or requestData differs after {_SHOWN} characters")
    return Invalid(
        f"this checkpoint belongs to another source{of}: {', '.join(found)}. Give the former options, or use a "
        "separate checkpointLocation for this query",
        rule="checkpoint",
    )


def _quoted(value: Any) -> str:
    return "not given" if value is None else repr(value)


def unresolved(source: Sources) -> dict[str, str]:
    """Return the placeholder for the start of a query without a checkpoint."""
    return {"source": source if isinstance(source, str) else "", "start": _UNRESOLVED}


def is_unresolved(logged: Any, source: Sources) -> bool:
    """Return whether the offset is the placeholder of this source."""
    return isinstance(logged, Mapping) and logged == unresolved(source)


def to_json(offsets: Offsets, source: Sources, begin: Offsets | None = None) -> dict[str, Any]:
    """Return the offset as Spark logs it, with keys sorted as text. ``begin`` is where shards are read from, if this is
    the end of their first batch."""
    begins = {key: {"from": mark.position} for key, mark in (begin or {}).items()}
    asked = _described(source)
    found: dict[str, Any] = {}
    for text, key, mark in sorted((text_of(key), key, mark) for key, mark in offsets.items()):
        about = asked.pop(stream_of(key), None)
        first = {} if about is None else {"asked": about}
        found[text] = first | {"epoch": mark.epoch, **begins.get(key, {}), "pos": mark.position}
        found[text]["source"] = _source(source, key)
    return found


def begins_of(logged: Any, source: Sources) -> Offsets:
    """Return where the shards begin whose first batch ends here.

    Raises:
        Invalid: as :func:`offsets_of`.
    """
    begins: Offsets = {}
    for key, mark in offsets_of(logged, source).items():
        begin = logged[text_of(key)].get("from")
        if begin is None:
            continue
        if not is_count(begin) or begin > mark.position:
            raise _damaged(logged)
        begins[key] = Mark(mark.epoch, begin)
    return begins


def offsets_of(logged: Any, source: Sources) -> Offsets:
    """Parse an offset from Spark's log. It may have marks of streams that are not in ``source``.

    Raises:
        Invalid: it is not an offset of this source: the checkpoint is damaged, or of another stream.
    """
    if not isinstance(logged, Mapping) or not logged:
        raise _damaged(logged)
    offsets: Offsets = {}
    for text, mark in logged.items():
        if text in _BESIDE:
            continue
        key = _key(text)
        if key is None or not isinstance(mark, Mapping) or not mark.keys() <= _MARK:
            raise _damaged(logged)
        epoch, position = mark.get("epoch"), mark.get("pos")
        if not (is_count(epoch) and is_count(position) and epoch):
            raise _damaged(logged)
        wanted = _source(source, key)
        if wanted is not None and mark.get("source") != wanted:
            raise _another(logged, key, mark.get("source"), wanted)
        offsets[key] = Mark(epoch, position)
    return offsets


def _key(text: Any) -> Key | None:
    """Return the key of a text; None if it is not one."""
    if not isinstance(text, str):
        return None
    stream, _, number = text.rpartition("/")
    if not number.isascii() or not number.isdigit() or len(number) > _SHARD_DIGITS or text.startswith("/"):
        return None
    return StreamShard(stream, int(number)) if stream else int(number)


def _source(source: Sources, key: Key) -> str | None:
    """Return the fingerprint of the key's stream; None if the query does not have it."""
    if isinstance(source, str):
        return source if isinstance(key, int) else None
    return source.get(stream_of(key))


def fair(available: Mapping[_K, int], budget: int | None) -> dict[_K, int]:
    """Return how many items each shard contributes to a batch of at most ``budget``.

    The unused share of a short shard goes to the longer ones.
    """
    if budget is None or sum(available.values()) <= budget:
        return dict(available)
    taken: dict[_K, int] = {}
    for shard, count in sorted(available.items(), key=lambda each: (each[1], text_of(each[0]))):
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
        cut += [replace(span, first=first, end=end) for first, end in pairwise(edges)]
    return cut


def is_count(value: Any) -> TypeGuard[int]:
    """Return whether a value from JSON is a whole number that offsets and epochs may have."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _TOP


def _damaged(logged: Any) -> Invalid:
    return Invalid(
        f"the checkpoint contains {str(logged)[:200]!r}, which is not an offset of this source: it is damaged, "
        "belongs to another source or was written by a newer afflux; restore it, or start again with another "
        "checkpointLocation",
        rule="checkpoint",
    )
