"""Split bytes into frame records, for ``afflux decode``: each frame follows its length (RSocket R-2)."""

from __future__ import annotations

from afflux.core.dissect import PayloadForm
from afflux.core.dissector import Dissector, Prefixed
from afflux.protocols.rsocket_draft.frames import FRAMES, DraftFrame, ExtChain, record

__all__ = ["dissector"]

_DECLARED = (*FRAMES.values(), ExtChain)


def dissector(client: bool, payload: PayloadForm = "none") -> Dissector:
    """Return a dissector for the bytes of one side; see core.dissector."""
    protocol = DraftFrame.PROTOCOL
    return Prefixed(protocol, DraftFrame.PREFIX, "RSocket R-2", record, _DECLARED, client=client, payload=payload)
