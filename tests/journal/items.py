"""The items of the writers that are killed. Contains no tests, so that a writer imports little."""

from __future__ import annotations

from afflux.core.payload import Payload


def item(offset: int) -> Payload:
    """The item that every writer writes at ``offset``."""
    return Payload(b"%d." % offset * (offset % 23), b"m%d" % offset if offset % 7 == 0 else None)
