"""Read the next batch of a capture in a thread, as far as its TCP headers, while one is decoded.

The compiled functions, numpy and the reading of files let other threads run meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from afflux.capture.network import Network
from afflux.capture.packets import Packets
from afflux.capture.reading import Capture
from afflux.capture.secrets import Lines, Secrets
from afflux.capture.segments import Segments, segments

__all__ = ["KeyLogs", "ahead"]


class KeyLogs(Secrets):
    """Takes the key logs in the blocks of a capture that is read ahead, until their batch is decoded."""

    _waiting: tuple[Lines, ...] = ()

    def read(self, file: Lines) -> None:
        """Store a key log."""
        self._waiting += (file,)

    def taken(self) -> tuple[Lines, ...]:
        """Return the key logs since the last call."""
        taken, self._waiting = self._waiting, ()
        return taken


def ahead(capture: Capture, network: Network, logs: KeyLogs, secrets: Secrets) -> Iterator[tuple[Packets, Segments]]:
    """Yield the batches of a capture with their segments; one more is read meanwhile. ``secrets`` has then the key logs
    that came with them, and before.

    Raises:
        OSError: the file cannot be read.
    """

    def batches() -> Iterator[tuple[Packets, Segments, tuple[Lines, ...]]]:
        for packets in capture:
            yield packets, segments(packets, network), logs.taken()

    reading = batches()
    with ThreadPoolExecutor(1, "afflux-capture") as thread:
        coming = thread.submit(next, reading, None)
        while (batch := coming.result()) is not None:
            coming = thread.submit(next, reading, None)
            packets, found, arrived = batch
            for log in arrived:
                secrets.read(log)
            yield packets, found
    for log in logs.taken():
        secrets.read(log)
