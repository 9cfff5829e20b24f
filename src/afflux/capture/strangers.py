"""Say what the first bytes show of a connection that is none of ours, or whose beginning the capture lacks.

Where the beginning is missing, the first bytes in the capture may be the middle of anything, so one side alone proves
nothing: it looks like HTTP or TLS. Nothing is decoded because of what is said here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from afflux.capture.settings import Content

__all__ = ["SHOWN", "described"]

SHOWN: Final = 256
"First bytes of a side that are looked at."
_REQUEST: Final = re.compile(rb"(GET|HEAD|POST|PUT|DELETE|OPTIONS|PATCH|CONNECT|TRACE) [^\s\0]{1,200}")
_ANSWER: Final = re.compile(rb"HTTP/1\.[01] \d{3}")
_SWITCHED: Final = re.compile(rb"HTTP/1\.1 101")
_TLS: Final = re.compile(rb"[\x14-\x17]\x03[\x01-\x03][\x00-\x48]")
"The head of a TLS record: its type, its version, and a length that TLS permits."


def described(starts: Mapping[bool, bytes], begun: bool) -> tuple[Content, str]:
    """Return the content of a connection whose protocol is not recognized, and what is known of it.

    Args:
        starts: the first bytes of the sides, by ``rising``.
        begun: whether they are known to be the first of the connection.
    """
    heads = [data[:SHOWN] for data in starts.values()]
    asks, answers = (any(kind.match(head) for head in heads) for kind in (_REQUEST, _ANSWER))
    if any(_SWITCHED.match(head) for head in heads):
        return (Content.OTHER if begun else Content.MID_STREAM), "HTTP that switches to another protocol"
    if begun or (asks and answers):
        return Content.OTHER, "HTTP" if asks or answers else ""
    if asks or answers:
        return Content.MID_STREAM, "looks like HTTP"
    if all(_TLS.match(head) for head in heads):
        return Content.MID_STREAM, "looks like TLS"
    return Content.MID_STREAM, "protocol unknown"
