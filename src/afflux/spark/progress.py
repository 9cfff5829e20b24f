"""Collect what a query's progress shows of its source.

``latestOffset`` of the source has for each shard ``epoch`` and ``pos`` (the head), ``credit`` (the items that the tasks
of the batch may receive), ``lag`` (the items after the end of the batch), ``lagSeconds`` (how much later the last item
was stored than the first of those) and ``full`` while the journal is full; and, besides the shards, ``stalls``
(stalls.py), ``reconnecting``, ``reconnects`` and ``relay``. Nothing here decides anything.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from afflux.core.errors import Error
from afflux.protocols.rsocket.cursor import State
from afflux.spark.connection import Away
from afflux.spark.offsets import Key, Mark, Offsets, shard_of, stream_of, text_of
from afflux.spark.options import Options
from afflux.spark.stalls import Stalls
from afflux.spark.streams import Drivers

__all__ = ["Progress"]

_TIMED = 16
"The most shards for which the lag in seconds is asked: those with the most items."

_log = logging.getLogger("afflux.spark")


class Progress:
    """The progress of one query. Created in the process that plans its batches."""

    def __init__(self, options: Options) -> None:
        self.full: set[Key] = set()
        "The shards whose journals were full when they were last asked."
        self._options = options
        self._heads: dict[Key, dict[str, Any]] = {}
        self._behind: dict[Key, tuple[Mark, int]] = {}
        self._stalls = Stalls()
        self._rows = 0

    def asked(self) -> None:
        """Spark asks for the end of the next batch."""
        self._rows = 0
        self._stalls.asked()

    def answered(self, drivers: Drivers) -> None:
        """The reader has found the end of the next batch."""
        lag = sum(int(head["lag"]) for head in self._heads.values())
        self._stalls.answered(rows=self._rows, lag=lag, away=bool(drivers.outages), full=bool(self.full))

    def note(self, ends: Offsets, states: Mapping[Key, State], taken: Mapping[Key, int]) -> None:
        """Note the end of a batch and its items of each shard, and log which journals have become full and which are
        not full any more."""
        self._note_full(states)
        self._rows = sum(taken.values())
        for key, end in ends.items():
            state = states[key]
            lag = max(0, state.head - end.position)
            head = {"credit": taken[key], "epoch": state.epoch, "lag": lag, "pos": state.head}
            self._heads[key] = head | ({"full": True} if key in self.full else {})
            self._behind.pop(key, None)
            if lag:
                self._behind[key] = end, state.time_us

    def report(self, drivers: Drivers) -> dict[str, Any] | None:
        """Return what the progress shows; None if nothing is known yet."""
        seconds = self._seconds(drivers)
        report: dict[str, Any] = {
            text_of(key): head | ({"lagSeconds": seconds[key]} if key in seconds else {})
            for key, head in self._heads.items()
        }
        if report and (stalls := self._stalls.report()):
            report["stalls"] = stalls
        outages = {name: str(outage) for name, outage in drivers.outages.items()}
        if outages:
            report["reconnecting"] = self._by_stream(outages)
        if drivers.reconnects:
            report["reconnects"] = drivers.reconnects
        with suppress(Error):  # a relay has failed: the next batch raises its error
            if relays := {name: relay.status() for name, relay in drivers.relays.items()}:
                report["relay"] = self._by_stream(relays)
        return report or None

    def _by_stream(self, values: Mapping[str, Any]) -> Any:
        return values if self._options.streams else values[""]

    def _seconds(self, drivers: Drivers) -> dict[Key, float]:
        """Ask when the first item after the batch was stored, of shards that have one and whose server is there."""
        found: dict[Key, float] = {}
        lagging = sorted(self._behind, key=lambda key: -int(self._heads[key]["lag"]))
        for key in lagging[:_TIMED]:
            end, newest = self._behind[key]
            driver = drivers.each[stream_of(key)]
            if driver.connection.outage is None:
                with suppress(
                    Error, TimeoutError, Away
                ):  # trimmed meanwhile, or away: planning the next batch reports it
                    oldest = driver.time_of(shard_of(key), end.epoch, end.position, patient=False)
                    found[key] = round(max(0, newest - oldest) / 1_000_000, 3)
        return found

    def _note_full(self, states: Mapping[Key, State]) -> None:
        full = {key for key, state in states.items() if state.full} | (self.full - states.keys())
        for key in sorted(full ^ self.full, key=text_of):
            name, shard, head = self._options.of(stream_of(key)).stream_name, shard_of(key), states[key].head
            if key in full:
                text = "%s: the journal of shard %d is full: its producer waits at offset %d until items are trimmed"
            else:
                text = "%s: the journal of shard %d is not full any more: its producer continues at offset %d"
            _log.warning(text, name, shard, head)
        self.full = full
