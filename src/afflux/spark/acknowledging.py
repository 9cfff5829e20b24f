"""Decide what a query acknowledges, so that the server may trim it.

Rules:

1. Without ``acknowledgeAs`` a query acknowledges nothing.
2. A query is identified by its checkpoint: the first offset that it logs contains a random number, the *owner*, and
   every later one repeats it. A query with another checkpoint has another owner, and the journal refuses it. The
   owner is sent only when Spark passes it back in the start of a batch, because only then it is in the checkpoint.
3. Only offsets that Spark commits (``commit``) are acknowledged. Spark commits an offset when that of a later batch is
   in its log, so that no restart requests items before it. The end of the last batch is not enough: with asynchronous
   progress tracking it may be in no log.
4. Therefore the last batch is acknowledged only with the next one. If the journal is full, there is no next item: the
   offset then gets another ``turn``, which makes Spark run an empty batch and commit the one before it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from afflux.core.errors import Invalid
from afflux.protocols.rsocket.cursor import Acknowledge, State
from afflux.spark.offsets import READER, Key, Mark, Offsets, is_count, shard_of

__all__ = ["Acknowledger", "Identity"]


@dataclass(frozen=True, slots=True)
class Identity:
    """What an offset contains besides its shards."""

    owner: int
    "Identifies the checkpoint."
    turn: int = 0
    "Counts the empty batches of rule 4."

    def to_json(self) -> dict[str, int]:
        """Return the value of ``READER``."""
        return {"owner": self.owner, "turn": self.turn}


def identity_of(logged: Mapping[str, Any]) -> Identity | None:
    """Return the identity in an offset; None if it has none.

    Raises:
        Invalid: it is damaged.
    """
    if READER not in logged:
        return None
    value = logged[READER]
    if isinstance(value, Mapping):
        owner, turn = value.get("owner"), value.get("turn")
        if is_count(owner) and is_count(turn) and owner:
            return Identity(owner, turn)
    raise Invalid(f"the checkpoint is damaged: its reader is {value!r}", rule="checkpoint")


class Acknowledger:
    """The acknowledgements of one query. Created in the process that plans its batches."""

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._identity: Identity | None = None
        self._registered = False
        self._committed: Offsets = {}
        self._sent: Offsets = {}

    def start(self, logged: Mapping[str, Any]) -> None:
        """Read the start of a batch, which Spark got from its checkpoint or from ``end`` of the batch before."""
        found = identity_of(logged)
        if found is not None:
            self._identity = found
            self._registered = self._name is not None
        elif self._identity is None and self._name is not None:
            self._identity = Identity(1 + secrets.randbelow((1 << 63) - 1))

    def commit(self, offsets: Offsets) -> None:
        """Record that Spark will not request items below ``offsets`` again."""
        self._committed = offsets

    def requests(self, marks: Offsets) -> dict[Key, Acknowledge]:
        """Return the requests to send before the next batch, from ``marks``, is planned."""
        if self._name is None or self._identity is None or not self._registered:
            return {}
        found: dict[Key, Acknowledge] = {}
        for key, mark in marks.items():
            committed = self._committed.get(key)
            if committed is None or committed.epoch != mark.epoch:
                committed = Mark(mark.epoch, 0)
            if self._sent.get(key) != committed:
                found[key] = Acknowledge(
                    shard=shard_of(key), epoch=mark.epoch, offset=committed.position, owner=self._identity.owner,
                    name=self._name,
                )  # fmt: skip
        return found

    def sent(self, requests: Mapping[Key, Acknowledge]) -> None:
        """Record that the servers have accepted ``requests``."""
        for key, request in requests.items():
            self._sent[key] = Mark(request.epoch, request.offset)

    def end(self, offset: dict[str, Any], marks: Offsets, ends: Offsets, states: Mapping[Key, State]) -> dict[str, Any]:
        """Return ``offset``, the end of a batch from ``marks`` to ``ends``, with the identity of this query."""
        if self._identity is None:
            return offset
        if self._must_turn(marks, ends, states):
            self._identity = replace(self._identity, turn=self._identity.turn + 1)
        return offset | {READER: self._identity.to_json()}

    def _must_turn(self, marks: Offsets, ends: Offsets, states: Mapping[Key, State]) -> bool:
        if not self._registered or marks != ends:
            return False
        return any(state.full and self._committed.get(key) != marks[key] for key, state in states.items())
