"""Join the payloads that arrive in fragments, within limits (RSocket, section 3.6).

Theory of operation. Pieces are listed, and joined at the end, which takes the payload's size twice. A payload that
reaches 4 MiB continues in a ``BytesIO``, the only bytes object of Python that grows in place: ``getvalue`` returns the
object that was written to, cut to its length. So a large payload is in memory once. The buffer has the largest allowed
size from the start: untouched pages take no memory, the unused part is released at the end, and nothing is moved. The
driver may place it in large pages (``Terms.place``), which halves the cost of receiving 16 MiB.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

from afflux.core.errors import Consequence, Violation
from afflux.core.limits import Limits, oversize
from afflux.core.payload import Payload
from afflux.core.terms import Place

__all__ = ["Partial", "Reassembly"]

_GROWS = 0x400000
"Bytes from which a payload is joined in place."
_LEAST_SPACE, _MOST_SPACE = 0x2200000, 0x40000000
"""The least and the most space of such a payload, by the largest allowed payload: above 32 MiB, because the C
library caches smaller blocks and clears each byte of those, and at most 1 GiB. It is address space, not memory."""


@dataclass(slots=True)
class Partial:
    """A payload whose last fragment has not arrived."""

    request: Any
    "The request frame that began it, or None for an item of a live stream."
    since: float
    "When its first fragment arrived, in the caller's seconds."
    size: int = 0
    "Bytes of metadata and data so far."
    most: int = 0
    "Bytes that it may have in total."
    fragments: int = 0
    metadata: list[bytes] | None = None
    data: list[bytes] = field(default_factory=list)
    "The pieces; none is empty."
    grown: BytesIO | None = None
    "The joined pieces of a large payload; ``data`` is empty then."
    small: int = 0
    "Non-last fragments below the smallest useful size."

    def add(self, frame: Any, rule: str, place: Place | None = None) -> None:
        """Append the content of a fragment; within a sequence it may have neither N nor C (D-4).

        Raises:
            Violation: metadata after data has begun, against ``rule``.
        """
        if frame.metadata is not None:
            if self.data or self.grown is not None:
                raise Violation("metadata after data has begun", rule=rule, consequence=Consequence.END_STREAM)
            if self.metadata is None:
                self.metadata = []
            self.metadata.append(frame.metadata)
            self.size += len(frame.metadata)
        if frame.data:
            self.size += len(frame.data)
            if self.grown is not None:
                self.grown.write(frame.data)
            else:
                self.data.append(frame.data)
                if self.size >= _GROWS:
                    self._grow(place)
        self.fragments += 1

    def payload(self) -> Payload:
        """The whole payload."""
        return Payload(self.so_far(), None if self.metadata is None else b"".join(self.metadata))

    def so_far(self) -> bytes:
        """The data that has arrived."""
        if self.grown is None:
            return b"".join(self.data)
        self.grown.truncate()
        return self.grown.getvalue()

    def _grow(self, place: Place | None) -> None:
        """Join the pieces in one buffer. The zeros have no other reference, so they are overwritten, not copied."""
        try:
            space = bytes(min(max(_LEAST_SPACE, self.most), _MOST_SPACE))
        except MemoryError:  # too little address space: the buffer will be enlarged, by moving pages
            space = bytes(_LEAST_SPACE)
        self.grown = BytesIO(space)
        del space
        if place is not None:
            place(self.grown)
        self.grown.writelines(self.data)
        self.data.clear()


class Reassembly:
    """The unfinished payloads of one connection, oldest first."""

    __slots__ = ("_limits", "_place", "_rule", "partials", "size")

    def __init__(self, limits: Limits, rule: str, place: Place | None = None) -> None:
        self._limits = limits
        self._rule = rule
        "The rule by which metadata precedes data."
        self._place = place
        "Places the buffer of a large payload in memory (``Terms.place``)."
        self.partials: dict[int, Partial] = {}
        "By stream, oldest first. Read-only for other modules; the methods change it."
        self.size = 0
        "Bytes buffered, with the fixed overhead of each fragment."

    def request(self, stream: int) -> Any:
        """The request frame that began a stream's unfinished payload; None for an item, or without such a payload."""
        partial = self.partials.get(stream)
        return None if partial is None else partial.request

    def hold(self, now: float) -> None:
        """Exclude the time until ``now`` from all time limits: this side did not read."""
        for partial in self.partials.values():
            partial.since = now

    def oldest(self) -> tuple[int, float] | None:
        """The stream with the oldest unfinished payload, and when it began; None without one."""
        for stream, partial in self.partials.items():
            return stream, partial.since
        return None

    def drop(self, stream: int) -> None:
        """Drop a stream's fragments (FG-06)."""
        partial = self.partials.pop(stream, None)
        if partial is not None:
            self.size -= self._cost(partial)

    def clear(self) -> None:
        """Drop all fragments."""
        self.partials.clear()
        self.size = 0

    def begin(self, stream: int, request: Any, now: float) -> Partial:
        """Start a payload.

        Raises:
            Violation: too many unfinished payloads.
        """
        if len(self.partials) >= self._limits.partial_payloads:
            raise _reached("too-many-partials", "partial_payloads")
        partial = self.partials[stream] = Partial(request, now, most=self._limits.payload_bytes)
        return partial

    def add(self, stream: int, frame: Any, last: bool, room: int) -> Partial | None:
        """Append a fragment; return the payload when ``last``. ``room`` is the rest of the connection's budget.

        Raises:
            Violation: a limit is reached (R-39), or metadata follows data; the fragments are dropped.
        """
        partial = self.partials[stream]
        before = self._cost(partial)
        try:
            partial.add(frame, self._rule, self._place)
            if partial.size > self._limits.payload_bytes:
                reason = oversize(self._limits, "payload_bytes", partial.size, more=not last)
                raise _reached(reason, "payload_bytes", too_large=True)
            if partial.fragments > self._limits.fragments:
                raise _reached("too-many-fragments", "fragments")
            grown = self._cost(partial) - before
            if grown > room:
                raise _reached("buffer-full", "connection_bytes")
        except Violation:
            self.size -= before
            del self.partials[stream]
            raise
        if last:
            self.size -= before
            return self.partials.pop(stream)
        self.size += grown
        return None

    def small(self, stream: int, size: int) -> bool:
        """Whether this non-last fragment of ``size`` bytes, prefix included, exceeds the number of small ones
        allowed."""
        if size >= self._limits.fragment_min_bytes:
            return False
        partial = self.partials[stream]
        partial.small += 1
        return partial.small > 1

    def state(self) -> list[list[Any]]:
        """The state that ``restore`` reads: each unfinished payload."""
        return [
            [
                stream,
                None if partial.request is None else partial.request.encode(),
                partial.fragments,
                partial.small,
                None if partial.metadata is None else b"".join(partial.metadata),
                partial.so_far(),
            ]
            for stream, partial in self.partials.items()
        ]

    def restore(self, state: list[list[Any]], now: float, decode: Callable[[bytes], Any]) -> None:
        """Continue from a state; the time limits restart at ``now``. ``decode`` reads a request frame."""
        for stream, request, fragments, small, metadata, data in state:
            partial = Partial(None if request is None else decode(request), now)
            partial.most = self._limits.payload_bytes
            partial.fragments, partial.small = fragments, small
            partial.metadata = None if metadata is None else [metadata]
            partial.data = [data] if data else []
            partial.size = len(data) + len(metadata or b"")
            self.partials[stream] = partial
            self.size += self._cost(partial)

    def _cost(self, partial: Partial) -> int:
        return partial.size + partial.fragments * self._limits.object_overhead_bytes


def _reached(reason: str, limit: str, *, too_large: bool = False) -> Violation:
    """Return the violation of a payload that reaches a limit: it is refused."""
    return Violation(reason, rule=limit, consequence=Consequence.REJECT_REQUEST, too_large=too_large)
