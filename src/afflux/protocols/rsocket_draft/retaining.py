"""Retain the sent frames of each resumable stream, and count the received ones (3.4, R-35 to R-37).

Theory of operation. A position is a number of frames of one stream in one direction (R-35). A stream has a ``Record``
from its request on, if its requester wants it to survive the transport. The requester's record is undecided until the
responder's first frame, which carries the entry ``resume`` if the responder agrees; otherwise the record is dropped.
The sender retains the frames of a record until the peer has reported its position. A record outlives its stream as
long as frames are retained, or a received position is unreported.

Frames of streams without a record are not retained; ``started`` has the streams that have sent any.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final

from afflux.core.errors import Violation
from afflux.core.limits import Limits
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket_draft import frames
from afflux.protocols.rsocket_draft.entries import RESUME, chain_bytes
from afflux.protocols.rsocket_draft.frames import EXTENSIONS
from afflux.protocols.rsocket_draft.payload import WISH
from afflux.protocols.rsocket_draft.payloads import Position

__all__ = ["Record", "Retained"]

_COUNTED: Final = frozenset(
    kind.TYPE
    for kind in (
        frames.RequestStream,
        frames.RequestChannel,
        frames.RequestN,
        frames.Cancel,
        frames.ErrorFrame,
        frames.PayloadFrame,
    )
)
"Frame types that have a position (R-35)."
_REPORTS: Final = 8
_REPORT_ALWAYS: Final = 0x20000
"A report is due after an eighth of what this side may retain, or this many bytes."
_WISH: Final = chain_bytes([WISH])


class Record:
    """The frames of one stream (D-11)."""

    __slots__ = ("agrees", "asks", "first", "frames", "received", "reported", "sent")

    def __init__(self, *, asks: bool) -> None:
        self.asks = asks
        "This side asked, and the responder has not answered yet (ASKED)."
        self.agrees = not asks
        "This side agreed, and has not sent its first frame yet."
        self.first = 0
        "The position of the first retained frame."
        self.sent = 0
        "The position after the last sent frame."
        self.frames: deque[bytes] = deque()
        "The retained frames, with their length prefixes."
        self.received = 0
        "The number of counted frames that were received."
        self.reported = 0
        "The position that was reported last."

    @property
    def begun(self) -> bool:
        """Whether the request was sent: otherwise the peer cannot know the stream."""
        return not self.asks or self.sent > 0

    @property
    def settled(self) -> bool:
        """Whether nothing is retained or unreported."""
        return self.first == self.sent and self.reported == self.received


class Retained:
    """The records of one connection, and the bytes that they retain."""

    __slots__ = ("_decode", "_unreported", "counting", "limit", "records", "size", "started")

    def __init__(self, limits: Limits, decode: Callable[[bytes, int, int], Any]) -> None:
        self._decode = decode
        self.limit = limits.resume_bytes
        "Bytes that may be retained."
        self.size = 0
        "Bytes retained."
        self.records: dict[int, Record] = {}
        self.started: set[int] = set()
        "Streams without a record that have sent frames; some of them have ended."
        self._unreported = 0
        "Bytes of counted frames since the last report."
        self.counting = True
        "Whether received frames count: not on a new transport before SETUP_OK."

    @property
    def room(self) -> int:
        """Bytes that may still be sent."""
        return self.limit - self.size

    @property
    def begun(self) -> bool:
        """Whether the peer may know one of the streams."""
        return any(record.begun for record in self.records.values())

    # -- sending ----------------------------------------------------------------------------------------------

    def add(self, block: bytes) -> bytes:
        """Retain the frames of records that are being sent; return the frames to send, in which the first frame of a
        stream carries this side's agreement (3.4)."""
        parts: list[bytes] = []
        start = at = 0
        while at < len(block):
            stop = at + 3 + int.from_bytes(block[at : at + 3], "big")
            id = int.from_bytes(block[at + 3 : at + 7], "big")
            record = self.records.get(id)
            if record is None:
                self.started.add(id)
            else:  # every frame that such a stream sends counts
                frame = block[at:stop]
                if record.agrees:
                    record.agrees = False
                    parts.append(block[start:at])
                    start = stop
                    parts.append(frame := self._agreement(id, frame))
                if id in self.records:
                    record.frames.append(frame)
                    record.sent += 1
                    self.size += len(frame)
            at = stop
        return block if not start else b"".join((*parts, block[start:]))

    def _agreement(self, id: int, frame: bytes) -> bytes:
        """Add the entry ``resume`` to the first frame of a stream. ERROR has no chain: the stream is plain then."""
        if frame[7] >> 2 == frames.ErrorFrame.TYPE:
            del self.records[id]
            return frame
        fixed = 13 if frame[7] >> 2 == frames.RequestN.TYPE else 9
        chain, rest = _WISH, frame[fixed:]
        if frame[7] & EXTENSIONS >> 8:
            chain = bytes((_WISH[0], _WISH[1] | 0x80))  # another entry follows
        size = len(frame) - 3 + len(chain)
        return (
            size.to_bytes(3, "big") + frame[3:7] + bytes((frame[7] | EXTENSIONS >> 8,)) + frame[8:fixed] + chain + rest
        )

    def blocks(self) -> Iterator[bytes]:
        """All retained frames: those of each stream in order (R-41)."""
        for record in self.records.values():
            yield from record.frames

    def acknowledge(self, position: Position) -> None:
        """Drop the frames that the peer has received; a lower position than before, or one of a stream without a
        record, changes nothing.

        Raises:
            Violation: the position is beyond the sent frames.
        """
        record = self.records.get(position.stream)
        if record is None:
            return
        if position.position > record.sent:
            text = f"position {position.position} of stream {position.stream}: {record.sent} frames were sent"
            raise Violation(text, rule="R-35", code=Code.CONNECTION_ERROR)
        while record.first < position.position:
            self.size -= len(record.frames.popleft())
            record.first += 1

    # -- receiving --------------------------------------------------------------------------------------------

    def count(self, block: bytes, start: int, end: int) -> None:
        """Count the whole frames in ``block[start:end]`` as received (R-35)."""
        records = self.records
        while records and self.counting and start < end:
            stop = start + 3 + int.from_bytes(block[start : start + 3], "big")
            record = records.get(int.from_bytes(block[start + 3 : start + 7], "big") & 0x7FFFFFFF)
            if record is not None and block[start + 7] >> 2 in _COUNTED:
                if record.asks and not self._agreed(block, start + 3, stop):
                    self.drop(int.from_bytes(block[start + 3 : start + 7], "big") & 0x7FFFFFFF)
                record.asks = False
                record.received += 1
                self._unreported += stop - start
            start = stop

    def _agreed(self, block: bytes, start: int, stop: int) -> bool:
        """Whether the responder's first frame carries its agreement (3.4)."""
        frame = self._decode(block, start, stop)
        entries = getattr(frame, "extensions", ())
        return any(entry.number == RESUME and entry.marked for entry in entries)

    # -- records ----------------------------------------------------------------------------------------------

    def ask(self, id: int) -> None:
        """Start the record of a stream that this side requests."""
        self.records[id] = Record(asks=True)

    def agree(self, id: int) -> None:
        """Start the record of a stream that the peer has requested; its request is not counted yet."""
        self.records[id] = Record(asks=False)

    def drop(self, id: int) -> None:
        """Drop a record: the stream is plain, or over."""
        record = self.records.pop(id)
        self.size -= sum(map(len, record.frames))
        self.started.add(id)

    def clear(self) -> None:
        """Drop all records."""
        for id in list(self.records):
            self.drop(id)

    def settle(self, live: Collection[int]) -> None:
        """Drop the records of streams that are over and fully reported, and forget old streams."""
        for id in [id for id, record in self.records.items() if record.settled and id not in live]:
            del self.records[id]
        if len(self.started) > 64 + 2 * len(live):
            self.started.intersection_update(live)

    @property
    def report_due(self) -> bool:
        """Whether enough has arrived since the last report for a new one."""
        return self._unreported >= max(1, min(self.limit // _REPORTS, _REPORT_ALWAYS))

    def report(self) -> list[Position]:
        """Return the positions that have changed since the last report (R-42)."""
        self._unreported = 0
        changed = [(id, record) for id, record in self.records.items() if record.reported != record.received]
        for _, record in changed:
            record.reported = record.received
        return [Position(id, record.received) for id, record in changed]

    def positions(self, ids: Iterable[int] | None = None) -> list[Position]:
        """Return the received positions of all streams that the peer may know, or of some (R-39)."""
        chosen = [id for id, record in self.records.items() if record.begun] if ids is None else list(ids)
        self._unreported = 0
        for id in chosen:
            self.records[id].reported = self.records[id].received
        return [Position(id, self.records[id].received) for id in chosen]
