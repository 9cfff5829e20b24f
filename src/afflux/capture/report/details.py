"""Collect what the page shows in detail: frames and credit of the chosen streams, and the traffic over time.

This is the second pass; the first one (summary.py) chooses the streams.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from afflux.capture.report.bounds import Bounds
from afflux.capture.report.columns import Row, grouped, micros, numbers, rows
from afflux.capture.report.ladder import Ladder
from afflux.capture.report.timeline import Timeline

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Details", "Traffic"]

Key = tuple[str, int]
"A connection and a stream."


class Details:
    """Frames, credit, stalls and connections of the chosen streams. Call ``take`` with each batch of these tables."""

    def __init__(self, chosen: list[Row], bounds: Bounds) -> None:
        self.ladders: dict[Key, Ladder] = {
            (stream["conn"], stream["stream"]): Ladder(stream, bounds.ladder_rows) for stream in chosen
        }
        self.ends: dict[str, Row] = {}
        "The rows of the connections of these streams."
        self._conns: set[Any] = {conn for conn, _ in self.ladders}
        self._streams: set[Any] = {stream for _, stream in self.ladders}

    def take(self, table: str, batch: pa.RecordBatch) -> None:
        """Add the rows of a table that belong to the chosen streams; the others are ignored."""
        if table == "connections":
            for row in rows(self._of(batch, "conn", self._conns)):
                self.ends.setdefault(row["conn"], row)
        elif table == "stalls":
            for ladder, part in self._parts(batch):
                ladder.stalled(rows(part))
        elif table == "credit":
            for ladder, part in self._parts(batch):
                for row in rows(part):
                    if row["dir"] in ladder.credit:
                        ladder.credit[row["dir"]].add(row)
        elif table == "frames":
            for ladder, part in self._parts(batch):
                ladder.frames(part)

    def _parts(self, batch: pa.RecordBatch) -> Iterator[tuple[Ladder, Any]]:
        """Yield the rows of each chosen stream, in their order."""
        import pyarrow as pa

        ours = self._of(self._of(batch, "conn", self._conns), "stream", self._streams)
        for key, places in grouped(ours, "conn", "stream"):
            if key in self.ladders:
                yield self.ladders[key], ours.take(pa.array(places))

    def ended(self) -> None:
        """All batches were taken."""
        for ladder in self.ladders.values():
            ladder.ended()

    @staticmethod
    def _of(batch: pa.RecordBatch, name: str, values: set[Any]) -> Any:
        """Return the rows with one of the values in a column."""
        import pyarrow as pa
        import pyarrow.compute as pc

        column = batch.column(name)
        return batch.filter(pc.is_in(column, pa.array(sorted(values), column.type)))


class Traffic:
    """Bytes and frames over time, from the table ``frames``."""

    def __init__(self, bounds: Bounds) -> None:
        self.timeline = Timeline(4, bounds.times)
        "Bytes from the client, bytes from the server, frames from the client, frames from the server."
        self.frames = 0

    def take(self, batch: pa.RecordBatch) -> None:
        """Add frames; those without a time are counted only. Bytes that could not be decoded have no type."""
        import pyarrow.compute as pc

        batch = batch.filter(pc.is_valid(batch["type"]))
        self.frames += batch.num_rows
        times, known = micros(batch, "ts")
        length = np.nan_to_num(numbers(batch, "length"))
        for (side,), places in grouped(batch, "dir"):
            at: NDArray[np.int64] = places[known[places]]
            series = 0 if side == ">" else 1
            self.timeline.add(series, times[at], length[at])
            self.timeline.add(2 + series, times[at], np.ones(len(at)))
