"""List the cells: a pipeline, a victim, a fault, the point at which it strikes, and the mode of Spark.

- Pipelines: ``source``, a journal into Parquet; ``relay``, a stream without a cursor through a relay on SQLite into
  Parquet; ``jetstream``, the same on JetStream; ``sink``, files into ``afflux serve --sink``.
- Victims: ``worker``, the Python processes of tasks; ``reader``, the Python process that plans batches; ``executor``;
  ``driver``; ``peer``, the server of the stream or the receiver of the rows; ``relay``; ``node``, the server of
  JetStream; ``storage``, the disk of the checkpoint; ``network``, the link to the peer.
- Faults: ``kill``, SIGKILL, after which services are started again; ``pause``, SIGSTOP for 3 seconds; ``cut``,
  connections are reset; ``hold``, bytes stand still for 3 seconds; ``full``, the disk has no room for 3 seconds.
- Points of Spark's commit sequence of one batch, in their order: ``planned``, the batch before is over; ``offsets``,
  the offsets of the batch are logged; ``task``, a task has begun to write; ``written``, the batch is visible in the
  table; ``committed``, Spark has logged the end of the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["CELLS", "CLUSTER", "LOCAL", "POINTS", "SMOKE", "Cell"]

POINTS: Final = ("planned", "offsets", "task", "written", "committed")
LOCAL = "local[2,4]"
CLUSTER = "local-cluster[2,1,1024]"


@dataclass(frozen=True, slots=True)
class Cell:
    """One run."""

    pipeline: str
    victim: str
    fault: str
    point: str
    mode: str = LOCAL

    @property
    def name(self) -> str:
        """The name, such as ``source-driver-kill-task``; those on a cluster end with ``-cluster``."""
        name = f"{self.pipeline}-{self.victim}-{self.fault}-{self.point}"
        return name if self.mode == LOCAL else f"{name}-cluster"


def _each(pipeline: str, victim: str, fault: str, points: Sequence[str] = POINTS, mode: str = LOCAL) -> Iterator[Cell]:
    return (Cell(pipeline, victim, fault, point, mode) for point in points)


def _all() -> Iterator[Cell]:
    for pipeline in ("source", "sink"):
        for victim, fault in (("driver", "kill"), ("peer", "kill"), ("peer", "pause"), ("network", "cut")):
            yield from _each(pipeline, victim, fault)
        yield from _each(pipeline, "network", "hold", ("offsets", "task", "written"))
        yield from _each(pipeline, "driver", "pause", ("offsets", "task", "written"))
        yield from _each(pipeline, "worker", "kill", ("offsets", "task", "written"))
        yield from _each(pipeline, "worker", "pause", ("task",))
        yield from _each(pipeline, "storage", "full", ("planned", "task", "written"))
        for victim, fault in (("executor", "kill"), ("driver", "kill")):
            yield from _each(pipeline, victim, fault, ("offsets", "task", "written"), CLUSTER)
        yield from _each(pipeline, "executor", "pause", ("task",), CLUSTER)
        yield from _each(pipeline, "peer", "kill", ("task", "written"), CLUSTER)
    yield from _each("source", "reader", "kill", ("planned", "task"))
    for pipeline in ("relay", "jetstream"):
        yield from _each(pipeline, "relay", "kill")
        yield from _each(pipeline, "relay", "pause", ("offsets", "task"))
        yield from _each(pipeline, "peer", "kill", ("offsets", "task", "written"))
        yield from _each(pipeline, "network", "cut", ("offsets", "task"))
        yield from _each(pipeline, "network", "hold", ("task",))
        yield from _each(pipeline, "driver", "kill", ("task", "written", "committed"))
    yield from _each("jetstream", "node", "kill", ("offsets", "task", "written"))
    yield from _each("jetstream", "node", "pause", ("task",))
    yield from _each("relay", "executor", "kill", ("task",), CLUSTER)
    yield from _each("relay", "relay", "kill", ("task",), CLUSTER)


CELLS: Final = tuple(_all())
"Every cell."

SMOKE: Final = tuple(
    cell
    for cell in CELLS
    if cell.name
    in (
        "source-driver-kill-written",
        "source-worker-kill-task",
        "source-reader-kill-task",
        "source-peer-kill-offsets",
        "source-network-cut-task",
        "source-storage-full-task",
        "relay-relay-kill-task",
        "relay-peer-kill-offsets",
        "sink-driver-kill-written",
        "sink-worker-kill-task",
        "sink-peer-kill-written",
        "sink-network-cut-task",
    )
)
"The cells of ``--smoke``, and of the tests."
