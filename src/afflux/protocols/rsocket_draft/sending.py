"""Send what belongs to no stream: EXT frames of RSocket, and extension entries (R-9, R-10)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from afflux.core.errors import LocalProtocolError
from afflux.protocols.family.extensions import Extending
from afflux.protocols.rsocket_draft.entries import Entry

if TYPE_CHECKING:
    from afflux.protocols.rsocket_draft.engine import Engine

__all__ = ["ExtendingEntries"]


class ExtendingEntries(Extending):
    """The extensions of a connection of the draft, as core.engine.Extensions."""

    __slots__ = ()

    def extend(self, type: int | Entry, body: bytes = b"", *, stream: int = 0, ignore: bool = True) -> None:
        """Send an entry, or a frame of an extended type; a client that waits for SETUP_OK sends it after that.

        Raises:
            LocalProtocolError: the entry, the type or the stream is out of range, or an entry has a body or a stream.
            LimitExceeded: the frame is longer than a peer accepts.
            ConnectionClosed: the connection is closed.
        """
        engine = cast("Engine", self._engine)
        if not isinstance(type, Entry):
            engine.send_control(self._frame(type, body, stream, ignore))
        elif body or stream:
            raise LocalProtocolError("an entry has its own payload and is on stream 0", stream=stream, rule="R-9")
        else:
            engine.send_entries(type)
