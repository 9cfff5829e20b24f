"""Dissect bytes into frame records, for ``afflux decode``: messages without a length, which end with their last field.

The length of elements is not in their messages but in ``subscribed``, which goes in the same direction (R-38). For an
id whose subscribed is not in the dump, each element has its length (D-13).
"""

from __future__ import annotations

from typing import Any

from afflux.core import dissect
from afflux.core.dissect import PayloadForm
from afflux.core.dissector import Dissector, Record
from afflux.core.errors import Violation
from afflux.core.limits import Limits
from afflux.protocols.rsio.frames import FRAMES, Message, OnComplete, OnError, OnNext, OnNextPacked, Subscribed
from afflux.protocols.rsio.kinds import Cursor, NotYet

__all__ = ["dissector"]

_FIXED = (OnNext, OnNextPacked)
_MOST_SIZES = 0x1_0000
"Most ids whose size is remembered, which bounds the memory for a dump; the oldest is forgotten."


class _Rsio(Dissector):
    """Dissect the messages of one side, both as a subscriber and as a publisher."""

    PROTOCOL = "rsio"

    def __init__(self, client: bool, payload: PayloadForm) -> None:
        super().__init__(client, payload)
        self._sizes: dict[int, int] = {}
        "Bytes of the elements of an id, if fixed."
        self._cursor = Cursor(Limits.trusted(), self._sizes.get)

    def read(self, block: bytes, at: int) -> tuple[Record | None, int]:
        """See Dissector."""
        cursor = self._cursor
        cursor.block, cursor.at, cursor.end, cursor.skip = block, at, len(block), 0
        try:
            message, values = self._message(cursor)
        except NotYet as rest:
            return None, rest.need - at
        size = cursor.at + cursor.skip - at
        return self._record(message, values, size, cursor.skip), size

    def alone(self, data: bytes) -> Record:
        """See Dissector."""
        if not data:
            raise Violation("a message has at least a type", rule="truncated")
        return super().alone(data)

    def name(self, data: bytes) -> str | None:
        """See Dissector."""
        cursor = self._cursor
        cursor.block, cursor.at, cursor.end = data, 0, len(data)
        try:
            code = cursor.varint()
        except (NotYet, Violation):
            return None
        return FRAMES[code].NAME if code in FRAMES else f"0x{code:02X}"

    def _message(self, cursor: Cursor) -> tuple[Message, dict[str, Any]]:
        """Read one message. Fields too large to be shown are skipped, without waiting at the end of a message."""
        code = cursor.varint()
        if code not in FRAMES:
            raise Violation(f"a message of the unknown type {code}", rule="R-17")
        kind = FRAMES[code]
        values: dict[str, Any] = {}
        for number, (name, field) in enumerate(kind.KINDS, 1):
            values[name] = field.read(cursor, values)
            if cursor.skip and number < len(kind.KINDS):
                stop = cursor.at + cursor.skip
                if stop > cursor.end:
                    raise NotYet(stop)
                cursor.at, cursor.skip = stop, 0
        return kind.received(values), values

    def _record(self, message: Message, values: dict[str, Any], size: int, skipped: int) -> Record:
        made = dissect.record(message, payload=self.payload, **self.where(size))
        if isinstance(message, Subscribed):
            self._sizes.pop(message.subscriber, None)
            if message.element_size:
                if len(self._sizes) == _MOST_SIZES:
                    del self._sizes[next(iter(self._sizes))]
                self._sizes[message.subscriber] = message.element_size
        elif isinstance(message, OnComplete | OnError):
            self._sizes.pop(message.subscriber, None)
        elif isinstance(message, _FIXED) and values["element_size"]:
            made["fields"]["element_size"] = values["element_size"]
            made["data_len"] = skipped or made["data_len"]
        if "publisher" in values:
            _mend(made, values["publisher"])
        return made


def _mend(made: Record, publisher: str) -> None:
    """Make the name of a publisher printable, and record what is wrong with it (R-6)."""
    clean = publisher.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if clean != publisher:
        made["fields"]["publisher"] = clean
        made["error"] = {"rule": "R-6", "reason": "the name of the publisher is not UTF-8"}


def dissector(client: bool, payload: PayloadForm = "none") -> Dissector:
    """Return a dissector for the bytes of one side; see core.dissector."""
    return _Rsio(client, payload)
