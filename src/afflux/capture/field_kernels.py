"""Read the fields of frames, one frame after the other: what layouts.py does with numpy in a pass for each field.

The function is plain Python that numba compiles (see kernels.py). A layout is a program for it: a row of numbers for
each step.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["ABSENT", "FLAGGED", "NEED", "NUMBER", "PASS", "PLAIN", "REST", "SIZED", "STEP", "read"]

NEED: Final = 0
"The frame must have so many more bytes."
NUMBER: Final = 1
"Read a number: its column, where it is from here, its bits; 31 and 63 bits follow a reserved one."
PASS: Final = 2
"Go on by so many bytes."
SIZED: Final = 3
"Bytes after their length: their column, their flag or 0, the bytes of the length, its mask, how many it includes."
FLAGGED: Final = 4
"A number of 31 bits after a reserved one, where a flag is set: its column, the flag."
REST: Final = 5
"The rest of the frame: its column."
ABSENT: Final = 6
"A flag that must not be set."
STEP: Final = 6
"Numbers of a step: what it is, and up to five more."
PLAIN: Final = 5
"Numbers that tell how simple frames of a type are read; see ``plain`` of ``read``."


def read(  # long: a step after the other
    data: Any,
    at: Any,
    sizes: Any,
    place: int,
    width: int,
    shift: int,
    begins: Any,
    steps: Any,
    plain: Any,
    codes: Any,
    words: Any,
    numbers: Any,
    starts: Any,
    lengths: Any,
    good: Any,
    seen: Any,
) -> None:
    """Read frames.

    Args:
        data: the bytes, with more after the last frame than any run of fixed fields has.
        at: where each frame begins.
        sizes: the bytes of each frame.
        place: where the word with the type is in a frame.
        width: bytes of the word.
        shift: bits of the word after the type.
        begins: the first step of each type, -1 for a type that is not read; and the number of steps at the end. The
            steps of the types are in the order of the types.
        steps: the steps of all types.
        plain: a row for each type that tells how its simple frames are read, as most frames are: without steps. The
            bits of the word that none of them has, -1 if the type has no such frames; the bytes before the rest; where
            a number of 31 bits is in them, and its column; the column of the rest, -1 for none.
        codes: takes the type of each frame; ``words`` its word.
        numbers: takes the numbers, a row for each column; -1 where there is none.
        starts: takes where metadata and data begin, a row for each column; -1 for none. ``lengths`` takes their bytes.
        good: takes whether each frame was read. What the others take is of no meaning.
        seen: counts the frames of each type that are not too short for their word.
    """
    types = len(begins) - 1
    for row in range(len(at)):
        start = at[row]
        here, stop = start, start + sizes[row]
        word = 0
        for octet in range(width):
            word = word << 8 | data[start + place + octet]
        code = word >> shift
        codes[row], words[row] = code, word
        for column in range(len(numbers)):
            numbers[column, row] = -1
        for column in range(len(starts)):
            starts[column, row] = lengths[column, row] = -1
        good[row] = False
        if code >= types:
            continue
        if sizes[row] >= place + width:
            seen[code] += 1
        step = begins[code]
        if step < 0:
            continue
        fixed = plain[code, 1]
        left = sizes[row] - fixed
        if plain[code, 0] & word == 0 and (left == 0 or (left > 0 and plain[code, 4] >= 0)):
            first = start + plain[code, 2]
            numbers[plain[code, 3], row] = (
                int(data[first] & 0x7F) << 24
                | int(data[first + 1]) << 16
                | int(data[first + 2]) << 8
                | int(data[first + 3])
            )
            if plain[code, 4] >= 0:
                starts[plain[code, 4], row], lengths[plain[code, 4], row] = start + fixed, left
            good[row] = True
            continue
        following = code + 1
        while begins[following] < 0:
            following += 1
        right = True
        while step < begins[following]:
            what, column = steps[step, 0], steps[step, 1]
            if what == NEED:
                if stop - here < column:
                    right = False
                    break
            elif what == NUMBER:
                number, first, bits = 0, here + steps[step, 2], steps[step, 3]
                for octet in range((bits + 7) >> 3):
                    number = number << 8 | data[first + octet]
                if bits & 7:
                    number &= (1 << bits) - 1
                numbers[column, row] = number
            elif what == PASS:
                here += column
            elif what == SIZED:
                flag, size_width = steps[step, 2], steps[step, 3]
                if flag == 0 or word & flag:
                    if here + size_width > stop:
                        right = False
                        break
                    size = 0
                    for octet in range(size_width):
                        size = size << 8 | data[here + octet]
                    size = (size & steps[step, 4]) - steps[step, 5]
                    here += size_width
                    if size < 0 or size > stop - here:
                        right = False
                        break
                    starts[column, row], lengths[column, row] = here, size
                    here += size
            elif what == FLAGGED:
                if word & steps[step, 2]:
                    if here + 4 > stop:
                        right = False
                        break
                    number = 0
                    for octet in range(4):
                        number = number << 8 | data[here + octet]
                    numbers[column, row] = number & 0x7FFFFFFF
                    here += 4
            elif what == REST:
                starts[column, row], lengths[column, row] = here, stop - here
                here = stop
            elif word & column:
                right = False
                break
            step += 1
        good[row] = right and here == stop
