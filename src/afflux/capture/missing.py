"""Find the bytes of a TCP connection that a capture has lost, before anything that they may have caused is judged.

Two things show that bytes are missing: a segment that begins after them, and an acknowledgement of them. They may be in
the capture a little later, because it has packets out of order, or because they were sent again. So the segments that
follow are looked at first (``verdict``). A loss is told at the place of the segment that shows it: whatever the other
side sent because of the lost bytes acknowledges them, and comes after that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from afflux.capture.connections import Connection, Entry, Opening
from afflux.capture.packets import Ints
from afflux.capture.reassembly import FARTHEST, ahead
from afflux.capture.segments import ACK, FIN, RST, SYN, Segments
from afflux.core.limits import Limits

__all__ = ["WAIT", "Missing", "Numbered", "Row", "expected", "missing", "suspects", "verdict"]

WAIT: Final = 1_000_000_000
"Nanoseconds after which bytes that are missing count as lost: captures have packets out of order by less."
_BEFORE: Final = -(1 << 34)
_APART: Final = 1 << 36

Row = tuple[int, ...]
"A segment: time, packet, seq, ack, flags, at, size, cut, rising."
Numbered = Sequence[Row] | Mapping[int, Row]
"Segments by number."


class Missing(NamedTuple):
    """Bytes that a segment shows to be missing."""

    rising: bool
    "Their direction."
    first: int
    "The sequence number of the first one."
    size: int


def expected(entry: Entry | None) -> tuple[int, int]:
    """Return the sequence numbers of the next bytes of both directions, the falling one first; -1 where unknown. A SYN
    and a FIN count as a byte."""
    if isinstance(entry, Connection):
        low, high = entry.halves[False], entry.halves[True]
        falling, rising = low.expected, high.expected
        if low.end is not None and low.ended:
            falling = (falling + 1) & 0xFFFF_FFFF
        if high.end is not None and high.ended:
            rising = (rising + 1) & 0xFFFF_FFFF
        return falling, rising
    if not isinstance(entry, Opening) or entry.closed:
        return -1, -1
    falling, rising = ((seq + 1) & 0xFFFF_FFFF if seq >= 0 else -1 for seq in entry.initial)
    return falling, rising


def suspects(found: Segments, flow: Ints, known: Ints) -> npt.NDArray[np.bool_]:
    """Return for each pair of ends whether its segments may show that bytes are missing. None is overlooked.

    Args:
        found: the segments of a batch.
        flow: the pair of ends of each.
        known: the sequence numbers of the next bytes; an element for each pair and direction, see ``expected``.
    """
    half, flags = flow * 2 + found.rising, found.flags
    first = np.full(len(known), -1, np.int64)
    first[half[::-1]] = found.seq[::-1]
    base = np.where(known >= 0, known, first)
    start = ahead(found.seq, base[half])
    end = start + found.size + found.cut + (flags & SYN != 0) + (flags & FIN != 0)
    wrong = (flags & SYN != 0) & (start != np.where(known[half] >= 0, -1, 0))
    resets = flags & RST != 0
    if resets.any():
        start, end = np.where(resets, _BEFORE, start), np.where(resets, _BEFORE, end)
    order = np.argsort(half.astype(np.uint16) if len(known) < 0x8000 else half, kind="stable")
    sides = half[order]
    apart = sides * _APART
    reached = np.maximum.accumulate(end[order] + apart) - apart
    begins = np.concatenate(([True], sides[1:] != sides[:-1]))
    before = np.where(begins, 0, np.concatenate(([0], reached[:-1])))
    wrong[order[start[order] > before]] = True
    top = np.zeros(len(known), np.int64)
    top[sides] = reached  # the last one counts
    answers = np.flatnonzero((flags & (ACK | RST)) == ACK)
    target = half[answers] ^ 1
    seen = base[target] >= 0
    answers, target = answers[seen], target[seen]
    over = ahead(found.ack[answers], base[target]) > np.maximum(top, 0)[target]
    wrong[answers[over]] = True
    suspect = np.zeros(len(known) // 2, np.bool_)
    suspect[flow[wrong]] = True
    return suspect


def missing(entry: Entry | None, row: Row, ignored: tuple[bool, bool]) -> Missing | None:
    """Return the bytes that a segment shows to be missing. ``ignored``: not those of the falling or the rising one."""
    _, _, seq, ack, flags, _, _, _, way = row
    if flags & (SYN | RST):
        return None
    known = expected(entry)
    if not ignored[way] and known[way] >= 0 and 0 < (size := ahead(seq, known[way])) <= FARTHEST:
        return _bounded(entry, bool(way), known[way], size)
    other = 1 - way
    if ignored[other] or not flags & ACK or known[other] < 0:
        return None
    size = ahead(ack, known[other])
    return _bounded(entry, bool(other), known[other], size) if 0 < size <= FARTHEST else None


def _bounded(entry: Entry | None, rising: bool, first: int, size: int) -> Missing:
    """Return missing bytes up to those that wait."""
    half = entry.halves[rising] if isinstance(entry, Connection) else None
    if half is not None and half.waiting:
        size = min(size, half.waiting[0][0] - half.position)
    return Missing(rising, first, size)


def verdict(
    entry: Entry | None, gap: Missing, rows: Numbered, numbers: Sequence[int], place: int, limits: Limits,
    final: bool,
) -> tuple[int, int]:  # fmt: skip
    """Look for missing bytes in the segments of their connection from a place on.

    Args:
        entry: the connection.
        gap: the missing bytes.
        rows: segments of the batch, those of the connection at least.
        numbers: those of the connection.
        place: the one that shows that bytes are missing, an index of ``numbers``.
        limits: see ``capture_flow_bytes`` and ``capture_holes``.
        final: no segments follow.

    Returns:
        The place of the segment with the first missing byte, and 0; the place after the last segment if it may be a FIN
        that is missing. Or -1, and the number of bytes that are lost, 0 if later segments must be known.
    """
    rising, first, size = gap
    since, waiting, pieces, acknowledged = rows[numbers[place]][0], 0, 0, False
    lone = size == 1 and rows[numbers[place]][8] != rising
    answered = expected(entry)[not rising] >= 0
    for number in range(place, len(numbers)):
        time, _, seq, ack, flags, _, length, cut, way = rows[numbers[number]]
        if flags & RST or (flags & SYN and not _repeats(entry, bool(way), seq)):
            return (len(numbers), 0) if lone else (-1, size)
        if way == rising:
            begin, total = ahead(seq, first), length + cut + (flags & FIN != 0)
            if begin <= 0 < begin + total:
                return number, 0
            lone &= begin <= 0
            if 0 < begin < size and total:
                size = begin
        else:
            answered = True
            acknowledged |= bool(flags & ACK) and ahead(ack, first) > 0
        waiting += length
        pieces += length > 0
        full = waiting > limits.capture_flow_bytes or pieces > limits.capture_holes
        if full or (time - since >= WAIT and (acknowledged or not answered)):
            return (len(numbers), 0) if lone else (-1, size)
    return (len(numbers), 0) if lone and final else (-1, size if final else 0)


def _repeats(entry: Entry | None, rising: bool, seq: int) -> bool:
    """Whether a SYN is a copy of the one before."""
    if isinstance(entry, Connection):
        return entry.halves[rising].initial == seq
    return isinstance(entry, Opening) and entry.initial[rising] == seq
