"""Credit: how much may be sent, how much is asked for, and which of four bounds is the smallest.

Effective demand = min(application demand, peer's credit, transport room, memory budget). Credit is counted in
items or in bytes; the arithmetic is the same. Here are numbers only: no frames, no queues, no waiting.

Invariants:

1. ``Credit``: ``granted == used + available``, none is negative, and none is above 2^63−1 (R-26).
2. ``Ledger``: ``effective()`` is above 0 exactly when all four bounds are.
3. ``Window``: after ``initial()``, ``1 <= outstanding <= size`` whenever ``consumed()`` returns: it never stalls,
   and it never has more under way than the application agreed to.
4. ``Budget``: ``0 <= used <= limit``, and ``used + room == limit``.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal

from afflux.core.errors import Violation

__all__ = ["SATURATED", "Bound", "Budget", "Credit", "Ledger", "Unit", "Window"]

SATURATED = 2**63 - 1
"Credit adds up no further than this; it stands for no special meaning (R-26)."

Bound = Literal["application", "peer", "transport", "budget"]
"What holds a stream back."


class Unit(Enum):
    """What credit counts."""

    ITEMS = "items"
    BYTES = "bytes"


class Credit:
    """Credit of one direction of one stream: granted, used, and what is left."""

    __slots__ = ("available", "unit", "used")

    unit: Unit
    available: int
    "How much may still be taken. Read it; change it with add and take."
    used: int
    "How much has been taken since the start."

    def __init__(self, unit: Unit = Unit.ITEMS) -> None:
        self.unit = unit
        self.available = 0
        self.used = 0

    @property
    def granted(self) -> int:
        """How much has been granted since the start, at most SATURATED."""
        return self.used + self.available

    def add(self, n: int) -> None:
        """Grant ``n`` more; above SATURATED the rest is lost (R-26). Zero adds nothing.

        Raises:
            ValueError: ``n`` is negative: credit is never revoked.
        """
        if n < 0:
            raise ValueError(f"credit is never revoked: {n}")
        self.available = min(self.available + n, SATURATED - self.used)

    def take(self, n: int = 1) -> None:
        """Use ``n``; nothing is taken when it raises.

        Raises:
            Violation: less than ``n`` is left (rule ``R-27``).
            ValueError: ``n`` is negative: credit is never revoked.
        """
        if n < 0:
            raise ValueError(f"credit is never revoked: {n}")
        if n > self.available:
            raise Violation(f"{n} {self.unit.value} with a credit of {self.available}", rule="R-27")
        self.available -= n
        self.used += n

    def __repr__(self) -> str:
        return f"<Credit {self.available} {self.unit.value}, {self.used} used>"


class Ledger:
    """The demand of one stream: four bounds, and which is the smallest.

    ``application`` and ``peer`` count in the stream's unit, ``transport`` and ``budget`` in bytes. With items,
    bytes are converted by the size that an item seems to have. A room that is not empty is worth one item at
    least, so an item greater than all the room passes alone and a stream cannot stall by an estimate: a
    high-water mark is overshot by one item at most, and ``Budget.hold`` stays the hard test.
    """

    __slots__ = ("_mean", "application", "budget", "item_bytes", "peer", "transport")

    application: Credit
    "What the application wants: items to be sent, or demand to be passed on."
    peer: Credit
    "What the peer allows."
    transport: int
    "Bytes that the transport still takes; set it when it changes."
    budget: int
    "Bytes that the memory budget still has; set it when it changes."
    item_bytes: int
    "What an item is taken to weigh: the mean of the last few or the last one, whichever is more."

    def __init__(self, unit: Unit = Unit.ITEMS) -> None:
        self.application = Credit(unit)
        self.peer = Credit(unit)
        self.transport = SATURATED
        self.budget = SATURATED
        self.item_bytes = 1
        self._mean = 0.0

    @property
    def unit(self) -> Unit:
        """What the credit of this stream counts."""
        return self.peer.unit

    def observe(self, size: int) -> None:
        """An item of ``size`` bytes went by. With Unit.BYTES it changes nothing."""
        if self.unit is Unit.ITEMS:
            self._mean = self._mean + (size - self._mean) / 8 if self._mean else float(size)
            self.item_bytes = max(1, size, round(self._mean))

    def effective(self) -> int:
        """How much may go now, in the stream's unit."""
        return min(value for value, _ in self._bounds())

    def limited_by(self) -> Bound:
        """The smallest bound. Equal ones: application before peer before transport before budget."""
        return min(self._bounds(), key=lambda bound: bound[0])[1]

    def _bounds(self) -> tuple[tuple[int, Bound], ...]:
        size = self.item_bytes
        return (
            (self.application.available, "application"),
            (self.peer.available, "peer"),
            (max(0, -(-self.transport // size)), "transport"),
            (max(0, -(-self.budget // size)), "budget"),
        )

    def __repr__(self) -> str:
        return f"<Ledger {self.effective()} {self.unit.value}, limited by {self.limited_by()}>"


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


class Budget:
    """The bytes that one connection may hold; each object costs ``overhead`` beside its bytes."""

    __slots__ = ("limit", "overhead", "used")

    limit: int
    "Bytes in all."
    overhead: int
    "Bytes charged for each object, so that many empty ones are not free."
    used: int
    "Bytes held, overhead included. Read it; change it with hold and release."

    def __init__(self, limit: int, overhead: int = 0) -> None:
        self.limit = limit
        self.overhead = overhead
        self.used = 0

    @property
    def room(self) -> int:
        """Bytes left."""
        return self.limit - self.used

    def hold(self, size: int, objects: int = 1) -> bool:
        """Charge ``objects`` of ``size`` bytes in all; False, and nothing charged, when they do not fit.

        Raises:
            ValueError: a negative number (a bug of the caller).
        """
        used = self.used + self._cost(size, objects)
        if used > self.limit:
            return False
        self.used = used
        return True

    def release(self, size: int, objects: int = 1) -> None:
        """Give back what was charged.

        Raises:
            ValueError: more than is held, or a negative number (a bug of the caller); nothing is given back.
        """
        used = self.used - self._cost(size, objects)
        if used < 0:
            raise ValueError(f"{size} bytes in {objects} objects released, {self.used} bytes held")
        self.used = used

    def _cost(self, size: int, objects: int) -> int:
        if size < 0 or objects < 0:
            raise ValueError(f"a budget counts 0 or more, not {size} bytes in {objects} objects")
        return size + objects * self.overhead

    def __repr__(self) -> str:
        return f"<Budget {self.used} of {self.limit} bytes>"
