"""Decode the frames in a capture: one record for each, in the order in which the capture completes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from weakref import proxy

from afflux.capture.conversation import Conversation
from afflux.capture.flows import Connection, Flows
from afflux.capture.network import Network
from afflux.capture.order import Order
from afflux.capture.reading import Capture
from afflux.capture.reassembly import Overlap
from afflux.capture.segments import segments
from afflux.capture.settings import Content, Settings
from afflux.capture.times import timestamp
from afflux.capture.wording import instead
from afflux.core.dissect import PayloadForm
from afflux.core.dissector import Record
from afflux.core.entry import ProtocolEntry
from afflux.core.errors import Unsupported

__all__ = ["Decoder"]

_MOST_HINTS = 64


class Decoder:
    """The frames of one capture. Iterate over it once for the frame records (core.dissect): their ``ts`` is the time of
    the packet that completed the frame, ``offset`` the frame's position in the bytes of its direction.

    Args:
        capture: the packets.
        entries: the protocols that are recognized.
        ports: the protocol of a server's port, used where the first bytes decide nothing.
        payload: how metadata and data are shown.
        checksums: count wrong TCP checksums.
        overlap: which copy of bytes counts; see ``Flows``.

    Raises:
        Unsupported: a protocol in ``ports`` has no dissector.
    """

    def __init__(
        self,
        capture: Capture,
        entries: Sequence[ProtocolEntry],
        *,
        ports: Mapping[int, ProtocolEntry] | None = None,
        payload: PayloadForm = "none",
        checksums: bool = False,
        overlap: Overlap = "first",
    ) -> None:
        for entry in (ports or {}).values():
            if entry.dissector is None:
                raise Unsupported(f"{entry.name} has no dissector")
        self.capture = capture
        self._checksums = checksums
        self._settings = Settings(
            entries, ports or {}, payload, capture.limits, capture.secrets, opened=[], undecoded=[]
        )
        self.network = Network(capture.limits)
        self.hints: set[str] = set()
        "Options that name another protocol, for connections whose first frame cannot be read; 64 at most."
        self.order = Order(capture.limits)
        "The packets that are not in the order of time."
        me: Any = proxy(self)  # the flows know this object only weakly, so that both are freed without the collector
        self.flows = Flows(capture.limits, lambda connection: me._conversation(connection), overlap=overlap)

    @property
    def tally(self) -> dict[str, int]:
        """How many connections have each content, in words."""
        found = dict(self._settings.tally)
        empty = self.flows.connections - sum(found.values())
        return found | ({Content.EMPTY.value: empty} if empty else {})

    def opened(self) -> list[Conversation]:
        """Return the connections with frames that were recognized since the last call, the first 1,024 of them."""
        found, self._settings.opened = self._settings.opened, []
        return found or []

    def undecoded(self) -> list[Conversation]:
        """Return the connections that turned out not to be decodable since the last call, with ``place``."""
        found, self._settings.undecoded = self._settings.undecoded, []
        return found or []

    def _conversation(self, connection: Connection) -> Conversation:
        made = Conversation(connection, self._settings)
        made.place = self.flows.place_of(self.flows.opened)
        return made

    def __iter__(self) -> Iterator[Record]:
        last: list[int] = []
        for packets in self.capture:
            self.flows.take(packets, segments(packets, self.network, checksums=self._checksums))
            self.order.take(self.flows)
            time = self.flows.packets.time.tolist() if self._settings.found else [int(packets.time[-1])]
            yield from self._records(time)
            last = [int(packets.time[-1])]
        self.network.end()
        if self.flows.rest():
            self.order.take(self.flows)
            yield from self._records(self.flows.packets.time.tolist())
        self.flows.end()
        yield from self._records(last)

    def _records(self, time: list[int]) -> Iterator[Record]:
        """Yield the frames found since the last call, in the order of the packets that completed them."""
        found = self._settings.taken()
        found.sort(key=lambda one: len(time) if one[0] < 0 else one[0])
        for packet, conversation, made in found:
            if made["error"] is not None and len(self.hints) < _MOST_HINTS:
                self.hints.update(filter(None, [instead(conversation, made["type"])]))
            made["ts"] = timestamp(time[packet]) if time else None
            made["conn"] = conversation.id
            yield made
