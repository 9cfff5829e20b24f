"""Find the packets that come after later ones of their connection: the capture is not in the order of time.

Frames are decoded in the order of the capture. Two captures of one direction each that were appended, or shuffled
packets, therefore give streams with frames in a wrong order, or without some. Packets that a capture of several
interfaces or processors has a little out of order are not counted.
"""

from __future__ import annotations

from itertools import islice
from typing import Final, NamedTuple

import numpy as np

from afflux.capture.connections import Connection, Key, Opening, ends_of
from afflux.capture.flows import Flows
from afflux.capture.packets import NO_TIME, Ints
from afflux.core.limits import Limits

__all__ = ["JITTER", "REMEDY", "Late", "Order", "warning"]

JITTER: Final = 1_000_000
"Nanoseconds by which a packet may be earlier than the one before: less is the work of several processors."
REMEDY: Final = (
    "sort the packets with `reordercap IN OUT`, merge captures with `mergecap -w OUT IN IN`, and remove packets that "
    "were captured twice with `editcap -d IN OUT`"
)


class Late(NamedTuple):
    """The first packet of a connection that comes after a later one."""

    conn: str | None
    "The connection; None if it is not followed any more."
    place: int
    "The packet, as an index in its batch."
    packet: int
    "The number of the packet in its file, counted from 1."
    time: int
    "When it was captured, in nanoseconds."
    earlier: int
    "Nanoseconds by which it is earlier than the one of its connection before it."

    @property
    def reason(self) -> str:
        """What is wrong, in words."""
        return f"the packet is {self.earlier / 1e9:.3f} s earlier than the one of its connection before it"


class Order:
    """The times of the packets of each connection of one capture.

    Args:
        limits: see ``capture_flows``.
    """

    def __init__(self, limits: Limits) -> None:
        self._most = limits.capture_flows
        self._times: dict[Key, int] = {}
        "The time of the last packet between two ends, the least recently used ones first."
        self._latest = NO_TIME
        self.first: Late | None = None
        "The first late packet of all."
        self.late: dict[Key, str | None] = {}
        "The ends of connections with late packets, and their ids; ``capture_flows`` at most."

    def take(self, flows: Flows) -> list[Late]:
        """Look at the segments of the last batch; return the first late packets of connections that had none so far."""
        found, flow, keys = flows.segments, flows.flow, flows.keys
        if found is None or not len(found):
            return []
        time = flows.packets.time[found.index]
        timed = time != NO_TIME
        if not timed.all():
            time, flow = time[timed], flow[timed]
            if not len(time):
                return []
        known = np.array([self._times.pop(key, NO_TIME) for key in keys], np.int64)
        before = known.copy()
        known[flow] = time  # of each pair of ends, the last time counts
        self._times.update(zip(keys, known.tolist(), strict=True))
        excess = max(0, len(self._times) - self._most)
        for key in list(islice(self._times, excess)):  # at once: a dict passes over what was deleted each time
            del self._times[key]
        in_order = time[0] >= self._latest and bool((time[1:] >= time[:-1]).all())
        self._latest = max(self._latest, int(time.max()))
        if in_order:
            return []
        places = found.index if timed.all() else found.index[timed]
        return self._late(flows, time, flow, before, places)

    def _late(self, flows: Flows, time: Ints, flow: Ints, before: Ints, places: Ints) -> list[Late]:
        """Look for late packets among those of a batch that is not in order."""
        sort = np.argsort(flow, kind="stable")
        sides, times = flow[sort], time[sort]
        previous = np.concatenate(([NO_TIME], times[:-1]))
        first = np.concatenate(([True], sides[1:] != sides[:-1]))
        previous[first] = before[sides[first]]
        late = np.flatnonzero(previous - times > JITTER)
        made = []
        found, firsts = np.unique(sides[late], return_index=True)
        for side, number in zip(found.tolist(), late[firsts].tolist(), strict=True):
            key = flows.keys[side]
            if key not in self.late and len(self.late) < self._most:
                conn = self.late[key] = _id(flows, key)
                index, at = int(places[sort[number]]), int(times[number])
                made.append(Late(conn, index, flows.packets.numbered(index), at, int(previous[number]) - at))
        made.sort(key=lambda late: late.place)
        if self.first is None and made:
            self.first = made[0]
        return made


def _id(flows: Flows, key: Key) -> str | None:
    """Return the id of the connection between two ends."""
    entry = flows.peek(key)
    if isinstance(entry, Opening):
        return Connection(*ends_of(key), entry.time, {}).id
    return None if entry is None else entry.id


def warning(connections: int, file: str, packet: int) -> str:
    """Return the warning of a capture whose packets are not in the order of time.

    Args:
        connections: how many have such packets.
        file: the capture with the first one.
        packet: its number there, counted from 1.
    """
    many = "1 connection" if connections == 1 else f"{connections:,} connections"
    place = f"packet {packet:,}" + (f" of {file}" if file else "")
    text = "frames may be missing or in the wrong order"
    return f"packets of {many} go back in time, the first is {place}: {text}; {REMEDY}"
