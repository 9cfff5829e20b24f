"""Store the items of one remote stream in lanes: positions, gaps, and the distribution to shards."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from afflux.core.errors import RemoteProtocolError
from afflux.core.payload import Payload, Payloads, Run
from afflux.gateway.keys import ShardOf
from afflux.gateway.lane import Item, Lane
from afflux.gateway.ledger import Ledger, Start
from afflux.gateway.origin import Origin
from afflux.journal.blocks import Block
from afflux.journal.errors import JournalNoSpace
from afflux.journal.wire import unpack
from afflux.protocols.rsocket.cursor import State, split_position
from afflux.protocols.rsocket.gap import Gap, Place

__all__ = ["Intake"]

_CHECKPOINT_ITEMS = 0x1_0000
"Items between two marks, where items are distributed by their key: as many are read again after a crash."
_NO_SPACE_S = 1.0
"Seconds after which a mark is written again on a full disk."

_REPEATED = (
    "its items have no positions, so some may be stored twice or not at all; if the stream always begins with its "
    "first item, relay it with --replays, Origin(replays=True), which skips those that are stored"
)
_log = logging.getLogger("afflux.relay")


class Intake:
    """The items of one remote stream on their way into its lanes.

    Args:
        origin: the stream.
        lanes: one for each shard.
        ledger: the mark of the stream.
        shard_of: returns the shard of an item; None if there is one.
        work: runs a blocking function in a thread.
    """

    def __init__(
        self,
        origin: Origin,
        lanes: Sequence[Lane],
        ledger: Ledger,
        shard_of: ShardOf | None,
        work: Callable[[Callable[[], object]], Awaitable[object]],
    ) -> None:
        self.lanes = lanes
        self.cause = "the relay was restarted"
        "Why the next subscription does not continue the last one."
        self.gaps = 0
        "Gaps found since the start."
        self.cursor: bool | None = None
        "Whether the remote has a cursor; None before the first item of a subscription."
        self.next = Place(0, 0)
        "The position of the next item of the subscription."
        self._origin = origin
        self._ledger = ledger
        self._shard_of = shard_of
        self._item_bytes = lanes[0].item_bytes
        self._work = work
        self._hinted = False
        self._skip_first = 0
        "Items of a stream that replays which are stored already."
        self._skip: list[int] = []
        "For each shard, the items that are stored already."
        self._checkpoint: tuple[Place, list[int]] | None = None
        "The position of the next mark and the tails there, until all items before it are durable."
        self._since_checkpoint = 0

    @property
    def begun(self) -> bool:
        """Whether an item of the stream was ever stored, by any process."""
        return self._ledger.mark is not None

    @property
    def plain(self) -> bool:
        """Whether the stored items came from a remote without a cursor."""
        return self._ledger.mark is not None and not self._ledger.mark.cursor

    async def begin(self) -> Start | None:
        """Begin a subscription when all earlier items are durable: return where, or None for the first one."""
        await self._durable()
        start = self._ledger.start([lane.head for lane in self.lanes])
        self.cursor = None
        self.next = Place(0, 0) if start is None else start.place
        self._skip = [0] * len(self.lanes) if start is None else start.skip
        self._skip_first = 0
        self._checkpoint, self._since_checkpoint = None, 0
        return start

    # -- items ----------------------------------------------------------------------------------------------------

    async def arrived(self, chunk: Payloads) -> int:
        """Store payloads; return the number of their items.

        Raises:
            Error: the remote sent an impossible position, or the feed has failed.
            Violation: a block is damaged.
        """
        if self.cursor is None:
            await self._first(chunk[0])
        items = len(chunk)
        if isinstance(chunk, Run) and chunk.bare:
            self._store(list(chunk.parts()))
        elif not self.cursor:
            self._store([item if item.metadata is not None else item.data for item in chunk])
        else:
            items = await self._positioned(chunk)
        if self._checkpoint is not None:
            await self._save_checkpoint(*self._checkpoint)
        return items

    async def _positioned(self, chunk: Payloads) -> int:
        """Store payloads of which some have a position, and may be blocks; return the number of their items."""
        run: list[Item] = []
        count = len(chunk)
        for payload in chunk:
            if payload.metadata is None:
                run.append(payload.data)
                continue
            position, own = split_position(payload.metadata)
            if position is not None:
                self._store(run)
                run = []
                await self._move(Place(position.epoch, position.offset))
                if position.block:
                    block = unpack(payload.data, position.offset, position.time_us)
                    self._store(_items(block))
                    count += len(block) - 1
                    continue
            run.append(payload.data if own is None else Payload(payload.data, own))
        self._store(run)
        return count

    async def _first(self, item: Payload) -> None:
        """Decide from the first item of a subscription whether there is a cursor, and whether items are missing."""
        position = split_position(item.metadata)[0] if self._origin.may_have_cursor else None
        self.cursor = position is not None
        mark, expected = self._ledger.mark, self.next
        place = Place(0, 0) if position is None else Place(position.epoch, position.offset)
        where = "" if position is None else f" from {place}"
        _log.info("%s: connected; items arrive%s", self._origin.uri, where)
        if mark is None:
            await self._save(place, None)
        elif position is None and not mark.cursor and self._origin.replays:
            self._skip_first = expected.offset
        elif not (position is not None and mark.cursor and place == expected):
            await self._gap(self.cause, expected if mark.cursor else None, None if position is None else place)
            if position is None and not mark.cursor:
                self._hint_at_replays()
        self.next = place
        await self._record_gap()

    def _hint_at_replays(self) -> None:
        """Report once that items may be stored twice: a stream without positions may have begun anew."""
        if not self._hinted:
            self._hinted = True
            _log.warning("%s: %s", self._origin.uri, _REPEATED)

    async def _move(self, place: Place) -> None:
        """The next item has this position."""
        if place == self.next:
            return
        if place.epoch != self.next.epoch or place.offset < self.next.offset:
            raise RemoteProtocolError(f"an item has the position {place} after those before {self.next}", rule="C-8")
        await self._durable()
        await self._gap("the remote left them out", self.next, place)
        self.next = place
        await self._record_gap()

    def _store(self, items: list[Item]) -> None:
        """Put items into the lanes of their shards."""
        if not items:
            return
        first = self.next
        self.next = Place(first.epoch, first.offset + len(items))
        if self._skip_first:
            skipped = min(self._skip_first, len(items))
            self._skip_first -= skipped
            items = items[skipped:]
            first = Place(first.epoch, first.offset + skipped)
        if max(map(len, items), default=0) > self._item_bytes:
            items = [self._stored(item, first, index) for index, item in enumerate(items)]
        if self._shard_of is None:
            self.lanes[0].put(items)
        else:
            self._distribute(items, self._shard_of)

    def _stored(self, item: Item, first: Place, index: int) -> Item:
        """Return the item; a gap record instead of one that no reader could receive."""
        if len(item) <= self._item_bytes:
            return item
        self.gaps += 1
        cause = f"the item has {len(item)} bytes, and a stored item has at most {self._item_bytes} (payload_bytes)"
        _log.warning("%s: %s; a gap is recorded instead", self._origin.uri, cause)
        if not self.cursor:
            return Gap(cause=cause, lost=1).item()
        offset = first.offset + index
        return Gap(
            cause=cause, before=Place(first.epoch, offset), after=Place(first.epoch, offset + 1), lost=1
        ).item()  # fmt: skip

    def _distribute(self, items: list[Item], shard_of: ShardOf) -> None:
        parts: list[list[Item]] = [[] for _ in self.lanes]
        for item in items:
            shard = shard_of(item if isinstance(item, bytes) else item.data)
            if self._skip[shard]:
                self._skip[shard] -= 1
            else:
                parts[shard].append(item)
        for lane, part in zip(self.lanes, parts, strict=True):
            if part:
                lane.put(part)
        self._since_checkpoint += len(items)
        if self._checkpoint is None and self._since_checkpoint >= _CHECKPOINT_ITEMS and not any(self._skip):
            self._checkpoint = self.next, [lane.tail for lane in self.lanes]

    # -- marks ----------------------------------------------------------------------------------------------------

    async def continue_elsewhere(self, state: State, start: Start | None, error: Exception) -> None:
        """Continue at what the remote has, and record that the items after ``start`` are missing.

        Raises:
            Exception: ``error``, if the remote's answers contradict each other.
        """
        await self._durable()
        if start is None:
            await self._save(Place(state.epoch, state.first), None, cursor=True)
            return
        expected = start.place
        if state.epoch != expected.epoch:
            cause, place = "the remote's journal was created again", Place(state.epoch, state.first)
        elif state.first > expected.offset:
            cause, place = "the remote has dropped them", Place(state.epoch, state.first)
        elif state.head < expected.offset:
            cause, place = "the remote has lost items that it had sent", Place(state.epoch, state.head)
        else:
            raise error
        await self._gap(cause, expected, place, cursor=True)

    async def skip_large(self, error: Exception) -> None:
        """Record a gap instead of the next item, which is larger than this side can receive.

        Raises:
            Exception: ``error``, if the stream can only be read from its start again.
        """
        if not self.plain and not any(self._skip):
            await self._durable()
            after = Place(self.next.epoch, self.next.offset + 1)
            await self._gap(f"the item is larger than can be received here: {error}", self.next, after, cursor=True)
        elif self._origin.replays:
            raise error

    async def _gap(
        self, cause: str, before: Place | None, after: Place | None, *, cursor: bool | None = None
    ) -> None:  # fmt: skip
        """Write a mark with a gap. A gap that has no item yet is extended."""
        former = self._ledger.mark
        if former is not None and former.gap is not None and len(self._unrecorded()) == len(self.lanes):
            cause, before = former.gap.cause, former.gap.before
        lost = None
        if before is not None and after is not None and before.epoch == after.epoch and len(self.lanes) == 1:
            lost = max(0, after.offset - before.offset)
        gap = Gap(cause=cause, before=before, after=after, lost=lost)
        self.gaps += 1
        _log.warning("%s: %s", self._origin.uri, gap)
        await self._save(after or Place(0, 0), gap, cursor=cursor)
        self._skip = [0] * len(self.lanes)

    async def _record_gap(self) -> None:
        """Put the record of the mark's gap into each shard that does not have it."""
        mark = self._ledger.mark
        for shard in self._unrecorded():
            if mark is not None and mark.gap is not None:
                self.lanes[shard].put([mark.gap.item()])

    def _unrecorded(self) -> list[int]:
        return self._ledger.unrecorded([lane.tail for lane in self.lanes])

    async def _save(
        self, place: Place, gap: Gap | None, *, cursor: bool | None = None, at: list[int] | None = None
    ) -> None:
        """Write a mark, by default for the current heads and the current kind; on a full disk, wait for room."""
        at = [lane.head for lane in self.lanes] if at is None else at
        cursor = bool(self.cursor) if cursor is None else cursor
        save = partial(self._ledger.save, cursor=cursor, place=place, at=at, gap=gap)
        while True:
            try:
                await self._work(save)
                return
            except JournalNoSpace as error:
                _log.warning("%s; the stream waits", error)
                await asyncio.sleep(_NO_SPACE_S)

    async def _save_checkpoint(self, place: Place, at: list[int]) -> None:
        """Write the mark of an earlier position once all items before it are durable."""
        if all(lane.head >= offset for lane, offset in zip(self.lanes, at, strict=True)):
            self._checkpoint, self._since_checkpoint = None, 0
            await self._save(place, None, at=at)

    async def _durable(self) -> None:
        for lane in self.lanes:
            await lane.durable()


def _items(block: Block) -> list[Item]:
    if block.metadata_bytes is None:
        return [*block.data()]
    return [item if item.metadata is not None else item.data for item in block.payloads()]
