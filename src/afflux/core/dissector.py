"""Convert the bytes of one direction of a connection to frame records, as ``afflux decode`` shows them.

A protocol's package has a module ``dissector`` with a function ``dissector(client, payload)``, which makes a
:class:`Dissector` for the bytes of one side. It finds frame boundaries and tracks what earlier frames determine about
later ones. It does not judge whether a frame was legal at that moment: the engine does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

from afflux.core.buffer import ReceiveBuffer
from afflux.core.dissect import PayloadForm, broken
from afflux.core.errors import Violation
from afflux.core.frame import Frame
from afflux.core.framing import LengthPrefix

__all__ = ["LARGEST", "OVER_LIMIT", "Dissector", "MakeDissector", "Prefixed", "Record", "RecordOf"]

LARGEST = 0x400_0000
"The largest frame that is decoded, in bytes: 64 MiB. A longer frame is skipped."

OVER_LIMIT = "limit"
"The rule of the error of bytes that are passed over because of a limit of afflux: they may be a legal frame."

Record = dict[str, Any]
"A frame record (see core.dissect)."


class RecordOf(Protocol):
    """A function that converts the bytes of a frame, without a length, to a frame record."""

    def __call__(self, source: bytes, *, payload: PayloadForm = "none", **where: Any) -> Record:
        """Return the record. ``where`` may contain dir, offset and length. Bytes that are not a frame do not raise."""


class Dissector:
    """Convert the bytes of one direction, in order. Base class of the protocols' dissectors.

    Args:
        client: True for the bytes that the client sends.
        payload: how metadata and data are shown.
    """

    PROTOCOL: ClassVar[str]

    def __init__(self, client: bool, payload: PayloadForm) -> None:
        self.client = client
        self.payload = payload
        self.declared: Sequence[type[Frame]] = ()
        "The frames of the protocol that have a declaration (core.frame)."
        self.head: int | None = None
        "Bytes at the start of a frame that determine its size; None if that number varies."
        self.largest = LARGEST
        "The largest frame that is decoded, in bytes."
        self._buffer = ReceiveBuffer(2 * LARGEST)
        self._need = 0
        self._skip = 0
        self.offset = 0
        "Position of the current frame."
        self.over = False
        "True after an error that hides where the next frame begins."

    # Implemented by the protocol.

    def read(self, block: bytes, at: int) -> tuple[Record | None, int]:
        """Return the record of the frame at ``at`` and its size, with its length prefix. The size may exceed the block
        if the remaining bytes are to be skipped. For an incomplete frame, return None and the bytes needed.

        Raises:
            Violation: the bytes are not a frame.
        """
        raise NotImplementedError

    def name(self, data: bytes) -> str | None:
        """Return the name of the frame that begins with ``data``; None if it cannot be read."""
        raise NotImplementedError

    def alone(self, data: bytes) -> Record:
        """Return the record of one frame without a length. Raises as ``read`` does."""
        made, size = self.read(data, 0)
        if made is None or size > len(data):
            raise Violation(f"cut off: {size - len(data)} bytes are missing", rule="truncated")
        if size < len(data):
            made["error"] = {"rule": "trailing", "reason": f"{len(data) - size} bytes follow the frame"}
        return made

    def cut(self, data: bytes, missing: int) -> Record:
        """Return the record of a frame whose last bytes, ``missing`` or more, were not received."""
        violation = Violation(f"cut off: {missing} bytes are missing", rule="truncated")
        return self.wrong(data, violation, len(data))

    # Shared by all protocols.

    def feed(self, data: bytes) -> list[Record]:
        """Take bytes as TCP delivers them; return the records of the frames that are complete now. After an error that
        sets ``over``, whose reason the last record contains, there are no more."""
        if self.over:
            return []
        skipped = min(self._skip, len(data))
        self._skip -= skipped
        self.offset += skipped
        block = self._buffer.feed(data[skipped:])
        return [] if block is None else self._frames(block)

    def bare(self, data: bytes) -> Record:
        """Return the record of one separate frame, such as a message of a WebSocket. Do not combine it with
        ``feed``."""
        try:
            made = self.alone(data)
        except Violation as violation:
            made = self.wrong(data, violation, len(data))
        self.offset += len(data)
        return made

    @property
    def buffered(self) -> int:
        """Bytes of an incomplete frame that are buffered."""
        return self._buffer.pending

    def joined(self, size: int) -> bytes | None:
        """Return the bytes of the incomplete frame that are buffered. None if the next frame does not begin with them,
        after an error or in the middle of a frame that is skipped, or if ``size`` more bytes cannot complete it."""
        held = self._buffer.held
        if self.over or self._skip or size < self._need - len(held):
            return None
        return bytes(held) if held else b""

    def passed(self, size: int, rest: bytes, need: int) -> None:
        """Continue after frames that the caller has read itself.

        Args:
            size: the bytes of these frames, of which the first are those that were buffered.
            rest: the bytes of the incomplete frame after them.
            need: the bytes that this frame needs, as far as is known.
        """
        self.offset += size
        if rest or self._need or self._buffer.pending:
            self._buffer.clear()
            self._need = need
            self._buffer.keep(rest, 0, need)

    def lose(self, size: int) -> list[Record]:
        """Report that the next ``size`` bytes are missing. If they are a part of one frame whose size is known, return
        its record, and continue after it. Otherwise the next frame cannot be found: this sets ``over``."""
        if self.over:
            return []
        if size <= self._skip:
            self._skip -= size
            self.offset += size
            return []
        rest = self._buffer.take()
        if self.head is not None and len(rest) >= self.head and len(rest) + size <= self._need:
            made = self.cut(rest, size)
            self._skip = self._need - len(rest) - size
            self.offset += len(rest) + size
            return [made]
        self.over = True
        violation = Violation(f"{size} bytes are missing, and the next frame cannot be found", rule="lost")
        return [self.wrong(rest[:16], violation, None)]

    def stop(self, reason: str, rule: str = OVER_LIMIT) -> list[Record]:
        """Give up for a reason, which the record contains. This sets ``over``."""
        rest, over, self.over = self._buffer.take(), self.over, True
        return [] if over else [self.wrong(rest[:16], Violation(reason, rule=rule), None)]

    def end(self) -> list[Record]:
        """Report the end of the bytes; return the record of a truncated frame, if there is one."""
        rest = self._buffer.take()
        if rest or self._skip:
            return [self.cut(rest, self._skip or self._need - len(rest))]
        return []

    def wrong(self, data: bytes, violation: Violation, length: int | None) -> Record:
        """Return the record of bytes that are not a frame; ``length`` is None if it is unknown."""
        name, where = self.name(data), self.where(length)
        return broken(violation, protocol=self.PROTOCOL, type=name, payload=self.payload, **where)

    def where(self, length: int | None, prefix: int = 0) -> dict[str, Any]:
        """Return the direction, the offset and the length of a frame, for its record."""
        return {"dir": ">" if self.client else "<", "offset": self.offset + prefix, "length": length}

    def _frames(self, block: bytes) -> list[Record]:
        """Return the records of complete frames, and buffer the tail."""
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
    """Dissector of length-prefixed frames.

    Args:
        protocol: the protocol's name.
        prefix: the length prefix.
        rule: the rule that defines it.
        record: converts a frame to a record.
        declared: the frames.
    """

    def __init__(
        self,
        protocol: str,
        prefix: LengthPrefix,
        rule: str,
        record: RecordOf,
        declared: Sequence[type[Frame]],
        *,
        client: bool,
        payload: PayloadForm,
    ) -> None:
        super().__init__(client, payload)
        self.PROTOCOL = protocol  # type: ignore[misc]  # one class for several protocols
        self.head = prefix.width
        self.declared = declared
        self.prefix = prefix
        self._rule = rule
        self._record = record

    def read(self, block: bytes, at: int) -> tuple[Record | None, int]:
        """See Dissector."""
        width = self.prefix.width
        if len(block) - at < width:
            return None, width
        size = self.prefix.size(block, at)
        start = at + width
        if size < 0:
            raise Violation(f"a length of {size + width} is less than the {width} bytes of its field", rule=self._rule)
        if size > self.largest:
            found = self._made(b"", width, size)
            text = f"a frame of {size} bytes: more than {self.largest} are not shown"
            return self._marked(found, text, OVER_LIMIT), width + size
        if start + size > len(block):
            return None, width + size
        return self._made(block[start : start + size], width, size), width + size

    def name(self, data: bytes) -> str | None:
        """Return None, because only a wrong length ends the frames."""
        return None

    def at(self, data: bytes, offset: int) -> Record:
        """Return the record of one frame without its length, which is at ``offset`` in the direction. The position of
        the dissector does not change."""
        where = self.where(len(data)) | {"offset": offset}
        return self._record(data, payload=self.payload, **where)

    def alone(self, data: bytes) -> Record:
        """See Dissector."""
        return self._made(data, 0, len(data))

    def cut(self, data: bytes, missing: int) -> Record:
        """Return the record of the bytes received."""
        width = self.prefix.width if len(data) >= self.prefix.width else 0
        found = self._made(data[width:], width, len(data) - width)
        return self._marked(found, f"cut off: {missing} bytes are missing")

    def _made(self, data: bytes, prefix: int, length: int) -> Record:
        return self._record(data, payload=self.payload, **self.where(length, prefix))

    def _marked(self, found: Record, reason: str, rule: str = "") -> Record:
        found["error"] = {"rule": rule or self._rule, "reason": reason}
        return found


MakeDissector = Callable[[bool, PayloadForm], Dissector]
"``dissector(client, payload)`` of a protocol's package."
