"""Answer requests with a cursor from JetStream streams directly, as a relay does from its journal.

:class:`StreamPeer` has the part of a blocking peer that the source uses, so positions, gaps and lost connections are
treated as for any server (reading.py, connection.py). Shard 0 is the stream of the address, shard N is ``STREAM-N``.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import replace
from time import monotonic, sleep

from afflux.core.errors import ApplicationError, ConnectionClosed, Invalid
from afflux.core.events import Items
from afflux.core.payload import Payload, PayloadLike, payload_of
from afflux.journal.address import StreamAddress
from afflux.journal.answers import positioned, wire_error
from afflux.journal.blocks import Block
from afflux.journal.contract import Reader
from afflux.journal.errors import JournalAway, JournalDamaged, JournalError, JournalGone, JournalMissing, ReaderConflict
from afflux.journal.jetstream import JetStreamBackend
from afflux.journal.link import Link
from afflux.journal.store import conflict
from afflux.journal.wire import pack, unpack
from afflux.protocols.rsocket.cursor import (
    EPOCH_CHANGED,
    OFFSET_AHEAD,
    UNKNOWN_SHARD,
    Acknowledge,
    Head,
    Read,
    Request,
    State,
    encode_entry,
)

__all__ = ["StreamPeer"]

_ATTEMPT_S = 2.0
"Seconds after which a request counts as failed; the source decides whether to try again."
_POLL_S = 0.02
"Seconds between two looks for new items, growing to ten times as many."


class StreamPeer:
    """A connection to the streams of an address. Not for two threads.

    Args:
        uri: the address.

    Raises:
        AddressError: the address is invalid.
        MissingExtra: nats-py is not installed.
    """

    def __init__(self, uri: str) -> None:
        self.address = replace(StreamAddress.parse(uri), timeout_s=_ATTEMPT_S)
        self.closed = False
        self._link = Link(self.address, threaded=False)
        self._shards: dict[int, JetStreamBackend] = {}

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self.closed = True
        self._link.close()

    def stream(
        self, data: PayloadLike = b"", *, route: str | None = None, cursor: Request, credit: int = 0
    ) -> StreamAnswer:
        """Request items or a state. ``credit`` is without effect: blocks are requested as they are used.

        Raises:
            Invalid: there is a route or data, which JetStream streams do not have.
        """
        if route or data:
            raise Invalid(f"{self.address} is a JetStream stream: it has neither route nor requestData")
        return StreamAnswer(self, cursor)

    def backend(self, shard: int) -> JetStreamBackend:
        """Return the storage of a shard.

        Raises:
            ApplicationError: there is no such shard.
            JournalError: it cannot be opened.
        """
        if (found := self._shards.get(shard)) is None:
            address = self.address.sibling(str(shard) if shard else "")
            try:
                found = JetStreamBackend(address, key=None, link=self._link, follow=True)
            except JournalMissing as error:
                if not shard:
                    raise
                raise ApplicationError(UNKNOWN_SHARD, str(error)) from None
            self._shards[shard] = found
        return found


class StreamAnswer:
    """The answer to one request: iterate over its items, or over its blocks."""

    def __init__(self, peer: StreamPeer, cursor: Request) -> None:
        self._peer = peer
        self._cursor = cursor

    def __iter__(self) -> Iterator[Payload]:
        """Yield the items; a state has one, whose metadata contains it.

        Raises:
            ConnectionClosed: the servers do not answer.
            ApplicationError: with one of the codes of :mod:`afflux.protocols.rsocket.cursor`.
        """
        for event in self.blocks():
            yield from event.payloads if isinstance(event, Items) else event.payloads()

    def blocks(self) -> Generator[Block | Items, None, None]:
        """Yield stored blocks, if they are requested, else the items of each. Raises as iterating does."""
        cursor = self._cursor
        try:
            backend = self._peer.backend(cursor.shard)
            if isinstance(cursor, Read):
                yield from _read(backend, cursor)
            else:
                state = _head(backend, cursor) if isinstance(cursor, Head) else _acknowledge(backend, cursor)
                yield Items(0, [Payload(b"", encode_entry(state))], True)
        except JournalAway as error:
            raise ConnectionClosed(str(error)) from error
        except JournalError as error:
            raise wire_error(error) from error


def _check(backend: JetStreamBackend, epoch: int, offset: int) -> None:
    """Refuse another epoch, and an offset that the requester cannot have seen."""
    heads = backend.heads
    if epoch not in (0, heads.epoch):
        current = f"the epoch is {heads.epoch}, with offsets {heads.first} to {heads.head}"
        raise ApplicationError(EPOCH_CHANGED, f"epoch {epoch} was requested at offset {offset}; {current}")
    if offset > heads.head and (epoch or heads.sealed):
        raise ApplicationError(OFFSET_AHEAD, f"offset {offset} is above the head {heads.head}")


def _head(backend: JetStreamBackend, cursor: Head) -> State:
    deadline = monotonic() + cursor.wait_ms / 1000
    wait = _POLL_S
    backend.refresh()
    _check(backend, cursor.epoch, cursor.after)
    while backend.heads.head <= cursor.after and not backend.heads.sealed and (left := deadline - monotonic()) > 0:
        sleep(min(wait, left))
        wait = min(10 * _POLL_S, 1.5 * wait)
        backend.refresh()
    return _state(backend, cursor.shard)


def _acknowledge(backend: JetStreamBackend, cursor: Acknowledge) -> State:
    backend.refresh()
    _check(backend, cursor.epoch, cursor.offset)
    reader = Reader(cursor.name, cursor.owner)
    registered = backend.heads.reader
    if registered is None:
        backend.register(reader)
    elif registered != reader:
        raise ReaderConflict(backend.path, conflict(registered, reader, str(backend.address)))
    if cursor.offset > backend.heads.first:
        backend.trim(cursor.offset)
    return _state(backend, cursor.shard)


def _state(backend: JetStreamBackend, shard: int) -> State:
    heads = backend.heads
    return State(
        shard=shard, epoch=heads.epoch, first=heads.first, head=heads.head, time_us=heads.time_us,
        sealed=heads.sealed, full=backend.is_full,
    )  # fmt: skip


def _read(backend: JetStreamBackend, cursor: Read) -> Generator[Block | Items, None, None]:
    if cursor.first >= backend.heads.head or cursor.epoch != backend.heads.epoch:
        backend.refresh()
    _check(backend, cursor.epoch, cursor.first)
    stop = min(backend.heads.head, cursor.first + cursor.limit) if cursor.limit else backend.heads.head
    offset = cursor.first
    try:
        with closing(backend.read_blocks(offset, stop)) as blocks:
            for block in blocks:
                yield _event(block.cut(cursor.first, stop), cursor, backend.heads.epoch)
                offset = block.end
    except JournalDamaged:
        backend.refresh()
        _check(backend, cursor.epoch, cursor.first)
        if offset >= backend.heads.first:
            raise
        text = f"offset {offset} was trimmed; the lowest one left is {backend.heads.first}"
        raise JournalGone(backend.path, text) from None


def _event(block: Block, cursor: Read, epoch: int) -> Block | Items:
    if not cursor.blocks:
        return Items(0, [payload_of(item) for item in positioned([block], epoch, cursor.shard)])
    if len(block) == block.stored:
        return block
    return unpack(pack(block), block.first, block.time_us)  # a part of a block as a whole one
