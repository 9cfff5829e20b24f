"""Dissect bytes into frame records, for ``afflux decode``: a connection header, and consecutive messages.

A dump may begin in the middle of a connection: no message begins like a header.
"""

from __future__ import annotations

from afflux.core import dissect
from afflux.core.dissect import PayloadForm
from afflux.core.dissector import Dissector, Record
from afflux.core.frame import Malformed
from afflux.protocols.jmux import frames
from afflux.protocols.jmux.frames import HEADER_BYTES, MAGIC, STEPS_256, IncrementRation, wrong_header
from afflux.protocols.jmux.states import inputs_from

__all__ = ["dissector"]

_DECLARED = tuple(frames.FRAMES.values())


class _Jmux(Dissector):
    """Dissect the messages of one side. A message that this side may not send gets an error, and is read all the
    same."""

    PROTOCOL = "jmux"

    def __init__(self, client: bool, payload: PayloadForm) -> None:
        super().__init__(client, payload)
        self.head = 4
        self.declared = _DECLARED
        self._meanings = inputs_from(client)

    def read(self, block: bytes, at: int) -> tuple[Record | None, int]:
        """See Dissector."""
        if block[at] == MAGIC[0] and not self.offset:
            return self._header(block[at : at + HEADER_BYTES])
        size = frames.size_at(block[at : at + 4])
        if size is None or at + size > len(block):
            return None, size or 4
        return self._message(block[at : at + size]), size

    def alone(self, data: bytes) -> Record:
        """See Dissector."""
        if not data:
            raise Malformed("a message has at least 4 bytes", rule="truncated")
        return super().alone(data)

    def name(self, data: bytes) -> str | None:
        """See Dissector."""
        if not data:
            return None
        kind = frames.kind_of(data[0])
        return f"0x{data[0]:02X}" if kind is None else kind.NAME

    def _header(self, data: bytes) -> tuple[Record | None, int]:
        """Read a connection header. Its ration is what the other side may send on each session."""
        if len(data) < HEADER_BYTES:
            return None, HEADER_BYTES  # not judged yet: the result must not depend on how the bytes were split
        wrong = wrong_header(data, self.client)
        if wrong and data[: len(MAGIC)] != MAGIC:
            raise Malformed(wrong, rule="R-3")
        header = frames.decode_header(data, client=self.client)
        made = dissect.record(header, payload=self.payload, **self.where(HEADER_BYTES))
        made["fields"]["ration"] = header.initial_ration * STEPS_256 or None
        if wrong:
            made["error"] = {"rule": "R-3", "reason": wrong}
        return made, HEADER_BYTES

    def _message(self, data: bytes) -> Record:
        made = frames.record(data, payload=self.payload, **self.where(len(data)))
        meaning = self._meanings[data[0]]
        if made["error"] is None and isinstance(meaning, tuple):
            made["error"] = {"rule": meaning[0], "reason": meaning[1]}
        elif data[0] & 0xF1 == 0x10:
            made["fields"]["ration"] = _ration(data)
        return made


def _ration(data: bytes) -> int:
    """The increment of an IncrementRation."""
    return IncrementRation.decode(data, 0, len(data)).size


def dissector(client: bool, payload: PayloadForm = "none") -> Dissector:
    """Return a dissector for the bytes of one side; see core.dissector."""
    return _Jmux(client, payload)
