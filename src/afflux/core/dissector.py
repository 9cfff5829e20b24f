"""From the bytes of one direction of a connection to frame records: what each protocol offers to ``afflux decode``.

A protocol's package has a module ``dissector`` with a function ``dissector(client, payload)``, which makes a
:class:`Dissector` for the bytes of one side. It knows where frames begin and end, and what earlier frames say about
later ones. Whether it was legal to send a frame at that moment is the engine's to judge, not decided here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from afflux.core.buffer import ReceiveBuffer
from afflux.core.dissect import PayloadForm, broken
from afflux.core.errors import Violation
from afflux.core.framing import LengthPrefix

__all__ = ["LARGEST", "Dissector", "MakeDissector", "Prefixed", "Record", "RecordOf"]

LARGEST = 0x400_0000
"Bytes of the largest frame that is put together: 64 MiB. The bytes of a longer one are passed over."

Record = dict[str, Any]
"A frame record (core.dissect)."


class RecordOf(Protocol):
    """The frame record of the bytes of a frame, without a length."""

    def __call__(self, source: bytes, *, payload: PayloadForm = "none", **where: Any) -> Record:
        """``where`` may give dir, offset and length. Bytes that are no frame do not raise."""


class Dissector:
    """The bytes of one direction, in order. A protocol derives its own from it.

    Args:
        client: whose bytes they are.
        payload: how metadata and data are shown.
    """

    PROTOCOL: ClassVar[str]

    def __init__(self, client: bool, payload: PayloadForm) -> None:
        self.client = client
        self.payload = payload
        self._buffer = ReceiveBuffer(2 * LARGEST)
        self._need = 0
        self._skip = 0
        self.offset = 0
        "Where the frame that is being read begins."
        self.over = False
        "A byte was wrong behind which nobody knows where the next frame begins."

    # What is the protocol's.

    def read(self, block: bytes, at: int) -> tuple[Record | None, int]:
        """The record of the frame at ``at``, and how many bytes it has, its length included: they may go beyond the
        block, where what is still to come is of no use. None, and how many bytes are needed, for one that is not whole.

        Raises:
            Violation: there is no frame.
        """
        raise NotImplementedError

    def name(self, data: bytes) -> str | None:
        """What frame begins with ``data``, as far as that can be told."""
        raise NotImplementedError

    def alone(self, data: bytes) -> Record:
        """The record of one frame without a length. Raises as ``read`` does."""
        made, size = self.read(data, 0)
        if made is None or size > len(data):
            raise Violation(f"cut off: {size - len(data)} bytes are missing", rule="truncated")
        if size < len(data):
            made["error"] = {"rule": "trailing", "reason": f"{len(data) - size} bytes follow the frame"}
        return made

    def cut(self, data: bytes, missing: int) -> Record:
        """The record of a frame whose last bytes, ``missing`` or more, are not there."""
        violation = Violation(f"cut off: {missing} bytes are missing", rule="truncated")
        return self.wrong(data, violation, len(data))

    # What is everybody's.

    def feed(self, data: bytes) -> list[Record]:
        """Take bytes as they stand on TCP; return the records of the frames that are whole now. When it is ``over``
        there are no more: the last record tells what is wrong."""
        if self.over:
            return []
        skipped = min(self._skip, len(data))
        self._skip -= skipped
        self.offset += skipped
        block = self._buffer.feed(data[skipped:])
        return [] if block is None else self._frames(block)

    def bare(self, data: bytes) -> Record:
        """The record of one frame that stands for itself, as in a message of a WebSocket. ``feed`` and ``bare`` do not
        go together."""
        try:
            made = self.alone(data)
        except Violation as violation:
            made = self.wrong(data, violation, len(data))
        self.offset += len(data)
        return made

    def end(self) -> list[Record]:
        """There are no more bytes: the record of what was cut off, if anything was."""
        rest = self._buffer.take()
        if rest or self._skip:
            return [self.cut(rest, self._skip or self._need - len(rest))]
        return []

    def wrong(self, data: bytes, violation: Violation, length: int | None) -> Record:
        """The record of bytes that are no frame, ``length`` of them if that is known."""
        name, where = self.name(data), self.where(length)
        return broken(violation, protocol=self.PROTOCOL, type=name, payload=self.payload, **where)

    def where(self, length: int | None, prefix: int = 0) -> dict[str, Any]:
        """The direction, the place and the length of a frame, for its record."""
        return {"dir": ">" if self.client else "<", "offset": self.offset + prefix, "length": length}

    def _frames(self, block: bytes) -> list[Record]:
        """The records of whole frames; the tail is kept."""
        made: list[Record] = []
        at, end, self._need = 0, len(block), 0
        while at < end:
            try:
                found, size = self.read(block, at)
            except Violation as violation:
                self.over = True
                return [*made, self.wrong(block[at : at + 16], violation, None)]
            if found is None:
                self._need = size
                break
            made.append(found)
            self._skip = max(0, at + size - end)
            self.offset += size - self._skip
            at += size
        self._buffer.keep(block, at, self._need)
        return made


class Prefixed(Dissector):
    """Frames that stand behind their lengths.

    Args:
        protocol: its name.
        prefix: the lengths.
        rule: the rule that they rest on.
        record: the record of a frame.
    """

    def __init__(
        self,
        protocol: str,
        prefix: LengthPrefix,
        rule: str,
        record: RecordOf,
        *,
        client: bool,
        payload: PayloadForm,
    ) -> None:
        super().__init__(client, payload)
        self.PROTOCOL = protocol  # type: ignore[misc]  # one class for several protocols
        self._prefix = prefix
        self._rule = rule
        self._record = record

    def read(self, block: bytes, at: int) -> tuple[Record | None, int]:
        """See Dissector."""
        width = self._prefix.width
        if len(block) - at < width:
            return None, width
        size = self._prefix.size(block, at)
        start = at + width
        if size < 0:
            raise Violation(f"a length of {size + width} is less than the {width} bytes that it has", rule=self._rule)
        if size > LARGEST:
            found = self._made(b"", width, size)
            return self._marked(found, f"a frame of {size} bytes: more than {LARGEST} are not shown"), width + size
        if start + size > len(block):
            return None, width + size
        return self._made(block[start : start + size], width, size), width + size

    def name(self, data: bytes) -> str | None:
        """Nothing begins where a length is wrong."""
        return None

    def alone(self, data: bytes) -> Record:
        """See Dissector."""
        return self._made(data, 0, len(data))

    def cut(self, data: bytes, missing: int) -> Record:
        """As much of the frame as there is."""
        width = self._prefix.width if len(data) >= self._prefix.width else 0
        found = self._made(data[width:], width, len(data) - width)
        return self._marked(found, f"cut off: {missing} bytes are missing")

    def _made(self, data: bytes, prefix: int, length: int) -> Record:
        return self._record(data, payload=self.payload, **self.where(length, prefix))

    def _marked(self, found: Record, reason: str) -> Record:
        found["error"] = {"rule": self._rule, "reason": reason}
        return found


MakeDissector = Callable[[bool, PayloadForm], Dissector]
"``dissector(client, payload)`` of a protocol's package."
