"""Find the first item that was stored at or after a time.

The cursor answers the time of any item, so a binary search needs some 20 requests of one item, and no server has to
know more than the cursor. Items of one block share their time. The search assumes that times do not decrease; where a
server's clock was set back, it finds one of the places at which they reach the wanted time.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["first_since"]


def first_since(time_us: int, first: int, head: int, time_of: Callable[[int], int]) -> int:
    """Return the first offset whose item was stored at or after a time; ``head`` if there is none.

    Args:
        time_us: the time in microseconds since 1970 (UTC).
        first: the lowest stored offset.
        head: the offset after the last one.
        time_of: returns the time of the item at an offset.
    """
    while first < head:
        middle = (first + head) // 2
        if time_of(middle) < time_us:
            first = middle + 1
        else:
            head = middle
    return head
