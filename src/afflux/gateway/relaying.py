"""Make streams replayable: store the items of remote streams in journals, and serve those by cursor."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afflux.aio.current import mime_types
from afflux.aio.server import Server, serve
from afflux.calls.arguments import AsyncOnly, wrong
from afflux.core.errors import ApplicationError, Invalid, Rejected, Violation
from afflux.core.limits import Limits
from afflux.core.payload import Payload, PayloadLike, payload_of
from afflux.gateway.follow import Follower
from afflux.gateway.identity import Identity
from afflux.gateway.keys import ShardOf, shard_by
from afflux.gateway.lane import Lane
from afflux.gateway.ledger import Ledger
from afflux.gateway.origin import CURSORS, Origin
from afflux.journal.answers import Answers
from afflux.journal.errors import AnotherStream, JournalError
from afflux.journal.feed import Feed
from afflux.journal.places import Directory, Place, place_of
from afflux.journal.retention import Retention, retain_regularly
from afflux.journal.store import Journal
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket.cursor import UNKNOWN_SHARD, split_request
from afflux.protocols.rsocket.metadata import COMPOSITE_MIME, route_of
from afflux.retry.backoff import Backoff
from afflux.transports.address import Address, parse
from afflux.transports.security import Tls

__all__ = ["Relay", "Relaying", "ShardStatus", "relay"]

_LINGER_S = 0.005
"Seconds that an item waits for others before it is committed."
_FLUSH_S = 5.0
"Seconds that closing waits until items which have arrived are durable."


def _now_us() -> int:
    return time.time_ns() // 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardStatus:
    """The state of one shard of a relay."""

    shard: int
    "Its number in the cursor."
    uri: str
    "The address of its remote stream."
    connected: bool
    "Whether items have arrived on the current connection."
    first: int
    "The lowest stored offset."
    head: int
    "The offset after the last durable item."
    waiting: int
    "Items that have arrived and are not durable."
    room: int
    "Bytes that the journal still has room for."
    gaps: int
    "Gaps that were found since the start, in all shards of that remote stream."
    sealed: bool
    "Whether the stream is complete."
    stall: str | None
    "Why the remote waits: the journal or its disk is full; None if it does not."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The arguments of ``relay``, checked."""

    origins: Sequence[Origin]
    place: Place
    listen: str | Address
    limits: Limits
    shards: int
    key: str | None
    keep: Retention | None
    backoff: Backoff
    moved: bool
    tls: Tls | None
    allowed_origins: Sequence[str] | None
    clock: Callable[[], int]

    @property
    def shard_of(self) -> ShardOf | None:
        """The function that distributes items; None if each remote stream is a shard."""
        return None if self.key is None else shard_by(self.key, self.shards)

    def identity(self, shard: int) -> Identity:
        """Return what identifies a shard's journal."""
        origin = self.origins[0 if self.key is not None else shard]
        data = payload_of(origin.data).data
        return Identity(verb=origin.verb, route=origin.route, data=data, key=self.key, shards=self.shards, shard=shard)


class Relay:
    """A running relay. Use :func:`relay`."""

    def __init__(self, plan: _Plan) -> None:
        self.uri = ""
        "The address that it listens on."
        self._plan = plan
        self._answers = Answers()
        self._work = ThreadPoolExecutor(4, "afflux-relay")
        self._lanes: list[Lane] = []
        self._followers: list[Follower] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._server: Server | None = None

    @property
    def server(self) -> Server:
        """The server that readers connect to."""
        if self._server is None:
            raise RuntimeError("the relay has not started")
        return self._server

    def status(self) -> list[ShardStatus]:
        """Return the state of each shard."""
        found: list[ShardStatus] = []
        for follower in self._followers:
            for lane in follower.intake.lanes:
                journal = lane.feed.journal
                found.append(
                    ShardStatus(
                        shard=len(found),
                        uri=follower.origin.uri,
                        connected=follower.connected,
                        first=journal.first,
                        head=journal.head,
                        waiting=max(0, lane.tail - journal.head),
                        room=journal.room,
                        gaps=follower.intake.gaps,
                        sealed=journal.sealed,
                        stall=None if lane.feed.stall is None else lane.feed.stall.reason,
                    )
                )
        return found

    async def failed(self) -> None:
        """Wait until the relay cannot continue.

        Raises:
            JournalError: a journal cannot be written.
            Error: a remote refused its first subscription, or cannot be read in this way.
        """
        await asyncio.shield(self._failed)

    async def open(self) -> None:
        """Open the journals, listen, and subscribe. Raises as :func:`relay` describes."""
        try:
            await self._open()
        except BaseException:
            await self.close()
            raise

    async def _open(self) -> None:
        plan = self._plan
        run = asyncio.get_running_loop().run_in_executor
        await run(self._work, plan.place.prepare)
        for shard in range(plan.shards):
            journal = await run(self._work, self._journal, shard)
            self._lanes.append(
                Lane(Feed(plan.identity(shard).stored, journal, self._work, plan.clock, _LINGER_S, plan.keep))
            )
        groups = [self._lanes] if plan.key is not None else [[lane] for lane in self._lanes]
        for number, (origin, lanes) in enumerate(zip(plan.origins, groups, strict=True)):
            epochs = tuple(lane.feed.journal.epoch for lane in lanes)
            former = plan.place.path / f"{number}.mark" if isinstance(plan.place, Directory) else None
            ledger = Ledger(lanes[0].feed.journal, origin.uri, epochs, moved=plan.moved, former=former)
            ledger.start([lane.head for lane in lanes])  # checks that the journals have what they had
            await run(self._work, ledger.adopt)
            self._followers.append(
                Follower(
                    origin,
                    lanes,
                    ledger,
                    shard_of=plan.shard_of,
                    limits=plan.limits,
                    backoff=plan.backoff,
                    work=self._in_thread,
                )
            )
        self._server = await serve(plan.listen, self, limits=plan.limits, tls=plan.tls, origins=plan.allowed_origins)
        self.uri = self._server.uri
        for lane in self._lanes:
            lane.start()
            self._tasks.append(asyncio.create_task(self._watch(lane.feed)))
        if plan.keep is not None:
            feeds = [lane.feed for lane in self._lanes]
            self._tasks.append(asyncio.create_task(retain_regularly(plan.keep, lambda: feeds)))
        for follower in self._followers:
            if not all(lane.feed.journal.sealed for lane in follower.intake.lanes):
                self._tasks.append(asyncio.create_task(self._run(follower)))

    def _journal(self, shard: int) -> Journal:
        plan = self._plan
        identity = plan.identity(shard)
        try:
            return plan.place.open(str(shard), limits=plan.limits, key=identity.stored)
        except AnotherStream as error:
            if error.stored == identity.former:
                return plan.place.open(str(shard), limits=plan.limits, key=identity.former)
            raise identity.refused(error) from None

    async def _in_thread(self, work: Callable[[], object]) -> object:
        return await asyncio.get_running_loop().run_in_executor(self._work, work)

    async def _run(self, follower: Follower) -> None:
        try:
            await follower.run()
        except Exception as error:
            self._fail(error)

    async def _watch(self, feed: Feed) -> None:
        while feed.error is None:
            await feed.changed.wait()
        self._fail(feed.error)

    def _fail(self, error: Exception) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)
            self._failed.exception()  # retrieved, also if nothing waits for it

    async def close(self, *, drain: float = 0.0) -> None:
        """End the subscriptions, make durable what has arrived, and close. Idempotent.

        Args:
            drain: the most seconds that readers may continue.
        """
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        lanes, self._lanes = self._lanes, []
        with suppress(TimeoutError, Exception):
            async with asyncio.timeout(_FLUSH_S):
                for lane in lanes:
                    await lane.durable()
        if self._server is not None:
            await self._server.close(drain=drain)
        self._answers.close()
        for lane in lanes:
            with suppress(JournalError):
                await lane.feed.stop(Rejected("the relay is being closed", code=Code.REJECTED))
        await asyncio.to_thread(self._plan.place.close)
        self._work.shutdown(wait=False)

    # -- readers --------------------------------------------------------------------------------------------------

    def stream(self, payload: Payload) -> AsyncIterator[PayloadLike | Sequence[PayloadLike]]:
        """Answer a request: with a cursor from its shard, else all stored items and those that follow.

        Raises:
            Invalid: the cursor breaks a rule.
            Rejected: the request is for another stream.
            ApplicationError: there is no such shard.
        """
        cursor, metadata = None, payload.metadata
        if mime_types()[0] in (None, COMPOSITE_MIME):
            try:
                cursor, metadata = split_request(metadata, self._plan.limits.composite_entries)
            except Violation as violation:
                raise Invalid(violation.reason, code=Code.INVALID, rule=violation.rule) from None
        self._check_request(payload.data, metadata)
        if cursor is not None:
            return self._answers.answer(self._feed(cursor.shard), cursor)
        if len(self._lanes) > 1:
            raise Rejected(
                f"the stream has {len(self._lanes)} shards; read each by its cursor (docs/cursor.md)",
                code=Code.REJECTED,
            )
        return self._answers.items(self._feed(0))

    def _feed(self, shard: int) -> Feed:
        if shard >= len(self._lanes):
            last = len(self._lanes) - 1
            known = "the only shard is 0" if not last else f"the shards are 0 to {last}"
            raise ApplicationError(UNKNOWN_SHARD, f"unknown shard {shard}; {known}")
        return self._lanes[shard].feed

    def _check_request(self, data: bytes, metadata: bytes | None) -> None:
        """Refuse a request for a stream that is not relayed: it names a route or data that no remote stream has."""
        route = None if metadata is None else route_of(metadata)
        origins = self._plan.origins
        routes = {origin.route for origin in origins} | {None, ""}
        known = {payload_of(origin.data).data for origin in origins} | {b""}
        if route not in routes or data not in known:
            wanted = f"route {route!r}" if route not in routes else "its data"
            raise Rejected(
                f"{wanted} is not that of a relayed stream; request it as at the remote, or without route and data",
                code=Code.REJECTED,
            )


class Relaying(AsyncOnly):
    """A relay about to start: ``async with`` starts and closes it; ``await`` only starts it."""

    def __init__(self, plan: _Plan) -> None:
        self._plan = plan
        self._relay: Relay | None = None

    def __await__(self) -> Generator[Any, None, Relay]:
        return self._open().__await__()

    async def __aenter__(self) -> Relay:
        self._relay = await self._open()
        return self._relay

    async def __aexit__(self, *_: object) -> None:
        if self._relay is not None:
            await self._relay.close()

    async def _open(self) -> Relay:
        relay = Relay(self._plan)
        await relay.open()
        return relay


def relay(
    origins: str | Origin | Sequence[str | Origin],
    *,
    journal: str | Path,
    listen: str | Address,
    limits: Limits | None = None,
    keep: Retention | None = None,
    key: str | None = None,
    shards: int | None = None,
    backoff: Backoff | None = None,
    moved: bool = False,
    tls: Tls | None = None,
    allowed_origins: Sequence[str] | None = None,
    clock: Callable[[], int] = _now_us,
) -> Relaying:
    """Relay remote streams: ``async with afflux.relay(uri, journal="ticks", listen="tcp://127.0.0.1:0") as relay``.

    An item is stored durably before the remote gets credit for another one, and then served by cursor at
    ``relay.uri``, to any number of readers.

    Args:
        origins: the remote streams: an address, an :class:`Origin`, or several. Each is a shard of the relay's stream.
        journal: the directory of the journals; created if it is missing. Or the address of a JetStream stream,
            ``nats://host/STREAM``; further shards are the streams ``STREAM-1``, ``STREAM-2``. One relay at a time may
            use it.
        listen: the address to listen on; port 0 takes a free one.
        limits: of both sides; ``journal_bytes`` bounds each shard. ``Limits.server()`` if None.
        keep: what to keep in each shard; older items are trimmed. Without it, only the acknowledgements of one reader
            trim (docs/cursor.md).
        key: a JSON pointer: distribute the items of one remote stream to ``shards`` by that value of each item. Items
            with the same value stay in order.
        shards: the number of shards, with ``key``.
        backoff: the waits before further connections to a remote; ``Backoff()`` if None.
        moved: accept a journal whose remote had another address: the same stream has moved.
        tls: the certificate to listen with, for ``tls`` and ``wss``.
        allowed_origins: for ``ws`` and ``wss``, the origins whose pages may connect: ``origins`` of afflux.serve.
        clock: returns microseconds since 1970 (UTC), for timestamps only.

    Raises:
        AddressError: an address is invalid.
        Unsupported: a protocol cannot be read in this way.
        ValueError: the arguments contradict each other.
        BindFailed: when entered: it cannot listen.
        JournalError: when entered: the journal cannot be used, or contains another stream.
    """
    given = [origins] if isinstance(origins, (str, Origin)) else origins
    if not isinstance(given, Iterable):
        raise wrong("origins", given, "an address, an afflux.Origin, or a list of them")
    found = [origin if isinstance(origin, Origin) else Origin(origin) for origin in given]
    limits = limits or Limits.server()
    served = (parse(listen, serving=True) if isinstance(listen, str) else listen).entry.name
    if served not in CURSORS:
        raise ValueError(f"a relay is read by cursor, which {served} does not have: listen on tcp://… (RSocket)")
    if not found:
        raise ValueError("a relay needs at least one remote stream")
    if key is None:
        if shards not in (None, len(found)):
            raise ValueError(f"without a key, each remote stream is a shard: {len(found)}, not {shards}")
        shards = len(found)
    else:
        if len(found) > 1:
            raise ValueError("a key distributes the items of one remote stream, not of several")
        if shards is None:
            raise ValueError("a key needs the number of shards")
        shard_by(key, shards)
    if not 1 <= shards <= limits.partitions:
        raise ValueError(f"shards must be 1 to {limits.partitions}, not {shards}")
    return Relaying(
        _Plan(
            origins=found,
            place=place_of(journal),
            listen=listen,
            limits=limits,
            shards=shards,
            key=key,
            keep=keep,
            backoff=backoff or Backoff(),
            moved=moved,
            tls=tls,
            allowed_origins=allowed_origins,
            clock=clock,
        )
    )
