"""Work through the columns of many frames in one pass.

Other modules do the same with numpy, in a pass for each column. The columns do not fit into the fast caches of a
processor, so each pass costs the time to read them from memory.

The functions are plain Python that numba compiles (see kernels.py).
"""

from __future__ import annotations

from typing import Any

__all__ = ["details", "letters", "meanings", "ordered", "sides"]


def ordered(at: Any, sizes: Any, ends: Any, lanes: Any, packets: Any, counts: Any, segments: Any, out: Any) -> None:
    """Sort frames by the packets that completed them; those of one packet stay in their order.

    Args:
        at: where each frame begins, in ascending order.
        sizes: the bytes of each frame.
        ends: where each segment ends, in ascending order; no frame ends after the last one.
        lanes: the lane of each segment.
        packets: the packet of each segment.
        counts: 0 for each packet, and one more.
        segments: takes the segment of each frame.
        out: takes the columns, as rows: where each frame begins, its bytes, its lane and its packet.
    """
    segment = 0
    for frame in range(len(at)):
        end = at[frame] + sizes[frame]
        while ends[segment] < end:
            segment += 1
        segments[frame] = segment
        counts[packets[segment] + 1] += 1
    for packet in range(1, len(counts)):
        counts[packet] += counts[packet - 1]
    for frame in range(len(at)):
        segment = segments[frame]
        packet = packets[segment]
        place = counts[packet]
        counts[packet] = place + 1
        out[0, place], out[1, place], out[2, place], out[3, place] = at[frame], sizes[frame], lanes[segment], packet


def details(
    codes: Any, words: Any, lanes: Any, packets: Any, at: Any, numbers: Any, masks: Any, time: Any, conns: Any,
    clients: Any, shifts: Any, kind: Any, flags: Any, times: Any, conn: Any, client: Any, offset: Any,
) -> None:  # fmt: skip
    """Look up what follows from the type, the lane and the packet of frames.

    Args:
        codes: the type of each frame on the wire.
        words: the word of its type and its flags.
        lanes: its lane.
        packets: its packet, -1 for the last one.
        at: where it begins.
        numbers: the kind of each type.
        masks: the bits of the declared flags of each type.
        time: when each packet was captured.
        conns: the connection of each lane.
        clients: whether a client sent the bytes of each lane.
        shifts: how far the position in the direction is from the place, for each lane.
        kind: takes the kind of each frame.
        flags: takes its declared flags.
        times: takes when it was captured.
        conn: takes its connection.
        client: takes whether a client sent it.
        offset: takes its position in the direction.
    """
    for row in range(len(codes)):
        code, lane, packet = codes[row], lanes[row], packets[row]
        kind[row], flags[row] = numbers[code], words[row] & masks[code]
        times[row] = time[packet]
        conn[row], client[row], offset[row] = conns[lane], clients[lane], at[row] + shifts[lane]


def meanings(
    time: Any, client: Any, conn: Any, kind: Any, flags: Any, numbers: Any, data: Any, metadata: Any, held: Any,
    conns: Any, kinds: Any, acts: Any, bits: int, places: Any, special: Any, opens: int, out: Any,
) -> tuple[bool, bool]:  # fmt: skip
    """Fill the table of the ledger, but for routes and the fields that are no columns of frames.

    Args:
        time: when each frame was captured.
        client: whether a client sent it.
        conn: its connection.
        kind: its kind.
        flags: its declared flags.
        numbers: its columns that the table has as they are: the rows of ``out`` that take them are ``places``, after
            those of the other columns.
        data: the bytes of its data; negative for none. ``metadata`` those of its metadata.
        held: what ``sides`` makes; without elements if there is nothing.
        conns: the number of each connection.
        kinds: rows with an element for each kind: its type, its letter, the stream that it opens, and whether its
            bytes are its items.
        acts: what each kind does with each combination of flags.
        bits: the bits of flags in the index of ``acts``.
        places: the rows of ``out`` for the columns.
        special: whether a kind has fields that are no columns, or is the first one of a connection.
        opens: the bit of an act that opens a stream.
        out: takes the table, a row for each column.

    Returns:
        Whether any frame is special, and whether any opens a stream.
    """
    any_special = any_opens = False
    for row in range(len(time)):
        which = kind[row]
        size = max(data[row], 0) + max(metadata[row], 0)
        act = acts[which << bits | flags[row]]
        any_special |= special[which]
        any_opens |= act > 0 and act & opens != 0
        out[places[0], row], out[places[1], row], out[places[2], row] = time[row], client[row], conns[conn[row]]
        out[places[3], row], out[places[4], row], out[places[5], row] = (
            kinds[0, which],
            kinds[1, which],
            kinds[2, which],
        )
        out[places[6], row], out[places[7], row] = size, 0 if kinds[3, which] and size == 0 else 1
        out[places[8], row], out[places[9], row], out[places[10], row] = act, -1, 0
    for number in range(len(numbers)):
        source, target = numbers[number], out[places[11 + number]]
        for row in range(len(target)):
            target[row] = source[row]
    last = len(out) - 3
    for number in range(3):
        target = out[last + number]
        for row in range(len(target)):
            target[row] = held[number, row] if held.shape[1] else 0
    return any_special, any_opens


def sides(held: Any, packets: Any, conn: Any, falling: Any, out: Any) -> None:
    """Look up for frames how long both sides of their connections were held back, and what is missing of them.

    Args:
        held: see ``window.Windows.take``.
        packets: the packet of each frame, negative for none.
        conn: the connection of each frame.
        falling: whether the client of each connection is the end that sorts last.
        out: takes three rows: for the server, for the client, and what is missing.
    """
    for row in range(len(packets)):
        packet = packets[row]
        if packet < 0:
            out[0, row] = out[1, row] = out[2, row] = 0
            continue
        low, high, missed = held[packet, 0], held[packet, 1], held[packet, 2]
        if falling[conn[row]]:
            low, high = high, low
            missed = (missed & 1) | (missed >> 1 & 2) | (missed << 1 & 4)
        out[0, row], out[1, row], out[2, row] = low, high, missed


def letters(rows: Any, firsts: Any, sizes: Any, text: Any, ends: Any, out: Any) -> None:
    """Put words together, letter by letter.

    Args:
        rows: the number of each word.
        firsts: where the word with each number begins in ``text``.
        sizes: the letters of the word with each number.
        text: letters.
        ends: takes 0, and where each word ends.
        out: takes the letters; it has room for the longest word in each row.
    """
    place = 0
    ends[0] = 0
    for row in range(len(rows)):
        first = firsts[rows[row]]
        for letter in range(sizes[rows[row]]):
            out[place] = text[first + letter]
            place += 1
        ends[row + 1] = place
