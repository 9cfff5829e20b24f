"""Ask for the states of all streams of a query, each over its own connection.

1. A query has one stream, or several of the option ``streams``. Each has a :class:`Driver`, with the options of that
   stream. Here the shards of all are together, by their keys (offsets.py).
2. A server that is away holds up only its own streams: they have no state until it is back.
3. A stream without a cursor is read from a relay of this process (embedding.py), which starts with the first request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from afflux.protocols.rsocket.cursor import Acknowledge, State
from afflux.spark.asking import has_news
from afflux.spark.connection import Away, Connection, Outage
from afflux.spark.embedding import Embedded, is_relayed
from afflux.spark.offsets import Key, Mark, Offsets, Span, StreamShard, shard_of, stream_of
from afflux.spark.options import Options
from afflux.spark.reading import Driver

__all__ = ["Drivers"]

_T = TypeVar("_T")


class Drivers:
    """The requests of the driver for all streams of a query. Close it: ``with Drivers(options) as drivers``."""

    def __init__(self, options: Options) -> None:
        self.each = {name: Driver(own) for name, own in options.each().items()}
        "The drivers by the name of the stream."
        self._relays: dict[str, Embedded] | None = None
        for driver in self.each.values():
            driver.connection.shared = len(self.each) > 1

    def __enter__(self) -> Drivers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections and relays; the next requests open others."""
        for driver in self.each.values():
            driver.connection.close()
        relays, self._relays = self._relays or {}, None
        for relay in relays.values():
            relay.close()

    @property
    def relays(self) -> Mapping[str, Embedded]:
        """The relays of this process by the name of the stream. They are started on first use.

        Raises:
            afflux.Error: a server cannot be asked whether it has a cursor, or a relay cannot start or has failed.
        """
        if self._relays is None:
            self._relays = {}
            for name, driver in self.each.items():
                if is_relayed(driver.options, driver.connection):
                    relay = self._relays[name] = Embedded(driver.options)
                    driver.connection.close()
                    driver.connection = Connection(driver.options, "the reader", uri=relay.uri)
        for relay in self._relays.values():
            relay.check()
        return self._relays

    def located(self, spans: Iterable[Span]) -> list[Span]:
        """Return the spans with the addresses of relays of this process."""
        uris = {name: relay.uri for name, relay in self.relays.items()}
        return [replace(span, uri=uris.get(span.stream, "")) for span in spans]

    @property
    def outages(self) -> dict[str, Outage]:
        """The outages that go on now, by the name of the stream."""
        found = {name: driver.connection.outage for name, driver in self.each.items()}
        return {name: outage for name, outage in found.items() if outage is not None}

    @property
    def reconnects(self) -> int:
        """The outages that have ended."""
        return sum(driver.connection.reconnects for driver in self.each.values())

    def heads(self) -> dict[Key, State]:
        """Return the current states of all shards to read. Raises as ``Driver.heads``."""
        return self._all(Driver.heads)

    def settled(self) -> dict[Key, State]:
        """Return the states as :meth:`heads`, after waiting up to ``pollTimeoutMs`` in total for streams to end."""
        self.heads()  # starts all streams
        first = next(iter(self.each.values()))
        deadline = time.monotonic() + first.options.poll_timeout_ms / 1000
        return self._all(lambda driver: driver.settled(deadline))

    def start_of(self, states: Mapping[Key, State]) -> Offsets:
        """Resolve ``startingOffsets`` for known states. Raises as ``Driver.start``."""
        found: Offsets = {}
        for name, own in _grouped(states).items():
            found |= _keyed(name, self.each[name].start_of(own))
        return found

    def moved(self, former: Mapping[str, str]) -> None:
        """Note the addresses of the checkpoint, which differ from those of today, by the name of the stream."""
        for name, driver in self.each.items():
            driver.former = former.get(name)

    def behind_gap(self, key: Key, mark: Mark, state: State) -> Mark:
        """Return the mark at which reading can continue. Raises as ``Driver.behind_gap``."""
        return self.each[stream_of(key)].behind_gap(mark, state)

    def states(
        self,
        marks: Mapping[Key, Mark],
        *,
        wait_ms: int = 0,
        acknowledge: Mapping[Key, Acknowledge] | None = None,
        patient: bool = True,
    ) -> dict[Key, State]:
        """Return the states of the shards, as soon as one has items after its mark, or after ``wait_ms``.

        If the requests are not ``patient``, there are no states of streams whose server is away; but a server that has
        never answered is waited for.

        Raises:
            Away: all servers are away.
            afflux.Error: as ``Driver.states``.
        """
        _ = self.relays
        groups = _grouped(marks)
        requests = _grouped(acknowledge or {})
        found: dict[Key, State] = {}
        for wait in (wait_ms,) if len(groups) == 1 else (0, min(wait_ms, max(1, wait_ms // max(1, len(groups))))):
            for name, own in groups.items():
                driver, sent = self.each[name], list(requests.pop(name, {}).values())
                once = patient or not driver.connection.connected
                try:
                    states = driver.states(own, wait_ms=wait, acknowledge=sent, patient=once)
                except Away:
                    continue
                found |= _keyed(name, states)
                if wait and any(has_news(state, own[shard]) for shard, state in states.items()):
                    return found
            if not wait_ms or any(has_news(state, marks[key]) for key, state in found.items()):
                break
        if groups and not found:
            if len(groups) > 1:
                time.sleep(wait_ms / 1000)  # the connections have not waited, and Spark would poll continuously
            raise Away
        return found

    def item_bytes(self, spans: Iterable[Span]) -> float | None:
        """Return the average bytes of data of an item in the spans, from samples; None without samples."""
        rows = size = 0.0
        for name, own in _by_stream(spans).items():
            average = self.each[name].item_bytes(own)
            if average is not None:
                count = sum(map(len, own))
                rows += count
                size += count * average
        return size / rows if rows else None

    def data_bytes(self, spans: Iterable[Span]) -> float:
        """Estimate the bytes of data in the spans."""
        return sum(self.each[name].data_bytes(own) for name, own in _by_stream(spans).items())

    def _all(self, work: Callable[[Driver], dict[int, State]]) -> dict[Key, State]:
        _ = self.relays
        found: dict[Key, State] = {}
        for name, driver in self.each.items():
            found |= _keyed(name, work(driver))
        return found


def _keyed(name: str, values: Mapping[int, _T]) -> dict[Key, _T]:
    return {(StreamShard(name, shard) if name else shard): value for shard, value in values.items()}


def _grouped(values: Mapping[Key, _T]) -> dict[str, dict[int, _T]]:
    """Return the values by the name of the stream and the number of the shard."""
    found: dict[str, dict[int, _T]] = {}
    for key, value in values.items():
        found.setdefault(stream_of(key), {})[shard_of(key)] = value
    return found


def _by_stream(spans: Iterable[Span]) -> dict[str, list[Span]]:
    found: dict[str, list[Span]] = {}
    for span in spans:
        found.setdefault(span.stream, []).append(span)
    return found
