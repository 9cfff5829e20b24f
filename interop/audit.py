"""Check a recorded connection for rule violations of either side, whatever the case tests.

Rule numbers are RSocket's (docs/specs/rsocket.md). The auditor shares only the frame decoder with the engine. It uses
only the recorded frames, in the order of the proxy, so credit that passed after an item cannot have been used for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from afflux.core.errors import Violation
from afflux.core.frame import Frame
from afflux.protocols.rsocket import frames as f
from interop.proxy import Direction, Seen

__all__ = ["Auditor", "Finding", "audit"]

_REQUESTS = (f.RequestResponse, f.RequestFnf, f.RequestStream, f.RequestChannel)


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule violation."""

    direction: Direction
    'The side: ">" is the client, "<" the server.'
    rule: str
    text: str
    frame: bytes
    "The frame that shows it."


@dataclass(slots=True)
class _Half:
    """The frames of one side on a stream."""

    credit: int = 0
    done: bool = False
    "The side has completed, failed or (the requester) canceled."
    partial: type[Frame] | None = None
    "The type of the first fragment, while fragments are incomplete."
    data_began: bool = False


@dataclass(slots=True)
class _Stream:
    kind: type[Frame]
    opener: Direction
    halves: dict[Direction, _Half] = field(default_factory=lambda: {">": _Half(), "<": _Half()})
    over: bool = False
    "Whether both directions have ended."


def _other(direction: Direction) -> Direction:
    return "<" if direction == ">" else ">"


class Auditor:
    """One connection."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self._streams: dict[int, _Stream] = {}
        self._last: dict[Direction, int] = {">": 0, "<": 0}
        self._beats: dict[Direction, list[bytes]] = {">": [], "<": []}
        self._first = True
        self._resumed = False
        self._now: Seen

    def see(self, seen: Seen) -> None:
        """Check the next frame."""
        self._now = seen
        try:
            frame = f.decode(seen.frame)
        except Violation as violation:
            self._blame(violation.rule, f"unreadable: {violation.reason}")
            return
        self._check_header(frame)
        if self._first:
            self._check_first(frame)
        if isinstance(frame, f.ConnectionFrame) or frame.stream == 0:
            self._connection(frame)
        elif isinstance(frame, _REQUESTS):
            self._open(frame)
        else:
            self._stream(frame)

    # -- header and connection ------------------------------------------------------------------------------

    def _blame(self, rule: str, text: str) -> None:
        self.findings.append(Finding(self._now.direction, rule, text, self._now.frame))

    def _check_header(self, frame: Frame) -> None:
        known = f.FLAG_IGNORE | sum(flag.bit for flag, _ in frame.FLAGS)
        if extra := self._now.flags & ~known:
            self._blame("R-4", f"{frame.NAME} with flags 0x{extra:03X} that it does not have")

    def _check_first(self, frame: Frame) -> None:
        self._first = False
        if self._now.direction != ">" or not isinstance(frame, f.Setup | f.Resume):
            self._blame("R-11", f"the first frame is {frame.NAME}")
        if isinstance(frame, f.Setup):
            self._resumed = frame.token is not None
        if isinstance(frame, f.Resume) and (frame.major, frame.minor) != (1, 0):
            self._blame("R-52", f"RESUME for version {frame.major}.{frame.minor}")

    def _connection(self, frame: Any) -> None:
        seen = self._now
        if isinstance(frame, f.MetadataPush) and not seen.flags & f.FLAG_METADATA:
            self._blame("2.3", "METADATA_PUSH without the flag M")
        if isinstance(frame, f.Keepalive):
            self._keepalive(frame)
        if isinstance(frame, f.StreamFrame) and not isinstance(frame, f.ErrorFrame | f.Ext):
            self._blame("2.3", f"{type(frame).NAME} on stream 0")

    def _keepalive(self, frame: f.Keepalive) -> None:
        way = self._now.direction
        if frame.respond:
            self._beats[way].append(frame.data)
        elif frame.data in self._beats[_other(way)]:
            self._beats[_other(way)].remove(frame.data)
        elif frame.data or not self._resumed:  # a position may be told unasked
            self._blame("R-19", f"answers a KEEPALIVE with other data: {frame.data[:20]!r}")
        if frame.position and not self._resumed:
            self._blame("R-51", f"a position ({frame.position}) without resumption")

    # -- streams --------------------------------------------------------------------------------------------

    def _open(self, frame: Any) -> None:
        way, id = self._now.direction, frame.stream
        if (stream := self._streams.get(id)) is not None:
            if isinstance(frame, f.RequestChannel) and stream.kind is f.RequestChannel and not stream.over:
                self._blame("R-24", "a second REQUEST_CHANNEL on one stream")
            else:
                self._blame("R-10", "the id of an earlier stream is used again")
            return
        if id % 2 != (way == ">"):
            self._blame("R-8", f"stream {id} has the parity of the other side")
        elif id < self._last[way]:
            self._blame("R-8", f"ids out of order: stream {id} is opened after stream {self._last[way]}")
        self._last[way] = id
        stream = self._streams[id] = _Stream(type(frame), way)
        answering, asking = stream.halves[_other(way)], stream.halves[way]
        if isinstance(frame, f.RequestStream | f.RequestChannel):
            if frame.initial_n == 0:
                self._blame("D-5", f"{frame.NAME} asks for 0 items")
            answering.credit = frame.initial_n
        elif isinstance(frame, f.RequestResponse):
            answering.credit = 1
        else:
            answering.done = True
        self._payload_part(asking, frame)
        complete = isinstance(frame, f.RequestChannel) and frame.complete
        asking.done = (complete and not frame.follows) or not isinstance(frame, f.RequestChannel)

    def _stream(self, frame: Any) -> None:
        stream = self._streams.get(frame.stream)
        if stream is None:
            self._blame("R-31", f"{frame.NAME} on stream {frame.stream}, which was not opened")
            return
        way = self._now.direction
        mine, theirs = stream.halves[way], stream.halves[_other(way)]
        if isinstance(frame, f.PayloadFrame):
            self._item(stream, mine, frame)
        elif isinstance(frame, f.RequestN):
            if frame.n == 0:
                self._blame("D-5", "REQUEST_N of 0")
            theirs.credit += frame.n
        elif isinstance(frame, f.Cancel):
            theirs.done = True
            if way == stream.opener:
                mine.done = stream.over = True
        elif isinstance(frame, f.ErrorFrame):
            if stream.kind is f.RequestFnf:
                self._blame("R-42", "ERROR in answer to REQUEST_FNF (3.5: never reply)")
            elif mine.done and not stream.over and way != stream.opener:
                self._blame("R-28", "ERROR after the stream was completed by the same side")
            mine.done = theirs.done = stream.over = True

    def _item(self, stream: _Stream, half: _Half, frame: f.PayloadFrame) -> None:
        way = self._now.direction
        name = "PAYLOAD"
        following = half.partial is not None
        if stream.kind is f.RequestFnf and not following:
            self._blame("R-42", "PAYLOAD in answer to REQUEST_FNF (3.5: never reply)")
            return
        if half.done and not following and not stream.over and not self._taken_back(stream, way):
            self._blame("R-29", f"{name} after the end of this half")
        if not frame.next and not frame.complete and not following:
            self._blame("R-30", "PAYLOAD with neither N nor C outside of fragments")
        if following and not frame.next:
            self._blame("R-36", "a follow-up fragment without N")
        if frame.next and not following:
            if half.credit <= 0 and not stream.over:
                self._blame("R-27" if way != stream.opener else "R-25", "an item without credit")
            half.credit -= 1
        self._payload_part(half, frame)
        if frame.complete or (stream.kind is f.RequestResponse and not frame.follows and way != stream.opener):
            half.done = True

    def _taken_back(self, stream: _Stream, way: Direction) -> bool:
        """Whether the other side has canceled: frames that cross the CANCEL are not violations."""
        return (stream.kind is f.RequestChannel and way == stream.opener) or stream.over

    def _payload_part(self, half: _Half, frame: Any) -> None:
        """Check fragments: metadata before data (R-34), nothing after the last (R-33)."""
        following = half.partial is not None
        if following and half.data_began and frame.metadata is not None:
            self._blame("R-34", "metadata after data began")
        half.data_began = bool(frame.data) or (following and half.data_began)
        if frame.follows and not (isinstance(frame, f.PayloadFrame) and frame.complete):
            half.partial = type(frame)
        else:
            half.partial = None
            half.data_began = False


def audit(record: Iterable[Seen]) -> list[Finding]:
    """Return the violations in a recording, from its first frame."""
    auditor = Auditor()
    for seen in record:
        auditor.see(seen)
    return auditor.findings
