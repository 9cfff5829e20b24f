"""Cancel streams no faster than a peer with the same limits accepts (``cancel_bucket``)."""

from __future__ import annotations

from afflux.aio.output import Output
from afflux.aio.state import State
from afflux.aio.streams import Streams
from afflux.core.bucket import Bucket

__all__ = ["Cancels"]


class Cancels:
    """The cancels that one side of a connection sends."""

    __slots__ = ("_bucket", "_output", "_state", "_streams")

    def __init__(self, state: State, output: Output, streams: Streams) -> None:
        self._state = state
        self._output = output
        self._streams = streams
        self._bucket: Bucket | None = None
        "The cancels that the peer still accepts; None before the first one."

    def cancel(self, stream: int) -> None:
        """Cancel a stream that this side has opened."""
        state = self._state
        if self._bucket is None:
            self._bucket = Bucket(*state.engine.limits.cancel_bucket)
        self._bucket.take(1, state.now())
        state.engine.cancel(stream)
        self._output.flush_soon()

    def pause(self, requests: int) -> float:
        """Return the seconds to wait before one more stream is opened, so that the peer would accept the cancels of all
        open streams, of which ``requests`` are requests."""
        bucket = self._bucket
        if bucket is None:
            return 0.0
        wanted = min(bucket.burst, requests + len(self._streams.inbounds) + 1)
        return bucket.wait(wanted, self._state.now()) or 0.0
