"""Count credit, and report the smallest bound of a stream.

A stream has one ``Credit`` for each direction. The receiver grants it and the sender uses it, in items or in bytes.
Engines and drivers handle frames, queues and waiting.

Invariants:

1. ``Credit``: ``granted == used + available``, and neither is negative. At most 2^63−1 is available (RSocket R-26).
2. ``Window``: after ``initial()``, ``1 <= outstanding <= size`` whenever ``consumed()`` returns: the stream never
   stalls and never exceeds the window of the application.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

__all__ = ["SATURATED", "Bound", "Credit", "StreamStatus", "Unit", "Window", "smallest"]

SATURATED = 2**63 - 1
"The most credit that accumulates (RSocket R-26)."

Bound = Literal["lease", "memory", "transport", "credit", "local", "application", "producer"]
"""The bound that limits one direction of a stream:

- ``lease``: no valid lease allows the request;
- ``memory``: the memory budget of this side is used up;
- ``transport``: there is credit, but the queue or the socket is full, or a suspended session has no connection;
- ``credit``: the peer has granted no credit;
- ``local``: this side has not started the handler yet;
- ``application``: the application here has not asked for more, or not consumed what arrived;
- ``producer``: there is credit and room, and nothing was sent.
"""

_TOLERANCE = 16
"""A refill may be smaller than half of the window, by half of this part of the window. Items arrive in groups of half a
window. A group may have one item less, because the first item of a channel needs no credit: if the refill waited for
the next group, both sides would stop in turn. Channel echo with a window of 256: 440 → 640 k/s."""

_ORDER: tuple[Bound, ...] = ("lease", "memory", "transport", "credit", "local", "application", "producer")


class Unit(Enum):
    """The unit of credit."""

    ITEMS = "items"
    BYTES = "bytes"


class Credit:
    """Credit of one direction of one stream. Hot paths read and write the two integers themselves."""

    __slots__ = ("available", "used")

    available: int
    "Credit that is granted and not used."
    used: int
    "Credit used since the start."

    def __init__(self, available: int = 0) -> None:
        self.available = available
        self.used = 0

    @property
    def granted(self) -> int:
        """Credit granted since the start."""
        return self.used + self.available

    def add(self, n: int) -> None:
        """Grant ``n`` more, up to SATURATED in total (RSocket R-26).

        Raises:
            ValueError: ``n`` is negative: credit cannot be revoked.
        """
        if n < 0:
            raise ValueError(f"credit cannot be revoked: {n}")
        self.available = min(self.available + n, SATURATED)

    def take(self, n: int = 1) -> None:
        """Use ``n``. SATURATED decreases like any other number.

        Raises:
            ValueError: ``n`` is negative or exceeds what is available (a bug of the caller).
        """
        if not 0 <= n <= self.available:
            raise ValueError(f"cannot use {n} of a credit of {self.available}")
        self.available -= n
        self.used += n

    def spend(self, n: int) -> None:
        """Use ``n`` without a check, in protocols in which SATURATED means unbounded and does not decrease."""
        if self.available != SATURATED:
            self.available -= n
        self.used += n

    def sending(self, *, queued: int, room: int) -> Bound | None:
        """Return the bound of the outbound direction; None while queued bytes can be written.

        Args:
            queued: bytes of the stream that are queued and need no more credit.
            room: bytes that the queue and the transport still accept.
        """
        if room <= 0 and (queued or self.available):
            return "transport"
        if queued:
            return None
        return "producer" if self.available else "credit"

    def receiving(self, *, memory: bool = True) -> Bound:
        """Return the bound of the inbound direction. ``memory`` is False if this side's budget permits no more.

        The bound of a peer that has credit is ``producer``, even while it sends: compare two values of ``used``.
        """
        if not memory:
            return "memory"
        return "producer" if self.available else "application"

    def __repr__(self) -> str:
        return f"<Credit {self.available} available, {self.used} used>"


_NEVER: Final = Credit()
"The credit of a missing direction."


def smallest(bounds: Iterable[Bound | None]) -> Bound | None:
    """Return the smallest bound of a stream's open directions: None if one of them is not limited.

    The order of bounds is that of ``Bound``: a producer may only be waiting for one of the others. A stream without an
    open direction waits for its application to finish.
    """
    found = list(bounds)
    return None if None in found else min(found or ["application"], key=lambda bound: _ORDER.index(bound or "producer"))


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStatus:
    """A live stream at one moment. A driver replaces ``reason`` by ``local`` before the handler starts."""

    stream: int
    "Its number at this engine."
    verb: str
    "A verb of ``Engine.open``, or ``session``; while it waits for a lease also ``push`` or ``extend``."
    requester: bool
    "True if this side opened it."
    state: str
    "The name of its state in the protocol's table."
    unit: Unit
    "The unit of its credit."
    credit: int
    "Credit that this side may still use."
    sent: int
    "Credit that this side has used, for items sent or queued."
    queued: int
    "Bytes that wait to be written."
    granted: int
    "Credit that this side has granted since the start."
    outstanding: int
    "The part of ``granted`` that has not arrived."
    received: int
    "The part of ``granted`` that has arrived."
    reason: Bound | None
    "The smallest bound; None while nothing limits the stream."

    @classmethod
    def of(
        cls,
        stream: int,
        verb: str,
        state: str,
        *,
        requester: bool,
        bounds: Iterable[Bound | None],
        to_send: Credit = _NEVER,
        to_receive: Credit = _NEVER,
        unit: Unit = Unit.ITEMS,
        queued: int = 0,
    ) -> StreamStatus:
        """Return the status of a stream from its credits; ``bounds`` are those of its open directions."""
        return cls(
            stream=stream,
            verb=verb,
            requester=requester,
            state=state,
            unit=unit,
            credit=to_send.available,
            sent=to_send.used,
            queued=queued,
            granted=to_receive.granted,
            outstanding=to_receive.available,
            received=to_receive.used,
            reason=smallest(bounds),
        )


class Window:
    """Items that a receiver has granted and the application has not consumed.

    A window has ``size`` items, or as many as fit into ``byte_limit`` by their estimated size, at least one. A refill
    is one grant, made when half of the window is consumed, or a few items less (``_TOLERANCE``). Credit is not revoked,
    so a window that is too large shrinks because it is refilled later.
    """

    __slots__ = ("_bytes", "_items", "byte_limit", "outstanding", "overhead", "size", "target")

    size: int
    "The most items that may be outstanding."
    byte_limit: int
    "Bytes that the outstanding items should fit into."
    overhead: int
    "Memory for each item in addition to its bytes."
    target: int
    "The items that may be outstanding by the current estimate."
    outstanding: int
    "Items granted and not consumed: in flight, or delivered and waiting for the application."

    def __init__(self, size: int, byte_limit: int = SATURATED, overhead: int = 0) -> None:
        if size < 1 or byte_limit < 1:
            raise ValueError(f"invalid window: {size} items, {byte_limit} bytes; expected 1 or more of both")
        self.size = size
        self.byte_limit = byte_limit
        self.overhead = overhead
        self.target = size
        self.outstanding = 0
        self._items = 0
        self._bytes = 0

    @property
    def step(self) -> int:
        """How many items the application may take before it reports them: half of the window."""
        return max(1, self.size // 2)

    def expect(self, nbytes: int) -> None:
        """Before the first grant: estimate the size of an item by the one that came with the request."""
        self.target = max(1, min(self.size, self.byte_limit // max(1, nbytes + self.overhead)))

    def initial(self, now: float = 0.0) -> int:
        """Return the first grant: the part of the window that is not outstanding, usually all of it."""
        grant = max(0, self.target - self.outstanding)
        self.outstanding += grant
        return grant

    def arrived(self, items: int, now: float) -> None:
        """Report that ``items`` have arrived. No-op for a fixed window."""

    def consumed(self, items: int, nbytes: int, now: float = 0.0) -> int:
        """Report that the application consumed ``items`` of ``nbytes`` in total. Return how many to grant now: 0, or at
        least about half of the window. ``now`` is for the adaptive window (autocredit.py), in seconds.

        Raises:
            ValueError: the number exceeds what is outstanding, or is negative (a bug of the caller).
        """
        self._check(items, nbytes)
        self.outstanding -= items
        if items:
            self._update_target(items, nbytes)
        grant = self.target - self.outstanding
        if grant <= 0 or grant * 2 < self.target - self.target // _TOLERANCE:
            return 0
        self.outstanding += grant
        return grant

    def _check(self, items: int, nbytes: int) -> None:
        if not 0 <= items <= self.outstanding or nbytes < 0:
            raise ValueError(f"{items} items of {nbytes} bytes consumed, {self.outstanding} outstanding")

    def _update_target(self, items: int, nbytes: int) -> None:
        """Fit the target to the larger of two mean sizes: of the last two windows or so, and of this batch."""
        if self._items > self.size:
            self._items //= 2
            self._bytes //= 2
        self._items += items
        nbytes += items * self.overhead
        self._bytes += nbytes
        weight = max(self._bytes * items, nbytes * self._items)  # both means times items × self._items
        fits = self.byte_limit * items * self._items // weight if weight else self.size
        self.target = max(1, min(self.size, fits))

    def __repr__(self) -> str:
        return f"<Window {self.outstanding} of {self.target} outstanding, size {self.size}>"
