"""Read a cursor with the blocking client: heads for the driver, counted ranges for tasks.

1. A range is read in consecutive pieces (:class:`Chunk`); a gap is reported.
2. A short range, a gap and another epoch are errors that contain the missing offsets. An item that records a gap
   (RSocket's gap.py), as a relay stores it, is such an error too, and never a row. If ``failOnDataLoss`` is false, each
   is a warning, and reading continues after it.
3. An answer that is impossible for a journal (items beyond the range, decreasing offsets) is always an error.
4. After a failure, or after Spark has held a task for long, a range continues at the first item that was not returned
   yet, over another connection (connection.py). No state of a connection is needed for that.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from afflux.core.errors import ApplicationError, Error, Invalid, RemoteProtocolError, Violation
from afflux.core.events import Block, Items
from afflux.core.limits import Limits
from afflux.core.payload import Payload, Payloads
from afflux.journal.blocks import Block as Stored
from afflux.journal.wire import Damaged, unpack
from afflux.protocols.rsocket.cursor import (
    EPOCH_CHANGED,
    OFFSET_AHEAD,
    OFFSET_GONE,
    READER_CONFLICT,
    UNKNOWN_SHARD,
    Acknowledge,
    Head,
    Read,
    State,
    split_position,
)
from afflux.protocols.rsocket.gap import GAP_MIME, Gap, gap_of
from afflux.spark.asking import ask, has_news, requested, time_of
from afflux.spark.chunks import Chunk
from afflux.spark.connection import Connection, mendable
from afflux.spark.losses import DataLost, lose
from afflux.spark.offsets import Mark, Span
from afflux.spark.options import EARLIEST, Options
from afflux.spark.seeking import first_since

if TYPE_CHECKING:
    from afflux.sync import Peer

__all__ = ["CREDIT", "Chunk", "DataLost", "Driver", "SpanReader", "lose"]

CREDIT = 100_000
"The most items of a task in flight: two Arrow batches. TCP bounds their bytes."
BLOCK_CREDIT = 8
"The most blocks of a task in flight: 4 MiB, because a stored block has 512 KiB or one item."
FEW = 1_000
"""Items of a range whose blocks are all requested at once: the blocks of a live stream are small, and a few at a time
would take many round trips."""
SAMPLE = 32
"Items sampled at each place to estimate sizes."
_PLACES = 3
_USES = 100
"How many batches use the samples of one of them."
_SEARCHES = 10
"How often the search for a time is repeated, because its items are trimmed meanwhile."
_FEW_BYTES = 16 << 20
"The largest batch, in estimated bytes of data, that uses the samples of another one."

_GAP = GAP_MIME.encode("ascii")
"What the body of a block contains if one of its items records a gap."

_log = logging.getLogger("afflux.spark")


class Driver:
    """Requests of the driver: the state of the stream, and the size of its items.

    Every request waits while the server is away, for up to ``reconnectTimeoutMs``, unless it says otherwise. Close it:
    ``with Driver(options) as driver``.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.connection = Connection(options, "the reader")
        self.former: str | None = None
        "The address in the checkpoint, if it is another one."
        self._average: float | None = None
        self._uses = 0

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def start(self) -> dict[int, Mark]:
        """Resolve ``startingOffsets``.

        Raises:
            DataLost: an offset of the user was trimmed.
            Invalid: an offset of the user is above the head.
        """
        return self.start_of(self.heads())

    def start_of(self, states: dict[int, State]) -> dict[int, Mark]:
        """Resolve ``startingOffsets`` or ``startingTimestamp`` for known states. Raises as :meth:`start` does."""
        if (time_us := self.options.starting_timestamp) is not None:
            return {shard: self._since(time_us, shard, state) for shard, state in states.items()}
        wanted = self.options.starts
        if isinstance(wanted, dict):
            return {shard: self._named(state, wanted[shard]) for shard, state in states.items()}
        earliest = wanted == EARLIEST
        return {shard: Mark(state.epoch, state.first if earliest else state.head) for shard, state in states.items()}

    def _since(self, time_us: int, shard: int, state: State) -> Mark:
        """Return the mark of the first item that was stored at or after a time; of the head if there is none yet."""
        for _ in range(_SEARCHES):
            try:
                time_of = partial(self.time_of, shard, state.epoch)
                return Mark(state.epoch, first_since(time_us, state.first, state.head, time_of))
            except ApplicationError as error:
                if error.code not in (EPOCH_CHANGED, OFFSET_GONE):
                    raise
            state = self.connection.call(lambda peer: ask(self.options, peer, Head(shard=shard)))
        text = f"startingTimestamp: {self.options.stream_name} is trimmed faster than it is searched"
        raise Invalid(text, rule="startingTimestamp")

    def time_of(self, shard: int, epoch: int, offset: int, *, patient: bool = True) -> int:
        """Return when an item was stored, in microseconds since 1970 (UTC).

        Raises:
            ApplicationError: it was trimmed, or the epoch is another one.
            Away: the server is away, and the request is not ``patient``.
        """
        mark = Mark(epoch, offset)
        return self.connection.call(lambda peer: time_of(self.options, peer, shard, mark), patient=patient)

    def heads(self) -> dict[int, State]:
        """Return the current state of each shard in ``startingOffsets``, else of all shards.

        Raises:
            Invalid: there are more shards than the limit ``partitions``.
            ApplicationError: a named shard is unknown.
        """
        wanted = self.options.starts
        if isinstance(wanted, dict):
            return self.connection.call(
                lambda peer: {shard: ask(self.options, peer, Head(shard=shard)) for shard in wanted}
            )
        return self.connection.call(self._all)

    def _all(self, peer: Peer) -> dict[int, State]:
        """Return the state of each shard: they are numbered from 0, and the server refuses the first unknown one, or
        answers for another one."""
        states: dict[int, State] = {}
        most = Limits.server().partitions
        while len(states) <= most:
            shard = len(states)
            try:
                state = ask(self.options, peer, Head(shard=shard))
            except ApplicationError as error:
                if error.code != UNKNOWN_SHARD or not states:
                    raise
                return states
            if state.shard != shard and states:
                return states
            states[shard] = state
        text = f"{self.options.stream_name} has more than {most} shards; name those to read in startingOffsets"
        raise Invalid(text, rule="partitions")

    def settled(self, deadline: float | None = None) -> dict[int, State]:
        """Return the states as :meth:`heads`, after waiting up to ``pollTimeoutMs`` in total for streams to end.

        The first request may start a stream, which would have no items without this wait.

        Args:
            deadline: the end of the wait on the monotonic clock, instead of ``pollTimeoutMs``.
        """
        states = self.heads()
        if deadline is None:
            deadline = monotonic() + self.options.poll_timeout_ms / 1000

        def settle(peer: Peer) -> None:
            for shard, state in states.items():
                while not state.sealed and (left := int((deadline - monotonic()) * 1000)) > 0:
                    state = ask(
                        self.options, peer, Head(shard=shard, epoch=state.epoch, after=state.head, wait_ms=left)
                    )
                    states[shard] = state

        self.connection.call(settle)
        return states

    def _named(self, state: State, offset: int) -> Mark:
        if offset > state.head:
            raise Invalid(
                f"startingOffsets has offset {offset} of shard {state.shard} of {self.options.stream_name}, "
                f"above the head {state.head}",
                rule="startingOffsets",
            )
        return self.behind_gap(Mark(state.epoch, offset), state)

    def states(
        self,
        marks: Mapping[int, Mark],
        *,
        wait_ms: int = 0,
        acknowledge: Sequence[Acknowledge] = (),
        patient: bool = True,
    ) -> dict[int, State]:
        """Return the state of each shard, as soon as one has items after its mark, or after ``wait_ms``.

        Args:
            marks: the positions up to which the shards are read.
            wait_ms: milliseconds to wait for items.
            acknowledge: requests to send first.

        Raises:
            ApplicationError: a mark is above its shard's head, or another reader acknowledges the stream.
            Away: the server is away, and the request is not ``patient``.
        """
        return self.connection.call(lambda peer: self._states(peer, marks, wait_ms, acknowledge), patient=patient)

    def _states(
        self, peer: Peer, marks: Mapping[int, Mark], wait_ms: int, acknowledge: Sequence[Acknowledge]
    ) -> dict[int, State]:
        for request in acknowledge:
            self._acknowledge(peer, request)
        waits = [wait_ms] if len(marks) == 1 else [0, wait_ms // len(marks)]
        states: dict[int, State] = {}
        for wait in waits:
            for shard, mark in marks.items():
                states[shard] = self._state(peer, shard, mark, wait)
                if wait and has_news(states[shard], mark):
                    break
            if any(has_news(states[shard], mark) for shard, mark in marks.items()):
                break
        return states

    def _acknowledge(self, peer: Peer, request: Acknowledge) -> None:
        try:
            ask(self.options, peer, request)
        except ApplicationError as error:
            if error.code == READER_CONFLICT:
                text = f"acknowledgeAs={request.name} on {self.options.stream_name}: {error.message}"
                raise ApplicationError(READER_CONFLICT, text, rule="acknowledgeAs") from None
            if error.code != EPOCH_CHANGED:  # the following HEAD reports another epoch
                raise

    def _state(self, peer: Peer, shard: int, mark: Mark, wait_ms: int) -> State:
        head = Head(shard=shard, epoch=mark.epoch, after=mark.position, wait_ms=wait_ms)
        try:
            return ask(self.options, peer, head)
        except ApplicationError as error:
            if error.code != EPOCH_CHANGED:
                raise
        return ask(self.options, peer, Head(shard=shard))

    def _moved(self) -> str:
        return f" (uri was {self.former!r} and is {self.options.address!r})" if self.former is not None else ""

    def behind_gap(self, mark: Mark, state: State) -> Mark:
        """Return the mark at which reading can continue: ``mark``, or the first one after missing items.

        Raises:
            DataLost: items are missing, and ``failOnDataLoss`` is true.
        """
        if mark.epoch != state.epoch:
            lose(
                self.options,
                f"shard {state.shard} of {self.options.stream_name} is at epoch {state.epoch} with offsets from "
                f"{state.first} to its head {state.head}, but the checkpoint is at epoch {mark.epoch}, offset "
                f"{mark.position}: the journal was recreated, or the checkpoint belongs to another one{self._moved()}",
            )
            return Mark(state.epoch, state.first)
        if mark.position < state.first:
            lose(
                self.options,
                f"offsets {mark.position} to {state.first - 1} of shard {state.shard} of {self.options.stream_name}, "
                f"epoch {state.epoch}, are missing: the first one left is {state.first}, the head {state.head}",
            )
            return Mark(state.epoch, state.first)
        return mark

    def item_bytes(self, spans: Iterable[Span]) -> float | None:
        """Return the average bytes of data of an item in the spans, from samples; None without samples."""
        spans = list(spans)
        self._average = self.connection.call(lambda peer: self._sample(peer, spans))
        self._uses = 0
        return self._average

    def data_bytes(self, spans: Iterable[Span]) -> float:
        """Estimate the bytes of data in the spans: from samples, or from those of a recent batch if there are few."""
        spans = list(spans)
        rows = sum(len(span) for span in spans)
        self._uses += 1
        if self._average is None or self._uses > _USES or rows * self._average > _FEW_BYTES:
            self.item_bytes(spans)
        return rows * (self._average or 0)

    def _sample(self, peer: Peer, spans: Iterable[Span]) -> float | None:
        count = size = 0
        for span in spans:
            for place in sorted({span.first + len(span) * part // _PLACES for part in range(_PLACES)}):
                wanted = Read(shard=span.shard, epoch=span.epoch, first=place, limit=min(SAMPLE, span.end - place))
                try:
                    for item in requested(self.options, peer, wanted, wanted.limit):
                        count += 1
                        size += len(item.data)
                except ApplicationError as error:
                    if error.code not in (EPOCH_CHANGED, OFFSET_GONE, OFFSET_AHEAD):
                        raise  # the reader of the range reports the others
        return size / count if count else None


class SpanReader:
    """Reads one span: iterate over its chunks. A connection is open until the iterator is exhausted or closed.

    Args:
        options: those of the stream.
        span: what to read.
        connection: the connection to read it over. It stays open, and its failures are raised. By default the reader
            has one of its own, and connects again after failures.
    """

    def __init__(self, options: Options, span: Span, connection: Connection | None = None) -> None:
        self.options = options
        self.span = span
        self.place = span.first
        "The offset expected next."
        self._borrowed = connection is not None
        self._connection = connection or Connection(options, f"the task of {span}", uri=span.uri)
        self._time_us: int | None = None
        self._blocks = True
        "Whether to ask for stored blocks."

    def __iter__(self) -> Iterator[Chunk]:
        """Yield the chunks of the span, in order.

        Raises:
            DataLost: items of the span are missing.
            RemoteProtocolError: the answer is impossible for a journal.
            afflux.Error: the request failed, or the server was away for longer than ``reconnectTimeoutMs``.
        """
        with nullcontext() if self._borrowed else closing(self._connection):
            while self.place < self.span.end:
                try:
                    if (yield from self._answer(self._connection.peer())):
                        self._end(self.span.end, "the answer ended before them")
                except ApplicationError as error:
                    self._refused(error)
                except Invalid as error:
                    if not self._blocks:
                        self._failed(error)
                    self._blocks = False  # a server that does not know the flag (C-3)
                except Damaged as damage:
                    text = "%s of %s: %s; its items are requested instead"
                    _log.warning(text, self.span, self.options.stream_name, damage.reason)
                    self._connection.close()
                    self._blocks = False
                except Violation as violation:
                    raise self._connection.unsupported(violation) from None
                except (Error, TimeoutError) as error:
                    if self.place < self.span.end or not mendable(error):
                        self._failed(error)

    def _failed(self, error: Exception) -> None:
        """Wait until the next attempt, or raise the error."""
        if self._borrowed:
            self._connection.close()
            raise error
        self._connection.failed(error)

    def _answer(self, peer: Peer) -> Generator[Chunk, None, bool]:
        """Yield the chunks of one answer. Returns False if Spark has held one of them for long: the server ends a
        connection of a client that is silent, so the rest is requested over another one."""
        left = self.span.end - self.place
        cursor = Read(shard=self.span.shard, epoch=self.span.epoch, first=self.place, limit=left, blocks=self._blocks)
        self._time_us = None
        credit = BLOCK_CREDIT if self._blocks and left > FEW else min(left, CREDIT)
        stream = requested(self.options, peer, cursor, credit)
        for event in stream.blocks():
            self._connection.answered()
            for chunk in self._chunks(event):
                given = monotonic()
                yield chunk
                if monotonic() - given > self._connection.idle_s:
                    self._connection.close()
                    return False
        return True

    def _chunks(self, event: Block | Items | Stored) -> Iterator[Chunk]:
        if isinstance(event, Block):
            yield self._chunk(len(event.starts), Chunk(first=0, time_us=0, block=event))
        elif isinstance(event, Stored):  # of a stream that is read without a server (jetstream.py)
            self._move(self.span.shard, self.span.epoch, event.first, event.time_us)
            yield from self._stored(event)
        else:
            yield from self._items(event.payloads)

    def _items(self, payloads: Payloads) -> Iterator[Chunk]:
        """Split the items at positions."""
        run: list[Payload] = []
        for payload in payloads:
            position, own = split_position(payload.metadata)
            if position is not None:
                yield from self._run(run)
                run = []
                self._move(position.shard, position.epoch, position.offset, position.time_us)
                if position.block:
                    yield from self._stored(unpack(payload.data, position.offset, position.time_us))
                    continue
            run.append(Payload(payload.data, own))
        yield from self._run(run)

    def _stored(self, block: Stored) -> Iterator[Chunk]:
        """Yield a stored block, whole if none of its items records a gap."""
        if block.metadata_bytes is None or _GAP not in block.body:
            yield self._chunk(len(block), Chunk(first=0, time_us=0, block=block))
        else:
            yield from self._run(block.payloads())

    def _run(self, run: list[Payload]) -> Iterator[Chunk]:
        """Yield consecutive items, split at those that record a gap."""
        start = 0
        for place, payload in enumerate(run):
            if payload.metadata is not None and (gap := gap_of(payload.metadata)) is not None:
                if place > start:
                    yield self._chunk(place - start, Chunk(first=0, time_us=0, payloads=run[start:place]))
                self._lost(gap)
                start = place + 1
        if rest := run[start:] if start else run:
            yield self._chunk(len(rest), Chunk(first=0, time_us=0, payloads=rest))

    def _lost(self, gap: Gap) -> None:
        """Report the gap that the item at ``place`` records, and continue after it."""
        self._check(1)
        lose(
            self.options,
            f"offset {self.place} of shard {self.span.shard} of {self.options.stream_name}, epoch {self.span.epoch}, "
            f"records a gap: {gap}",
        )
        self.place += 1

    def _chunk(self, count: int, chunk: Chunk) -> Chunk:
        """Set the position of a chunk, and advance."""
        chunk.first, chunk.time_us = self.place, self._check(count)
        self.place += count
        return chunk

    def _check(self, count: int) -> int:
        """Check that ``count`` items may follow; return their time."""
        if self._time_us is None:
            raise Violation("the first item of an answer has no position", rule="C-8")
        if self.place + count > self.span.end:
            raise self._wrong(f"items up to offset {self.place + count - 1} were sent")
        return self._time_us

    def _move(self, shard: int, epoch: int, offset: int, time_us: int) -> None:
        if shard != self.span.shard or epoch != self.span.epoch or not self.place <= offset < self.span.end:
            raise self._wrong(f"an item at shard {shard}, epoch {epoch}, offset {offset} was sent after {self.place}")
        if offset > self.place:
            self._end(offset, "the answer left them out")
        self._time_us = time_us

    def _refused(self, error: ApplicationError) -> None:
        """Find the offset at which the server can continue after a refusal."""
        if error.code not in (EPOCH_CHANGED, OFFSET_GONE):
            raise error
        state = self._connection.call(lambda peer: ask(self.options, peer, Head(shard=self.span.shard)))
        if state.epoch != self.span.epoch:
            self._end(self.span.end, f"the stream is at epoch {state.epoch} now, first offset {state.first}")
            return
        if state.first <= self.place:
            raise error
        self._end(min(state.first, self.span.end), f"the first one left is {state.first}, the head {state.head}")

    def _end(self, to: int, why: str) -> None:
        """Continue at ``to``, if items before it may be missing."""
        if to > self.place:
            lose(
                self.options,
                f"offsets {self.place} to {to - 1} of shard {self.span.shard} of {self.options.stream_name}, epoch "
                f"{self.span.epoch}, are missing from a range that reaches to {self.span.end - 1}: {why}",
            )
            self.place = to

    def _wrong(self, what: str) -> RemoteProtocolError:
        return RemoteProtocolError(f"requested {self.span} of {self.options.stream_name}, but {what}", rule="C-8")
