"""Read the TCP headers of a batch: connection, sequence number, flags, where the data is.

Processes all packets of a batch together. A checksum is verified only on request, because offloading leaves wrong ones
in the captures of a sender's own packets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from afflux.capture import header_kernels as kernel
from afflux.capture.kernels import SHARED
from afflux.capture.network import V4, Datagrams, Network, Words
from afflux.capture.packets import Fields, Ints, Packets
from afflux.capture.skipping import Skipped

__all__ = ["ACK", "FIN", "RST", "SYN", "End", "Segments", "segments", "segments_in"]

FIN: Final = 0x01
SYN: Final = 0x02
RST: Final = 0x04
ACK: Final = 0x10
_ETHERNET: Final = 1
"The LINKTYPE of Ethernet."

End = tuple[int, int, int]
"One end of a connection: the two halves of its address (see ``Datagrams.source``) and its port."


@dataclass(frozen=True, slots=True)
class Segments:
    """TCP segments, one element of each array for each, in the order of the capture."""

    block: bytes
    "The bytes that ``at`` refers to."
    index: Ints
    "The packet, as an index in its batch."
    low: tuple[Words, Words, Ints]
    "The end of the connection that sorts first: both halves of the address, and the port."
    high: tuple[Words, Words, Ints]
    "The other end."
    rising: npt.NDArray[np.bool_]
    "Whether the segment goes from the low end to the high one."
    seq: Ints
    "The sequence number."
    ack: Ints
    "The acknowledged sequence number."
    flags: Ints
    "The flag bits."
    at: Ints
    "Where the data begins in the block."
    position: Ints
    "Where the data begins in the decompressed file, in bytes; -1 for data that was put together from fragments."
    size: Ints
    "Bytes of data that were captured."
    cut: Ints
    "Bytes of data after them that were not captured."
    window: Ints
    "The window field, not scaled."
    scale: Ints
    "The shift that a SYN offers for the windows of its sender; -1 for none (RFC 7323)."
    mss: Ints
    "The largest segment that a SYN offers to receive, in bytes; -1 for none."

    def __len__(self) -> int:
        return len(self.index)


def segments(packets: Packets, network: Network, *, checksums: bool = False) -> Segments:
    """Return the TCP segments of a batch. ``network.skipped`` counts the packets that are not TCP, by reason, and with
    ``checksums`` its ``wrong_checksums`` those whose checksum is wrong; they are returned all the same."""
    if not checksums and (plain := _plain(packets)) is not None:
        return plain
    found, block = network.datagrams(packets)
    if checksums:
        network.wrong_checksums += _wrong_checksums(found, block)
    return segments_in(found, block, network.skipped, packets)


def _plain(packets: Packets) -> Segments | None:
    """Return the TCP segments of a batch with the kernel; None if it is not compiled, or a packet has other headers."""
    function = SHARED.compiled(kernel.headers)
    if function is None or not len(packets) or not (packets.linktype == _ETHERNET).all():
        return None
    block, count = packets.block, len(packets)
    found = np.empty((kernel.WIDTH, count), np.int64)
    hosts, ports = np.empty((2, count), np.uint64), np.empty((2, count), np.int64)
    rising = np.empty(count, np.bool_)
    octets: npt.NDArray[np.uint8] = np.frombuffer(block, np.uint8)
    places = (np.ascontiguousarray(one) for one in (packets.start, packets.captured, packets.original))
    if not function(octets, *places, found, hosts, ports, rising):
        return None
    high, data, word = np.full(count, V4, np.uint64), found[kernel.AT], found[kernel.FLAGS]
    stop = np.minimum(data, found[kernel.END])
    scale, mss = _options(Fields(block), found[kernel.HEADER], stop, word)
    return Segments(
        block=block,
        index=np.arange(count, dtype=np.int64),
        low=(high, hosts[0], ports[0]),
        high=(high, hosts[1], ports[1]),
        rising=rising,
        seq=found[kernel.SEQ],
        ack=found[kernel.ACK],
        flags=word & 0x1FF,
        at=data,
        position=np.where(data < len(block), data + packets.offset, -1),
        size=found[kernel.SIZE],
        cut=found[kernel.CUT],
        window=found[kernel.WINDOW],
        scale=scale,
        mss=mss,
    )


def segments_in(found: Datagrams, block: bytes, skipped: Skipped, packets: Packets | None = None) -> Segments:
    """Return the TCP segments in IP datagrams. ``skipped`` counts those that are no segments. The block begins with
    that of ``packets``; None if the datagrams were fragments."""
    fields = Fields(block)
    offset, size = (0, len(block)) if packets is None else (packets.offset, len(packets.block))
    found, header, word = _headers(found, fields, skipped, packets)
    at = found.at
    ports = fields.u32(at)
    low, high, rising = _ends(found, ports >> 16, ports & 0xFFFF)
    data = at + header
    end = np.maximum(found.end, data)
    scale, mss = _options(fields, at, np.minimum(data, found.end), word)
    return Segments(
        block=block,
        index=found.index,
        low=low,
        high=high,
        rising=rising,
        seq=fields.u32(at + 4),
        ack=fields.u32(at + 8),
        flags=word & 0x1FF,
        at=data,
        position=np.where(data < size, data + offset, -1),
        size=end - data,
        cut=found.end + found.missing - end,
        window=fields.u16(at + 14),
        scale=scale,
        mss=mss,
    )


def _options(fields: Fields, at: Ints, end: Ints, word: Ints) -> tuple[Ints, Ints]:
    """Return the window scale and the segment size of each segment; -1 for none, and without SYN. All SYNs are read
    together, an option at a time."""
    scale, mss = np.full(len(at), -1, np.int64), np.full(len(at), -1, np.int64)
    rows = np.flatnonzero(word & SYN)
    here = at[rows] + 20
    for _ in range(40):
        more = here < end[rows]
        rows, here = rows[more], here[more]
        if not len(rows):
            break
        kind = fields.u8(here)
        size = np.where(kind == 1, 1, fields.u8(here + 1))
        fits = (kind != 0) & (size >= np.where(kind == 1, 1, 2)) & (here + size <= end[rows])
        rows, here, kind, size = rows[fits], here[fits], kind[fits], size[fits]
        scales, sizes = (kind == 3) & (size == 3), (kind == 2) & (size == 4)
        scale[rows[scales]] = np.minimum(fields.u8(here[scales] + 2), 14)
        mss[rows[sizes]] = fields.u16(here[sizes] + 2)
        here = here + size
    return scale, mss


def _wrong_checksums(found: Datagrams, block: bytes) -> int:
    """Return how many TCP checksums are wrong. Segments that are not whole in the capture do not count."""
    found = found.where((found.missing == 0) & (found.end - found.at >= 20))
    wrong = 0
    for number, (at, end) in enumerate(zip(found.at.tolist(), found.end.tolist(), strict=True)):
        words = np.frombuffer(block[at:end] + bytes((end - at) & 1), ">u2")
        ends = (*found.source, *found.target)
        pseudo = sum(_folded(int(half[number])) for half in ends if int(half[number]) != V4)
        wrong += (int(words.sum(dtype=np.uint64)) + pseudo + 6 + end - at) % 0xFFFF != 0
    return wrong


def _folded(half: int) -> int:
    return sum(half >> shift & 0xFFFF for shift in (0, 16, 32, 48))


def _headers(
    found: Datagrams, fields: Fields, skipped: Skipped, packets: Packets | None
) -> tuple[Datagrams, Ints, Ints]:
    """Return the datagrams with a valid TCP header, its size and the word with its flags."""
    whole = found.end - found.at >= 20
    if not whole.all():
        skipped.note("cut off in TCP", packets, found.index[~whole])
        found = found.where(whole)
    word = fields.u16(found.at + 12)
    header = (word >> 10) & 0x3C
    right = (header >= 20) & (found.at + header <= found.end + found.missing)
    if not right.all():
        skipped.note("wrong TCP header", packets, found.index[~right])
        found, header, word = found.where(right), header[right], word[right]
    return found, header, word


def _ends(
    found: Datagrams, sender: Ints, receiver: Ints
) -> tuple[tuple[Words, Words, Ints], tuple[Words, Words, Ints], npt.NDArray[np.bool_]]:
    """Sort the two ends of each segment."""
    (a0, a1), (b0, b1) = found.source, found.target
    same = a0 == b0
    rising = (a0 < b0) | (same & ((a1 < b1) | ((a1 == b1) & (sender <= receiver))))
    low = (np.where(rising, a0, b0), np.where(rising, a1, b1), np.where(rising, sender, receiver))
    high = (np.where(rising, b0, a0), np.where(rising, b1, a1), np.where(rising, receiver, sender))
    return low, high, rising
