"""From plain values to typed ones and back: what codecs and routes share. No bytes and no formats live here.

*Plain* values are None, bool, int, float, str, bytes, lists, and maps with text for keys: what JSON, CBOR and
MessagePack have in common. ``reader(kind)`` turns one into a ``kind``, ``text_reader(kind)`` does so with text, such as
a place of a route; ``plain(value)`` and ``text_of(value)`` are the ways back.

| Python | as data | as text |
|---|---|---|
| int, float, bool, str | themselves; a whole number is a float too | ``-5``, ``1e-3``, ``true``, itself |
| UUID, date, datetime | text, ISO 8601 | the same |
| an Enum, a Literal | the value of a member | the same |
| bytes, None, Any | themselves | |
| list, tuple, set, frozenset, Sequence, Iterable | a list, with or without a type for what is inside | |
| dict, Mapping | a map, likewise; keys of other types than str are read from their text | |
| a dataclass, a TypedDict | a map; unknown keys are ignored, missing ones need a default | |
| a union | the narrowest that fits: int before float, a date before text | ``X | None`` is X |

1. A type is worked out once; what it can not become is a TypeError then, not when data comes.
2. Nothing is guessed: ``"1"`` is no int, ``1`` is no bool, ``1.0`` is no int.
3. The work is linear. So a union may hold one kind of list and one kind of map, unless its maps can be told apart by a
   field with a Literal of its own (``kind: Literal["buy"]``).
4. Nothing that is sent nests deeper than ``DEPTH``.
"""

from __future__ import annotations

from afflux.convert.data import reader
from afflux.convert.kinds import DEPTH, Mismatch, name_of
from afflux.convert.plain import plain
from afflux.convert.text import text_of, text_reader

__all__ = ["DEPTH", "Mismatch", "name_of", "plain", "reader", "text_of", "text_reader"]
