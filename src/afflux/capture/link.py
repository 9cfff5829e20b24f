"""Find the IP header of each packet after its link layer: Ethernet, Linux cooked captures, BSD loopback and raw
IP, with VLAN tags, MPLS labels and PPPoE.

Processes all packets of a batch together. A packet without an IP header is skipped, and its reason is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from afflux.capture.packets import Fields, Ints, Packets
from afflux.capture.skipping import NOT_IP, Skipped
from afflux.core.limits import Limits

__all__ = ["LINKTYPES", "find_network"]

IPV4, IPV6 = 0x0800, 0x86DD
_VLANS: Final = (0x8100, 0x88A8, 0x9100)
_MPLS: Final = (0x8847, 0x8848)
_PPPOE: Final = 0x8864
_FAMILIES: Final = {2: IPV4, 10: IPV6, 24: IPV6, 28: IPV6, 30: IPV6}
"Address families of BSD loopback packets: AF_INET, and AF_INET6 of Linux, the BSDs and macOS."

Found = tuple[Ints, Ints]
"The EtherType of each packet, and where what it names begins."


def _ethernet(fields: Fields, at: Ints) -> Found:
    return fields.u16(at + 12), at + 14


def _cooked(fields: Fields, at: Ints) -> Found:
    return fields.u16(at + 14), at + 16


def _cooked_2(fields: Fields, at: Ints) -> Found:
    return fields.u16(at), at + 20


def _loopback(fields: Fields, at: Ints) -> Found:
    family = fields.u32(at)
    family = np.where(family > 0xFF, family >> 24, family)  # NULL has the byte order of the machine that captured
    kind = np.zeros(len(at), np.int64)
    for number, name in _FAMILIES.items():
        kind[family == number] = name
    return kind, at + 4


def _raw(fields: Fields, at: Ints) -> Found:
    return _by_version(fields, at), at


LINKTYPES: Final[Mapping[int, Callable[[Fields, Ints], Found]]] = {
    0: _loopback,
    1: _ethernet,
    12: _raw,
    14: _raw,
    101: _raw,
    108: _loopback,
    113: _cooked,
    228: _raw,
    229: _raw,
    276: _cooked_2,
}
"The supported link layers, by LINKTYPE."


def find_network(packets: Packets, fields: Fields, limits: Limits, skipped: Skipped) -> tuple[Ints, Ints, Ints]:
    """Return the packets with an IP header: their indexes in ``packets``, their EtherTypes and where the header begins.
    ``skipped`` counts the others by reason."""
    index = np.arange(len(packets), dtype=np.int64)
    kind, at = _link(packets, fields, skipped)
    for _ in range(limits.capture_depth):
        tagged = (kind != IPV4) & (kind != IPV6) & (kind != 0)
        if not tagged.any():
            break
        kind, at = _untagged(fields, kind, at)
    inside = at < packets.start + packets.captured
    ip = ((kind == IPV4) | (kind == IPV6)) & inside
    if not ip.all():
        tags = np.isin(kind, (*_VLANS, *_MPLS, _PPPOE))
        unsupported = kind == -1
        skipped.note("cut off before IP", packets, index[~inside & ~unsupported])
        skipped.note("too many tags", packets, index[tags & inside])
        skipped.note(NOT_IP, packets, index[~ip & ~tags & ~unsupported & inside])
    return index[ip], kind[ip], at[ip]


def _link(packets: Packets, fields: Fields, skipped: Skipped) -> Found:
    """Read the link layer; the EtherType is -1 where it is unsupported."""
    types = packets.linktype
    first = int(types[0])
    if (types == first).all() and first in LINKTYPES:
        return LINKTYPES[first](fields, packets.start)
    kind, at = np.full(len(packets), -1, np.int64), packets.start.copy()
    for linktype in np.unique(types).tolist():
        mine = types == linktype
        if linktype in LINKTYPES:
            kind[mine], at[mine] = LINKTYPES[linktype](fields, packets.start[mine])
        else:
            skipped.note(f"unsupported link type {linktype}", packets, np.flatnonzero(mine))
    return kind, at


def _untagged(fields: Fields, kind: Ints, at: Ints) -> Found:
    """Remove one tag from each packet that has one."""
    kind, at = kind.copy(), at.copy()
    vlan = np.isin(kind, _VLANS)
    kind[vlan], at[vlan] = fields.u16(at[vlan] + 2), at[vlan] + 4
    mpls = np.isin(kind, _MPLS) & ~vlan
    if mpls.any():
        last = fields.u8(at[mpls] + 2) & 1 == 1
        at[mpls] += 4
        kind[mpls] = np.where(last, _by_version(fields, at[mpls]), kind[mpls])
    pppoe = (kind == _PPPOE) & ~vlan
    if pppoe.any():
        protocol = fields.u16(at[pppoe] + 6)
        at[pppoe] += 8
        kind[pppoe] = np.where(protocol == 0x21, IPV4, np.where(protocol == 0x57, IPV6, 0))
    return kind, at


def _by_version(fields: Fields, at: Ints) -> Ints:
    version = fields.u8(at) >> 4
    return np.where(version == 4, IPV4, np.where(version == 6, IPV6, 0))
