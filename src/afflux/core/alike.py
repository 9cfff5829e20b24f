"""Messages that are alike: many of one size, with one header, in a row. They are most of all traffic, so they are found
without looking at each, and treated together.
"""

from __future__ import annotations

__all__ = ["MANY", "alike"]

MANY = 8
"Fewer messages are looked at one by one."


def alike(block: bytes, position: int, end: int, stride: int, most: int, header: int) -> int:
    """How many messages of ``stride`` bytes follow each other in ``block[position:end]`` with one and the same header,
    their first ``header`` bytes, ``most`` at most; 0 for fewer than ``MANY``."""
    most = min(most, (end - position) // stride)
    last = position + (MANY - 1) * stride
    if most < MANY or block[last : last + header] != block[position : position + header]:
        return 0
    alike, tried = 1, 2 * MANY
    while alike < most:
        # The same byte of all headers is a column; what is equal at its beginning can be stripped off.
        base = position + (alike - 1) * stride  # the last one that is known to be like the first
        count = wanted = min(tried, most - alike + 1)
        stop = base + wanted * stride
        for offset in range(header):
            column = block[base + offset : stop : stride]
            count = min(count, wanted - len(column.lstrip(column[:1])))
        alike += count - 1
        if count < wanted:
            break
        tried *= 4
    return alike if alike >= MANY else 0
