"""Reading a cursor with the blocking client: heads for the driver, counted ranges for tasks. No pyspark, no pyarrow.

1. A range is read in pieces (:class:`Chunk`) that follow each other without a gap, or the gap is said.
2. A range that ends short, a gap, and another epoch are errors that name what is missing, unless ``failOnDataLoss``
   is false: then each is one warning, and reading goes on behind it.
3. An answer that no journal could give (items beyond the range, offsets that go back) is an error always.
4. A connection lives for one question of the driver or one range of a task: nothing is kept between them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

from afflux.core.errors import ApplicationError, Error, Invalid, RemoteProtocolError, Violation
from afflux.core.events import Block, Items
from afflux.core.payload import Payload, Payloads
from afflux.protocols.rsocket.cursor import (
    EPOCH_CHANGED,
    OFFSET_AHEAD,
    OFFSET_GONE,
    Head,
    Read,
    State,
    split_position,
    state_of,
)
from afflux.spark.offsets import Mark, Offsets, Span
from afflux.spark.options import EARLIEST, Options

if TYPE_CHECKING:
    from afflux.sync import Peer

__all__ = ["CREDIT", "Chunk", "DataLost", "Driver", "SpanReader"]

CREDIT = 100_000
"Items that a task has asked for and not yet got, at most: two Arrow batches. TCP bounds their bytes."
SAMPLE = 32
"Items that are looked at, at each place, to guess how large items are."
_PLACES = 3

_log = logging.getLogger("afflux.spark")


class DataLost(Error):
    """Items of the range that Spark asked for are gone; ``rule`` is failOnDataLoss."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} (failOnDataLoss=false goes on without them)", rule="failOnDataLoss")


@dataclass(slots=True, kw_only=True)
class Chunk:
    """Items with consecutive offsets and one time: a block of the wire, or payloads."""

    first: int
    "The offset of the first item."
    time_us: int
    "When they were stored, microseconds since 1970 (UTC)."
    block: Block | None = None
    "The items as spans of a buffer; they have no metadata."
    payloads: list[Payload] = field(default_factory=list)
    "The items when there is no block; ``metadata`` is their own, without the cursor's entry."

    def __len__(self) -> int:
        return len(self.payloads) if self.block is None else len(self.block.starts)


@contextmanager
def _peer(options: Options) -> Iterator[Peer]:
    """A connection; what is wrong with it, or with an answer, says which stream it is about."""
    from afflux import sync

    try:
        with sync.connect(options.uri) as peer:
            yield peer
    except Violation as violation:
        raise RemoteProtocolError(
            f"{options.stream_name} does not speak the cursor: {violation.reason}; serve it with a journal "
            "(afflux serve --journal)",
            rule=violation.rule,
            code=violation.code,
        ) from None


class Driver:
    """What the driver asks: where the stream stands, and how large its items are."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def start(self) -> Offsets:
        """Where ``startingOffsets`` is.

        Raises:
            DataLost: an offset that the user named was trimmed.
            Invalid: an offset that the user named is above the head.
        """
        return self.start_of(self.heads())

    def start_of(self, states: dict[int, State]) -> Offsets:
        """As :meth:`start`, for states that were asked for already."""
        wanted = self.options.starting_offsets
        if isinstance(wanted, dict):
            return {shard: self._named(states[shard], offset) for shard, offset in wanted.items()}
        earliest = wanted == EARLIEST
        return {shard: Mark(state.epoch, state.first if earliest else state.head) for shard, state in states.items()}

    def heads(self) -> dict[int, State]:
        """The state, now, of each shard that a new query reads: those that ``startingOffsets`` names, else shard 0."""
        wanted = self.options.starting_offsets
        shards = wanted if isinstance(wanted, dict) else (0,)
        with _peer(self.options) as peer:
            return {shard: self._ask(peer, Head(shard=shard)) for shard in shards}

    def settled(self) -> dict[int, State]:
        """As :meth:`heads`, but a stream that is still being written gets ``pollTimeoutMs`` in all to come to its end.

        The first to ask for a stream may be who starts it: without a little patience there would be nothing yet.
        """
        states = self.heads()
        deadline = monotonic() + self.options.poll_timeout_ms / 1000
        with _peer(self.options) as peer:
            for shard, state in states.items():
                while not state.sealed and (left := int((deadline - monotonic()) * 1000)) > 0:
                    state = self._ask(peer, Head(shard=shard, epoch=state.epoch, after=state.head, wait_ms=left))
                states[shard] = state
        return states

    def _named(self, state: State, offset: int) -> Mark:
        if offset > state.head:
            raise Invalid(
                f"startingOffsets names offset {offset} of shard {state.shard} of {self.options.stream_name}, "
                f"whose head is {state.head}",
                rule="startingOffsets",
            )
        return self.behind_gap(Mark(state.epoch, offset), state)

    def states(self, marks: Offsets, *, wait_ms: int = 0, acknowledge: bool = False) -> dict[int, State]:
        """The state of each shard, once one has items behind its mark, or after ``wait_ms``.

        With ``acknowledge`` the server may trim what lies before the marks.

        Raises:
            DataLost: the epoch is another one.
            ApplicationError: a mark is above its shard's head.
        """
        with _peer(self.options) as peer:
            waits = [wait_ms] if len(marks) == 1 else [0, wait_ms // len(marks)]
            states: dict[int, State] = {}
            for wait in waits:
                for shard, mark in marks.items():
                    states[shard] = self._state(peer, shard, mark, wait, mark.position if acknowledge else 0)
                    if wait and _has_news(states[shard], mark):
                        break
                if any(_has_news(states[shard], mark) for shard, mark in marks.items()):
                    break
            return states

    def _state(self, peer: Peer, shard: int, mark: Mark, wait_ms: int, acknowledged: int) -> State:
        head = Head(shard=shard, epoch=mark.epoch, after=mark.position, wait_ms=wait_ms, acknowledged=acknowledged)
        try:
            return self._ask(peer, head)
        except ApplicationError as error:
            if error.code != EPOCH_CHANGED:
                raise
        return self._ask(peer, Head(shard=shard))

    def behind_gap(self, mark: Mark, state: State) -> Mark:
        """Where reading can go on from ``mark``: there, or behind what is gone.

        Raises:
            DataLost: something is gone, and that is not allowed.
        """
        if mark.epoch != state.epoch:
            _lose(
                self.options,
                f"shard {state.shard} of {self.options.stream_name} is at epoch {state.epoch} and holds offsets from "
                f"{state.first} to its head {state.head}, but the checkpoint stands at epoch {mark.epoch}, offset "
                f"{mark.position}: the journal was made anew, or the checkpoint belongs to another one",
            )
            return Mark(state.epoch, state.first)
        if mark.position < state.first:
            _lose(
                self.options,
                f"offsets {mark.position} to {state.first - 1} of shard {state.shard} of {self.options.stream_name}, "
                f"epoch {state.epoch}, are gone: the first one left is {state.first}, the head {state.head}",
            )
            return Mark(state.epoch, state.first)
        return mark

    def item_bytes(self, spans: Iterable[Span]) -> float | None:
        """Bytes of data that an item of the spans has, on average over samples; None when none could be read."""
        count = size = 0
        with _peer(self.options) as peer:
            for span in spans:
                for place in sorted({span.first + len(span) * part // _PLACES for part in range(_PLACES)}):
                    wanted = Read(shard=span.shard, epoch=span.epoch, first=place, limit=min(SAMPLE, span.end - place))
                    try:
                        for item in self._stream(peer, wanted, wanted.limit):
                            count += 1
                            size += len(item.data)
                    except ApplicationError as error:
                        if error.code not in (EPOCH_CHANGED, OFFSET_GONE, OFFSET_AHEAD):
                            raise  # the others are said by whoever reads the range
        return size / count if count else None

    def _ask(self, peer: Peer, head: Head) -> State:
        state: State | None = None
        for item in self._stream(peer, head, 1):
            state = state_of(item.metadata)  # and on to the end: leaving now would cancel, and cancels are counted
        if state is None:
            raise Violation("the answer to HEAD is empty", rule="C-8")
        return state

    def _stream(self, peer: Peer, cursor: Head | Read, credit: int) -> Any:
        options = self.options
        return peer.stream(options.request_data.encode(), route=options.route, cursor=cursor, credit=credit)


def _has_news(state: State, mark: Mark) -> bool:
    return state.epoch != mark.epoch or state.head > mark.position


def _lose(options: Options, what: str) -> None:
    if options.fail_on_data_loss:
        raise DataLost(what)
    _log.warning("data loss accepted: %s", what)


class SpanReader:
    """Reads one span: iterate to get its chunks. It holds the connection until it is exhausted or closed."""

    def __init__(self, options: Options, span: Span) -> None:
        self.options = options
        self.span = span
        self.place = span.first
        "The offset expected next."
        self._time_us: int | None = None

    def __iter__(self) -> Iterator[Chunk]:
        """The chunks of the span, in order.

        Raises:
            DataLost: items of the span are missing.
            RemoteProtocolError: the answer is none that a journal could give.
            afflux.Error: the connection or the request failed.
        """
        with _peer(self.options) as peer:
            while self.place < self.span.end:
                try:
                    yield from self._answer(peer)
                except ApplicationError as error:
                    self._refused(peer, error)
                else:
                    self._end(self.span.end, "the answer ended before them")

    def _answer(self, peer: Peer) -> Iterator[Chunk]:
        options, left = self.options, self.span.end - self.place
        cursor = Read(shard=self.span.shard, epoch=self.span.epoch, first=self.place, limit=left)
        self._time_us = None
        stream = peer.stream(
            options.request_data.encode(), route=options.route, cursor=cursor, credit=min(left, CREDIT)
        )
        for event in stream.blocks():
            if isinstance(event, Block):
                yield self._chunk(len(event.starts), Chunk(first=0, time_us=0, block=event))
            elif isinstance(event, Items):
                yield from self._items(event.payloads)

    def _items(self, payloads: Payloads) -> Iterator[Chunk]:
        """Cut items where a position stands."""
        run: list[Payload] = []
        for payload in payloads:
            position, own = split_position(payload.metadata)
            if position is not None:
                if run:
                    yield self._chunk(len(run), Chunk(first=0, time_us=0, payloads=run))
                    run = []
                self._move(position.shard, position.epoch, position.offset)
                self._time_us = position.time_us
            run.append(Payload(payload.data, own))
        if run:
            yield self._chunk(len(run), Chunk(first=0, time_us=0, payloads=run))

    def _chunk(self, count: int, chunk: Chunk) -> Chunk:
        """Give the chunk its place, and move on behind it."""
        if self._time_us is None:
            raise Violation("the first item of an answer has no position", rule="C-8")
        if self.place + count > self.span.end:
            raise self._wrong(f"items up to offset {self.place + count - 1} were sent")
        chunk.first, chunk.time_us = self.place, self._time_us
        self.place += count
        return chunk

    def _move(self, shard: int, epoch: int, offset: int) -> None:
        if shard != self.span.shard or epoch != self.span.epoch or not self.place <= offset < self.span.end:
            raise self._wrong(f"an item at shard {shard}, epoch {epoch}, offset {offset} was sent after {self.place}")
        if offset > self.place:
            self._end(offset, "the answer left them out")

    def _refused(self, peer: Peer, error: ApplicationError) -> None:
        """The server can't serve from here on: find out from where it can."""
        if error.code not in (EPOCH_CHANGED, OFFSET_GONE):
            raise error
        state = Driver(self.options)._ask(peer, Head(shard=self.span.shard))
        if state.epoch != self.span.epoch:
            self._end(self.span.end, f"the stream is at epoch {state.epoch} now, first offset {state.first}")
            return
        if state.first <= self.place:
            raise error
        now_at = f"the first one left is {state.first}, the head {state.head}"
        self._end(min(state.first, self.span.end), now_at)

    def _end(self, to: int, why: str) -> None:
        """Go on at ``to``, if what lies before it may be missing."""
        if to > self.place:
            _lose(
                self.options,
                f"offsets {self.place} to {to - 1} of shard {self.span.shard} of {self.options.stream_name}, epoch "
                f"{self.span.epoch}, are missing from a range that reaches to {self.span.end - 1}: {why}",
            )
            self.place = to

    def _wrong(self, what: str) -> RemoteProtocolError:
        return RemoteProtocolError(f"{self.options.stream_name} was asked for {self.span}, but {what}", rule="C-8")
