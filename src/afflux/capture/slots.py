"""Keep the streams that are followed: arrays with a row for each, a hash table, and lists in order of age.

A row is live, or it is the remainder of an ended stream, which explains what arrives late. Without a free row, the
oldest remainder is given up, and if there is none, the oldest live stream. All functions are compiled if numba is
installed; the state is an array of numbers with the columns that are named here.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from afflux.capture.compiling import Bytes, Column, Table, compiled

__all__ = ["HISTORY", "find", "forget", "insert", "lists", "table", "unlink_live"]

HISTORY: Final = 48
"Letters that are kept of a stream's history."

# Columns of a stream. Pairs are by direction: 0 towards the requester, 1 from it.
CONN: Final = 0
STREAM: Final = 1
OWNER: Final = 2
"1 or 0: the side whose id it is, where each side has its own; otherwise 0."
STATE: Final = 3
KIND: Final = 4
ASKER: Final = 5
"1 if the client is the requester."
FIRST: Final = 6
LAST: Final = 7
ITEMS: Final = 8
BYTES: Final = 10
GRANTED: Final = 12
"-1 if no credit is needed."
USED: Final = 14
SINCE: Final = 16
BLOCKED: Final = 18
SENT: Final = 20
AFTER_TYPE: Final = 22
AFTER_SIDE: Final = 24
AFTER_AT: Final = 26
DONE: Final = 28
PART: Final = 30
OVER: Final = 32
"By side, 0 the responder: it has ended the stream."
ENDED: Final = 34
CODE: Final = 35
STALLS: Final = 36
STALLED: Final = 37
LONGEST: Final = 38
ANSWERED: Final = 39
LETTERS: Final = 40
ROUTE: Final = 41
STALE: Final = 42
NEXT: Final = 43
"The next one of its connection."
BEFORE: Final = 44
YOUNGER: Final = 45
"The next one of the list that it is in: live streams, or remainders."
OLDER: Final = 46
WIDTH: Final = 47

FREE: Final = 0
LIVE: Final = 1
LEFT: Final = 2

# Columns of the lists.
FREE_HEAD: Final = 0
LIVE_OLD: Final = 1
LIVE_NEW: Final = 2
LEFT_OLD: Final = 3
LEFT_NEW: Final = 4
GIVEN_UP: Final = 5
"Remainders that were given up."

# Columns of a connection that the lists need.
HEAD: Final = 0
TAIL: Final = 1
COUNT: Final = 2


def table(size: int) -> tuple[Table, Column, Column, Bytes]:
    """Return the empty state for ``size`` streams: rows, hash table, lists, histories."""
    rows = np.zeros((size, WIDTH), np.int64)
    rows[:, YOUNGER] = np.arange(1, size + 1)
    rows[-1, YOUNGER] = -1
    hashes = np.zeros(1 << (2 * size - 1).bit_length(), np.int64)
    return rows, hashes, lists(), np.zeros((size, HISTORY), np.uint8)


def lists() -> Column:
    """Return the lists of a table whose rows are all free."""
    return np.array([0, -1, -1, -1, -1, 0], np.int64)


@compiled
def _append(rows: Table, order: Column, row: int, old: int) -> None:
    rows[row, YOUNGER] = -1
    rows[row, OLDER] = order[old + 1]
    if order[old + 1] >= 0:
        rows[order[old + 1], YOUNGER] = row
    else:
        order[old] = row
    order[old + 1] = row


@compiled
def _remove(rows: Table, order: Column, row: int, old: int) -> None:
    older, younger = rows[row, OLDER], rows[row, YOUNGER]
    if older >= 0:
        rows[older, YOUNGER] = younger
    else:
        order[old] = younger
    if younger >= 0:
        rows[younger, OLDER] = older
    else:
        order[old + 1] = older


@compiled
def _place(conn: int, stream: int, owner: int, mask: int) -> int:
    mixed = (stream & 0xFFFFFFFF) * 40503 + (stream >> 32) * 31 + conn * 7919 + owner * 104729
    return (mixed ^ (mixed >> 13)) & mask


@compiled
def find(rows: Table, hashes: Column, conn: int, stream: int, owner: int) -> int:
    """Return the row of a stream, -1 for none."""
    mask = len(hashes) - 1
    at = _place(conn, stream, owner, mask)
    while hashes[at] != 0:
        row = hashes[at] - 1
        if rows[row, STREAM] == stream and rows[row, CONN] == conn and rows[row, OWNER] == owner:
            return int(row)
        at = (at + 1) & mask
    return -1


@compiled
def insert(rows: Table, hashes: Column, order: Column, conns: Table, conn: int, stream: int, owner: int) -> int:
    """Take a free row for a stream, which is live and the youngest. The row is zero but for its key."""
    row = int(order[FREE_HEAD])
    order[FREE_HEAD] = rows[row, YOUNGER]
    for column in range(WIDTH):
        rows[row, column] = 0
    rows[row, CONN], rows[row, STREAM], rows[row, OWNER], rows[row, STATE] = conn, stream, owner, LIVE
    mask = len(hashes) - 1
    at = _place(conn, stream, owner, mask)
    while hashes[at] != 0:
        at = (at + 1) & mask
    hashes[at] = row + 1
    rows[row, NEXT] = -1
    rows[row, BEFORE] = conns[conn, TAIL]
    if conns[conn, TAIL] >= 0:
        rows[conns[conn, TAIL], NEXT] = row
    else:
        conns[conn, HEAD] = row
    conns[conn, TAIL] = row
    conns[conn, COUNT] += 1
    _append(rows, order, row, LIVE_OLD)
    return row


@compiled
def unlink_live(rows: Table, order: Column, row: int) -> None:
    """Make a live stream a remainder."""
    _remove(rows, order, row, LIVE_OLD)
    rows[row, STATE] = LEFT
    _append(rows, order, row, LEFT_OLD)


@compiled
def forget(rows: Table, hashes: Column, order: Column, conns: Table, row: int) -> None:
    """Free the row of a remainder."""
    mask = len(hashes) - 1
    at = _place(rows[row, CONN], rows[row, STREAM], rows[row, OWNER], mask)
    while hashes[at] != row + 1:
        at = (at + 1) & mask
    hashes[at] = 0
    hole, at = at, (at + 1) & mask
    while hashes[at] != 0:  # close the hole: what follows is moved as near to its place as it can be
        other = hashes[at] - 1
        home = _place(rows[other, CONN], rows[other, STREAM], rows[other, OWNER], mask)
        if ((at - home) & mask) >= ((at - hole) & mask):
            hashes[hole], hashes[at] = other + 1, 0
            hole = at
        at = (at + 1) & mask
    conn, before, following = rows[row, CONN], rows[row, BEFORE], rows[row, NEXT]
    if before >= 0:
        rows[before, NEXT] = following
    else:
        conns[conn, HEAD] = following
    if following >= 0:
        rows[following, BEFORE] = before
    else:
        conns[conn, TAIL] = before
    conns[conn, COUNT] -= 1
    _remove(rows, order, row, LEFT_OLD)
    rows[row, STATE] = FREE
    rows[row, YOUNGER] = order[FREE_HEAD]
    order[FREE_HEAD] = row
