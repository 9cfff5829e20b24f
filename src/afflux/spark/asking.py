"""Send one request with a cursor over a connection, and read its answer. Does not try again after failures."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from afflux.core.errors import Violation
from afflux.protocols.rsocket.cursor import Acknowledge, Head, Read, Request, State, split_position, state_of
from afflux.spark.offsets import Mark
from afflux.spark.options import Options

if TYPE_CHECKING:
    from afflux.sync import ItemStream, Peer

__all__ = ["as_of", "ask", "has_news", "requested", "time_of"]


def ask(options: Options, peer: Peer, cursor: Head | Acknowledge) -> State:
    """Request the state of a shard. Raises Violation if the server has no cursor."""
    state: State | None = None
    for item in requested(options, peer, cursor, 1):
        state = state_of(item.metadata)  # read to the end, because leaving would send a cancel, which is charged
    if state is None:
        raise Violation("the answer is empty", rule="C-8")
    return state


def time_of(options: Options, peer: Peer, shard: int, mark: Mark) -> int:
    """Return when an item was stored, in microseconds since 1970 (UTC)."""
    time_us: int | None = None
    for item in requested(options, peer, Read(shard=shard, epoch=mark.epoch, first=mark.position, limit=1), 1):
        position, _ = split_position(item.metadata)
        time_us = None if position is None else position.time_us
    if time_us is None:
        raise Violation("the first item of an answer has no position", rule="C-8")
    return time_us


def requested(options: Options, peer: Peer, cursor: Request, credit: int) -> ItemStream:
    """Send a request."""
    return peer.stream(options.request_data.encode(), route=options.route, cursor=cursor, credit=credit)


def has_news(state: State, mark: Mark) -> bool:
    """Return whether there is anything after the mark."""
    return state.epoch != mark.epoch or state.head > mark.position


def as_of(state: State, then: State) -> State:
    """Return the state without items written after ``then``."""
    if state.epoch != then.epoch or state.head <= then.head:
        return state
    return replace(state, head=max(state.first, then.head))
