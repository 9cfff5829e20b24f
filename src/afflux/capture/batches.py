"""Follow the connections of a capture and return the frames of each batch of packets as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from afflux.capture.columns import BatchReader
from afflux.capture.conversation import Conversation
from afflux.capture.flows import Connection, Flows
from afflux.capture.frames import Frames, Kinds
from afflux.capture.network import Network
from afflux.capture.packets import Ints, Packets
from afflux.capture.pausing import uncollected
from afflux.capture.reading import Capture
from afflux.capture.reassembly import Overlap
from afflux.capture.secrets import Secrets
from afflux.capture.segments import Segments, segments
from afflux.capture.settings import Content, Settings
from afflux.capture.whole import Brief
from afflux.core.entry import ProtocolEntry
from afflux.core.errors import Unsupported
from afflux.core.limits import Limits

__all__ = ["FrameBatches"]

_MOST_KINDS = 4_096
"Types of frames in one table: unknown types come from outside."


class FrameBatches:
    """The frames of the packets that are handed over, batch by batch.

    Args:
        entries: the protocols that are recognized.
        limits: the bounds of a capture.
        ports: the protocol of a server's port, used where the first bytes decide nothing.
        payload: keep metadata and data; of compressed messages at most ``capture_bytes`` in a batch.
        checksums: count wrong TCP checksums.
        secrets: decrypt TLS; None for those in the capture that ``of`` reads.
        overlap: which copy of bytes counts; see ``Flows``.
        make: makes the conversation of a new connection.
        passed: is told instead of each connection that is decoded as a whole (whole.py).

    Raises:
        Unsupported: a protocol in ``ports`` has no dissector.
    """

    def __init__(
        self,
        entries: Sequence[ProtocolEntry],
        limits: Limits,
        *,
        ports: Mapping[int, ProtocolEntry] | None = None,
        payload: bool = False,
        checksums: bool = False,
        secrets: Secrets | None = None,
        overlap: Overlap = "first",
        make: Callable[[Connection, Settings], Conversation] = Conversation,
        passed: Callable[[Brief], None] | None = None,
    ) -> None:
        for entry in (ports or {}).values():
            if entry.dissector is None:
                raise Unsupported(f"{entry.name} has no dissector")
        self._checksums = checksums
        self._settings = settings = Settings(entries, ports or {}, "bytes" if payload else "none", limits, secrets)
        self._reader = BatchReader(settings)
        self._reader.together.whole.passed = passed
        self._kinds = Kinds()
        self._last: Ints = np.empty(0, np.int64)
        self.network = Network(limits)
        "Reads the headers below TCP."
        self.flows = Flows(
            limits, lambda connection: make(connection, settings), overlap=overlap, together=self._reader.together
        )
        "The connections."

    @property
    def tally(self) -> dict[str, int]:
        """How many connections have each content, in words."""
        found = dict(self._settings.tally)
        empty = self.flows.connections - sum(found.values())
        return found | ({Content.EMPTY.value: empty} if empty else {})

    def use(self, capture: Capture) -> None:
        """Decrypt TLS with the secrets in a capture, if no others were given."""
        if self._settings.secrets is None:
            self._settings.secrets = capture.secrets

    def of(self, capture: Capture) -> Iterator[Frames]:
        """Yield the frames of each batch of a capture, and those that its end completes."""
        self.use(capture)
        for packets in capture:
            yield self.take(packets)
        if (rest := self.rest()) is not None:
            yield rest
        yield self.end()

    def take(self, packets: Packets, found: Segments | None = None) -> Frames:
        """Return the frames that a batch of packets completes. ``found`` are its segments, if they are known. The
        packets of the frames are those of ``flows.packets``. The garbage collector waits meanwhile (pausing.py)."""
        with uncollected():
            if found is None:
                found = segments(packets, self.network, checksums=self._checksums)
            self.flows.take(packets, found)
            self._last = packets.time[-1:]
            return self._frames(self.flows.packets.time)

    def rest(self) -> Frames | None:
        """The capture has ended: return the frames of the packets that had to wait for later ones, None if there are no
        such packets. Call it before ``end``."""
        with uncollected():
            return self._frames(self.flows.packets.time) if self.flows.rest() else None

    def until(self, time: int) -> None:
        """The capture ends at this time, in nanoseconds: frames that its end completes get it."""
        self._last = np.array([time], np.int64)

    def end(self) -> Frames:
        """End all connections; return the frames that this completes. Their packet is -1, their time the last one."""
        with uncollected():
            self.network.end()
            self.flows.end()
            return self._frames(self._last)

    def _frames(self, time: Ints) -> Frames:
        if len(self._kinds) > _MOST_KINDS:
            self._kinds = Kinds()
        return self._reader.frames(time, self._kinds)
