"""Hand the rows of a small batch to Spark together with its plan.

A task with a Python worker and a connection of its own takes longer than everything else in a small batch. Spark needs
neither for its simple readers: the process that plans a batch returns the rows too, Spark stores them as a block, and
the task reads the block. Spark asks those readers for rows that are instances of ``_SimpleStreamReaderWrapper``, after
each call of ``partitions``. A :class:`Prefetching` reader claims to be one if it has prefetched the rows of that batch,
and only until Spark has asked. A Spark without that class reads every batch with tasks.

Spark writes its log between the request for the end of a batch and that for the plan. A thread reads the rows meanwhile
(``read_ahead``). Only one thread at a time uses the reader's connection: ``caught_up`` waits for the other one.

The rows are those that the tasks would return, since both read the same spans. A failure is not an error here: the
tasks read the spans instead, try again, and report it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from afflux.spark.offsets import Span

if TYPE_CHECKING:
    import pyarrow as pa

try:
    from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
except ImportError:  # pragma: no cover -- every Spark from 4.0 to 4.3 has it
    _SimpleStreamReaderWrapper = None  # type: ignore[assignment, misc] # the class of another Spark

__all__ = ["BYTES", "ROWS", "Prefetching"]

ROWS = 20_000
"The most rows of a batch that is prefetched."
BYTES = 4 << 20
"The most bytes of Arrow data of such a batch. One item more is received before it is known to be too large."
_PAUSE = 100
"How many batches are left to tasks after one that was too large."

_log = logging.getLogger("afflux.spark")


class Prefetching:
    """Base class of a stream reader whose plans may have rows."""

    _plan_rows: list[pa.RecordBatch] | None = None
    "The rows that Spark is about to ask for."
    _pause = 0
    _ahead: _Ahead | None = None
    "The rows that are being read, or were, for a batch that is not planned yet."

    @property  # type: ignore[misc] # nobody sets it
    def __class__(self) -> type[Any]:
        """The class that ``isinstance`` sees."""
        return type(self) if self._plan_rows is None else _SimpleStreamReaderWrapper

    def read_ahead(self, spans: Sequence[Span], read: Callable[[Span], Iterable[pa.RecordBatch]]) -> None:
        """Begin to read the rows of the next batch, if it is small."""
        if self._is_small(spans) and not self._pause:
            self._ahead = _Ahead(spans, read)

    def caught_up(self) -> None:
        """Wait until no other thread uses the connection."""
        if self._ahead is not None:
            self._ahead.join()

    def prefetch(self, spans: Sequence[Span], read: Callable[[Span], Iterable[pa.RecordBatch]]) -> None:
        """Read the rows of a batch, or take those that were read ahead, if it is small."""
        self._plan_rows, ahead, self._ahead = None, self._ahead, None
        if not self._is_small(spans):
            return
        if self._pause:
            self._pause -= 1
            return
        if ahead is None or ahead.spans != list(spans):
            ahead = _Ahead(spans, read)
        ahead.join()
        if ahead.too_large:
            self._pause = _PAUSE
        elif ahead.error is not None:
            _log.info("tasks read this batch, because its rows were not prefetched: %s", ahead.error)
        else:
            self._plan_rows = ahead.rows or None

    def _is_small(self, spans: Sequence[Span]) -> bool:
        return _SimpleStreamReaderWrapper is not None and 0 < sum(map(len, spans)) <= ROWS

    def getCache(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[pa.RecordBatch]:  # noqa: N802 -- Spark's
        """Return the rows of the batch that was planned last. Spark asks once."""
        rows, self._plan_rows = self._plan_rows, None
        return iter(rows or ())


class _Ahead(threading.Thread):
    """Reads the rows of spans, as far as they are small; ``join`` it before anything else."""

    def __init__(self, spans: Sequence[Span], read: Callable[[Span], Iterable[pa.RecordBatch]]) -> None:
        super().__init__(name="afflux-prefetch", daemon=True)
        self.spans = list(spans)
        self.rows: list[pa.RecordBatch] = []
        self.too_large = False
        self.error: str | None = None
        "The reason why there are no rows."
        self._read = read
        self.start()

    def run(self) -> None:
        """Read."""
        size = 0
        try:
            for batch in (batch for span in self.spans for batch in self._read(span)):
                size += batch.nbytes
                if size > BYTES:
                    self.too_large = True
                    self.rows.clear()
                    return
                self.rows.append(batch)
        except Exception as error:  # whatever it is, the task meets it too
            self.error = f"{type(error).__name__}: {error}"
