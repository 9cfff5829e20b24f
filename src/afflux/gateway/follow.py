"""Follow one remote stream: subscribe, store its items, and subscribe again when the connection is lost.

1. Credit: an item is granted only if the journals have room for it, and again only after it is durable. So the items
   in flight, in memory and appended are together at most the window, which is bounded by bytes and by the room.
2. A remote with a cursor is read on from the position after the last durable item, in blocks if it sends them. The
   answer to the first READ shows whether there is a cursor: an item with a position has one.
3. Where a stream cannot be continued, an item that records the gap comes before its next item (protocols/rsocket/gap).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any

from afflux.core.errors import (
    ApplicationError,
    ConnectFailed,
    ConnectionClosed,
    Error,
    Invalid,
    LeaseExpired,
    LocalProtocolError,
    RemoteProtocolError,
    Unsupported,
    Violation,
)
from afflux.core.limits import Limits
from afflux.core.payload import size_of
from afflux.files import FileError
from afflux.gateway.intake import Intake
from afflux.gateway.keys import ShardOf
from afflux.gateway.lane import Lane
from afflux.gateway.ledger import Ledger
from afflux.gateway.origin import Items, Origin, connected, subscribed
from afflux.gateway.window import Window
from afflux.journal.wire import MOST_WIRE_BYTES, Damaged
from afflux.protocols.rsocket.cursor import (
    EPOCH_CHANGED,
    OFFSET_AHEAD,
    OFFSET_GONE,
    Head,
    Read,
    State,
    state_of,
)
from afflux.protocols.rsocket.gap import Place
from afflux.retry.backoff import Backoff
from afflux.transports.address import parse

__all__ = ["Follower"]

_LOST = (EPOCH_CHANGED, OFFSET_GONE, OFFSET_AHEAD)
"Errors of a remote that does not have the items any more."
_TEMPORARY = (ConnectFailed, LeaseExpired, TimeoutError, OSError)
"Errors after which even the first subscription is tried again."

QUIET_S = 10.0
"Seconds without an item after which a new remote is reported."

_log = logging.getLogger("afflux.relay")


class Follower:
    """The task of one remote stream, and the lanes that its items are stored in.

    Args:
        origin: the stream.
        lanes: one for each shard.
        ledger: the mark of the stream.
        shard_of: returns the shard of an item; None if there is one.
        limits: those of the connection.
        backoff: the waits between subscriptions.
        work: runs a blocking function in a thread.
    """

    def __init__(
        self,
        origin: Origin,
        lanes: Sequence[Lane],
        ledger: Ledger,
        *,
        shard_of: ShardOf | None,
        limits: Limits,
        backoff: Backoff,
        work: Callable[[Callable[[], object]], Awaitable[object]],
    ) -> None:
        self.origin = origin
        self.intake = Intake(origin, lanes, ledger, shard_of, work)
        "Stores the items."
        self.connected = False
        "Whether items have arrived on the current connection."
        self._lanes = lanes
        self._limits = limits
        self._backoff = backoff
        self._waits = backoff.waits(Random())
        self._wait = 0.0
        "The last of the waits, in seconds."
        self._since = 0.0
        "When the first items arrived on the current connection."
        self._name = origin.uri
        self._attached = False
        "Whether the remote has accepted a subscription since the start."
        self._window = Window(limits)
        self._blocks = limits.payload_bytes >= 2 * MOST_WIRE_BYTES
        "Whether to permit blocks: until a server refuses the flag, because it does not know it, or one is damaged."
        self._items: Items | None = None
        self._large: Place | None = None
        "The position of an item that was too large to receive."

    async def run(self) -> None:
        """Store the stream until it is complete.

        Raises:
            FileError: the journal or the mark cannot be written.
            Error: the remote refused the first subscription, or cannot be read in this way.
        """
        watching = [asyncio.create_task(self._watch(lane)) for lane in self._lanes]
        try:
            while (error := await self._subscription()) is not None:
                wait = next(self._waits, None)
                if wait is None:
                    raise error
                self._wait = wait
                _log.warning("%s: %s; connecting again in %.1f s", self._name, error, wait)
                await asyncio.sleep(wait)
        finally:
            for task in watching:
                task.cancel()
        for lane in self._lanes:
            lane.end()

    async def _subscription(self) -> Exception | None:
        """Read one subscription to its end; return its error, or None if the stream is complete."""
        quiet = asyncio.get_running_loop().call_later(QUIET_S, self._report_quiet)
        try:
            async with connected(self.origin, self._limits) as peer:
                while not await self._read(peer):
                    pass
        except (FileError, Unsupported, LocalProtocolError):
            raise
        except Violation as violation:
            return self._temporary(RemoteProtocolError(violation.reason, rule=violation.rule, code=violation.code))
        except (Error, TimeoutError, OSError) as error:
            if isinstance(error, Error) and error.too_large and self.intake.begun:
                place, self._large = self._large, self.intake.next
                if place == self._large:
                    await self.intake.skip_large(error)
            return self._temporary(error)
        finally:
            quiet.cancel()
            if self.connected and asyncio.get_running_loop().time() - self._since >= self._wait:
                self._waits = self._backoff.waits(Random())  # else it ends each time that it begins
            self.connected = False
            self._items = None
        _log.info("%s: the stream is complete", self._name)
        return None

    def _report_quiet(self) -> None:
        """Report a remote that has never sent an item: it may be quiet, or not what it was taken for."""
        if not self._attached:
            protocol = parse(self._name).protocol
            _log.info("%s: no items within %g s; waiting: does it speak %s?", self._name, QUIET_S, protocol)

    def _temporary(self, error: Exception) -> Exception:
        """Return the error of a connection that may be tried again.

        Raises:
            Exception: ``error``, if it is the refusal of a first subscription, which is most often a mistake.
        """
        temporary = isinstance(error, _TEMPORARY) or type(error) is ConnectionClosed
        if not self._attached and (not temporary or _is_refusal(error)):
            error.add_note(f"the remote is {self._name}")
            raise error
        if self.connected:
            what = "the stream failed" if isinstance(error, ApplicationError) else "the connection was lost"
            self.intake.cause = f"{what}: {error}"
        return error

    # -- one subscription ---------------------------------------------------------------------------------------

    async def _read(self, peer: Any) -> bool:
        """Subscribe and store the items; return False if the remote does not have the next item any more."""
        intake = self.intake
        start = await intake.begin()
        read = None
        if self.origin.may_have_cursor:
            wanted = Place(0, 0) if start is None or intake.plain else start.place
            read = Read(epoch=wanted.epoch, first=wanted.offset, blocks=self._blocks)
        try:
            async with subscribed(self.origin, peer, read) as items:
                self._items = items
                self._window.begin(blocks=read is not None and read.blocks)
                self._grant()
                while (chunk := await items.next_chunk()) is not None:
                    self._window.arrived(len(chunk), size_of(chunk))
                    self._window.contained(len(chunk), await intake.arrived(chunk))
                    if not self.connected:
                        self._attached = self.connected = True
                        self._since = asyncio.get_running_loop().time()
                    self._grant()
        except Damaged as damage:
            _log.warning("%s: %s; its items are requested instead", self._name, damage.reason)
            self._blocks = False
            return False
        except Invalid:
            if read is None or not read.blocks:
                raise
            self._blocks = False
            return False
        except ApplicationError as error:
            if error.code not in _LOST or read is None:
                raise
            state = await self._state(peer)
            self._attached = True
            await intake.continue_elsewhere(state, start, error)
            return False
        return True

    async def _watch(self, lane: Lane) -> None:
        """Grant credit when items have become durable, or the journal has room again."""
        while True:
            await lane.feed.changed.wait()
            self._grant()

    def _grant(self) -> None:
        if self._items is None:
            return
        room = min(lane.feed.journal.room for lane in self._lanes)
        buffered = sum(lane.tail - lane.head for lane in self._lanes)
        if n := self._window.grant(buffered, room):
            self._items.request(n)

    async def _state(self, peer: Any) -> State:
        origin = self.origin
        answer = peer.stream(origin.data, route=origin.route, metadata=origin.metadata, cursor=Head(), credit=1)
        state: State | None = None
        async for item in answer:
            state = state_of(item.metadata)
        if state is None:
            raise RemoteProtocolError("the answer to HEAD is empty", rule="C-8")
        return state


def _is_refusal(error: BaseException) -> bool:
    """Whether the peer is not what was expected: another protocol, or a certificate that is not trusted."""
    return getattr(error, "in_handshake", False) or isinstance(error.__cause__, ssl.SSLError)
