"""Recognize the first frame of RSocket and the protocols that share its header: a stream id, then type and flags.

RSocket 1.0 and its extensible draft begin with the same header of SETUP, and the bytes after it may be a version (1.0)
or MIME types (the draft): both use ``setup_begins``.
"""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["LETTERS", "answer_begins", "connection_begins", "setup_begins"]

_HEADER = 6
_SETUP = 0x01
LETTERS = 0x20
"Octets from here on are not control characters."


def connection_begins(start: bytes, types: Collection[int]) -> bool | None:
    """Return whether the first frame is of one of ``types``, on stream 0."""
    if start[:4].strip(b"\0"):
        return False
    return None if len(start) < 5 else start[4] >> 2 in types


def setup_begins(start: bytes) -> bool | None:
    """Return whether the first frame is a SETUP with a version or MIME types after its header.

    A minor version is small. In Limit-Stream, whose SETUP has the same header, its last byte is the first letter of the
    channel's name, which follows 24 bits of length.
    """
    if (found := connection_begins(start, (_SETUP,))) is not True:
        return found
    if start[_HEADER : _HEADER + 1] > b"\0":
        return True
    return None if len(start) < _HEADER + 4 else start[_HEADER + 3] < LETTERS


def answer_begins(
    start: bytes, connection: Collection[int], answers: Collection[int], requests: Collection[int]
) -> bool | None:
    """Return whether a server's first frame is of the types ``connection`` on stream 0, ``answers`` on a stream of the
    client, or ``requests`` on one of its own."""
    if len(start) < _HEADER:
        return None
    stream = int.from_bytes(start[:4], "big")
    if stream >> 31:
        return False
    types = connection if not stream else answers if stream & 1 else requests
    return start[4] >> 2 in types
