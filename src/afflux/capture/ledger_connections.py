"""Apply frames to their connections: who may send them, and which leases they use (for ledger_kernels.py)."""

from __future__ import annotations

from afflux.capture.compiling import Column, Columns, Table, compiled
from afflux.capture.ledger_columns import (
    A_CLIENT,
    A_CONNECTION,
    A_FIRST,
    A_LATER,
    A_LEASE,
    A_LEASES,
    A_RATION,
    A_SERVER,
    ABSENT,
    ACTS,
    AT,
    B_FIRST,
    B_LEASE,
    B_PARITY,
    B_SETUP,
    B_SIDE,
    B_STREAM,
    B_ZERO,
    BEGUN,
    BUSY,
    CONNS,
    DARK,
    GAPS,
    GRACE,
    GRACE_NS,
    LARGEST,
    LAST_AT,
    LAST_ITEM,
    LAST_SIDE,
    LAST_TYPE,
    LATER,
    LEASE_WAIT,
    LEASES,
    LEFT,
    LOST,
    MILLIS,
    NEW_ROUTE,
    NUMBER,
    ODD,
    ORDERED,
    OVER_DARK,
    RATION,
    RULES,
    SEEN,
    SERVER_FIRST,
    SIDE,
    STREAM_ID,
    TIME,
    TRAITS,
    TYPE,
    UNTIL,
    WAITED,
    WHOLE,
    WITHOUT,
    WRONG,
)
from afflux.capture.slots import GIVEN_UP

__all__ = ["breaks", "concerns", "incomplete", "loses", "never_began", "sees", "sends", "unsure", "uses_lease"]


@compiled
def unsure(conns: Table, conn: int) -> bool:
    """Whether frames are missing that may have changed what is known of a connection."""
    return bool(conns[conn, GAPS] or conns[conn, SEEN])


@compiled
def incomplete(conns: Table, conn: int, side: int, since: int) -> bool:
    """Whether frames may be missing that a side has sent since a time."""
    return bool(conns[conn, DARK + side] or conns[conn, LOST + side] >= since)


@compiled
def loses(conns: Table, conn: int, side: int, time: int, over: bool) -> None:
    """Frames of a side are lost. ``over``: the next one cannot be found."""
    conns[conn, GAPS] = 1
    conns[conn, LOST + side] = max(conns[conn, LOST + side], time)
    if over:
        conns[conn, DARK + side] |= OVER_DARK


@compiled
def sees(conns: Table, conn: int, seen: int, time: int) -> None:
    """What the capture has of the connection is another now; see ``MISSED``."""
    for side in range(2):
        absent = seen >> (1 + side) & 1
        if conns[conn, SEEN] >> (1 + side) & 1 and not absent:
            loses(conns, conn, side, time, False)
        conns[conn, DARK + side] = (conns[conn, DARK + side] & OVER_DARK) | absent * ABSENT
    conns[conn, SEEN] = seen


@compiled
def sends(conns: Table, conn: int, side: int, time: int, least: int) -> None:
    """A side sends an item."""
    last = conns[conn, LAST_ITEM + side]
    if last >= 0 and 0 < time - last < least:
        conns[conn, BUSY + side] += time - last
    conns[conn, LAST_ITEM + side] = time


@compiled
def breaks(
    conns: Table, wrong: Table, counts: Column, conn: int, frame: int, case: int, kind: int, a: int, b: int
) -> None:
    """Note a broken rule, if the protocol has it, and if no missing frame may be the reason."""
    if case not in (B_ZERO, B_PARITY, B_SIDE, B_STREAM) and unsure(conns, conn):
        return
    if conns[conn, RULES] >> case & 1:
        at = counts[3]
        wrong[at, 0], wrong[at, 1], wrong[at, 2], wrong[at, 3], wrong[at, 4] = frame, case, kind, a, b
        counts[3] += 1
        conns[conn, WRONG] += 1


@compiled
def _lease(conns: Table, frames: Columns, frame: int) -> None:
    """The sender permits requests of the other side."""
    conn, other, time = frames[frame, CONNS], 1 - frames[frame, SIDE], frames[frame, TIME]
    if conns[conn, WITHOUT + other] < 0 and conns[conn, UNTIL + other] < time:
        conns[conn, WITHOUT + other] = conns[conn, UNTIL + other]
    conns[conn, GRACE + other] = max(conns[conn, LEFT + other], 0)
    number, millis = max(frames[frame, NUMBER], 0), max(frames[frame, MILLIS], 0)
    conns[conn, LEFT + other] = number if millis else 0
    conns[conn, UNTIL + other] = time + millis * 1_000_000
    if number and millis:
        conns[conn, WAITED + other] = time if conns[conn, WITHOUT + other] >= 0 else -1
    elif conns[conn, WITHOUT + other] < 0:
        conns[conn, WITHOUT + other] = time


@compiled
def uses_lease(
    conns: Table, stalls: Table, wrong: Table, counts: Column, frames: Columns, frame: int, kind: int, least: int
) -> int:
    """A request uses its lease. Returns how long it had waited for the lease, in ns; 0 if it had not."""
    conn, side, time = frames[frame, CONNS], frames[frame, SIDE], frames[frame, TIME]
    waited, since = conns[conn, WAITED + side], conns[conn, WITHOUT + side]
    gap = 0
    if waited >= 0 and waited - since >= least and time - waited < least and not unsure(conns, conn):
        gap = waited - since
        at = counts[2]
        stalls[at, 0], stalls[at, 1], stalls[at, 2] = conn, frames[frame, STREAM_ID], side
        stalls[at, 3], stalls[at, 4], stalls[at, 5] = since, waited, LEASE_WAIT
        stalls[at, 6], stalls[at, 7] = conns[conn, LAST_TYPE], conns[conn, LAST_SIDE]
        stalls[at, 8], stalls[at, 9], stalls[at, 10] = (
            conns[conn, LAST_AT],
            frames[frame, TYPE],
            frames[frame, NEW_ROUTE],
        )
        counts[2] += 1
    conns[conn, WAITED + side] = -1
    if waited >= 0:
        conns[conn, WITHOUT + side] = -1
    late = time > conns[conn, UNTIL + side] + GRACE_NS
    if conns[conn, LEFT + side] > 0 and not late:
        conns[conn, LEFT + side] -= 1
    elif conns[conn, GRACE + side] > 0 and not late:
        conns[conn, GRACE + side] -= 1
    else:
        breaks(conns, wrong, counts, conn, frame, B_LEASE, kind, int(late), 0)
    if conns[conn, LEFT + side] == 0 and conns[conn, WITHOUT + side] < 0:
        conns[conn, WITHOUT + side] = time
        conns[conn, LAST_TYPE], conns[conn, LAST_SIDE] = frames[frame, TYPE], side
        conns[conn, LAST_AT] = frames[frame, AT]
    return int(gap)


@compiled
def concerns(conns: Table, wrong: Table, counts: Column, frames: Columns, frame: int) -> None:
    """Apply what a frame means for its connection, and check its sender."""
    conn, side, acts = frames[frame, CONNS], frames[frame, SIDE], frames[frame, ACTS]
    if not conns[conn, BEGUN + side]:
        conns[conn, BEGUN + side] = 1
        declared = side == 1 or conns[conn, TRAITS] & SERVER_FIRST
        if declared and not acts & A_FIRST and conns[conn, WHOLE + side]:
            breaks(conns, wrong, counts, conn, frame, B_FIRST, -1, 0, 0)
    elif acts & A_FIRST:
        breaks(conns, wrong, counts, conn, frame, B_SETUP, -1, 0, 0)
        return
    if (acts & A_CLIENT and side == 0) or (acts & A_SERVER and side == 1):
        breaks(conns, wrong, counts, conn, frame, B_SIDE, -1, side, 0)
    if acts & A_LATER:
        conns[conn, LATER] = 1
    if acts & A_LEASES:
        conns[conn, LEASES] = 1
        conns[conn, WITHOUT] = conns[conn, WITHOUT + 1] = frames[frame, TIME]
        conns[conn, UNTIL] = conns[conn, UNTIL + 1] = frames[frame, TIME]
        conns[conn, LAST_TYPE], conns[conn, LAST_SIDE], conns[conn, LAST_AT] = (
            frames[frame, TYPE],
            side,
            frames[frame, AT],
        )
    if acts & A_RATION:
        conns[conn, RATION + 1 - side] = frames[frame, NUMBER]
    if acts & A_CONNECTION and frames[frame, STREAM_ID] > 0:
        breaks(conns, wrong, counts, conn, frame, B_STREAM, -1, 0, 0)
    elif acts & A_LEASE:
        _lease(conns, frames, frame)


@compiled
def never_began(conns: Table, order: Column, frames: Columns, frame: int) -> bool:
    """Whether it is certain that a stream without a row never began."""
    conn, stream = frames[frame, CONNS], frames[frame, STREAM_ID]
    if unsure(conns, conn):
        return False
    if order[GIVEN_UP] == 0:
        return True
    traits = conns[conn, TRAITS]
    if not traits & ORDERED:
        return False
    opener = 1 if (stream & 1 == 1) == (traits & ODD != 0) else 0
    return bool(stream > conns[conn, LARGEST + opener])
