"""Find consecutive messages of one size with one header, without decoding each, so that they are processed together."""

from __future__ import annotations

__all__ = ["MANY", "alike"]

MANY = 8
"Fewer messages are decoded one by one."
_GUESS = 256
"Messages that are compared in one step if the last of them begins like the first: a window of the usual size."


def alike(block: bytes, position: int, end: int, stride: int, most: int, header: int) -> int:
    """Return how many consecutive messages of ``stride`` bytes in ``block[position:end]`` have the same first
    ``header`` bytes: at most ``most``, and 0 if fewer than ``MANY``."""
    most = min(most, (end - position) // stride)
    first = block[position : position + header]
    if most < MANY or not block.startswith(first, position + (MANY - 1) * stride):
        return 0
    alike, tried = 1, 2 * MANY
    guess = min(most, _GUESS)
    if block.startswith(first, position + (guess - 1) * stride):
        tried = guess
    while alike < most:
        # One byte of every header forms a column: count() and lstrip() see how many of its first bytes are equal.
        base = position + (alike - 1) * stride  # the last message found equal to the first
        count = wanted = min(tried, most - alike + 1)
        stop = base + wanted * stride
        for offset in range(header):
            column = block[base + offset : stop : stride]
            if column.count(first[offset]) < wanted:
                count = min(count, wanted - len(column.lstrip(column[:1])))
        alike += count - 1
        if count < wanted:
            break
        tried *= 4
    return alike if alike >= MANY else 0
