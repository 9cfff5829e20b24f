"""Make the rows of the table ``connections`` for many connections at once: those that are whole in a batch (whole.py).

Each column is made for all of them. The connections have frames and both FINs, and nothing of them is lost or repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from afflux.capture.arrays import numbers, taken, texts
from afflux.capture.closing import ClosingRows
from afflux.capture.ledger import Closing, Ending
from afflux.capture.packets import Ints
from afflux.capture.rows import timestamps
from afflux.capture.schemas import schema
from afflux.capture.whole import Brief
from afflux.capture.window import Windows

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BriefRows", "in_order"]

_CLOSINGS: Final = ("fin", "rst")
_SIDES: Final = ("<", ">")


class BriefRows:
    """The rows of some connections.

    Args:
        briefs: the connections, one or more.
        windows: what was seen of them; it forgets them.
        last: the time of the last packet.
    """

    def __init__(self, briefs: Sequence[Brief], windows: Windows, last: int) -> None:
        self._briefs = briefs
        self._client = np.array([brief.client for brief in briefs], np.int64)
        self._time = np.array([brief.time for brief in briefs], np.int64)
        self._seen = windows.ended([brief.key for brief in briefs], self._time, last)

    def closing(self) -> list[Closing]:
        """Return the end of each connection, for the ledger."""
        held = self._by_side(self._seen.held)
        rows = zip(self._briefs, self._seen.last.tolist(), map(tuple, held.tolist()), strict=True)
        return [Closing(*row) for row in rows]

    def batch(self, endings: Sequence[Ending], file_of: Callable[[int], str], closing: ClosingRows) -> pa.RecordBatch:
        """Return the rows. ``endings`` are those of the ledger, ``file_of`` returns the file of a packet of the batch,
        and ``closing`` knows texts."""
        import pyarrow as pa

        briefs, seen, count = self._briefs, self._seen, len(self._briefs)
        zero = numbers(np.zeros(count, np.int64))
        octets = np.array([brief.octets for brief in briefs], np.int64)
        packets = self._by_side(seen.segments)
        protocols = [brief.protocol.name for brief in briefs]
        closer = np.where(seen.closer < 0, -1, seen.closer == self._client)
        columns = {
            "conn": texts([brief.id for brief in briefs]),
            "file": texts([file_of(brief.packet) for brief in briefs]),
            "protocol": texts(protocols),
            "content": texts(protocols),
            "client": texts([closing.end(brief.key, not brief.client) for brief in briefs]),
            "server": texts([closing.end(brief.key, brief.client) for brief in briefs]),
            "opened": timestamps(self._time),
            "closed": timestamps(seen.last),
            "closing": taken(texts(_CLOSINGS), seen.reset.astype(np.int64)),
            "closed_by": taken(texts(_SIDES), closer),
            "announced_by": taken(texts(_SIDES), np.array([ending.announced for ending in endings], np.int64)),
            "one_way": _truths(octets[:, 1] == 0),
            "client_bytes": numbers(octets[:, 0]),
            "server_bytes": numbers(octets[:, 1]),
            "client_packets": numbers(packets[:, 1], seen.known),
            "server_packets": numbers(packets[:, 0], seen.known),
            **dict.fromkeys(("lost_bytes", "repeated_bytes", "conflicting_bytes"), zero),
            "frames": numbers(np.array([ending.frames for ending in endings], np.int64)),
            "streams": numbers(np.array([ending.streams for ending in endings], np.int64)),
            "violations": numbers(np.array([ending.wrong for ending in endings], np.int64)),
            "setup": texts([closing.text(ending.setup) for ending in endings]),
        }
        whole = schema("connections")
        return pa.RecordBatch.from_arrays([columns[name] for name in whole.names], schema=whole)

    def _by_side(self, pairs: Ints) -> Ints:
        """Return pairs of numbers by direction, the falling one first, as those of the server and the client."""
        return np.where(self._client[:, None] == 1, pairs, pairs[:, ::-1])


def in_order(others: list[pa.RecordBatch], briefs: pa.RecordBatch, is_brief: Sequence[bool]) -> pa.RecordBatch:
    """Return the rows of all connections in their order, of which some are in ``briefs``."""
    import pyarrow as pa

    if not others:
        return briefs
    whole = pa.Table.from_batches([*others, briefs]).combine_chunks()
    place = np.argsort(np.argsort(is_brief, kind="stable"), kind="stable")
    return whole.take(numbers(place)).to_batches()[0]


def _truths(values: npt.NDArray[np.bool_]) -> pa.Array:
    import pyarrow as pa

    bits = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits)])
