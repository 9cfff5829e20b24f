"""List the measurements of ``python -m benchmarks.spark``: the command of each, and its figures with their bars."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from benchmarks import jetstream, relay, spark_batches, spark_decode, spark_delay, spark_sink, spark_source

__all__ = ["PARTS", "SOCKETS", "Asked", "Figure", "Part"]

SOCKETS: Final = 50
"How many times faster than Spark's socket source the source must be."


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How much to measure."""

    rows: int = 12_000_000
    "Rows of a read."
    runs: int = 5
    "Alternating runs of each way."
    seconds: float = 600.0
    "Duration of the measurement of memory."
    delay_s: float = 60.0
    "Duration of the measurement of delays."
    items: int = 2_000_000
    "Items of a relayed stream, and rows of a write."
    batches: int = 60
    "Micro-batches of each way."
    decoded: int = 50_000
    "Rows of a decoded batch."
    quick: bool = False
    "Whether JVMs start sooner and run slower."


class Figure(NamedTuple):
    """A measured figure."""

    what: str
    value: float
    unit: str
    bar: float | None = None
    "What it must reach, or None."
    most: bool = False
    "Whether the bar is the most that is permitted, not the least."

    @property
    def verdict(self) -> str:
        """Whether the bar is met; nothing without a bar."""
        if self.bar is None:
            return ""
        return "met" if (self.value <= self.bar if self.most else self.value >= self.bar) else "not met"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A module that measures something in a process of its own, and writes it as JSON (``--out``)."""

    name: str
    title: str
    words: Callable[[Asked], list[object]]
    "The arguments of the module."
    figures: Callable[[dict[str, Any]], Iterator[Figure]]
    "Makes figures of the JSON."
    needs: str | None = None
    "A command that must be installed."

    @property
    def module(self) -> str:
        """The module's name."""
        return _MODULES.get(self.name, f"benchmarks.spark_{self.name}")

    def missing(self) -> str | None:
        """Return why it cannot run here."""
        if self.needs is None or shutil.which(self.needs):
            return None
        return f"{self.needs} is not installed"


_MODULES: Final = {"relay": "benchmarks.relay", "jetstream": "benchmarks.jetstream"}

_SOURCE: Final = {
    "noop": "journal, discarded by a batch",
    "noop, streaming": "journal, discarded by the batches of a query",
    "noop, streaming, with its start": "the same, with the start of the query",
    "parquet": "journal into Parquet",
    "one process, no Spark": "journal read by one process, without Spark",
    "Arrow batches": "reference: ready-made Arrow batches",
    "rate source": "reference: Spark's rate source",
    "socket source": "reference: Spark's socket source",
}


def _source(told: dict[str, Any]) -> Iterator[Figure]:
    rates = {way: each["rows_per_s"] for way, each in told["figures"].items()}
    for way, title in _SOURCE.items():
        if way in rates:
            yield Figure(title, rates[way], "rows/s", spark_source.BARS.get(way))
    if "socket source" in rates:
        yield Figure("batch, over the socket source", rates["noop"] / rates["socket source"], "times", SOCKETS)


def _batches(told: dict[str, Any]) -> Iterator[Figure]:
    alone = told["figures"]["source alone"]
    yield Figure("batches of 5,000 rows, source alone", alone["rows_per_s"], "rows/s", spark_batches.BAR)
    for way, figure in told["figures"].items():
        if figure is not alone:
            yield Figure(f"a batch of {way}", figure["seconds"] * 1e3, "ms")


def _decode(told: dict[str, Any]) -> Iterator[Figure]:
    for case, figure in told["figures"].items():
        yield Figure(case, figure["rows_per_s"], "rows/s of CPU", spark_decode.BARS.get(case))


def _relay(told: dict[str, Any]) -> Iterator[Figure]:
    for way, figure in told["figures"].items():
        bar = relay.BAR if way in relay.JUDGED else None
        yield Figure(f"SQLite: {way}", figure["items_per_s"], "durable items/s", bar)


def _jetstream(told: dict[str, Any]) -> Iterator[Figure]:
    for way, rate in told["items_per_s"].items():
        yield Figure(f"JetStream: {way}", rate, "items/s", jetstream.BARS.get(way))


def _delay(told: dict[str, Any]) -> Iterator[Figure]:
    figures = told["figures"]
    yield Figure("floor: a batch of Spark's rate-micro-batch, p50", figures["floor"] * 1e3, "ms")
    yield Figure("delay from an item to the end of its batch, p50", figures["p50"] * 1e3, "ms")
    yield Figure("delay, p99", figures["p99"] * 1e3, "ms")
    yield Figure("delay p50, in floors", figures["p50"] / figures["floor"], "times", spark_delay.BAR, most=True)


def _sink(told: dict[str, Any]) -> Iterator[Figure]:
    yield Figure("to a receiver of afflux", told["figures"]["receiver"]["rows_per_s"], "rows/s", spark_sink.BAR)
    for way, title in (("noop", "discarded"), ("parquet", "Spark's own Parquet")):
        yield Figure(f"reference: {title}", told["figures"][way]["rows_per_s"], "rows/s")


def _memory(told: dict[str, Any]) -> Iterator[Figure]:
    for kind, each in told["figures"].items():
        what = f"{kind}, mean {each['mean_mib']:,.0f} MiB: growth"
        yield Figure(what, each["growth_mib"], "MiB", each["bar_mib"], most=True)


def _scaling(told: dict[str, Any]) -> Iterator[Figure]:
    for executors, figure in told["figures"].items():
        yield Figure(f"executors of one core: {executors}", figure["rows_per_s"], "rows/s")


PARTS: Final = (
    Part(
        name="source",
        title="Reading a stream, 128 B items",
        words=lambda asked: ["--rows", asked.rows, "--runs", asked.runs, "--references"],
        figures=_source,
    ),
    Part(
        name="batches",
        title="Small micro-batches",
        words=lambda asked: ["--batches", asked.batches],
        figures=_batches,
    ),
    Part(
        name="decode",
        title="Decoding into five columns, one process",
        words=lambda asked: ["--rows", asked.decoded, "--runs", asked.runs],
        figures=_decode,
    ),
    Part(
        name="relay",
        title="Relay on SQLite",
        words=lambda asked: ["--items", asked.items, "--runs", asked.runs],
        figures=_relay,
    ),
    Part(
        name="jetstream",
        title="Relay on JetStream, and Spark directly from it",
        words=lambda asked: ["--items", 3 * asked.items, "--read", asked.rows, "--runs", asked.runs],
        figures=_jetstream,
        needs="nats-server",
    ),
    Part(
        name="delay",
        title="End-to-end delay",
        words=lambda asked: ["--seconds", asked.delay_s],
        figures=_delay,
    ),
    Part(
        name="sink",
        title="Writing rows of 128 B",
        words=lambda asked: ["--rows", asked.items, "--runs", asked.runs],
        figures=_sink,
    ),
    Part(
        name="memory",
        title="Memory with a sink slower than the source",
        words=lambda asked: ["--seconds", asked.seconds],
        figures=_memory,
    ),
    Part(
        name="scaling",
        title="Executors",
        words=lambda asked: ["--rows", asked.rows, "--runs", asked.runs],
        figures=_scaling,
    ),
)
"Every measurement, in the order in which they run."
