"""Count the items and the credit of one direction of a stream, and find its stalls (for ledger_kernels.py)."""

from __future__ import annotations

from afflux.capture.compiling import Column, Columns, Table, compiled
from afflux.capture.ledger_columns import (
    A_COMPLETE,
    A_FOLLOWS,
    A_ZERO,
    ACTS,
    AT,
    B_CREDIT,
    B_DIRECTION,
    B_DONE,
    B_ZERO,
    BUSY,
    CREDIT,
    EMPTY,
    END,
    FREE_ITEM,
    GRANTS,
    HELD,
    ITEM_COUNT,
    K_CHANNEL,
    K_FIRE,
    K_PUSH,
    K_SESSION,
    K_UNKNOWN,
    LOCAL,
    NEVER,
    NUMBER,
    OCTETS,
    PEER,
    PRODUCER,
    SIDE,
    SIZE,
    TIME,
    TRAITS,
    TRANSPORT,
    TYPE,
    UNSURE,
)
from afflux.capture.ledger_connections import breaks, incomplete, sends
from afflux.capture.slots import (
    AFTER_AT,
    AFTER_SIDE,
    AFTER_TYPE,
    ANSWERED,
    ASKER,
    BLOCKED,
    BYTES,
    CONN,
    DONE,
    FIRST,
    GRANTED,
    ITEMS,
    KIND,
    LONGEST,
    PART,
    ROUTE,
    SENT,
    SINCE,
    STALLED,
    STALLS,
    STREAM,
    USED,
)

__all__ = ["answers", "carries", "flows", "grants", "note_credit", "starts", "stops", "two_ways", "unseen"]


@compiled
def two_ways(kind: int) -> bool:
    """Whether the requester sends items too."""
    return kind in (K_CHANNEL, K_SESSION, K_UNKNOWN)


@compiled
def _lossy(rows: Table, conns: Table, row: int, side: int) -> bool:
    """Whether frames of a stream may be missing that a side has sent."""
    return incomplete(conns, rows[row, CONN], side, rows[row, FIRST])


@compiled
def unseen(rows: Table, conns: Table, row: int) -> bool:
    """Whether frames of a stream may be missing."""
    return _lossy(rows, conns, row, 0) or _lossy(rows, conns, row, 1)


@compiled
def _ungranted(rows: Table, conns: Table, row: int, side: int) -> bool:
    """Whether credit of a stream may be missing that a side has granted; with rations, at the beginning."""
    conn = rows[row, CONN]
    start = NEVER + 1 if conns[conn, TRAITS] & OCTETS else rows[row, FIRST]
    return incomplete(conns, conn, side, start)


@compiled
def answers(rows: Table, conns: Table, row: int, time: int) -> None:
    """The requester gets an answer. When the first one came is unknown if one may be missing."""
    if rows[row, ANSWERED] == -1:
        rows[row, ANSWERED] = -2 if _lossy(rows, conns, row, 1 - rows[row, ASKER]) else time


@compiled
def note_credit(
    rows: Table, conns: Table, credit: Table, counts: Column, row: int, way: int, event: int, n: int, frame: int
) -> None:
    """Note an event of the credit of one direction, if it needs credit, and if all of it was seen."""
    if rows[row, GRANTED + way] < 0 or _ungranted(rows, conns, row, 0) or _ungranted(rows, conns, row, 1):
        return
    at = counts[1]
    credit[at, 0], credit[at, 1] = rows[row, CONN], rows[row, STREAM]
    credit[at, 2] = rows[row, ASKER] if way else 1 - rows[row, ASKER]
    credit[at, 3], credit[at, 4] = event, n
    credit[at, 5], credit[at, 6], credit[at, 7] = rows[row, GRANTED + way], rows[row, USED + way], frame
    counts[1] += 1


@compiled
def flows(
    rows: Table,
    conns: Table,
    stalls: Table,
    counts: Column,
    row: int,
    way: int,
    time: int,
    held: int,
    ended_by: int,
    least: int,
) -> None:
    """Something flows in one direction, or its credit changes: note a stall if nothing did for ``least`` ns."""
    gap = time - rows[row, SINCE + way]
    if gap < least or rows[row, DONE + way]:
        return
    kind = rows[row, KIND]
    if way == 1 and not (kind == K_CHANNEL or (kind == K_SESSION and rows[row, GRANTED + 1] >= 0)):
        return
    if kind in (K_FIRE, K_PUSH):
        return
    conn = rows[row, CONN]
    sender = rows[row, ASKER] if way else 1 - rows[row, ASKER]
    for side in range(2):
        if incomplete(conns, conn, side, rows[row, SINCE + way]):
            return
    if ended_by < 0 and unseen(rows, conns, row):
        return
    needs = rows[row, GRANTED + way] >= 0
    cause = PRODUCER
    if needs and rows[row, USED + way] >= rows[row, GRANTED + way]:
        cause = UNSURE if _ungranted(rows, conns, row, 1 - sender) else PEER
    elif (needs and _lossy(rows, conns, row, sender)) or (kind == K_UNKNOWN and conns[conn, TRAITS] & CREDIT):
        cause = UNSURE
    elif 2 * (held - rows[row, BLOCKED + way]) >= gap:
        cause = TRANSPORT
    elif 2 * (conns[conn, BUSY + sender] - rows[row, SENT + way]) >= gap:
        cause = LOCAL
    at = counts[2]
    stalls[at, 0], stalls[at, 1], stalls[at, 2] = conn, rows[row, STREAM], sender
    stalls[at, 3], stalls[at, 4], stalls[at, 5] = rows[row, SINCE + way], time, cause
    stalls[at, 6], stalls[at, 7] = rows[row, AFTER_TYPE + way], rows[row, AFTER_SIDE + way]
    stalls[at, 8], stalls[at, 9], stalls[at, 10] = rows[row, AFTER_AT + way], ended_by, rows[row, ROUTE]
    counts[2] += 1
    rows[row, STALLS] += 1
    rows[row, STALLED] += gap
    rows[row, LONGEST] = max(rows[row, LONGEST], gap)


@compiled
def starts(rows: Table, conns: Table, frames: Columns, frame: int, row: int, way: int) -> None:
    """What is waited for in one direction is waited for since this frame."""
    sender = rows[row, ASKER] if way else 1 - rows[row, ASKER]
    rows[row, SINCE + way] = frames[frame, TIME]
    rows[row, BLOCKED + way] = frames[frame, HELD + sender]
    rows[row, SENT + way] = conns[rows[row, CONN], BUSY + sender]
    rows[row, AFTER_TYPE + way] = frames[frame, TYPE]
    rows[row, AFTER_SIDE + way] = frames[frame, SIDE]
    rows[row, AFTER_AT + way] = frames[frame, AT]


@compiled
def stops(rows: Table, conns: Table, credit: Table, counts: Column, row: int, way: int, how: int, frame: int) -> None:
    """A direction has ended: 1, its sender has ended it; 2, its receiver wants no more."""
    if not rows[row, DONE + way]:
        note_credit(rows, conns, credit, counts, row, way, END, 0, frame)
    rows[row, DONE + way] = how


@compiled
def _uses_credit(
    rows: Table,
    conns: Table,
    frames: Columns,
    frame: int,
    row: int,
    way: int,
    credit: Table,
    wrong: Table,
    counts: Column,
) -> None:
    conn = rows[row, CONN]
    amount = frames[frame, SIZE] if conns[conn, TRAITS] & OCTETS else frames[frame, ITEM_COUNT]
    rows[row, USED + way] += amount
    granted, used = rows[row, GRANTED + way], rows[row, USED + way]
    if granted < 0 or amount == 0:
        return
    if used > granted:
        breaks(conns, wrong, counts, conn, frame, B_CREDIT, rows[row, KIND], granted, used)
    if used >= granted and used - amount < granted:
        note_credit(rows, conns, credit, counts, row, way, EMPTY, 0, frame)


@compiled
def carries(
    rows: Table, conns: Table, frames: Columns, frame: int, row: int, way: int, opens: bool,
    credit: Table, stalls: Table, wrong: Table, counts: Column, least: int,
) -> None:  # fmt: skip
    """A frame carries an item, a part of one, or a request."""
    conn, kind, acts, time = rows[row, CONN], rows[row, KIND], frames[frame, ACTS], frames[frame, TIME]
    sender, part, traits = frames[frame, SIDE], rows[row, PART + way], conns[conn, TRAITS]
    if not opens:
        if rows[row, DONE + way] == 1:
            breaks(conns, wrong, counts, conn, frame, B_DONE, kind, 0, 0)
            return
        if part == 0 and ((way == 1 and not two_ways(kind)) or (way == 0 and kind == K_FIRE)):
            breaks(conns, wrong, counts, conn, frame, B_DIRECTION, kind, way, 0)
            return
        flows(rows, conns, stalls, counts, row, way, time, frames[frame, HELD + sender], frames[frame, TYPE], least)
    elif traits & OCTETS == 0:
        part = 3 if kind == K_CHANNEL and traits & FREE_ITEM else 1 if two_ways(kind) else 2
    rows[row, BYTES + way] += frames[frame, SIZE]
    if way == 0:
        answers(rows, conns, row, time)
    if acts & A_FOLLOWS and not acts & A_COMPLETE:
        rows[row, PART + way] = max(part, 1)
    else:
        rows[row, PART + way] = 0
        if part != 2:
            rows[row, ITEMS + way] += frames[frame, ITEM_COUNT]
            sends(conns, conn, sender, time, least)
        if part < 2:
            _uses_credit(rows, conns, frames, frame, row, way, credit, wrong, counts)
    starts(rows, conns, frames, frame, row, way)
    if way == 1 and rows[row, ITEMS] == 0 and (part >= 2 or kind == K_SESSION):
        starts(rows, conns, frames, frame, row, 0)


@compiled
def grants(
    rows: Table, conns: Table, frames: Columns, frame: int, row: int, way: int, opens: bool,
    credit: Table, stalls: Table, wrong: Table, counts: Column, least: int,
) -> None:  # fmt: skip
    """A frame grants credit for items in a direction."""
    conn, kind, n = rows[row, CONN], rows[row, KIND], frames[frame, NUMBER]
    if n <= 0:
        if n == 0 and not frames[frame, ACTS] & A_ZERO:
            breaks(conns, wrong, counts, conn, frame, B_ZERO, kind, 0, 0)
        if not opens:
            return
        n = 0
    if way == 1 and not two_ways(kind):
        breaks(conns, wrong, counts, conn, frame, B_DIRECTION, kind, way, 1)
        return
    granted = rows[row, GRANTED + way]
    if rows[row, DONE + way] or (granted < 0 and kind != K_UNKNOWN):
        return
    if granted < 0 or rows[row, USED + way] >= granted or _lossy(rows, conns, row, 1 - frames[frame, SIDE]):
        if not opens:
            held = frames[frame, HELD + 1 - frames[frame, SIDE]]
            flows(rows, conns, stalls, counts, row, way, frames[frame, TIME], held, frames[frame, TYPE], least)
        starts(rows, conns, frames, frame, row, way)
    if granted < 0:
        return
    rows[row, GRANTED + way] = granted + n if granted < 0x7FFFFFFFFFFFFFFF - n else 0x7FFFFFFFFFFFFFFF
    if n or opens:
        note_credit(rows, conns, credit, counts, row, way, GRANTS, n, frame)
