"""Implement the extensible draft of RSocket: frames, extension entries, tables and a sans-IO engine."""

from afflux.protocols.rsocket_draft.engine import Engine
from afflux.protocols.rsocket_draft.entries import Entry
from afflux.protocols.rsocket_draft.payload import ExtendedPayload, resumable

__all__ = ["Engine", "Entry", "ExtendedPayload", "resumable"]
