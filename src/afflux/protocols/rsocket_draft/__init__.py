"""Implement the extensible draft of RSocket: frames, extension entries, tables and a sans-IO engine."""

from typing import TYPE_CHECKING

from afflux.core.exports import exports_of

if TYPE_CHECKING:
    from afflux.protocols.rsocket_draft.engine import Engine
    from afflux.protocols.rsocket_draft.entries import Entry
    from afflux.protocols.rsocket_draft.payload import ExtendedPayload, resumable

__all__ = ["Engine", "Entry", "ExtendedPayload", "resumable"]

__getattr__, __dir__ = exports_of(
    __name__,
    {
        "Engine": "afflux.protocols.rsocket_draft.engine",
        "Entry": "afflux.protocols.rsocket_draft.entries",
        "ExtendedPayload": "afflux.protocols.rsocket_draft.payload",
        "resumable": "afflux.protocols.rsocket_draft.payload",
    },
)
