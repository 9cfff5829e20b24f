"""Read and write gap records: the metadata entry of an item that stands for missing items.

A relay stores such an item where a stream without a cursor, or one that has dropped items, could not be continued. The
item has no data. Its metadata is one entry of composite metadata with the MIME type ``message/x.afflux.gap.v0``, whose
value is JSON in UTF-8 with these members: ``cause`` (text), ``before`` and ``after`` (the positions at the remote, as
``{"epoch": …, "offset": …}``, or null without a cursor) and ``lost`` (a number of items, or null if it is unknown).
docs/cursor.md has the same text with an example.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from afflux.core.payload import Payload
from afflux.protocols.rsocket.metadata import compose

__all__ = ["GAP_MIME", "Gap", "Place", "gap_from", "gap_of"]

GAP_MIME = "message/x.afflux.gap.v0"
"The MIME type of the entry. Another layout gets another type."

_START = bytes((len(GAP_MIME) - 1,)) + GAP_MIME.encode("ascii")
_CAUSE_CHARS = 1024


@dataclass(frozen=True, slots=True)
class Place:
    """A position in the remote stream."""

    epoch: int
    "The epoch of the remote's cursor."
    offset: int
    "The offset in that epoch."

    def __str__(self) -> str:
        return f"epoch {self.epoch}, offset {self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Items of the remote stream that are missing here."""

    cause: str
    "Why they are missing; cut to 1,024 characters."
    before: Place | None = None
    "The position that was expected next; None without a cursor."
    after: Place | None = None
    "The position of the item after the gap; None without a cursor."

    lost: int | None = None
    "The number of missing items; None if it is unknown."

    def __str__(self) -> str:
        count = "an unknown number of items is" if self.lost is None else f"{self.lost} items are"
        places = "" if self.before is None else f" from {self.before} to {self.after or 'an unknown position'}"
        return f"{count} missing{places}: {self.cause}"

    def value(self) -> dict[str, Any]:
        """Return the members of the JSON object."""
        return {
            "cause": self.cause[:_CAUSE_CHARS],
            "before": _plain(self.before),
            "after": _plain(self.after),
            "lost": self.lost,
        }

    def item(self) -> Payload:
        """Return the item that records the gap."""
        return Payload(b"", compose([(GAP_MIME, json.dumps(self.value(), separators=(",", ":")).encode())]))


def gap_of(metadata: bytes | None) -> Gap | None:
    """Return the gap that an item records, from its own metadata (without a position); None for any other item."""
    if metadata is None or not metadata.startswith(_START):
        return None
    start = len(_START) + 3
    end = start + int.from_bytes(metadata[start - 3 : start], "big")
    try:
        return gap_from(json.loads(metadata[start:end]))
    except (ValueError, TypeError, KeyError, RecursionError):  # another program's entry of this type
        return None


def gap_from(value: Any) -> Gap:
    """Return the gap of the members of a JSON object.

    Raises:
        TypeError, KeyError: a member is missing or has another type.
    """
    cause = value["cause"]
    if not isinstance(cause, str):
        raise TypeError("the cause is not a text")
    lost = value["lost"]
    if lost is not None and type(lost) is not int:
        raise TypeError("the number of lost items is not an integer")
    return Gap(cause=cause[:_CAUSE_CHARS], before=_place(value["before"]), after=_place(value["after"]), lost=lost)


def _plain(place: Place | None) -> dict[str, int] | None:
    return None if place is None else {"epoch": place.epoch, "offset": place.offset}


def _place(value: Any) -> Place | None:
    if value is None:
        return None
    epoch, offset = value["epoch"], value["offset"]
    if type(epoch) is not int or type(offset) is not int:
        raise TypeError("an epoch or an offset is not an integer")
    return Place(epoch, offset)
