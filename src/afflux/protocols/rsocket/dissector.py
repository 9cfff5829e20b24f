"""Split bytes into frame records, for ``afflux decode``: each frame follows its length (R-2)."""

from __future__ import annotations

from afflux.core.dissect import PayloadForm
from afflux.core.dissector import Dissector, Prefixed
from afflux.protocols.rsocket.frames import FRAMES, RSocketFrame, record

__all__ = ["dissector"]

_DECLARED = tuple(FRAMES.values())


def dissector(client: bool, payload: PayloadForm = "none") -> Dissector:
    """Return a dissector for the bytes of one side; see core.dissector."""
    return Prefixed(
        RSocketFrame.PROTOCOL, RSocketFrame.PREFIX, "R-2", record, _DECLARED, client=client, payload=payload
    )
