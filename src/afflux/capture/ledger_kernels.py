"""Apply frames to the streams that they belong to: count items and credit, find stalls and broken rules.

``apply`` takes the frames of a batch as arrays, in their order, and the state (slots.py), which it changes. Its
findings are written into arrays of results, which the caller makes large enough.
"""

from __future__ import annotations

from afflux.capture.compiling import Bytes, Column, Columns, Table, compiled
from afflux.capture.ledger_columns import (
    A_ABORT,
    A_ACCEPT,
    A_ANSWERER,
    A_ASKER,
    A_BARE,
    A_CANCEL,
    A_CLIENT,
    A_COMPLETE,
    A_CONNECTION,
    A_ERROR,
    A_FIRST,
    A_GRANT,
    A_ITEM,
    A_LEAVE,
    A_OPEN,
    A_OVER,
    A_PART,
    A_SERVER,
    A_SKIP,
    ACTS,
    ANNOUNCED,
    B_DIRECTION,
    B_DONE,
    B_ENDED,
    B_LIVE,
    B_PARITY,
    B_REUSED,
    B_UNKNOWN,
    BEGUN,
    CANCELLED,
    CODES,
    COMPLETED,
    CONNS,
    CREDIT,
    END,
    FAILED,
    FRAMES,
    GAPS,
    HELD,
    IDS,
    ITEM_COUNT,
    K_CHANNEL,
    K_FIRE,
    K_PUSH,
    K_REQUEST,
    K_STREAM,
    K_SUBSCRIPTION,
    K_UNKNOWN,
    LARGEST,
    LATER,
    LEASES,
    LETTER,
    MISSED,
    NEW_KIND,
    NEW_ROUTE,
    OCTETS,
    ODD,
    ONE,
    OPEN,
    ORDERED,
    OWN,
    RATION,
    RULES,
    SEEN,
    SIDE,
    SIZE,
    STREAM_ID,
    STREAMS,
    TIME,
    TOGETHER,
    TRAITS,
    TYPE,
    UNSEEN,
    WHOLE,
)
from afflux.capture.ledger_connections import (
    breaks,
    concerns,
    loses,
    never_began,
    sees,
    sends,
    unsure,
    uses_lease,
)
from afflux.capture.ledger_flows import answers, carries, flows, grants, note_credit, starts, stops, two_ways, unseen
from afflux.capture.slots import (
    AFTER_TYPE,
    ANSWERED,
    ASKER,
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
    NEXT,
    OVER,
    PART,
    ROUTE,
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
)
from afflux.core.meanings import LATEST

__all__ = ["apply", "close"]


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
def _letter(rows: Table, letters: Bytes, frames: Columns, frame: int, row: int) -> None:
    count = rows[row, LETTERS]
    if count < HISTORY:
        upper = frames[frame, SIDE] == rows[row, ASKER]
        letters[row, count] = frames[frame, LETTER] - 32 if upper else frames[frame, LETTER]
    rows[row, LETTERS] = count + 1
    rows[row, LAST] = frames[frame, TIME]


@compiled
def _opens(
    rows: Table, hashes: Column, order: Column, letters: Bytes, conns: Table, frames: Columns, frame: int, found: int,
    ended: Table, histories: Bytes, stalls: Table, wrong: Table, counts: Column, owner: int, kind: int, asker: int,
    least: int,
) -> int:  # fmt: skip
    """Make the row of a new stream. ``found`` is the remainder of a former one with the same id, or -1."""
    conn, side, stream = frames[frame, CONNS], frames[frame, SIDE], frames[frame, STREAM_ID]
    traits, opens, gap, stale = conns[conn, TRAITS], frames[frame, ACTS] & A_OPEN, 0, 0
    if opens:
        largest = conns[conn, LARGEST + side]
        if traits & IDS and (stream & 1 == 1) != ((traits & ODD != 0) == (side == 1)):
            breaks(conns, wrong, counts, conn, frame, B_PARITY, kind, side, 0)
        elif stream <= largest and traits & ORDERED and largest < LATEST:
            breaks(conns, wrong, counts, conn, frame, B_REUSED, kind, largest, 0)
        conns[conn, LARGEST + side] = stream if largest >= LATEST else max(largest, stream)
        if conns[conn, LEASES]:
            gap = uses_lease(conns, stalls, wrong, counts, frames, frame, kind, least)
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
    starts(rows, conns, frames, frame, row, 0)
    starts(rows, conns, frames, frame, row, 1)
    conns[conn, STREAMS] += 1
    return row


@compiled
def _acts(  # long: what a frame does to its stream, in the order in which it matters
    rows: Table, hashes: Column, order: Column, letters: Bytes, conns: Table, frames: Columns, frame: int, row: int,
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
        breaks(conns, wrong, counts, conn, frame, B_DIRECTION, kind, way, 0)
        return
    item = bool(acts & A_ITEM) or (bool(acts & A_PART) and rows[row, PART + way] != 0)
    if acts & A_BARE and acts & A_COMPLETE and kind != K_REQUEST and not opens and rows[row, PART + way] == 0:
        item = frames[frame, SIZE] > 0
    if item:
        carries(rows, conns, frames, frame, row, way, opens, credit, stalls, wrong, counts, least)
    if acts & A_GRANT:
        grants(rows, conns, frames, frame, row, 1 - way, opens, credit, stalls, wrong, counts, least)
    how = -1
    if acts & A_CANCEL:
        if way == 1 or acts & A_ABORT:
            how = CANCELLED
        elif not two_ways(kind):
            breaks(conns, wrong, counts, conn, frame, B_DIRECTION, kind, way, 2)
        else:
            stops(rows, conns, credit, counts, row, 1, 2, frame)
            if rows[row, DONE]:
                how = COMPLETED
    if acts & A_ERROR:
        how = FAILED
    finished = acts & A_COMPLETE or (kind == K_REQUEST and way == 0 and item and rows[row, PART] == 0)
    if finished and rows[row, DONE + way] != 1:
        if not item and not opens:
            held = frames[frame, HELD + side]
            flows(rows, conns, stalls, counts, row, way, time, held, frames[frame, TYPE], least)
            starts(rows, conns, frames, frame, row, way)
        stops(rows, conns, credit, counts, row, way, 1, frame)
        if way == 0:
            answers(rows, conns, row, time)
        alone = way == 0 and (traits & TOGETHER or not two_ways(kind) or kind == K_UNKNOWN)
        if alone or traits & ONE or rows[row, DONE + 1 - way]:
            how = COMPLETED
    if kind == K_FIRE and way == 1 and rows[row, PART + 1] == 0:
        how = COMPLETED
    if how < 0:
        return
    for direction in range(2):
        sender = asker if direction else 1 - asker
        held = frames[frame, HELD + sender]
        flows(rows, conns, stalls, counts, row, direction, time, held, frames[frame, TYPE], least)
        if not rows[row, DONE + direction]:
            note_credit(rows, conns, credit, counts, row, direction, END, 0, frame)
    if how == FAILED and way == 0:
        answers(rows, conns, row, time)
    if how != COMPLETED or traits & TOGETHER or not two_ways(kind):
        rows[row, OVER + way] = 1
    _end(rows, order, letters, ended, histories, counts, row, how, frames[frame, CODES])


@compiled
def _push(ended: Table, histories: Bytes, counts: Column, conns: Table, frames: Columns, frame: int) -> None:
    """Write the row of a message that is a stream of its own."""
    at, time = counts[0], frames[frame, TIME]
    for column in range(WIDTH):
        ended[at, column] = 0
    ended[at, CONN], ended[at, STREAM], ended[at, KIND] = frames[frame, CONNS], max(frames[frame, STREAM_ID], 0), K_PUSH
    ended[at, ASKER], ended[at, FIRST], ended[at, LAST] = frames[frame, SIDE], time, time
    ended[at, BYTES + 1], ended[at, ROUTE] = frames[frame, SIZE], frames[frame, NEW_ROUTE]
    ended[at, AFTER_TYPE] = frames[frame, TYPE]
    ended[at, GRANTED] = ended[at, GRANTED + 1] = ended[at, CODE] = ended[at, ANSWERED] = -1
    ended[at, ENDED], ended[at, LETTERS] = COMPLETED, 1
    histories[at, 0] = frames[frame, LETTER] - 32
    counts[0] += 1
    conns[frames[frame, CONNS], STREAMS] += 1


@compiled
def _strays(rows: Table, conns: Table, frames: Columns, frame: int, row: int, wrong: Table, counts: Column) -> bool:
    """Judge a frame without a live stream that opens none; ``row`` is the remainder of one, or -1. Returns whether the
    stream is one whose beginning the capture does not have."""
    conn, side, acts = frames[frame, CONNS], frames[frame, SIDE], frames[frame, ACTS]
    if row >= 0:
        way = 1 if rows[row, ASKER] == side else 0
        if rows[row, OVER + way]:
            breaks(conns, wrong, counts, conn, frame, B_ENDED, rows[row, KIND], rows[row, ENDED], 0)
        elif acts & A_ITEM and rows[row, DONE + way] == 1:
            breaks(conns, wrong, counts, conn, frame, B_DONE, rows[row, KIND], 0, 0)
        return False
    return bool(conns[conn, LATER] or conns[conn, GAPS] or not (conns[conn, WHOLE] and conns[conn, WHOLE + 1]))


@compiled
def _simple(rows: Table, conns: Table, frames: Columns, frame: int, row: int, least: int) -> bool:
    """Whether a frame is an item that changes nothing but counters: most frames of most captures are."""
    way = 1 if frames[frame, SIDE] == rows[row, ASKER] else 0
    kind, granted = rows[row, KIND], rows[row, GRANTED + way]
    amount = frames[frame, SIZE] if conns[rows[row, CONN], TRAITS] & OCTETS else frames[frame, ITEM_COUNT]
    return bool(
        rows[row, STATE] == LIVE
        and rows[row, PART + way] == 0
        and rows[row, DONE + way] == 0
        and rows[row, STALE] == 0
        and (way == 1 or rows[row, ANSWERED] != -1)
        and (kind in (K_STREAM, K_SUBSCRIPTION) if way == 0 else kind == K_CHANNEL and rows[row, ITEMS] > 0)
        and (granted < 0 or rows[row, USED + way] + amount < granted)
        and frames[frame, TIME] - rows[row, SINCE + way] < least
    )


@compiled
def _item(rows: Table, letters: Bytes, conns: Table, frames: Columns, frame: int, row: int, least: int) -> None:
    """Apply such an item."""
    way = 1 if frames[frame, SIDE] == rows[row, ASKER] else 0
    conn = rows[row, CONN]
    _letter(rows, letters, frames, frame, row)
    rows[row, BYTES + way] += frames[frame, SIZE]
    rows[row, ITEMS + way] += frames[frame, ITEM_COUNT]
    rows[row, USED + way] += frames[frame, SIZE] if conns[conn, TRAITS] & OCTETS else frames[frame, ITEM_COUNT]
    sends(conns, conn, frames[frame, SIDE], frames[frame, TIME], least)
    starts(rows, conns, frames, frame, row, way)


@compiled
def apply(  # long: the passage of one frame, case by case
    rows: Table, hashes: Column, order: Column, letters: Bytes, conns: Table, frames: Columns, start: int, stop: int,
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
    row = -1
    for frame in range(start, stop):
        conn, side, acts = frames[frame, CONNS], frames[frame, SIDE], frames[frame, ACTS]
        conns[conn, FRAMES] += 1
        if frames[frame, MISSED] != conns[conn, SEEN]:
            sees(conns, conn, frames[frame, MISSED], frames[frame, TIME])
        if acts & ~A_PART == A_ITEM and not conns[conn, TRAITS] & (OWN | ONE):
            stream = frames[frame, STREAM_ID]
            if row < 0 or rows[row, STREAM] != stream or rows[row, CONN] != conn or rows[row, STATE] != LIVE:
                row = find(rows, hashes, conn, stream, 0)
            if row >= 0 and _simple(rows, conns, frames, frame, row, least):
                _item(rows, letters, conns, frames, frame, row, least)
                continue
        if acts <= A_SKIP:
            conns[conn, BEGUN + side] = 1
            if acts != A_SKIP:
                loses(conns, conn, side, frames[frame, TIME], acts == A_OVER)
            continue
        if not conns[conn, BEGUN + side] or acts & (A_FIRST | A_CONNECTION | A_CLIENT | A_SERVER):
            concerns(conns, wrong, counts, frames, frame)
        stream, traits = frames[frame, STREAM_ID], conns[conn, TRAITS]
        if acts & A_LEAVE or (acts & A_ERROR and stream == 0 and traits & IDS):
            conns[conn, ANNOUNCED] = conns[conn, ANNOUNCED] or side + 1
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
            elif conns[conn, RULES] >> B_LIVE & 1 and not unsure(conns, conn):
                breaks(conns, wrong, counts, conn, frame, B_LIVE, rows[row, KIND], 0, 0)
                continue
            else:
                how = UNSEEN if unsure(conns, conn) else OPEN
                _end(rows, order, letters, ended, histories, counts, row, how, -1)
        if opens:
            row = _opens(
                rows, hashes, order, letters, conns, frames, frame, row, ended, histories, stalls, wrong, counts, owner,
                frames[frame, NEW_KIND], side, least,
            )  # fmt: skip
        elif not live:
            earlier = _strays(rows, conns, frames, frame, row, wrong, counts)
            if row < 0 and not earlier and never_began(conns, order, frames, frame):
                breaks(conns, wrong, counts, conn, frame, B_UNKNOWN, -1, 0, 0)
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
    rows: Table, hashes: Column, order: Column, letters: Bytes, conns: Table, closing: Table, how: int,
    ended: Table, histories: Bytes, stalls: Table, counts: Column, least: int,
) -> None:  # fmt: skip
    """End the streams of connections. A row of ``closing`` is a connection, when it has ended, and how long the server
    and the client could not send in all."""
    for number in range(len(closing)):
        conn, time = closing[number, 0], closing[number, 1]
        row = conns[conn, HEAD]
        while row >= 0:
            following = rows[row, NEXT]
            if rows[row, STATE] == LIVE:
                for way in range(2):
                    sender = rows[row, ASKER] if way else 1 - rows[row, ASKER]
                    flows(rows, conns, stalls, counts, row, way, time, closing[number, 2 + sender], -1, least)
                ends = UNSEEN if unseen(rows, conns, row) else how
                _end(rows, order, letters, ended, histories, counts, row, ends, -1)
            forget(rows, hashes, order, conns, row)
            row = following
