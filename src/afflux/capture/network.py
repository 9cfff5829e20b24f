"""Find the TCP header of each packet after its IPv4 or IPv6 header: options, extension headers and fragments.

Processes all packets of a batch together; only fragments are handled one by one. A packet that is not TCP is skipped,
and its reason is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from afflux.capture.fragments import Fragments
from afflux.capture.link import IPV4, find_network
from afflux.capture.packets import PAD, Fields, Ints, Packets
from afflux.capture.skipping import NOT_TCP, Skipped
from afflux.core.limits import Limits

__all__ = ["TCP", "V4", "Datagrams", "Fragment", "Network", "Words"]

Words = npt.NDArray[np.uint64]

V4: Final = 0xFFFF_FFFF_FFFF_FFFF
"The high half of the address of an IPv4 packet; no IPv6 host has an address in this range."
TCP: Final = 6
_FRAGMENT: Final = 44
_EXTENSIONS: Final = (0, 43, 51, 60, 135, 139, 140, _FRAGMENT)
"IPv6 headers before the payload."
_AH: Final = 51


@dataclass(slots=True)
class Datagrams:
    """The payloads of IP datagrams, one element of each array for each."""

    index: Ints
    "The packet, as an index in its batch."
    at: Ints
    "Where the payload begins in the block."
    end: Ints
    "Where the captured payload ends."
    missing: Ints
    "Bytes of the payload that were not captured."
    source: tuple[Words, Words]
    "The high and the low half of the source address; ``V4`` and the address for IPv4."
    target: tuple[Words, Words]
    "The same of the destination address."
    protocol: Ints
    "The protocol of the payload."

    def where(self, mask: npt.NDArray[np.bool_]) -> Datagrams:
        """Return the datagrams that ``mask`` selects."""
        if mask.all():
            return self
        return Datagrams(*(_picked(value, mask) for value in self._values()))

    def joined(self, other: Datagrams) -> Datagrams:
        """Return these datagrams and others."""
        return Datagrams(*(_both(one, two) for one, two in zip(self._values(), other._values(), strict=True)))

    def _values(self) -> tuple[Ints | tuple[Words, Words], ...]:
        return (self.index, self.at, self.end, self.missing, self.source, self.target, self.protocol)


def _picked(value: Any, mask: Any) -> Any:
    return tuple(half[mask] for half in value) if isinstance(value, tuple) else value[mask]


def _both(one: Any, two: Any) -> Any:
    if isinstance(one, tuple):
        return tuple(np.concatenate(pair) for pair in zip(one, two, strict=True))
    return np.concatenate((one, two))


class Network:
    """The network layer of one capture: remembers fragments from batch to batch.

    Args:
        limits: see ``capture_depth``, ``capture_ipv6_headers`` and ``capture_bytes``.
        aside: takes each fragment of a TCP segment, instead of this object.
    """

    def __init__(self, limits: Limits, aside: Callable[[Fragment], None] | None = None) -> None:
        self._limits = limits
        self._aside = aside
        self._fragments = Fragments(limits.capture_bytes // 4)
        self.skipped = Skipped()
        "How many packets were skipped, by reason."
        self.wrong_checksums = 0
        "TCP segments with a wrong checksum, if checksums are verified."

    def datagrams(self, packets: Packets) -> tuple[Datagrams, bytes]:
        """Return the TCP payloads in a batch, and the block that they are in: that of ``packets``, or one with
        reassembled datagrams after it."""
        fields = Fields(packets.block)
        index, kind, at = find_network(packets, fields, self._limits, self.skipped)
        four = kind == IPV4
        parts = [self._four(packets, fields, index[four], at[four])] if four.any() else []
        if not four.all():
            parts.append(self._six(packets, fields, index[~four], at[~four]))
        if not parts:
            empty = np.zeros(0, np.int64)
            parts.append(self._four(packets, fields, empty, empty))
        found, fragments = parts[0]
        for more, others in parts[1:]:
            found, fragments = found.joined(more), fragments + others
        block = packets.block
        if fragments:
            found, block = self._reassembled(found, fragments, block)
        other = found.protocol != TCP
        if other.any():
            self.skipped.note(NOT_TCP, packets, found.index[other])
            found = found.where(~other)
        if (len(parts) > 1 or fragments) and len(found.index):
            order = np.argsort(found.index, kind="stable")
            found = Datagrams(*(_picked(value, order) for value in found._values()))
        return found, block

    def end(self) -> None:
        """Count what stays incomplete at the end of the capture."""
        self._fragments.end(self.skipped)

    def _kept(self, right: npt.NDArray[np.bool_], reason: str, packets: Packets, index: Ints) -> npt.NDArray[np.bool_]:
        if not right.all():
            self.skipped.note(reason, packets, index[~right])
        return right

    def _four(self, packets: Packets, fields: Fields, index: Ints, at: Ints) -> tuple[Datagrams, list[_Fragment]]:
        start = packets.start[index]
        end, whole = start + packets.captured[index], start + packets.original[index]
        mask = self._kept(end - at >= 20, "cut off in IP", packets, index)
        if not mask.all():
            index, at, end, whole = index[mask], at[mask], end[mask], whole[mask]
        first, total = fields.u16(at), fields.u16(at + 2)
        header = (first >> 6) & 0x3C
        total = np.where(total == 0, whole - at, total)  # segmentation offload: the length did not fit
        right = (first >> 12 == 4) & (header >= 20) & (header <= total)
        mask = self._kept(right & (at + total <= whole), "wrong IP header", packets, index)
        if not mask.all():
            index, at, end = index[mask], at[mask], end[mask]
            total, header = total[mask], header[mask]
        stop = at + total
        cut = np.minimum(stop, end)
        protocol, flags = fields.u8(at + 9), fields.u16(at + 6)
        high = np.full(len(at), V4, np.uint64)
        found = Datagrams(
            index=index,
            at=at + header,
            end=cut,
            missing=stop - np.maximum(cut, at + header),
            source=(high, fields.u32(at + 12).astype(np.uint64)),
            target=(high, fields.u32(at + 16).astype(np.uint64)),
            protocol=protocol,
        )
        pieces = flags & 0x3FFF != 0
        if not pieces.any():
            return found, []
        fragments = []
        for n in np.flatnonzero(pieces).tolist():
            flag, number = int(flags[n]), int(fields.u16(at[n : n + 1] + 4)[0])
            fragments.append(_Fragment(found, n, (flag & 0x1FFF) * 8, bool(flag & 0x2000), number))
        return found.where(~pieces), fragments

    def _six(self, packets: Packets, fields: Fields, index: Ints, at: Ints) -> tuple[Datagrams, list[_Fragment]]:
        start = packets.start[index]
        end, whole = start + packets.captured[index], start + packets.original[index]
        mask = self._kept(end - at >= 40, "cut off in IP", packets, index)
        index, at, end, whole = index[mask], at[mask], end[mask], whole[mask]
        size = fields.u16(at + 4)
        stop = at + 40 + np.where(size == 0, whole - at - 40, size)
        mask = self._kept((fields.u8(at) >> 4 == 6) & (stop <= whole), "wrong IP header", packets, index)
        index, at, end, stop = index[mask], at[mask], end[mask], stop[mask]
        cut = np.minimum(stop, end)
        source = (fields.u64(at + 8), fields.u64(at + 16))
        target = (fields.u64(at + 24), fields.u64(at + 32))
        protocol, payload, fragment = self._extensions(fields, fields.u8(at + 6), at + 40, cut)
        found = Datagrams(index, payload, cut, stop - np.maximum(cut, payload), source, target, protocol)
        pieces = fragment >= 0
        fragments = []
        for n in np.flatnonzero(pieces).tolist():
            here = fragment[n : n + 1]
            flags, number = int(fields.u16(here + 2)[0]), int(fields.u32(here + 4)[0])
            fragments.append(_Fragment(found, n, flags & 0xFFF8, bool(flags & 1), number))
        return found.where(~pieces), fragments

    def _extensions(self, fields: Fields, protocol: Ints, at: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
        """Pass the extension headers; return the protocol of each payload, where it begins, and where its fragment
        header is, -1 for none."""
        fragment = np.full(len(at), -1, np.int64)
        for _ in range(self._limits.capture_ipv6_headers):
            more = np.isin(protocol, _EXTENSIONS) & (at + 8 <= end) & (fragment < 0)
            if not more.any():
                return protocol, at, fragment
            here, kind = at[more], protocol[more]
            length = fields.u8(here + 1)
            fields_flags = fields.u16(here + 2)
            size = np.where(kind == _FRAGMENT, 8, np.where(kind == _AH, length * 4 + 8, length * 8 + 8))
            protocol, at = protocol.copy(), at.copy()
            protocol[more] = fields.u8(here)
            at[more] += size
            split = (kind == _FRAGMENT) & (fields_flags & 0xFFF9 != 0)
            fragment[more] = np.where(split, here, -1)
        return protocol, at, fragment

    def _reassembled(self, found: Datagrams, fragments: list[_Fragment], block: bytes) -> tuple[Datagrams, bytes]:
        """Add the datagrams that these fragments complete."""
        pieces, size = [block], len(block)
        for fragment in fragments:
            if fragment.missing:
                self.skipped["cut off in a fragment"] += 1
                continue
            if self._aside is not None:
                self._aside(fragment.aside(block))
                continue
            payload = fragment.data(block)
            data = self._fragments.add(fragment.key, fragment.offset, payload, fragment.more, self.skipped)
            if data is not None:
                found = found.joined(fragment.whole(size, len(data)))
                pieces.append(data)
                size += len(data)
        return (found, b"".join((*pieces, PAD))) if len(pieces) > 1 else (found, block)


@dataclass(frozen=True, slots=True)
class Fragment:
    """One fragment of an IP datagram."""

    packet: int
    "The packet, as an index in its batch."
    key: tuple[int, ...]
    "What the fragments of a datagram have in common: the source and the target (see ``Datagrams``), and two numbers."
    offset: int
    "Where the data belongs in the payload."
    more: bool
    "It is not the last fragment."
    protocol: int
    "The protocol of the payload."
    data: bytes


class _Fragment:
    """One fragment of a batch."""

    def __init__(self, found: Datagrams, number: int, offset: int, more: bool, identification: int) -> None:
        self._one = Datagrams(*(_picked(value, slice(number, number + 1)) for value in found._values()))
        self.offset = offset
        self.more = more
        self.missing = int(self._one.missing[0])
        self.packet = int(self._one.index[0])
        ends = tuple(int(half[0]) for half in (*self._one.source, *self._one.target))
        protocol = int(self._one.protocol[0]) if ends[0] == V4 else -1
        self.key = (*ends, protocol, identification)

    def data(self, block: bytes) -> bytes:
        """Return the payload."""
        return block[int(self._one.at[0]) : int(self._one.end[0])]

    def aside(self, block: bytes) -> Fragment:
        """Return the fragment without its batch."""
        protocol = int(self._one.protocol[0])
        return Fragment(self.packet, self.key, self.offset, self.more, protocol, self.data(block))

    def whole(self, at: int, size: int) -> Datagrams:
        """Return the whole datagram, which is in the block at ``at``. Its packet is the one of this fragment."""
        one = self._one
        protocol = one.protocol
        here = np.array([at], np.int64)
        return Datagrams(one.index, here, here + size, here * 0, one.source, one.target, protocol)
