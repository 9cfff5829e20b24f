"""Split bytes into frame records, for ``afflux decode``: each frame follows its length (R-3)."""

from __future__ import annotations

from afflux.core.dissect import PayloadForm
from afflux.core.dissector import Dissector, Prefixed
from afflux.protocols.limit.frames import FRAMES, LimitFrame, record

__all__ = ["dissector"]

_DECLARED = tuple(FRAMES.values())


def dissector(client: bool, payload: PayloadForm = "none") -> Dissector:
    """Return a dissector for the bytes of one side; see core.dissector."""
    return Prefixed(LimitFrame.PROTOCOL, LimitFrame.PREFIX, "R-3", record, _DECLARED, client=client, payload=payload)
