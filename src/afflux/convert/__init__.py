"""Types and their text: what codecs and routes share. No bytes and no formats live here.

``text_reader(kind)`` turns text, such as a place of a route, into an int, float, bool, str, UUID, date, datetime, or
into a member of an Enum or a Literal; ``text_of(value)`` is the way back. A type is worked out once; what no text
stands for is a TypeError then. Nothing is guessed: ``"1_0"`` is no int, ``"yes"`` no bool.
"""

from __future__ import annotations

from afflux.convert.kinds import Mismatch, name_of
from afflux.convert.text import text_of, text_reader

__all__ = ["Mismatch", "name_of", "text_of", "text_reader"]
