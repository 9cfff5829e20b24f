"""Read the headers of packets, one after the other: what link.py, network.py and segments.py do with numpy.

Only batches in which every packet is TCP over IPv4 over Ethernet, whole in its headers, are read so; most batches of
most captures are. The function is plain Python that numba compiles (see kernels.py).
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["ACK", "AT", "CUT", "END", "FLAGS", "HEADER", "SEQ", "SIZE", "WIDTH", "WINDOW", "headers", "pairs"]

HEADER: Final = 0
"Where the TCP header begins in the block."
AT: Final = 1
"Where the data begins in the block."
SIZE: Final = 2
"Bytes of data that were captured."
CUT: Final = 3
"Bytes of data after them that were not captured."
SEQ: Final = 4
ACK: Final = 5
FLAGS: Final = 6
"The word with the flags."
WINDOW: Final = 7
END: Final = 8
"Where the captured part of the segment ends in the block."
WIDTH: Final = 9
_PROBES: Final = 8
"Pairs of ends that are compared for each slot, at most."


def headers(  # long: one header after the other
    data: Any,
    start: Any,
    captured: Any,
    original: Any,
    found: Any,
    hosts: Any,
    ports: Any,
    rising: Any,
) -> bool:
    """Read the headers of Ethernet, IPv4 and TCP; return whether all packets have them.

    Args:
        data: the bytes, with some after the last packet.
        start: where each packet begins.
        captured: bytes of each packet in ``data``.
        original: bytes of each packet on the network.
        found: takes numbers, a row for each of those that are named above.
        hosts: takes the addresses: of the end that sorts first, and of the other one.
        ports: takes their ports.
        rising: takes whether the end that sorts first has sent the packet.
    """
    for row in range(len(start)):
        here = start[row] + 14
        end, whole = start[row] + captured[row], start[row] + original[row]
        if end - here < 20 or data[here - 2] != 8 or data[here - 1] != 0:
            return False
        first, total = int(data[here]), int(data[here + 2]) << 8 | int(data[here + 3])
        header = (first & 0xF) << 2
        if total == 0:
            total = whole - here
        if first >> 4 != 4 or header < 20 or header > total or here + total > whole:
            return False
        if data[here + 6] & 0x3F or data[here + 7] or data[here + 9] != 6:
            return False
        source = target = 0
        for octet in range(4):
            source = source << 8 | int(data[here + 12 + octet])
            target = target << 8 | int(data[here + 16 + octet])
        stop, at = here + total, here + header
        end = min(stop, end)
        missing = stop - max(end, at)
        if end - at < 20:
            return False
        word = int(data[at + 12]) << 8 | int(data[at + 13])
        header = (word >> 10) & 0x3C
        if header < 20 or at + header > end + missing:
            return False
        sender = int(data[at]) << 8 | int(data[at + 1])
        receiver = int(data[at + 2]) << 8 | int(data[at + 3])
        seq = ack = 0
        for octet in range(4):
            seq = seq << 8 | int(data[at + 4 + octet])
            ack = ack << 8 | int(data[at + 8 + octet])
        begin = at + header
        last = max(end, begin)
        found[HEADER, row], found[AT, row], found[SIZE, row], found[CUT, row] = (
            at,
            begin,
            last - begin,
            end + missing - last,
        )
        found[SEQ, row], found[ACK, row], found[FLAGS, row], found[END, row] = seq, ack, word, end
        found[WINDOW, row] = int(data[at + 14]) << 8 | int(data[at + 15])
        up = source < target or (source == target and sender <= receiver)
        rising[row] = up
        hosts[0, row], hosts[1, row] = (source, target) if up else (target, source)
        ports[0, row], ports[1, row] = (sender, receiver) if up else (receiver, sender)
    return True


def pairs(low: Any, high: Any, numbers: Any, firsts: Any, slots: Any) -> int:
    """Number the pairs of ends of segments in the order in which they occur; return how many there are. Return -1 if
    too many pairs collide, as they do where somebody wants them to.

    Args:
        low: the end that sorts first of each segment: both halves of the address, and the port.
        high: the other end.
        numbers: takes the number of each segment's pair.
        firsts: takes the first segment of each pair.
        slots: -1 everywhere; more than twice as many as there are segments, a power of 2.
    """
    a0, a1, ap = low
    b0, b1, bp = high
    count, left, mask = 0, _PROBES * len(slots), len(slots) - 1
    for row in range(len(numbers)):
        last = row - 1
        if (
            row
            and a1[row] == a1[last]
            and b1[row] == b1[last]
            and ap[row] == ap[last]
            and bp[row] == bp[last]
            and a0[row] == a0[last]
            and b0[row] == b0[last]
        ):
            numbers[row] = numbers[last]
            continue
        mixed = (int(a1[row] ^ a0[row]) * 31 + int(b1[row] ^ b0[row])) * 65_599 + int(ap[row]) * 257 + int(bp[row])
        slot = (mixed ^ mixed >> 17 ^ mixed >> 32) & mask
        while slots[slot] >= 0:
            known = firsts[slots[slot]]
            if (
                a1[row] == a1[known]
                and b1[row] == b1[known]
                and ap[row] == ap[known]
                and bp[row] == bp[known]
                and a0[row] == a0[known]
                and b0[row] == b0[known]
            ):
                break
            left -= 1
            if left < 0:
                return -1
            slot = (slot + 1) & mask
        if slots[slot] < 0:
            slots[slot] = count
            firsts[count] = row
            count += 1
        numbers[row] = slots[slot]
    return count
