"""Count credit, and report which bound holds a stream back.

A stream has one ``Credit`` for each direction. The receiver grants it and the sender uses it, in items or in bytes:
the arithmetic is the same. Frames, queues and waiting belong to the engines and the drivers.

Invariants:

1. ``Credit``: ``granted == used + available``, and neither is negative. At most 2^63−1 is available (RSocket R-26).
2. ``Window``: after ``initial()``, ``1 <= outstanding <= size`` whenever ``consumed()`` returns: it never stalls,
   and never allows more items than the application agreed to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

__all__ = ["SATURATED", "Bound", "Credit", "StreamStatus", "Unit", "Window", "smallest"]

SATURATED = 2**63 - 1
"Credit adds up to no more than this (RSocket R-26)."

Bound = Literal["lease", "memory", "transport", "peer", "local", "application", "producer"]
"""Why a direction of a stream stands still:

- ``lease``: no valid lease allows the request;
- ``memory``: the memory budget of this side is used up;
- ``transport``: there is credit, but the queue or the socket is full;
- ``peer``: the peer has granted no credit;
- ``local``: this side has not started the handler yet;
- ``application``: the application here has not asked for more, or not consumed what arrived;
- ``producer``: there is credit and room, and nothing was sent.
"""

_ORDER: tuple[Bound, ...] = ("lease", "memory", "transport", "peer", "local", "application", "producer")


class Unit(Enum):
    """What credit counts."""

    ITEMS = "items"
    BYTES = "bytes"


class Credit:
    """Credit of one direction of one stream. Hot paths read and write the two integers themselves."""

    __slots__ = ("available", "used")

    available: int
    "How much may still be sent."
    used: int
    "How much has been sent since the start."

    def __init__(self, available: int = 0) -> None:
        self.available = available
        self.used = 0

    @property
    def granted(self) -> int:
        """How much has been granted since the start."""
        return self.used + self.available

    def add(self, n: int) -> None:
        """Grant ``n`` more; what exceeds SATURATED is lost (RSocket R-26). Zero adds nothing.

        Raises:
            ValueError: ``n`` is negative: credit is never revoked.
        """
        if n < 0:
            raise ValueError(f"credit is never revoked: {n}")
        self.available = min(self.available + n, SATURATED)

    def take(self, n: int = 1) -> None:
        """Use ``n``. SATURATED is used up like any other number.

        Raises:
            ValueError: ``n`` is negative or more than is available (a bug of the caller).
        """
        if not 0 <= n <= self.available:
            raise ValueError(f"{n} taken with a credit of {self.available}")
        self.available -= n
        self.used += n

    def spend(self, n: int) -> None:
        """As ``take``, unchecked, in protocols in which SATURATED means without bound: it is never used up."""
        if self.available != SATURATED:
            self.available -= n
        self.used += n

    def sending(self, *, queued: int, room: int, leased: bool = True) -> Bound | None:
        """The bound that holds back what this side sends; None while queued bytes can leave.

        Args:
            queued: bytes of the stream that wait to be written and need no more credit.
            room: bytes that the queue and the transport still accept.
            leased: False while the request waits for a lease.
        """
        if not leased:
            return "lease"
        if room <= 0 and (queued or self.available):
            return "transport"
        if queued:
            return None
        return "producer" if self.available else "peer"

    def receiving(self, *, memory: bool = True) -> Bound:
        """The bound that holds back what the peer sends. ``memory`` is False where this side's budget allows no more.

        A peer that has credit and sends all the time is bounded by its ``producer``: compare two looks at ``used``.
        """
        if not memory:
            return "memory"
        return "producer" if self.available else "application"

    def __repr__(self) -> str:
        return f"<Credit {self.available} available, {self.used} used>"


_NEVER: Final = Credit()
"That of a direction which a stream does not have."


def smallest(bounds: Iterable[Bound | None]) -> Bound | None:
    """The reason why a stream stands still, from those of its open directions: None as soon as one of them flows.

    Of several reasons the one that others cannot remove comes first: a producer may only be waiting for the rest. A
    stream without an open direction waits for its application to finish.
    """
    found = list(bounds)
    return None if None in found else min(found or ["application"], key=lambda bound: _ORDER.index(bound or "producer"))


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStatus:
    """One live stream at one moment. A driver replaces ``reason`` where only the driver knows it (``local``)."""

    stream: int
    "Its number at this engine."
    verb: str
    "What was asked: a verb of ``Engine.open``, or ``session``."
    requester: bool
    "This side opened it."
    state: str
    "The name of its state in the protocol's table."
    unit: Unit
    "What its credit counts."
    credit: int
    "How much this side may still send."
    sent: int
    "How much it has sent, or handed to its queue."
    queued: int
    "Bytes that wait to be written."
    granted: int
    "How much this side has let the peer send since the start."
    outstanding: int
    "How much of it has not arrived."
    received: int
    "How much has arrived."
    reason: Bound | None
    "The smallest bound: why the stream stands still; None while it flows."

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
        """The status of a stream by its credits; ``bounds`` are those of the directions that are still open."""
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
    """What a receiver has granted and the application has not consumed.

    It is ``size`` items, or fewer: as many as fit into ``byte_limit`` by the size that items seem to have, but
    one at least. A refill is one grant, made when half of the window is consumed. What has been granted is not
    revoked, so a window that turns out too large shrinks by being refilled later.
    """

    __slots__ = ("_bytes", "_items", "byte_limit", "outstanding", "overhead", "size", "target")

    size: int
    "The most items that may be outstanding."
    byte_limit: int
    "Bytes that the outstanding items should fit into."
    overhead: int
    "What an item takes beside its bytes."
    target: int
    "How many items may be outstanding by what is known now."
    outstanding: int
    "Items granted and not consumed: under way, or delivered and waiting for the application."

    def __init__(self, size: int, byte_limit: int = SATURATED, overhead: int = 0) -> None:
        if size < 1 or byte_limit < 1:
            raise ValueError(f"a window has 1 or more items and bytes, not {size} and {byte_limit}")
        self.size = size
        self.byte_limit = byte_limit
        self.overhead = overhead
        self.target = size
        self.outstanding = 0
        self._items = 0
        self._bytes = 0

    @property
    def step(self) -> int:
        """How many items the application may take before it says so: half of the window."""
        return max(1, self.size // 2)

    def expect(self, nbytes: int) -> None:
        """Before the first grant: an item will be about so large, as the one that came with the request was."""
        self.target = max(1, min(self.size, self.byte_limit // max(1, nbytes + self.overhead)))

    def initial(self, now: float = 0.0) -> int:
        """The first grant: what is missing in the window, before anything was consumed all of it."""
        grant = max(0, self.target - self.outstanding)
        self.outstanding += grant
        return grant

    def arrived(self, items: int, now: float) -> None:
        """So many items have come. A fixed window takes no notice."""

    def consumed(self, items: int, nbytes: int, now: float = 0.0) -> int:
        """The application consumed ``items`` of ``nbytes`` in all. Return how many to grant now: 0, or at least
        half of the window. ``now`` is for the adaptive window (autocredit.py), in seconds.

        Raises:
            ValueError: more than is outstanding, or a negative number (a bug of the caller).
        """
        self._check(items, nbytes)
        self.outstanding -= items
        if items:
            self._weigh(items, nbytes)
        grant = self.target - self.outstanding
        if grant <= 0 or grant * 2 < self.target:
            return 0
        self.outstanding += grant
        return grant

    def _check(self, items: int, nbytes: int) -> None:
        if not 0 <= items <= self.outstanding or nbytes < 0:
            raise ValueError(f"{items} items of {nbytes} bytes consumed, {self.outstanding} outstanding")

    def _weigh(self, items: int, nbytes: int) -> None:
        """Fit the target to the heavier of the mean of about two windows and the mean of this batch."""
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
