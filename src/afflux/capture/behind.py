"""Follow each batch of a capture in a thread, while the next one is decoded.

The kernels, numpy and pyarrow let other threads run meanwhile. The rows come batch by batch, as without a thread; those
of one batch come when the next one has been decoded. No more than these two batches are in memory.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from afflux.capture.packets import Packets
from afflux.capture.segments import Segments
from afflux.capture.tables import Analysis, Tables

__all__ = ["Behind"]


class Behind:
    """The batches of one analysis. Use it in a ``with`` statement, which ends the thread.

    Args:
        analysis: is called from here only, until ``rest`` was called.
    """

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        self._thread = ThreadPoolExecutor(1, "afflux-follow")  # which begins when it is needed
        self._following: Future[Tables] | None = None

    def __enter__(self) -> Behind:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._thread.shutdown()

    def take(self, packets: Packets, found: Segments) -> list[Tables]:
        """Decode a batch of packets; return the rows that have been made since the last call."""
        batch = self._analysis.gather(packets, found)
        made = self.rest()
        if self._analysis.detach(batch):
            self._following = self._thread.submit(self._analysis.follow, batch)
        else:
            made.append(self._analysis.follow(batch))
        return made

    def rest(self) -> list[Tables]:
        """Return the rows of the batches that ``take`` got, as far as it has not returned them."""
        following, self._following = self._following, None
        return [] if following is None else [following.result()]
