"""Apply frames to the streams that they belong to: count items and credit, find stalls and broken rules.

``apply`` takes the frames of a batch as arrays, in their order, and the state (slots.py), which it changes. Its
findings are written into arrays of results, which the caller makes large enough.
"""

from __future__ import annotations

from typing import Final

from afflux.capture import slots
from afflux.capture.compiling import Bytes, Column, Table, compiled
from afflux.capture.slots import (
    AFTER_AT,
    AFTER_SIDE,
    AFTER_TYPE,
    ANSWERED,
    ASKER,
    BLOCKED,
    BYTES,
    CODE,
    CONN,
    COUNT,
    DONE,
    ENDED,
    FIRST,
    FREE_HEAD,
    GIVEN_UP,
    GRANTED,
    HEAD,
    HISTORY,
    ITEMS,
    KIND,
    LAST,
    LEFT_OLD,
    LETTERS,
    LIVE,
    LIVE_OLD,
    LONGEST,
    OVER,
    PART,
    ROUTE,
    SENT,
    SINCE,
    STALE,
    STALLED,
    STALLS,
    STATE,
    STREAM,
    USED,
    WIDTH,
    find,
    forget,
    insert,
    unlink_live,
)  # fmt: skip
from afflux.core.meanings import LATEST, Act, Broken, StreamKind

__all__ = ["CONN_WIDTH", "CREDIT_WIDTH", "STALL_WIDTH", "WRONG_WIDTH", "apply", "close"]

# Columns of a connection, after those of slots.py. Pairs are by side: 0 the server, 1 the client.
RULES: Final = 3
"A bit for each case (Broken) that is looked for."
TRAITS: Final = 4
"The bits of TRAIT_…."
BEGUN: Final = 5
"It has sent its first frame."
WHOLE: Final = 7
"Its bytes are known from the first one."
GAPS: Final = 9
"Bytes of the connection are missing: nothing about credit or unknown streams can be proved."
LATER: Final = 10
"It continues a former connection."
LEASES: Final = 11
LARGEST: Final = 12
"The largest stream id that it has opened."
RATION: Final = 14
"What it may send on each new stream; -1 for no bound."
SENDINGS: Final = 16
"Frames with items that it has sent."
LEFT: Final = 18
"Requests that its lease permits."
UNTIL: Final = 20
"When its lease expires."
GRACE: Final = 22
"Requests that the lease before the last one still permitted: they may have been on their way."
WITHOUT: Final = 24
"Since when it has no lease; -1 if it has one."
WAITED: Final = 26
"When a lease ended such a wait; -1 if none did."
FRAMES: Final = 28
STREAMS: Final = 29
WRONG: Final = 30
"Broken rules."
LAST_TYPE: Final = 31
"The type of the last frame about leases, and where it is: what a wait for a lease began after."
LAST_SIDE: Final = 32
LAST_AT: Final = 33
CONN_WIDTH: Final = 34

IDS: Final = 1
"Stream ids are odd or even by side, and 0 is the connection."
ODD: Final = 2
ORDERED: Final = 4
OWN: Final = 8
ONE: Final = 16
CREDIT: Final = 32
OCTETS: Final = 64
FREE_ITEM: Final = 128
TOGETHER: Final = 256
SERVER_FIRST: Final = 512
"The first frame of the server is declared as well."

# Columns of results.
CREDIT_WIDTH: Final = 8
"Connection, stream, sender of the items, event, number granted, granted, used, frame."
STALL_WIDTH: Final = 11
"Connection, stream, sender of the items, start, stop, cause, after: type, side, position; type that ended it, route."
WRONG_WIDTH: Final = 5
"Frame, case, kind of the stream or -1, two numbers."
GRANTS: Final = 0
EMPTY: Final = 1
END: Final = 2
PEER: Final = 0
TRANSPORT: Final = 1
PRODUCER: Final = 2
LEASE_WAIT: Final = 3
LOCAL: Final = 4
COMPLETED: Final = 0
FAILED: Final = 1
CANCELLED: Final = 2
CONNECTION: Final = 3
OPEN: Final = 4
GRACE_NS: Final = 1_000_000_000
"How long after its expiry a lease may still be used: the request may have been on its way."

A_OPEN: Final = int(Act.OPEN)
A_ITEM: Final = int(Act.ITEM)
A_BARE: Final = int(Act.BARE)
A_FOLLOWS: Final = int(Act.FOLLOWS)
A_GRANT: Final = int(Act.GRANT)
A_COMPLETE: Final = int(Act.COMPLETE)
A_ERROR: Final = int(Act.ERROR)
A_CANCEL: Final = int(Act.CANCEL)
A_LEASE: Final = int(Act.LEASE)
A_LEASES: Final = int(Act.LEASES)
A_FIRST: Final = int(Act.FIRST)
A_LATER: Final = int(Act.LATER)
A_CLIENT: Final = int(Act.CLIENT)
A_SERVER: Final = int(Act.SERVER)
A_CONNECTION: Final = int(Act.CONNECTION)
A_ASKER: Final = int(Act.ASKER)
A_ANSWERER: Final = int(Act.ANSWERER)
A_ZERO: Final = int(Act.ZERO)
A_RATION: Final = int(Act.RATION)
A_ACCEPT: Final = int(Act.ACCEPT)
A_ABORT: Final = int(Act.ABORT)
A_PART: Final = int(Act.PART)
A_SKIP: Final = -1
"The frame could not be read."

B_CREDIT: Final = int(Broken.CREDIT)
B_UNKNOWN: Final = int(Broken.UNKNOWN)
B_ENDED: Final = int(Broken.ENDED)
B_DONE: Final = int(Broken.DONE)
B_ZERO: Final = int(Broken.ZERO)
B_PARITY: Final = int(Broken.PARITY)
B_REUSED: Final = int(Broken.REUSED)
B_LIVE: Final = int(Broken.LIVE)
B_FIRST: Final = int(Broken.FIRST)
B_SETUP: Final = int(Broken.SETUP)
B_LEASE: Final = int(Broken.LEASE)
B_SIDE: Final = int(Broken.SIDE)
B_DIRECTION: Final = int(Broken.DIRECTION)
B_STREAM: Final = int(Broken.STREAM)

K_REQUEST: Final = int(StreamKind.REQUEST)
K_FIRE: Final = int(StreamKind.FIRE)
K_CHANNEL: Final = int(StreamKind.CHANNEL)
K_PUSH: Final = int(StreamKind.PUSH)
K_SESSION: Final = int(StreamKind.SESSION)
K_UNKNOWN: Final = int(StreamKind.UNKNOWN)

# Columns of the frames.
TIME: Final = 0
CONNS: Final = 1
SIDE: Final = 2
ACTS: Final = 3
TYPE: Final = 4
STREAM_ID: Final = 5
NUMBER: Final = 6
ITEM_COUNT: Final = 7
SIZE: Final = 8
CODES: Final = 9
AT: Final = 10
LETTER: Final = 11
NEW_KIND: Final = 12
NEW_ROUTE: Final = 13
MILLIS: Final = 14
HELD: Final = 15
"How long the direction from the server, and in the next column that from the client, could not send; see window.py."
FRAME_WIDTH: Final = 17

_UNSET: Final = -2


@compiled
def _two_ways(kind: int) -> bool:
    """Whether the requester sends items too."""
    return kind in (K_CHANNEL, K_SESSION, K_UNKNOWN)


@compiled
def _wrong(
    conns: Table, wrong: Table, counts: Column, conn: int, frame: int, case: int, kind: int, a: int, b: int
) -> None:
    """Note a broken rule, if the protocol has it."""
    if conns[conn, RULES] >> case & 1:
        at = counts[3]
        wrong[at, 0], wrong[at, 1], wrong[at, 2], wrong[at, 3], wrong[at, 4] = frame, case, kind, a, b
        counts[3] += 1
        conns[conn, WRONG] += 1


@compiled
def _credit(rows: Table, credit: Table, counts: Column, row: int, way: int, event: int, n: int, frame: int) -> None:
    """Note an event of the credit of one direction, if it needs credit."""
    if rows[row, GRANTED + way] < 0:
        return
    at = counts[1]
    credit[at, 0], credit[at, 1] = rows[row, CONN], rows[row, STREAM]
    credit[at, 2] = rows[row, ASKER] if way else 1 - rows[row, ASKER]
    credit[at, 3], credit[at, 4] = event, n
    credit[at, 5], credit[at, 6], credit[at, 7] = rows[row, GRANTED + way], rows[row, USED + way], frame
    counts[1] += 1


@compiled
def _flows(
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
    cause = PRODUCER
    if rows[row, GRANTED + way] >= 0 and rows[row, USED + way] >= rows[row, GRANTED + way]:
        cause = PEER
    elif 2 * (held - rows[row, BLOCKED + way]) >= gap:
        cause = TRANSPORT
    elif conns[conn, SENDINGS + sender] > rows[row, SENT + way]:
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
def _starts(rows: Table, conns: Table, frames: Table, frame: int, row: int, way: int) -> None:
    """What is waited for in one direction is waited for since this frame."""
    sender = rows[row, ASKER] if way else 1 - rows[row, ASKER]
    rows[row, SINCE + way] = frames[frame, TIME]
    rows[row, BLOCKED + way] = frames[frame, HELD + sender]
    rows[row, SENT + way] = conns[rows[row, CONN], SENDINGS + sender]
    rows[row, AFTER_TYPE + way] = frames[frame, TYPE]
    rows[row, AFTER_SIDE + way] = frames[frame, SIDE]
    rows[row, AFTER_AT + way] = frames[frame, AT]


@compiled
def _end(
    rows: Table,
    order: Column,
    letters: Bytes,
    ended: Table,
    histories: Bytes,
    counts: Column,
    row: int,
    how: int,
    code: int,
) -> None:
    """A stream has ended: write its row, and keep a remainder."""
    rows[row, ENDED], rows[row, CODE] = how, code
    at = counts[0]
    for column in range(WIDTH):
        ended[at, column] = rows[row, column]
    for column in range(HISTORY):
        histories[at, column] = letters[row, column]
    counts[0] += 1
    unlink_live(rows, order, row)


@compiled
def _make_room(
    rows: Table, hashes: Column, order: Column, letters: Bytes, conns: Table, conn: int, ended: Table, histories: Bytes,
    counts: Column,
) -> None:  # fmt: skip
    """Free a row if there is none, or if the connection has a quarter of all."""
    if conns[conn, COUNT] * 4 >= len(rows):
        oldest = conns[conn, HEAD]
    elif order[FREE_HEAD] >= 0:
        return
    else:
        oldest = order[LEFT_OLD] if order[LEFT_OLD] >= 0 else order[LIVE_OLD]
    if rows[oldest, STATE] == LIVE:
        _end(rows, order, letters, ended, histories, counts, oldest, OPEN, -1)
    order[GIVEN_UP] += 1
    forget(rows, hashes, order, conns, oldest)


@compiled
def _letter(rows: Table, letters: Bytes, frames: Table, frame: int, row: int) -> None:
    count = rows[row, LETTERS]
    if count < HISTORY:
        upper = frames[frame, SIDE] == rows[row, ASKER]
        letters[row, count] = frames[frame, LETTER] - 32 if upper else frames[frame, LETTER]
    rows[row, LETTERS] = count + 1
    rows[row, LAST] = frames[frame, TIME]


@compiled
def _lease(conns: Table, frames: Table, frame: int) -> None:
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
def _uses_lease(
    conns: Table, stalls: Table, wrong: Table, counts: Column, frames: Table, frame: int, kind: int, least: int
) -> int:
    """A request uses its lease. Returns how long it had waited for the lease, in ns; 0 if it had not."""
    conn, side, time = frames[frame, CONNS], frames[frame, SIDE], frames[frame, TIME]
    waited, since = conns[conn, WAITED + side], conns[conn, WITHOUT + side]
    gap = 0
    if waited >= 0 and waited - since >= least and time - waited < least:
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
    elif not conns[conn, GAPS]:
        _wrong(conns, wrong, counts, conn, frame, B_LEASE, kind, int(late), 0)
    if conns[conn, LEFT + side] == 0 and conns[conn, WITHOUT + side] < 0:
        conns[conn, WITHOUT + side] = time
        conns[conn, LAST_TYPE], conns[conn, LAST_SIDE] = frames[frame, TYPE], side
        conns[conn, LAST_AT] = frames[frame, AT]
    return int(gap)


@compiled
def _connection(conns: Table, wrong: Table, counts: Column, frames: Table, frame: int) -> None:
    """Apply what a frame means for its connection, and check its sender."""
    conn, side, acts = frames[frame, CONNS], frames[frame, SIDE], frames[frame, ACTS]
    if not conns[conn, BEGUN + side]:
        conns[conn, BEGUN + side] = 1
        declared = side == 1 or conns[conn, TRAITS] & SERVER_FIRST
        if declared and not acts & A_FIRST and conns[conn, WHOLE + side]:
            _wrong(conns, wrong, counts, conn, frame, B_FIRST, -1, 0, 0)
    elif acts & A_FIRST:
        _wrong(conns, wrong, counts, conn, frame, B_SETUP, -1, 0, 0)
        return
    if (acts & A_CLIENT and side == 0) or (acts & A_SERVER and side == 1):
        _wrong(conns, wrong, counts, conn, frame, B_SIDE, -1, side, 0)
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
        _wrong(conns, wrong, counts, conn, frame, B_STREAM, -1, 0, 0)
    elif acts & A_LEASE:
        _lease(conns, frames, frame)


@compiled
def _opens(
    rows: Table, hashes: Column, order: Column, letters: Bytes, conns: Table, frames: Table, frame: int, found: int,
    ended: Table, histories: Bytes, stalls: Table, wrong: Table, counts: Column, owner: int, kind: int, asker: int,
    least: int,
) -> int:  # fmt: skip
    """Make the row of a new stream. ``found`` is the remainder of a former one with the same id, or -1."""
    conn, side, stream = frames[frame, CONNS], frames[frame, SIDE], frames[frame, STREAM_ID]
    traits, opens, gap, stale = conns[conn, TRAITS], frames[frame, ACTS] & A_OPEN, 0, 0
    if opens:
        largest = conns[conn, LARGEST + side]
        if traits & IDS and (stream & 1 == 1) != ((traits & ODD != 0) == (side == 1)):
            _wrong(conns, wrong, counts, conn, frame, B_PARITY, kind, side, 0)
        elif stream <= largest and traits & ORDERED and largest < LATEST:
            _wrong(conns, wrong, counts, conn, frame, B_REUSED, kind, largest, 0)
        conns[conn, LARGEST + side] = stream if largest >= LATEST else max(largest, stream)
        if conns[conn, LEASES]:
            gap = _uses_lease(conns, stalls, wrong, counts, frames, frame, kind, least)
    if found >= 0:
        stale = int(rows[found, ENDED] == CANCELLED and traits & OWN != 0)
        forget(rows, hashes, order, conns, found)
    _make_room(rows, hashes, order, letters, conns, conn, ended, histories, counts)
    key = 0 if traits & ONE else stream
    row = insert(rows, hashes, order, conns, conn, key, owner)
    rows[row, KIND], rows[row, ASKER], rows[row, ROUTE] = kind, asker, frames[frame, NEW_ROUTE]
    rows[row, FIRST] = frames[frame, TIME]
    rows[row, ANSWERED], rows[row, CODE], rows[row, STALE] = -1, -1, stale
    if gap:
        rows[row, STALLS], rows[row, STALLED], rows[row, LONGEST] = 1, gap, gap
    rows[row, GRANTED] = rows[row, GRANTED + 1] = -1
    if traits & OCTETS:
        rows[row, GRANTED], rows[row, GRANTED + 1] = conns[conn, RATION + 1 - asker], conns[conn, RATION + asker]
    elif traits & CREDIT and kind not in (K_REQUEST, K_FIRE, K_PUSH, K_UNKNOWN):
        rows[row, GRANTED] = 0
        rows[row, GRANTED + 1] = 0 if kind == K_CHANNEL else -1
    _starts(rows, conns, frames, frame, row, 0)
    _starts(rows, conns, frames, frame, row, 1)
    conns[conn, STREAMS] += 1
    return row


@compiled
def _uses_credit(
    rows: Table,
    conns: Table,
    frames: Table,
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
    if used > granted and not conns[conn, GAPS]:
        _wrong(conns, wrong, counts, conn, frame, B_CREDIT, rows[row, KIND], granted, used)
    if used >= granted and used - amount < granted:
        _credit(rows, credit, counts, row, way, EMPTY, 0, frame)


@compiled
def _carries(
    rows: Table, conns: Table, frames: Table, frame: int, row: int, way: int, opens: bool,
    credit: Table, stalls: Table, wrong: Table, counts: Column, least: int,
) -> None:  # fmt: skip
    """A frame carries an item, a part of one, or a request."""
    conn, kind, acts, time = rows[row, CONN], rows[row, KIND], frames[frame, ACTS], frames[frame, TIME]
    sender, part, traits = frames[frame, SIDE], rows[row, PART + way], conns[conn, TRAITS]
    if not opens:
        if rows[row, DONE + way] == 1:
            _wrong(conns, wrong, counts, conn, frame, B_DONE, kind, 0, 0)
            return
        if part == 0 and ((way == 1 and not _two_ways(kind)) or (way == 0 and kind == K_FIRE)):
            _wrong(conns, wrong, counts, conn, frame, B_DIRECTION, kind, way, 0)
            return
        _flows(rows, conns, stalls, counts, row, way, time, frames[frame, HELD + sender], frames[frame, TYPE], least)
    elif traits & OCTETS == 0:
        part = 3 if kind == K_CHANNEL and traits & FREE_ITEM else 1 if kind in (K_CHANNEL, K_UNKNOWN) else 2
    rows[row, BYTES + way] += frames[frame, SIZE]
    if way == 0 and rows[row, ANSWERED] < 0:
        rows[row, ANSWERED] = time
    if acts & A_FOLLOWS and not acts & A_COMPLETE:
        rows[row, PART + way] = max(part, 1)
    else:
        rows[row, PART + way] = 0
        if part != 2:
            rows[row, ITEMS + way] += frames[frame, ITEM_COUNT]
            conns[conn, SENDINGS + sender] += 1
        if part < 2:
            _uses_credit(rows, conns, frames, frame, row, way, credit, wrong, counts)
    _starts(rows, conns, frames, frame, row, way)
    if way == 1 and rows[row, ITEMS] == 0:
        _starts(rows, conns, frames, frame, row, 0)


@compiled
def _grants(
    rows: Table, conns: Table, frames: Table, frame: int, row: int, way: int, opens: bool,
    credit: Table, stalls: Table, wrong: Table, counts: Column, least: int,
) -> None:  # fmt: skip
    """A frame grants credit for items in a direction."""
    conn, kind, n = rows[row, CONN], rows[row, KIND], frames[frame, NUMBER]
    if n <= 0:
        if n == 0 and not frames[frame, ACTS] & A_ZERO:
            _wrong(conns, wrong, counts, conn, frame, B_ZERO, kind, 0, 0)
        if not opens:
            return
        n = 0
    if way == 1 and not _two_ways(kind):
        _wrong(conns, wrong, counts, conn, frame, B_DIRECTION, kind, way, 1)
        return
    granted = rows[row, GRANTED + way]
    if granted < 0 or rows[row, DONE + way]:
        return
    if rows[row, USED + way] >= granted:
        if not opens:
            held = frames[frame, HELD + 1 - frames[frame, SIDE]]
            _flows(rows, conns, stalls, counts, row, way, frames[frame, TIME], held, frames[frame, TYPE], least)
        _starts(rows, conns, frames, frame, row, way)
    rows[row, GRANTED + way] = granted + n if granted < 0x7FFFFFFFFFFFFFFF - n else 0x7FFFFFFFFFFFFFFF
    if n or opens:
        _credit(rows, credit, counts, row, way, GRANTS, n, frame)


@compiled
def _stops(rows: Table, credit: Table, counts: Column, row: int, way: int, how: int, frame: int) -> None:
    """A direction has ended: 1, its sender has ended it; 2, its receiver wants no more."""
    if not rows[row, DONE + way]:
        _credit(rows, credit, counts, row, way, END, 0, frame)
    rows[row, DONE + way] = how


@compiled
def _acts(  # long: what a frame does to its stream, in the order in which it matters
    rows: Table, hashes: Column, order: Column, letters: Bytes, conns: Table, frames: Table, frame: int, row: int,
    opens: bool, ended: Table, histories: Bytes, credit: Table, stalls: Table, wrong: Table, counts: Column, least: int,
) -> None:  # fmt: skip
    """Apply a frame to its live stream."""
    conn, kind, asker = rows[row, CONN], rows[row, KIND], rows[row, ASKER]
    acts, side, time = frames[frame, ACTS], frames[frame, SIDE], frames[frame, TIME]
    traits = conns[conn, TRAITS]
    way = 1 if side == asker else 0
    _letter(rows, letters, frames, frame, row)
    if acts & A_ACCEPT:
        rows[row, STALE] = 0
    if rows[row, STALE] and way == 0:
        return
    if (acts & A_ASKER and way == 0) or (acts & A_ANSWERER and way == 1):
        _wrong(conns, wrong, counts, conn, frame, B_DIRECTION, kind, way, 0)
        return
    item = bool(acts & A_ITEM) or (bool(acts & A_PART) and rows[row, PART + way] != 0)
    if acts & A_BARE and acts & A_COMPLETE and kind != K_REQUEST and not opens and rows[row, PART + way] == 0:
        item = frames[frame, SIZE] > 0
    if item:
        _carries(rows, conns, frames, frame, row, way, opens, credit, stalls, wrong, counts, least)
    if acts & A_GRANT:
        _grants(rows, conns, frames, frame, row, 1 - way, opens, credit, stalls, wrong, counts, least)
    how = -1
    if acts & A_CANCEL:
        if way == 1 or acts & A_ABORT:
            how = CANCELLED
        elif not _two_ways(kind):
            _wrong(conns, wrong, counts, conn, frame, B_DIRECTION, kind, way, 2)
        else:
            _stops(rows, credit, counts, row, 1, 2, frame)
            if rows[row, DONE]:
                how = COMPLETED
    if acts & A_ERROR:
        how = FAILED
    finished = acts & A_COMPLETE or (kind == K_REQUEST and way == 0 and item and rows[row, PART] == 0)
    if finished and rows[row, DONE + way] != 1:
        if not item and not opens:
            held = frames[frame, HELD + side]
            _flows(rows, conns, stalls, counts, row, way, time, held, frames[frame, TYPE], least)
            _starts(rows, conns, frames, frame, row, way)
        _stops(rows, credit, counts, row, way, 1, frame)
        if way == 0 and rows[row, ANSWERED] < 0:
            rows[row, ANSWERED] = time
        alone = way == 0 and (traits & TOGETHER or not _two_ways(kind) or kind == K_UNKNOWN)
        if alone or traits & ONE or rows[row, DONE + 1 - way]:
            how = COMPLETED
    if kind == K_FIRE and way == 1 and rows[row, PART + 1] == 0:
        how = COMPLETED
    if how < 0:
        return
    for direction in range(2):
        sender = asker if direction else 1 - asker
        held = frames[frame, HELD + sender]
        _flows(rows, conns, stalls, counts, row, direction, time, held, frames[frame, TYPE], least)
        if not rows[row, DONE + direction]:
            _credit(rows, credit, counts, row, direction, END, 0, frame)
    if how == FAILED and way == 0 and rows[row, ANSWERED] < 0:
        rows[row, ANSWERED] = time
    if how != COMPLETED or traits & TOGETHER or not _two_ways(kind):
        rows[row, OVER + way] = 1
    _end(rows, order, letters, ended, histories, counts, row, how, frames[frame, CODES])


@compiled
def _push(ended: Table, histories: Bytes, counts: Column, conns: Table, frames: Table, frame: int) -> None:
    """Write the row of a message that is a stream of its own."""
    at, time = counts[0], frames[frame, TIME]
    for column in range(WIDTH):
        ended[at, column] = 0
    ended[at, CONN], ended[at, STREAM], ended[at, KIND] = frames[frame, CONNS], max(frames[frame, STREAM_ID], 0), K_PUSH
    ended[at, ASKER], ended[at, FIRST], ended[at, LAST] = frames[frame, SIDE], time, time
    ended[at, BYTES + 1], ended[at, ROUTE] = frames[frame, SIZE], frames[frame, NEW_ROUTE]
    ended[at, GRANTED] = ended[at, GRANTED + 1] = ended[at, CODE] = ended[at, ANSWERED] = -1
    ended[at, ENDED], ended[at, LETTERS] = COMPLETED, 1
    histories[at, 0] = frames[frame, LETTER] - 32
    counts[0] += 1
    conns[frames[frame, CONNS], STREAMS] += 1


@compiled
def _strays(rows: Table, conns: Table, frames: Table, frame: int, row: int, wrong: Table, counts: Column) -> bool:
    """Judge a frame without a live stream that opens none; ``row`` is the remainder of one, or -1. Returns whether the
    stream is one that began before the capture."""
    conn, side, acts = frames[frame, CONNS], frames[frame, SIDE], frames[frame, ACTS]
    if row >= 0:
        way = 1 if rows[row, ASKER] == side else 0
        if rows[row, OVER + way]:
            _wrong(conns, wrong, counts, conn, frame, B_ENDED, rows[row, KIND], rows[row, ENDED], 0)
        elif acts & A_ITEM and rows[row, DONE + way] == 1:
            _wrong(conns, wrong, counts, conn, frame, B_DONE, rows[row, KIND], 0, 0)
        return False
    return bool(conns[conn, LATER] or not (conns[conn, WHOLE] and conns[conn, WHOLE + 1]))


@compiled
def _never(conns: Table, order: Column, frames: Table, frame: int) -> bool:
    """Whether it is certain that a stream without a row never began."""
    conn, stream = frames[frame, CONNS], frames[frame, STREAM_ID]
    if conns[conn, GAPS]:
        return False
    if order[GIVEN_UP] == 0:
        return True
    traits = conns[conn, TRAITS]
    if not traits & ORDERED:
        return False
    opener = 1 if (stream & 1 == 1) == (traits & ODD != 0) else 0
    return bool(stream > conns[conn, LARGEST + opener])


@compiled
def apply(  # long: the passage of one frame, case by case
    rows: Table, hashes: Column, order: Column, letters: Bytes, conns: Table, frames: Table, start: int, stop: int,
    ended: Table, histories: Bytes, credit: Table, stalls: Table, wrong: Table, counts: Column, least: int,
) -> None:  # fmt: skip
    """Apply the frames from ``start`` to ``stop``.

    Args:
        rows: the streams; with ``hashes``, ``order`` and ``letters`` see slots.table.
        conns: the connections.
        frames: a row for each frame.
        start: the first frame.
        stop: the frame after the last one.
        ended: takes a row for each stream that has ended, at most 2 for each frame; ``histories`` their letters.
        credit: takes a row for each event of credit, at most 4 for each frame.
        stalls: takes a row for each stall, at most 4 for each frame.
        wrong: takes a row for each broken rule, at most 5 for each frame.
        counts: how many rows these four have.
        least: how long nothing flows in a stall, in nanoseconds.
    """
    for frame in range(start, stop):
        conn, side, acts = frames[frame, CONNS], frames[frame, SIDE], frames[frame, ACTS]
        conns[conn, FRAMES] += 1
        if acts == A_SKIP:
            conns[conn, BEGUN + side] = 1
            continue
        if not conns[conn, BEGUN + side] or acts & (A_FIRST | A_CONNECTION | A_CLIENT | A_SERVER):
            _connection(conns, wrong, counts, frames, frame)
        stream, traits = frames[frame, STREAM_ID], conns[conn, TRAITS]
        if acts & A_CONNECTION:
            if acts & A_OPEN and stream <= 0:
                _push(ended, histories, counts, conns, frames, frame)
            continue
        if stream < 0 or (stream == 0 and traits & IDS):
            continue
        if traits & ONE:
            stream = 0
        owner = 0
        if traits & OWN:
            owner = side if acts & A_ASKER else 1 - side
        row = find(rows, hashes, conn, stream, owner)
        live = row >= 0 and rows[row, STATE] == LIVE
        opens = acts & A_OPEN != 0
        if opens and live:
            if acts & A_BARE and rows[row, ASKER] == side:
                opens = False
            elif conns[conn, RULES] >> B_LIVE & 1:
                _wrong(conns, wrong, counts, conn, frame, B_LIVE, rows[row, KIND], 0, 0)
                continue
            else:
                _end(rows, order, letters, ended, histories, counts, row, OPEN, -1)
        if opens:
            row = _opens(
                rows, hashes, order, letters, conns, frames, frame, row, ended, histories, stalls, wrong, counts, owner,
                frames[frame, NEW_KIND], side, least,
            )  # fmt: skip
        elif not live:
            earlier = _strays(rows, conns, frames, frame, row, wrong, counts)
            if row < 0 and not earlier and _never(conns, order, frames, frame):
                _wrong(conns, wrong, counts, conn, frame, B_UNKNOWN, -1, 0, 0)
            if not earlier:
                continue
            asker = owner if traits & OWN else 1 - side
            if traits & IDS:
                asker = 1 if (stream & 1 == 1) == (traits & ODD != 0) else 0
            row = _opens(
                rows, hashes, order, letters, conns, frames, frame, -1, ended, histories, stalls, wrong, counts, owner,
                K_UNKNOWN, asker, least,
            )  # fmt: skip
        _acts(
            rows, hashes, order, letters, conns, frames, frame, row, opens, ended, histories, credit, stalls, wrong,
            counts, least,
        )  # fmt: skip


@compiled
def close(
    rows: Table, hashes: Column, order: Column, letters: Bytes, conns: Table, conn: int, time: int, how: int,
    held: Column, ended: Table, histories: Bytes, stalls: Table, counts: Column, least: int,
) -> None:  # fmt: skip
    """End the streams of a connection. ``held`` is how long each side could not send in all, the server's first."""
    row = conns[conn, HEAD]
    while row >= 0:
        following = rows[row, slots.NEXT]
        if rows[row, STATE] == LIVE:
            for way in range(2):
                sender = rows[row, ASKER] if way else 1 - rows[row, ASKER]
                _flows(rows, conns, stalls, counts, row, way, time, held[sender], -1, least)
            _end(rows, order, letters, ended, histories, counts, row, how, -1)
        forget(rows, hashes, order, conns, row)
        row = following
